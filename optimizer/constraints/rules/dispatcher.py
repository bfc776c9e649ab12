"""Routed tokens travel by a dispatcher that the stack offers, over as many ranks as its kernels are written for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plans
from optimizer.job.variables import DISPATCHERS
from optimizer.objectives.layer.dispatchers import DEEPEP_RANKS, runs_over

USUAL = DISPATCHERS.index("alltoall")


@dataclass(frozen=True, kw_only=True)
class OfferedDispatcher:
    """The stack offers the dispatcher and its kernels run over ep x etp ranks; where ep = 1 nothing travels and it is
    all-to-all by name.
    """

    name: str = "dispatcher"
    variables: tuple[str, ...] = ("ep", "etp", "dispatcher")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the stack can send tokens so."""
        return _can(job, plans.ep, plans.etp, plans.dispatcher)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of degrees and dispatchers."""
        rows = np.array(program.combinations(self.variables))
        program.allow(self.variables, rows[_can(job, *rows.T)], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        if job.model.experts is None:
            return f"{job.model.name} is dense: no tokens are dispatched"
        over = ""
        if "deepep" in job.stack.dispatchers and job.cluster.device.vendor == "NVIDIA":
            over = f", DeepEP over {', '.join(map(str, DEEPEP_RANKS))} ranks"
        return f"{job.stack.name} offers {', '.join(job.stack.dispatchers)}, where ep > 1{over}"


def _can(job: Job, ep: IntArray, etp: IntArray, dispatcher: IntArray) -> BoolArray:
    offered = np.stack([np.full(len(ep), name in job.stack.dispatchers) for name in DISPATCHERS])
    for row, name in zip(offered, DISPATCHERS, strict=True):
        row &= runs_over(job, name, ep, etp)
    return np.asarray(np.where(ep > 1, offered[dispatcher, np.arange(len(ep))], dispatcher == USUAL))
