"""Routed tokens travel by a dispatcher that the stack offers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job import Job
from optimizer.plan import Plans
from optimizer.variables import DISPATCHERS

USUAL = DISPATCHERS.index("alltoall")


@dataclass(frozen=True, kw_only=True)
class OfferedDispatcher:
    """The stack offers the dispatcher; where ep = 1 nothing travels and it is all-to-all by name."""

    name: str = "dispatcher"
    variables: tuple[str, ...] = ("ep", "dispatcher")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the stack can exchange tokens so."""
        offered = np.array([name in job.stack.dispatchers for name in DISPATCHERS])
        return np.asarray(np.where(plans.ep > 1, offered[plans.dispatcher], plans.dispatcher == USUAL))

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of degrees and dispatchers."""
        pairs = program.combinations(self.variables)
        rows = [
            (ep, one) for ep, one in pairs if (DISPATCHERS[one] in job.stack.dispatchers if ep > 1 else one == USUAL)
        ]
        program.allow(self.variables, rows, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        if job.model.experts is None:
            return f"{job.model.name} is dense: no tokens are dispatched"
        return f"{job.stack.name} offers {', '.join(job.stack.dispatchers)}, where ep > 1"
