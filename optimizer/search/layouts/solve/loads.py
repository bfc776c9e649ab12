"""What layouts of one problem take and need, stage by stage: many layouts at once, in arrays with a row for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from optimizer.job.plan import IntArray
from optimizer.job.rows import Rows
from optimizer.objectives.arrays import BoolArray, FloatArray, joined, raised
from optimizer.objectives.pipeline.stall import stall
from optimizer.objectives.step.host_memory import OFFLOAD_STEP
from optimizer.search.layouts.problem import LayoutProblem


@dataclass(frozen=True, kw_only=True)
class Loads(Rows):
    """by_kind: layers, embedding and head on each virtual stage, by kind; stages: on each stage. recomputed: layers of
    each kind that each stage recomputes.
    """

    WHOLE = ("problem",)
    problem: LayoutProblem
    by_kind: Mapping[str, IntArray]
    stages: Mapping[str, IntArray]
    recomputed: Mapping[str, IntArray]

    def __len__(self) -> int:
        return len(next(iter(self.by_kind.values())))

    @staticmethod
    def joined(parts: Sequence[Loads]) -> Loads:
        """Layouts of one problem one after the other."""
        names = "by_kind", "stages", "recomputed"
        columns = {name: joined([getattr(part, name) for part in parts]) for name in names}
        return Loads(problem=parts[0].problem, **columns)

    @cached_property
    def states(self) -> FloatArray:
        """What of each stage may lie on the host [B]."""
        return np.asarray(self.problem.memory.states(self.stages), dtype=np.float64)

    @cached_property
    def resident(self) -> FloatArray:
        """What each stage reserves with no more on the host than the problem has there [B]."""
        return np.asarray(self.problem.memory.reserved(self.stages, self.recomputed, np.array(self.problem.in_flight)))

    @cached_property
    def needs(self) -> FloatArray:
        """OFFLOAD_STEPs more on the host that let each stage fit, infinite where none do [1]."""
        excess = self.resident - self.problem.usable
        steps = np.ceil(excess / np.maximum(self.states * OFFLOAD_STEP, 1e-9))
        return np.where(excess > 0, np.where(self.states > 0, steps, inf), 0.0)

    @cached_property
    def more(self) -> FloatArray:
        """OFFLOAD_STEPs more on the host: as few as let all stages of a layout fit, at most what may be [1]."""
        return np.asarray(np.minimum(self.needs.max(axis=1), self.problem.more))

    @cached_property
    def memory(self) -> FloatArray:
        """What each stage reserves [B]."""
        return np.asarray(self.resident - self.more[:, None] * OFFLOAD_STEP * self.states)

    @cached_property
    def on_host(self) -> FloatArray:
        """What each stage keeps on the host [B]."""
        there = self.problem.memory.hosted(self.stages, np.array(self.problem.in_flight))
        return np.asarray(there + self.more[:, None] * OFFLOAD_STEP * self.states)

    @property
    def fits(self) -> BoolArray:
        """Whether every stage fits in the memory of the device and of the host."""
        most_on_host = raised(self.problem.host_memory_per_gpu)
        fits = self.needs.max(axis=1) <= self.problem.more
        return np.asarray(fits & (self.on_host.max(axis=1) <= most_on_host))

    @cached_property
    def recompute_time(self) -> FloatArray:
        """What each stage recomputes for one micro-batch [s]."""
        costs = self.problem.kinds
        recompute_time = (n * costs[kind].recompute for kind, n in self.recomputed.items())
        return np.asarray(sum(recompute_time, np.zeros((len(self), self.problem.pp))))

    @cached_property
    def seconds(self) -> FloatArray:
        """What each stage takes for one micro-batch [s]."""
        return np.asarray(self.problem.seconds + self._total("seconds") + self.recompute_time)

    @cached_property
    def pipeline(self) -> FloatArray:
        """Time of the pipeline by its closed form, as if no stage waited [s]."""
        return self.problem.pipeline(self.seconds.max(axis=1), self.seconds.sum(axis=1))

    @cached_property
    def once(self) -> FloatArray:
        """The longest that a stage takes for what it does per step, beside what hides, with what recomputed layers and
        states on the host add to the objective beside their time [s].
        """
        problem, more = self.problem, self.more * OFFLOAD_STEP
        longest = problem.once(self._total) + more[:, None] * self._total("hosted")
        recomputed = (n.sum(axis=1) * problem.kinds[kind].recompute_price for kind, n in self.recomputed.items())
        hosted = (problem.memory.offload + more) * problem.hosted_price
        return np.asarray(longest.max(axis=1) + sum(recomputed, np.zeros(1)) + hosted)

    @property
    def least(self) -> FloatArray:
        """What the pipeline and a step's ends take at least, and without virtual stages at all [s]."""
        return np.asarray(self.pipeline + self.once + (self.stalled if self.problem.vpp == 1 else 0.0))

    def late(self, at_most: float) -> BoolArray:
        """Whether no pipeline of `at_most` [s] recomputes as much or more."""
        return np.asarray(self.pipeline + (self.stalled if self.problem.vpp == 1 else 0.0) > at_most)

    @property
    def stalled(self) -> FloatArray:
        """What running the schedule adds to the pipeline, below 0 where it takes less [s]; see step/price.py."""
        if self.problem.vpp == 1 and not self.problem.alternates:
            return np.zeros(len(self))
        return stall(self.problem.microbatches, *self.passes)

    @property
    def passes(self) -> tuple[FloatArray, FloatArray]:
        """Seconds of the forward and the backward pass by stage and virtual stage [s].

        What a stage spends beside its layers is spread evenly over its passes, recomputing over its backward passes.
        """
        recompute_time = self.recompute_time + self._total("always")

        def cost(kind: str, name: str) -> float:
            return float(getattr(self.problem.kinds[kind], name))

        return passes_of(cost, self.by_kind, self.problem.seconds, recompute_time, self.problem.vpp)

    def _total(self, name: str) -> FloatArray:
        costs = self.problem.kinds
        return np.asarray(sum((n * float(getattr(costs[kind], name)) for kind, n in self.stages.items()), np.zeros(1)))


def passes_of(
    cost: Callable[[str, str], Any], by_kind: Mapping[str, IntArray], aside: Any, recompute_time: FloatArray, vpp: int
) -> tuple[FloatArray, FloatArray]:
    """Seconds of the forward and the backward pass of layouts, by stage and virtual stage [s].

    Args:
        cost: seconds of a layer by its kind and the name of a field of LayerSeconds, of all layouts or one a row.
        by_kind: layers on each virtual stage (columns) of every layout (rows).
        aside: what a stage spends beside its layers, spread evenly over its passes [s].
        recompute_time: what each stage recomputes, over its backward passes [s].
        vpp: virtual stages of a stage.

    Returns:
        Both, of the shape (layouts, stages, virtual stages).
    """

    def of(name: str) -> FloatArray:
        busy = np.asarray(sum((n * cost(kind, name) for kind, n in by_kind.items()), np.zeros(1)))
        return busy.reshape(len(recompute_time), vpp, recompute_time.shape[1]).transpose(0, 2, 1)

    each = aside / (2 * vpp)
    return each + of("forward"), each + of("backward") + recompute_time[..., None] / vpp


def by_stage(by_kind: IntArray, pp: int) -> IntArray:
    """What each stage holds of what its virtual stages do, by layout."""
    return np.asarray(by_kind.reshape(len(by_kind), by_kind.shape[1] // pp, pp).sum(axis=1))
