"""What no layout of one plan without interleaving beats: its cuts, with no more than time and memory of each stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import BoolArray, FloatArray, lowered, raised
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE, MTP
from optimizer.objectives.step.linear_stage import LinearStage
from optimizer.search.layouts.bounds.step_floor import StepFloor
from optimizer.search.layouts.problem import LayoutProblem, recomputable


def bounded(problem: LayoutProblem) -> bool:
    """Whether `cut_bound` says something: stages recompute alike, or nothing by choice."""
    return problem.vpp == 1 and not problem.even and (problem.alike or not recomputable(problem))


def cut_bound(problem: LayoutProblem, floor: StepFloor, limit: float) -> float:
    """A value that no layout of a plan beats, infinite where none below `limit` fits [unit of the objective].

    floor: of this plan, with as little of the optimizer state on the host as `problem` has there.

    The slowest stage takes as long as in the best of all cuts. Stages that recompute k layers each, and hold n at most,
    recompute a share of k / n of all layers or more.
    """
    longest = float(floor.slowest_within(limit)[0])
    names = [kind for kind, count in problem.sequence for _ in range(count) if kind in (DENSE, MOE)]
    before = {kind: np.cumsum([0, *(name == kind for name in names)]) for kind in dict.fromkeys(names)}
    busy = np.asarray(sum(number * problem.kinds[kind].seconds for kind, number in before.items()))
    within = np.searchsorted(busy, busy + max(longest, 0.0), side="right")
    most = int((within - 1 - np.arange(len(busy))).max())
    # By their end and their number, the layers between two cuts.
    end, width = np.meshgrid(np.arange(len(busy)), np.arange(most + 1), indexing="ij")
    start = np.maximum(end - width, 0)
    by_kind = {kind: number[end] - number[start] for kind, number in before.items()}
    # Numbers of first layers that stages recompute, up to all of theirs, and last with the MTP layers.
    options = np.append(np.arange(1, most + 1), len(names)) if problem.alike else np.zeros(1, dtype=np.int64)
    until = np.minimum(start + options[:, None, None], end)
    extra = {kind: before[kind][until] - before[kind][start] for kind in recomputable(problem) if kind in before}
    cuts = _Cuts(problem=problem, start=start, possible=width <= end, by_kind=by_kind, extra=extra, longest=longest)
    # Stages between the MTP layers and the last stage: none, or one that holds the head alone.
    aheads = (0, 1) if problem.pp > 2 and any(kind == MTP for kind, _ in problem.sequence) else (0,)
    slowest = np.minimum.reduce([cuts.slowest(ahead) for ahead in aheads])
    least = min((problem.kinds[kind].recompute for kind in extra), default=0.0)
    share = np.minimum(options / max(most, 1), 1.0)
    once = sum(count * problem.kinds[kind].seconds for kind, count in problem.sequence) + problem.pp * problem.seconds
    whole = np.maximum(once + share * len(names) * least, floor.whole[0])
    rows = floor.take(np.zeros(len(options), dtype=np.int64)).changed(whole=whole)
    return float(rows.value(lowered(slowest)).min())


@dataclass(frozen=True, kw_only=True)
class _Cuts:
    """start: of the layers between two cuts, by their end and their number; possible: whether there are so many.

    by_kind: of each kind; extra: those recomputed, of every option. longest: that a stage may take [s].
    """

    problem: LayoutProblem
    start: IntArray
    possible: BoolArray
    by_kind: Mapping[str, IntArray]
    extra: Mapping[str, IntArray]
    longest: float

    def slowest(self, ahead: int) -> FloatArray:
        """Time of the slowest stage under the best cut, by what is recomputed, infinite where none fits [s].

        ahead: stages between the MTP layers and the last one.
        """
        reached, pp = self._until_last_two, self.problem.pp
        for stage in range(max(pp - 2, 0), pp):
            reached = self._through(reached, stage, ahead)
        return np.asarray(reached[:, -1])

    @cached_property
    def _until_last_two(self) -> FloatArray:
        """The same up to the last two stages, of which one holds the MTP layers, by the layers up to there [s]."""
        reached = np.full((len(next(iter(self.extra.values()), [0])), len(self.start)), np.inf)
        reached[:, 0] = 0.0
        for stage in range(self.problem.pp - 2):
            reached = self._through(reached, stage, 0)
        return reached

    def _through(self, reached: FloatArray, stage: int, ahead: int) -> FloatArray:
        """Time of the slowest stage up to one more, by the layers up to its end, where those before it took so long."""
        problem, last = self.problem, self.problem.pp - 1
        predicting = sum(n for kind, n in problem.sequence if kind == MTP)
        ends = {EMBEDDING: int(stage == 0), HEAD: int(stage == last), MTP: predicting * (stage == last - ahead)}
        counts = {**self.by_kind, **{kind: np.full(self.start.shape, n) for kind, n in ends.items() if n}}
        recomputed = dict(self.extra)
        if MTP in counts and MTP in recomputable(problem):
            recomputed[MTP] = np.zeros((len(reached), 1, 1), dtype=np.int64)
            recomputed[MTP][-1] = predicting
        by_kind = sum(n * problem.kinds[kind].seconds for kind, n in counts.items())
        seconds = np.asarray(problem.seconds + by_kind) + sum(
            n * problem.kinds[kind].recompute for kind, n in recomputed.items()
        )
        reserved = self._memory.reserved(counts, recomputed, problem.in_flight[stage])
        fits = self.possible & (seconds <= self.longest) & (reserved <= raised(problem.usable))
        return np.asarray(np.maximum(reached[:, self.start], np.where(fits, seconds, np.inf)).min(axis=2))

    @cached_property
    def _memory(self) -> LinearStage[float]:
        return self.problem.at_most_offload.memory
