"""The nearest other number of GPUs, or global batch, with which a job has a plan, by trying them in order of distance.

Of two numbers the nearer has the smaller difference from the job's, and of two as near it is the smaller. No number is
passed over unless a condition that every plan must meet, looked at for many numbers at once, rules it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from optimizer.constraints.pins import Pin
from optimizer.constraints.rule import BoolArray, Rule, nearest_first
from optimizer.constraints.space import domains
from optimizer.job.job import Job
from optimizer.job.plan import FIELDS, IntArray, Plans
from optimizer.job.variables import VARIABLES
from optimizer.objectives.arrays import distinct
from optimizer.objectives.pipeline.stages import FULL
from optimizer.search.lattice.deadline import NEVER, Deadline
from optimizer.search.lattice.enumerate import plans_of, walk
from optimizer.search.layouts.least_memory import LeastMemory

FIRST, GROWTH, MOST = 16, 4, 4096  # numbers looked at together: so many, then more, at most so many
PAIRED = 64  # numbers of GPUs that are looked at together with every batch near the job's
NEAR_BATCH = 10  # the batch may move by one part in so many with the number of GPUs
FEW = 2**10  # most combinations of values that one rule is asked about by itself
COUNTS = ("micro_batch", "num_microbatches")
OPTIONS = {"zero_stage": 1, "shard": 0, "recompute": 0, "activation_offload": 0}  # and a value of each, as a code
Values = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Which numbers of GPUs and batches give `job` a plan under `rules`, those of the product and the batch apart.

    `memory` counts if it is given; `holds` decides about one job with its number of GPUs and batch. Raises TimeLimit
    after the deadline.
    """

    job: Job
    rules: Sequence[Rule]
    memory: LeastMemory | None
    holds: Callable[[Job], bool]
    deadline: Deadline = NEVER

    def nearest_gpus(self, others: IntArray) -> Job | None:
        """The job on the nearest of these numbers of GPUs, else on a nearer one with a batch within a tenth.

        At equal distance the job's own batch comes before others, and then the nearest of these.
        """
        batch = self.job.global_batch
        near = nearest_first(np.arange(batch - batch // NEAR_BATCH, batch + batch // NEAR_BATCH + 1), batch)
        both = np.append(near, batch)
        if self._hopeless(others, both):
            return None
        values = self._values(others, both)
        replicas: IntArray | None = None
        for position, some in enumerate(growing(others, self.job.gpus)):
            if position == 1:  # to look at what all numbers have in common pays when there are many to look at
                replicas, values = self.shapes(others, both)
            counts = some if replicas is None else multiples(some, replicas, int(both.max()))
            nearest_yet = self._among(counts, near, values)
            if nearest_yet is not None:
                return nearest_yet
        return None

    def nearest_batch(self, others: IntArray) -> Job | None:
        """The job with the nearest of these batches."""
        gpus = np.array([self.job.gpus])
        if self._hopeless(gpus, others):
            return None
        return self._paired(*self.screened(gpus, others, self._values(gpus, others)), others)

    def _among(self, counts: IntArray, near: IntArray, values: Values) -> Job | None:
        """The job on the nearest of these numbers of GPUs with its own batch or, on a nearer one, one of these."""
        gpus, own = self.job.gpus, np.array([self.job.global_batch])
        counts, values = self.screened(counts, np.concatenate([near, own]), values)
        nearest_yet = self._first(counts, own, values)
        if nearest_yet is not None:
            counts = counts[np.abs(counts - gpus) < abs(nearest_yet.gpus - gpus)]
        parts = (counts[start : start + PAIRED] for start in range(0, len(counts), PAIRED))
        nearer = (self._paired(part, values, near) for part in parts)
        return next((job for job in nearer if job is not None), nearest_yet)

    def shapes(self, counts: IntArray, batches: IntArray) -> tuple[IntArray, Values]:
        """GPUs of a replica, and values of the variables, with which some of these numbers may give a plan.

        A plan is the leaner the more replicas and the fewer and smaller micro-batches it has, and its bubble the
        smaller the more micro-batches: it must fit in memory with the most replicas and one micro-batch, and have a
        small enough bubble with as many micro-batches as the largest batch has sequences. A single replica may keep on
        the host what several would hold whole, and is looked at as well.
        """
        values, most = self._values(counts, batches), int(batches.max())
        of_least_memory = self._least_memory({"num_microbatches": (most,), **values})
        replicas = values.get("dp", (most, 1))
        plans = walk(self.job, self._rules("dp"), of_least_memory, deadline=self.deadline)
        nearest_yet = [self._of_fitting_shapes(some, replicas) for some in plans]
        return unique(plans.tp * plans.cp * plans.pp for plans in nearest_yet), narrowed(values, nearest_yet)

    def _of_fitting_shapes(self, plans: Plans, replicas: Sequence[int]) -> Plans:
        """Those whose tp, cp and pp may fit in memory with one micro-batch and some of these replicas, the usually
        leanest plan of each shape looked at before the others.
        """
        if self.memory is None or not len(plans):
            return plans
        shape = distinct(plans, ("tp", "cp", "pp"))[1]
        experts = -plans.ep * plans.etp
        order = np.lexsort(
            (plans.vpp, plans.recompute != FULL, ~plans.sequence_parallel, -plans.zero_stage, experts, shape)
        )
        least_memory = order[np.unique(shape[order], return_index=True)[1]]
        able = np.zeros(len(least_memory), dtype=np.bool_)
        alone = (plans.zero_stage == 0) & (plans.cp == 1)
        for dp, part in product(replicas, (least_memory, order)):
            part = part[~able[shape[part]] & ((dp == replicas[0]) | alone[part])]
            some = replace(plans.take(part), dp=np.full(len(part), dp))
            able[shape[part[self._may_fit(some, np.ones_like(some.dp))]]] = True
        return plans.take(able[shape])

    def screened(self, counts: IntArray, batches: IntArray, values: Values) -> tuple[IntArray, Values]:
        """Those of these numbers of GPUs, and of the values, with which some of these batches may give a plan.

        A plan must fit in memory with the micro-batches of the smallest batch, of one sequence each, and have a small
        enough bubble with those of the largest.
        """
        if not len(counts):
            return counts, values
        least, most = (int(batches.min()) if self._free(*COUNTS) else 1), int(batches.max())
        job, nearest_yet = replace(self.job, global_batch=most), []
        for plans in walk(job, self._rules(), self._least_memory(values), gpus=counts, deadline=self.deadline):
            fewest = -(-least // plans.dp)
            enough = plans.dp * fewest <= most
            plans, fewest = plans.take(enough), fewest[enough]
            nearest_yet.append(plans.take(self._may_fit(plans, fewest)))
        return counts[np.isin(counts, unique(plans.gpus for plans in nearest_yet))], narrowed(values, nearest_yet)

    def _paired(self, counts: IntArray, values: Values, batches: IntArray) -> Job | None:
        """The job on the nearest of these numbers of GPUs with the nearest of these batches that have a plan."""
        best = None
        for some in growing(batches, self.job.global_batch):
            if not len(counts):
                break
            nearest_yet = self._first(counts, some, values)
            if nearest_yet is not None:
                best, counts = nearest_yet, counts[: counts.tolist().index(nearest_yet.gpus)]
        return best

    def _first(self, counts: IntArray, batches: IntArray, values: Values) -> Job | None:
        """The nearest of these jobs that has a plan: by GPUs, then by batch."""
        if not len(counts):
            return None
        chunks = walk(self.job, self._seen(), values, gpus=counts, batches=batches, deadline=self.deadline)
        fitting = [plans.take(self._may_fit(plans, plans.num_microbatches)) for plans in chunks]
        columns = [(plans.gpus.tolist(), plans.global_batch.tolist()) for plans in fitting]
        pairs = {pair for both in columns for pair in zip(*both, strict=True)}
        gpus, batch = self.job.gpus, self.job.global_batch
        order = sorted(pairs, key=lambda pair: (abs(pair[0] - gpus), pair[0], abs(pair[1] - batch), pair[1]))
        jobs = (replace(self.job, gpus=pair[0], global_batch=pair[1]) for pair in order)
        return next((job for job in jobs if self._some_fit(job, fitting) and self.holds(job)), None)

    def _some_fit(self, job: Job, chunks: Sequence[Plans]) -> bool:
        """Whether some layout of some of the plans that are this job's fits: their micro-batches are the leanest."""
        if self.memory is None:
            return True
        own = (plans.take((plans.gpus == job.gpus) & (plans.global_batch == job.global_batch)) for plans in chunks)
        return self.memory.fits(job, own)

    def _values(self, counts: IntArray, batches: IntArray) -> Values:
        """Values of the variables for all of these numbers, one only where the others can give no plan that it cannot.

        Micro-batches of one sequence are the leanest and the most. Where memory does not count, experts in one group
        break no rule, and rules about the options are not looked at.
        """
        values = domains(self.job, counts, batches)
        if self._free(*COUNTS):
            values |= {"micro_batch": (1,)}
        if self.memory is None:
            values |= {name: (code,) for name, code in OPTIONS.items()}
            values |= {"ep": (1,), "etp": (1,)} if self._free("ep", "etp") else {}
        return values

    def _hopeless(self, counts: IntArray, batches: IntArray) -> bool:
        """Whether rules that look at few combinations leave some variable no value, whatever the number."""
        return not all(consistent(self.job, self.rules, domains(self.job, counts, batches)).values())

    def _least_memory(self, values: Values) -> Values:
        """These values with micro-batches of one sequence, and the most of them that were asked for."""
        most = [pin.high for pin in self._asked()]
        return {**values, "micro_batch": (1,)} | ({"num_microbatches": (min(most),)} if most else {})

    def _asked(self) -> list[Pin]:
        """The rules about the number of micro-batches."""
        return [rule for rule in self.rules if isinstance(rule, Pin) and rule.variable == "num_microbatches"]

    def _rules(self, *unknown: str) -> list[Rule]:
        """The rules that can be told without these variables and the micro-batches, except for the bubble."""
        settled = any(pin.low == pin.high for pin in self._asked())
        names = {*unknown, "micro_batch", "num_microbatches"} - ({"num_microbatches"} if settled else set())
        return [rule for rule in self._seen() if rule.name == "bubble" or names.isdisjoint(rule.variables)]

    def _seen(self) -> list[Rule]:
        """The rules, without those about the options where memory does not count."""
        return [rule for rule in self.rules if self.memory or OPTIONS.keys().isdisjoint(rule.variables)]

    def _may_fit(self, plans: Plans, fewest: IntArray) -> BoolArray:
        """Plans that may fit in memory with so many micro-batches, or the fewest that were asked for."""
        if self.memory is None or not len(plans):
            return np.ones(len(plans), dtype=np.bool_)
        for pin in self._asked():
            fewest = np.maximum(fewest, pin.low)
        return self.memory.possible(self.job, replace(plans, num_microbatches=fewest))

    def _free(self, *names: str) -> bool:
        """Whether the job asks for no values of these variables."""
        limits = self.job.limits
        return not any(name in asked for name in names for asked in (limits.fixed, limits.ranges, limits.choices))


def consistent(job: Job, rules: Sequence[Rule], values: Values) -> Values:
    """The values left by one rule after the other, each asked alone where its variables have few combinations."""
    for rule in rules:
        if not set(rule.variables) <= values.keys():
            continue
        axes = [np.array(values[name], dtype=np.int64) for name in rule.variables]
        if (count := int(np.prod([len(axis) for axis in axes]))) > FEW:
            continue
        grid = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
        columns = {name: np.full(count, VARIABLES[name].neutral, dtype=np.int64) for name in FIELDS}
        columns |= dict(zip(rule.variables, grid, strict=True))
        keep = rule.check(job, plans_of(columns))
        values = {**values, **{name: tuple(np.unique(columns[name][keep]).tolist()) for name in rule.variables}}
    return values


def growing(numbers: IntArray, number: int) -> Iterator[IntArray]:
    """The numbers in their order, more at a time the further they are; those equally far from `number` together."""
    start, size = 0, FIRST
    distances = np.abs(numbers - number)
    while start < len(numbers):
        last = distances[min(start + size, len(numbers)) - 1]
        end = int(np.searchsorted(distances, last, side="right"))
        yield numbers[start:end]
        start, size = end, min(size * GROWTH, MOST)


def multiples(numbers: IntArray, parts: IntArray, most: int) -> IntArray:
    """The numbers that are at most so many times one of these parts.

    >>> multiples(np.array([8, 9, 10, 12, 30]), np.array([4, 5]), 3).tolist()
    [8, 10, 12]
    """
    divisible = np.zeros(len(numbers), dtype=np.bool_)
    for part in parts.tolist():
        divisible |= (numbers % part == 0) & (numbers <= most * part)
    return numbers[divisible]


def narrowed(values: Values, nearest_yet: Sequence[Plans]) -> Values:
    """The values that these plans have, of micro-batches all."""
    names = [name for name in values if name != "micro_batch"]
    return {**values, **{name: tuple(unique(getattr(plans, name) for plans in nearest_yet).tolist()) for name in names}}


def unique(columns: Iterable[IntArray]) -> IntArray:
    """All values of several columns, rising."""
    return np.flatnonzero(
        np.bincount(np.concatenate([np.zeros(0, dtype=np.int64), *(column.astype(np.int64) for column in columns)]))
    )
