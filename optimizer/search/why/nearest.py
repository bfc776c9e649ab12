"""The nearest other number of GPUs, or global batch, with which a job has a plan, by trying them in order of distance.

Of two numbers the nearer has the smaller difference from the job's, and of two as near it is the smaller. No number is
passed over unless a condition that every plan must meet, looked at for many numbers at once, rules it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optimizer.constraints.rule import BoolArray, Rule, nearest_first
from optimizer.job import Job
from optimizer.plan import IntArray, Plans
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.layouts.leanest import LeastMemory

FIRST, GROWTH, MOST = 16, 4, 4096  # numbers looked at together: so many, then more, at most so many
PAIRED = 16  # numbers of GPUs that are looked at together with every batch near the job's
NEAR_BATCH = 10  # the batch may move by one part in so many with the number of GPUs
COUNTS = ("micro_batch", "num_microbatches")


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Which numbers of GPUs and batches give `job` a plan under `rules`, those of the product and the batch apart.

    `memory` counts if it is given; `holds` decides about one job with its number of GPUs and batch.
    """

    job: Job
    rules: Sequence[Rule]
    memory: LeastMemory | None
    holds: Callable[[Job], bool]

    def nearest_gpus(self, others: IntArray) -> Job | None:
        """The job on the nearest of these numbers of GPUs, else on a nearer one with a batch within a tenth.

        At equal distance the job's own batch comes before others, and then the nearest of these.
        """
        batch = self.job.global_batch
        near = nearest_first(np.arange(batch - batch // NEAR_BATCH, batch + batch // NEAR_BATCH + 1), batch)
        for counts in growing(others, self.job.gpus):
            possible = self.screened(counts, [batch, *near.tolist()])
            found = self._first(possible, [batch])
            if found is not None:
                distance = abs(found.gpus - self.job.gpus)
                possible = possible[np.abs(possible - self.job.gpus) < distance]
            for start in range(0, len(possible) if len(near) else 0, PAIRED):
                both = self._first(possible[start : start + PAIRED], near)
                if both is not None:
                    return both
            if found is not None:
                return found
        return None

    def nearest_batch(self, others: IntArray) -> Job | None:
        """The job with the nearest of these batches."""
        gpus = [self.job.gpus]
        if not len(self.screened(np.array(gpus), others)):
            return None
        for batches in growing(others, self.job.global_batch):
            found = self._first(gpus, batches)
            if found is not None:
                return found
        return None

    def screened(self, counts: IntArray, batches: Sequence[int] | IntArray) -> IntArray:
        """Those of these numbers of GPUs that batches from the least to the most of these may give a plan.

        Micro-batches of one sequence are the leanest, the fewer of them the leaner, and the more the smaller the
        bubble: a plan must fit in memory with the fewest, and have a small enough bubble with the most.
        """
        least, most = int(np.min(batches)), int(np.max(batches))
        job = replace(self.job, global_batch=most)
        job = job.with_limits(fixed={**_others(job.limits.fixed), "micro_batch": 1})
        rules = [rule for rule in self.rules if rule.name == "bubble" or not set(rule.variables) & set(COUNTS)]
        found = [np.zeros(0, dtype=np.int64)]
        for plans in lattice(job, rules, gpus=counts.tolist()):
            fewest = -(-least // plans.dp) if self._free() else np.ones_like(plans.dp)
            plans = replace(plans, num_microbatches=np.maximum(1, fewest))
            found.append(plans.gpus[self._fitting(plans) & (plans.dp * fewest <= most)])
        return counts[np.isin(counts, np.concatenate(found))]

    def pairs(self, counts: Sequence[int] | IntArray, batches: Sequence[int] | IntArray) -> set[tuple[int, int]]:
        """Numbers of GPUs and batches, of all of these, for which a plan satisfies the rules and may fit in memory.

        Micro-batches of one sequence are enough to look at where nothing else is asked for.
        """
        job, found = self.job, set[tuple[int, int]]()
        if self._free():
            job = job.with_limits(fixed={**job.limits.fixed, "micro_batch": 1})
        for plans in lattice(job, self.rules, gpus=[*map(int, counts)], batches=[*map(int, batches)]):
            fitting = self._fitting(plans)
            found |= set(zip(plans.gpus[fitting].tolist(), plans.global_batch[fitting].tolist(), strict=True))
        return found

    def _first(self, counts: Sequence[int] | IntArray, batches: Sequence[int] | IntArray) -> Job | None:
        """The nearest of these jobs that has a plan: by GPUs, then by batch."""
        if not len(counts):
            return None
        own = self.job.gpus, self.job.global_batch
        order = sorted(
            self.pairs(counts, batches),
            key=lambda pair: (abs(pair[0] - own[0]), pair[0], abs(pair[1] - own[1]), pair[1]),
        )
        jobs = (replace(self.job, gpus=gpus, global_batch=batch) for gpus, batch in order)
        return next((job for job in jobs if self.holds(job)), None)

    def _fitting(self, plans: Plans) -> BoolArray:
        if self.memory is None:
            return np.ones(len(plans), dtype=np.bool_)
        return self.memory.bounds(self.job, plans, self.job.usable_memory) <= self.job.usable_memory

    def _free(self) -> bool:
        """Whether no rule asks for some size or number of micro-batches."""
        limits = self.job.limits
        return not any(name in asked for name in COUNTS for asked in (limits.fixed, limits.ranges, limits.choices))


def growing(numbers: IntArray, number: int) -> Iterator[IntArray]:
    """The numbers in their order, more at a time the further they are; those equally far from `number` together."""
    start, size = 0, FIRST
    distances = np.abs(numbers - number)
    while start < len(numbers):
        last = distances[min(start + size, len(numbers)) - 1]
        end = int(np.searchsorted(distances, last, side="right"))
        yield numbers[start:end]
        start, size = end, min(size * GROWTH, MOST)


def _others(fixed: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in fixed.items() if name not in COUNTS}
