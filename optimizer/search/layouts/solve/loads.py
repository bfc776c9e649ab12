"""What layouts of one problem take and need, stage by stage: many layouts at once, in arrays with a row for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.pipeline.stall import stall
from optimizer.objectives.step.host_memory import ROUNDING
from optimizer.search.layouts.problem import LayoutProblem


@dataclass(frozen=True, kw_only=True)
class Loads:
    """held: layers, embedding and head on each virtual stage, by kind. recomputed: layers of each kind that each stage
    recomputes.
    """

    problem: LayoutProblem
    by_kind: Mapping[str, IntArray]
    recomputed: Mapping[str, IntArray]

    def take(self, rows: IntArray) -> Loads:
        """Some of the layouts."""
        return Loads(
            problem=self.problem,
            by_kind={kind: by_kind[rows] for kind, by_kind in self.by_kind.items()},
            recomputed={kind: recompute_time[rows] for kind, recompute_time in self.recomputed.items()},
        )

    @cached_property
    def stages(self) -> dict[str, IntArray]:
        """What each stage holds, by kind."""
        return {kind: by_stage(by_kind, self.problem.pp) for kind, by_kind in self.by_kind.items()}

    @cached_property
    def memory(self) -> FloatArray:
        """What each stage reserves [B]."""
        return np.asarray(self.problem.memory.reserved(self.stages, self.recomputed, np.array(self.problem.in_flight)))

    @cached_property
    def on_host(self) -> FloatArray:
        """What each stage keeps on the host [B]."""
        return np.asarray(self.problem.memory.hosted(self.stages, np.array(self.problem.in_flight)))

    @property
    def fits(self) -> BoolArray:
        """Whether every stage fits in the memory of the device and of the host."""
        most_on_host = self.problem.host_memory_per_gpu * (1 + ROUNDING)
        return np.asarray((self.memory.max(axis=1) <= self.problem.usable) & (self.on_host.max(axis=1) <= most_on_host))

    @cached_property
    def recompute_time(self) -> FloatArray:
        """What each stage recomputes for one micro-batch [s]."""
        costs = self.problem.kinds
        recompute_time = (n * costs[kind].recompute for kind, n in self.recomputed.items())
        return np.asarray(sum(recompute_time, np.zeros((len(next(iter(self.by_kind.values()))), self.problem.pp))))

    @cached_property
    def seconds(self) -> FloatArray:
        """What each stage takes for one micro-batch [s]."""
        return np.asarray(self.problem.seconds + self._total("seconds") + self.recompute_time)

    @cached_property
    def pipeline(self) -> FloatArray:
        """Time of the pipeline where no stage waits [s]."""
        return self.problem.pipeline(self.seconds.max(axis=1), self.seconds.sum(axis=1))

    def once(self, *, spared: bool = False) -> FloatArray:
        """The longest that a stage takes for what it does per step, beside what hides, with the price on recomputed
        layers; `spared`: with the least optimizer state on the host [s].
        """
        longest = self.problem.once(self._total) - (self._total("spared") if spared else 0.0)
        return np.asarray(longest.max(axis=1) + self.priced)

    @property
    def priced(self) -> FloatArray:
        """What the recomputed layers add to the objective beside their time, as seconds of a step [s]."""
        costs = self.problem.kinds
        prices = (n.sum(axis=1) * costs[kind].recompute_price for kind, n in self.recomputed.items())
        return np.asarray(sum(prices, np.zeros(1)))

    @property
    def stalled(self) -> FloatArray:
        """What virtual stages of unlike length add to the pipeline [s]; see objectives/step/price.py."""
        if self.problem.vpp == 1:
            return np.zeros(len(self.recompute_time))
        return stall(self.problem.microbatches, *self.passes)

    @property
    def passes(self) -> tuple[FloatArray, FloatArray]:
        """Seconds of the forward and the backward pass by stage and virtual stage [s].

        What a stage spends beside its layers is spread evenly over its passes, recomputing over its backward passes.
        """
        problem = self.problem
        aside = problem.seconds / (2 * problem.vpp)
        recompute_time = self.recompute_time[..., None] / problem.vpp

        def of(name: str) -> FloatArray:
            busy = sum((n * float(getattr(problem.kinds[kind], name)) for kind, n in self.by_kind.items()), np.zeros(1))
            return np.asarray(busy.reshape(len(self.recompute_time), problem.vpp, problem.pp).transpose(0, 2, 1))

        return aside + of("forward"), aside + of("backward") + recompute_time

    def _total(self, name: str) -> FloatArray:
        costs = self.problem.kinds
        return np.asarray(sum((n * float(getattr(costs[kind], name)) for kind, n in self.stages.items()), np.zeros(1)))


def by_stage(by_kind: IntArray, pp: int) -> IntArray:
    """What each stage holds of what its virtual stages do, by layout."""
    return np.asarray(by_kind.reshape(len(by_kind), -1, pp).sum(axis=1))
