"""Expert groups fold over the ranks of one pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class ExpertFolding:
    """ep x etp divides tp x cp x dp.

    Source: Megatron-Core, parallel_state.py (expert data parallel size); Liu et al., arXiv 2504.14960.
    """

    name: str = "expert-folding"
    variables: tuple[str, ...] = ("tp", "cp", "dp", "ep", "etp")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the expert groups tile the stage."""
        return np.asarray((plans.tp * plans.cp * plans.dp) % (plans.ep * plans.etp) == 0)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of the degrees that divide."""
        program.where(self.variables, lambda tp, cp, dp, ep, etp: tp * cp * dp % (ep * etp) == 0, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        return f"ep x etp must divide tp x cp x dp, the GPUs of one pipeline stage out of {job.gpus:,}"
