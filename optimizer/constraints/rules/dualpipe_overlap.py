"""DualPipe pairs every forward pass with a backward one, so that the all-to-all of tokens overlaps in any case."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import SCHEDULES, Plans

DUALPIPE = SCHEDULES.index("dualpipe")


@dataclass(frozen=True, kw_only=True)
class DualPipeOverlap:
    """Under the dualpipe schedule the all-to-all overlaps wherever there is one, ep > 1.

    Source: DeepSeek-V3, arXiv 2412.19437, section 3.2.1.
    """

    name: str = "dualpipe-overlap"
    variables: tuple[str, ...] = ("schedule", "ep", "overlap_exchange")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the all-to-all overlaps if there is one."""
        return np.asarray((plans.schedule != DUALPIPE) | (plans.overlap_exchange == (plans.ep > 1)))

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of schedules, degrees and whether it overlaps."""
        program.where(self.variables, lambda how, ep, on: how != DUALPIPE or bool(on) == (ep > 1), literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        return "dualpipe overlaps the all-to-all wherever ep > 1"
