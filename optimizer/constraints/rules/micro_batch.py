"""Micro-batches are at most so large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, FloatArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """micro_batch <= limit."""

    name: str = "micro-batch"
    variables: tuple[str, ...] = ("micro_batch",)

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the micro-batch is small enough."""
        return np.asarray(plans.micro_batch <= job.largest_micro_batch)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """micro_batch is at most the limit."""
        program.where(self.variables, lambda size: size <= job.largest_micro_batch, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        return f"the micro-batch must be at most {job.largest_micro_batch} sequences"

    def required(self, job: Job, plans: Plans) -> FloatArray:
        """The micro-batch of each plan."""
        return plans.micro_batch.astype(np.float64)

    def relax(self, job: Job, required: float) -> tuple[Job, str]:
        """A larger limit."""
        limit = int(required)
        return job.with_limits(max_micro_batch=limit), f"largest micro-batch {job.largest_micro_batch} -> {limit}"
