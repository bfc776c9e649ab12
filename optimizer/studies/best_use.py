"""The best use of at most so many GPUs, and of a batch that may move a little: other counts divide better."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil, gcd

from optimizer.base.errors import InputError
from optimizer.constraints.space import divisors
from optimizer.job.job import Job
from optimizer.objectives.minimised.registry import objective_of
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.plan.best import Known, Outlook, outlook

LEAST = 0.75  # of the GPUs that there are: with fewer, no plan makes up for those that stand idle
NOTICEABLE = 0.005  # of the worth, below which what was asked for is kept
SMOOTH = (2, 3, 5, 7)  # prime factors of counts that plans divide well
BATCHES = 3  # other batches tried


@dataclass(frozen=True, kw_only=True)
class Use:
    """One count and batch that was tried."""

    job: Job  # with that count and batch
    # tokens that all GPUs train on for a unit of what is minimised, such as a second, 0 without a plan [1/unit]. Of a
    # job which is neither what was asked for nor the best it is only known not to exceed the best.
    worth: float


@dataclass(frozen=True, kw_only=True)
class BestUse:
    """What was asked for, what is best, and all that was tried; known: what the planner need not look for again."""

    asked: Use
    best: Use
    tried: tuple[Use, ...]
    known: Known | None = None

    @property
    def gain(self) -> float:
        """Throughput of the best over that of what was asked for, less one; infinite where that has no plan [1]."""
        return self.best.worth / self.asked.worth - 1.0 if self.asked.worth else float("inf")

    @property
    def spare(self) -> int:
        """GPUs left over."""
        return self.asked.job.gpus - self.best.job.gpus

    def words(self) -> str:
        """The advice in a sentence; "" where what was asked for is kept."""
        mine, theirs = self.best.job, self.asked.job
        if mine == theirs or not self.best.worth:
            return ""
        what = f"{mine.gpus:,} GPUs" if self.spare else f"{theirs.gpus:,} GPUs"
        if mine.global_batch != theirs.global_batch:
            what += f" with {mine.global_batch:,} sequences per step"
        asked = f"{theirs.gpus:,} with {theirs.global_batch:,}"
        more = f"{self.gain:.1%} more tokens a {objective_of(mine).per} than {asked}"
        than = more if self.asked.worth else f"{asked} has no plan"
        spare = f", and {self.spare:,} spare for failures" if self.spare else ""
        return f"{what}: {than}{spare}"


def counts_at_most(most: int, node: int) -> tuple[int, ...]:
    """Numbers of GPUs from `most` down to three quarters of it that plans divide well, and `most` itself first.

    Whole nodes whose number has no prime factor beyond 7; inside a node any such number of GPUs.

    >>> counts_at_most(1000, 8), counts_at_most(2304, 8)[:3], counts_at_most(11, 16)
    ((1000, 960, 896, 864, 840, 800, 784, 768), (2304, 2240, 2160), (11, 10, 9))
    """
    unit = node if most >= node else 1
    fewest = most * LEAST
    counts = [units * unit for units in range(most // unit, 0, -1) if units * unit >= fewest and _smooth(units)]
    return tuple(dict.fromkeys((most, *counts)))


def evener(counts: Sequence[int]) -> list[int]:
    """Of falling counts those that hold a larger power of two than the first and all between.

    >>> evener(counts_at_most(1000, 8)), evener(counts_at_most(2304, 8))
    ([960, 896, 768], [2048])
    """
    even: list[int] = []
    power = counts[0] & -counts[0]
    for count in counts[1:]:
        if count & -count > power:
            power = count & -count
            even.append(count)
    return even


def batches_near(batch: int, share: float, gpus: int) -> tuple[int, ...]:
    """The batch first, then those within the share of it that the most data-parallel ranks divide.

    >>> batches_near(2048, 0.05, 2304), batches_near(512, 0.0, 64)
    ((2048, 2016, 2112, 2088), (512,))
    """
    low, high = batch * (1.0 - share), batch * (1.0 + share)
    near = [other for other in range(max(1, ceil(low)), int(high) + 1) if other != batch]
    return (batch, *sorted(near, key=lambda other: (-_shared(other, gpus), abs(other - batch)))[:BATCHES])


def best_use(
    jobs: Iterable[Job], on_job: Callable[[], None] = lambda: None, tuning: Tuning = Tuning(), beyond: float = 0.0
) -> BestUse:
    """The job of the highest worth; the first one is what was asked for. Of less than `beyond` it need not be exact.

    Every job is swept; layouts are looked for in the order of what the sweeps say, and only where a bound leaves room
    for more than the best so far. A job that cannot be asked about counts as one without a plan.
    """
    swept, outlooks = list[Job](), dict[int, Outlook]()
    for job in jobs:
        with suppress(InputError):
            outlooks[len(swept)] = outlook(job, tuning)
        swept.append(job)
        on_job()
    rates, known = [0.0] * len(swept), dict[int, Known | None]()
    most = beyond
    for index, of_job in sorted(outlooks.items(), key=lambda item: -item[1].worth):
        # What was asked for is reported with its own rate.
        least = most if index else beyond
        assigned = of_job.layouts_beyond(least)
        rates[index], known[index] = of_job.worth_of(assigned), of_job.known(assigned, least)
        most = max(most, rates[index])
    tried = tuple(Use(job=job, worth=rate) for job, rate in zip(swept, rates, strict=True))
    best = max(tried, key=lambda use: use.worth)
    asked = tried[0]
    if best.worth <= asked.worth * (1.0 + NOTICEABLE):
        best = asked
    return BestUse(asked=asked, best=best, tried=tried, known=known.get(tried.index(best)))


def with_batches(job: Job, share: float) -> Sequence[Job]:
    """The job with its own batch and with those near it."""
    return [replace(job, global_batch=batch) for batch in batches_near(job.global_batch, share, job.gpus)]


def _smooth(number: int) -> bool:
    for prime in SMOOTH:
        while number % prime == 0:
            number //= prime
    return number == 1


def _shared(batch: int, gpus: int) -> int:
    """How many numbers of data-parallel ranks divide both GPUs and batch."""
    return len(divisors(gcd(batch, gpus)))
