"""The pipeline schedule is one that the stack offers and the plan can run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import SCHEDULES, Plans


@dataclass(frozen=True, kw_only=True)
class OfferedSchedule:
    """pp = 1 has no schedule to choose (1f1b); interleaved if and only if vpp > 1; all must be offered."""

    name: str = "schedule"
    variables: tuple[str, ...] = ("pp", "vpp", "schedule")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the stack can launch it."""
        offered = np.array([name in job.stack.features.schedules for name in SCHEDULES])
        interleaved = plans.schedule == SCHEDULES.index("interleaved")
        trivial = (plans.pp == 1) & (plans.schedule == SCHEDULES.index("1f1b"))
        runs = np.where(plans.pp == 1, trivial, offered[plans.schedule])
        return np.asarray(runs & (interleaved == (plans.vpp > 1)))

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of stages, virtual stages and schedules."""

        def runs(pp: int, vpp: int, schedule: int) -> bool:
            name = SCHEDULES[schedule]
            if (name == "interleaved") != (vpp > 1):
                return False
            return name == "1f1b" if pp == 1 else name in job.stack.features.schedules

        program.where(self.variables, runs, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        offered = ", ".join(job.stack.features.schedules) or "no pipeline schedule"
        return f"{job.stack.name} offers {offered}; interleaved needs vpp > 1 and the others vpp = 1"
