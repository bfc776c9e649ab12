"""Expert parallelism spreads whole experts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class ExpertCount:
    """ep divides the experts; it is 1 in a dense model."""

    name: str = "experts"
    variables: tuple[str, ...] = ("ep",)

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether every rank holds as many experts."""
        return np.asarray(_count(job) % plans.ep == 0)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """Ep is a divisor."""
        program.where(self.variables, lambda ep: _count(job) % ep == 0, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        if job.model.experts is None:
            return f"{job.model.name} is dense: ep must be 1"
        return f"ep must divide the {job.model.experts.count} experts"


def _count(job: Job) -> int:
    return job.model.experts.count if job.model.experts else 1
