"""Where ranks of context parallelism always share weights, groups that share them are of whole ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plans


@dataclass(frozen=True, kw_only=True)
class ContextShares:
    """Weights are shared where cp > 1, groups hold whole context-parallel ones, and experts lie on ranks that share.

    Source: pytorch/torchtitan @b5bcd76c66, torchtitan/distributed/parallel_dims.py (fsdp = dp_shard x cp; ep divides
    dp_shard x cp x tp).
    """

    name: str = "context-shares"
    variables: tuple[str, ...] = ("tp", "cp", "dp", "ep", "etp", "zero_stage", "shard")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the software can share so."""
        return _possible(*(getattr(plans, name) for name in self.variables))

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of what is possible."""
        rows = np.array(program.combinations(self.variables))
        program.allow(self.variables, rows[_possible(*rows.T)], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        words = f"{job.stack.name} shares weights over whole context-parallel groups, which no ZeRO-0 does"
        return f"{words}, and spreads experts over ranks that share them" if job.model.experts else words


def _possible(
    tp: IntArray, cp: IntArray, dp: IntArray, ep: IntArray, etp: IntArray, zero: IntArray, shard: IntArray
) -> BoolArray:
    sharing = np.where(zero == 0, 1, np.where(shard == 0, dp * cp, shard))
    whole = (sharing % cp == 0) & (dp * cp % sharing == 0)
    return np.asarray(whole & (sharing * tp % (ep * etp) == 0))
