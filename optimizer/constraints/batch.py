"""Replicas x micro-batch x number of micro-batches is the global batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job import Job
from optimizer.plan import Plans


@dataclass(frozen=True, kw_only=True)
class Batch:
    """dp x micro_batch x num_microbatches = global batch."""

    name: str = "batch"
    variables: tuple[str, ...] = ("dp", "micro_batch", "num_microbatches")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the micro-batches of all replicas make up the batch."""
        return np.asarray(plans.global_batch == job.global_batch)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of the ways to split the batch within the domains."""
        counts = set(program.domains["num_microbatches"])
        rows = [
            (dp, size, job.global_batch // (dp * size))
            for dp in program.domains["dp"]
            for size in program.domains["micro_batch"]
            if job.global_batch % (dp * size) == 0 and job.global_batch // (dp * size) in counts
        ]
        program.allow(self.variables, rows, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        sequences = "one sequence" if job.global_batch == 1 else f"{job.global_batch:,} sequences"
        return f"dp x micro-batch must divide the global batch of {sequences}"

    def steps(self, job: Job) -> Iterator[tuple[Job, str]]:
        """Batches that more replicas divide: multiples of the GPU count and its halves, thirds, ..., nearest first."""
        divisors = [job.gpus // part for part in range(1, 129) if job.gpus % part == 0]
        nearest = {count * max(1, round(job.global_batch / count)) for count in divisors}
        above = {count * -(-job.global_batch // count) for count in divisors}
        for batch in sorted((nearest | above) - {job.global_batch}, key=lambda b: (abs(b - job.global_batch), b)):
            yield replace(job, global_batch=batch), f"global batch {job.global_batch:,} -> {batch:,}"
