"""Replicas x micro-batch x number of micro-batches is the global batch."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, nearest_first
from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plans

REACH = 8


@dataclass(frozen=True, kw_only=True)
class Batch:
    """dp x micro_batch x num_microbatches = global batch."""

    name: str = "batch"
    variables: tuple[str, ...] = ("dp", "micro_batch", "num_microbatches")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the micro-batches of all replicas make up the batch."""
        return np.asarray(plans.global_batch == job.global_batch)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of the ways to split the batch."""
        rows = [(*row, job.global_batch // prod(row)) for row in program.combinations(self.variables[:-1])]
        program.allow(self.variables, [row for row in rows if prod(row) == job.global_batch], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        sequences = "one sequence" if job.global_batch == 1 else f"{job.global_batch:,} sequences"
        return f"dp x micro-batch must divide the global batch of {sequences}"

    def others(self, job: Job) -> IntArray:
        """Every batch up to the largest looked at, nearest first."""
        return nearest_first(np.arange(1, largest(job) + 1, dtype=np.int64), job.global_batch)

    def moved(self, job: Job, other: Job) -> str:
        """The change from one job to another."""
        return f"global batch {job.global_batch:,} -> {other.global_batch:,}"

    def none(self, job: Job) -> str:
        """That none of those batches is enough."""
        return f"no global batch up to {largest(job):,} is enough"


def largest(job: Job) -> int:
    """The largest other batch that is looked at: REACH times the job's, or so many sequences per GPU."""
    return REACH * max(job.global_batch, job.gpus)
