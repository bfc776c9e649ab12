"""The interleaved schedule needs a pipeline, and micro-batches in rounds of pp."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class Interleaving:
    """vpp = 1, or pp > 1 and pp divides the number of micro-batches and vpp is within its limits.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2.
    """

    name: str = "interleaving"
    variables: tuple[str, ...] = ("pp", "vpp", "num_microbatches")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the schedule can interleave."""
        rounds = (plans.pp > 1) & (plans.num_microbatches % plans.pp == 0) & (plans.vpp <= _most(job))
        return np.asarray((plans.vpp == 1) | rounds)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of stages, virtual stages and micro-batches."""
        most = _most(job)
        program.where(self.variables, lambda pp, vpp, m: vpp == 1 or (pp > 1 and m % pp == 0 and vpp <= most), literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        return f"vpp > 1 needs pp > 1, a number of micro-batches that pp divides, and vpp <= {_most(job)}"


def _most(job: Job) -> int:
    return min(job.limits.max_vpp, job.stack.features.max_vpp)
