"""An optimizer that steps in the backward pass has nothing to accumulate into."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class InBackward:
    """A step has one micro-batch: gradients are gone when the next one comes.

    Source: pytorch/torchtune v0.6.1, recipes/full_finetune_single_device.py (optimizer_in_bwd).
    """

    name: str = "in-backward"
    variables: tuple[str, ...] = ("num_microbatches",)

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether there is one micro-batch."""
        return np.asarray(plans.num_microbatches == 1)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """One value."""
        program.restrict("num_microbatches", [1], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's optimizer."""
        return f"--optimizer {job.optimizer} accumulates no gradients: one micro-batch a step (--global-batch)"
