"""Tensor parallelism inside an expert splits its width evenly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plans


@dataclass(frozen=True, kw_only=True)
class ExpertTp:
    """etp divides tp and the width of an expert; it is 1 in a dense model.

    Where the software splits experts as other weights or not at all, it is tp if each rank holds all of them, else 1.

    Source: pytorch/torchtitan @b5bcd76c66, torchtitan/models/common/MOE_SHARDING.md (EP off: on the mesh of TP).
    """

    name: str = "expert-tp"
    variables: tuple[str, ...] = ("tp", "ep", "etp")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether experts split evenly."""
        return _splits(job, plans.tp, plans.ep, plans.etp)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of the degrees that divide."""
        rows = np.array(program.combinations(self.variables))
        program.allow(self.variables, rows[_splits(job, *rows.T)], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        if job.model.experts is None:
            return f"{job.model.name} is dense: etp must be 1"
        whole = f"; {job.stack.name} has etp = tp with ep = 1, and etp = 1 with more" * job.stack.features.whole_experts
        return f"etp must divide tp and the expert width of {job.model.experts.ffn_hidden:,}{whole}"


def _splits(job: Job, tp: IntArray, ep: IntArray, etp: IntArray) -> BoolArray:
    width = job.model.experts.ffn_hidden if job.model.experts else 1
    even = (width % etp == 0) & (tp % etp == 0)
    if job.model.experts is None or not job.stack.features.whole_experts:
        return np.asarray(even)
    return np.asarray(even & (etp == np.where(ep == 1, tp, 1)))
