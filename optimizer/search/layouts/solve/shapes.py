"""Layouts of virtual stages that are all compared: every one where there are few, else those inside within one layer
of each other and any number at the ends, and those with more on every later stage.

They depend on the model and the pipeline, and not on what anything costs: what is cheaper for all is so for the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

import numpy as np

from optimizer.job.model import Model
from optimizer.job.plan import IntArray, virtual_stages
from optimizer.job.rows import Rows
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE, MTP, Runs, layer_sequence
from optimizer.search.layouts.problem import LayoutProblem, stage_limits, virtual_stage_limits
from optimizer.search.layouts.solve.least import least_slowest, most_layers
from optimizer.search.layouts.solve.loads import Loads, by_stage

FEW = 1000  # layouts, up to which every one is listed
Limits = tuple[tuple[int, int], ...]  # fewest and most transformer layers on each virtual stage


@dataclass(frozen=True, kw_only=True)
class StageShapes(Rows):
    """Cuts of a model's layers into virtual stages, one a row.

    counts: transformer layers on each virtual stage. ahead: virtual stages between the MTP layers and the last
    one. held: what each virtual stage holds, by kind; before: layers of each kind before so many layers of the model.
    """

    WHOLE = ("pp", "before")
    pp: int
    counts: IntArray
    ahead: IntArray
    by_kind: Mapping[str, IntArray]
    before: Mapping[str, IntArray]

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def stages(self) -> dict[str, IntArray]:
        """What each stage holds, by kind."""
        return {kind: by_stage(number, self.pp) for kind, number in self.by_kind.items()}

    @cached_property
    def numbers(self) -> FloatArray:
        """The same by kind, shape and stage."""
        return np.array([*self.stages.values()], dtype=np.float64)

    def loads(self, problem: LayoutProblem, recomputed: Mapping[str, IntArray]) -> Loads:
        """What they take and need where each stage recomputes so many layers of each kind."""
        return Loads(problem=problem, by_kind=self.by_kind, stages=self.stages, recomputed=recomputed)

    def first(self, layers: int) -> dict[str, IntArray]:
        """How many of each kind each stage holds in the first so many layers of its virtual stages."""
        start = np.cumsum(self.counts, axis=1) - self.counts
        end = start + np.minimum(self.counts, layers)
        return {kind: by_stage(before[end] - before[start], self.pp) for kind, before in self.before.items()}


def shapes_of(problem: LayoutProblem) -> StageShapes:
    """The shapes of a problem: all layouts if they are FEW, else the even split, the `nearly_even` and the `graded`."""
    return _shapes(problem.sequence, problem.pp, tuple(virtual_stage_limits(problem)))


def shapes_of_model(model: Model, pp: int, vpp: int, *, even: bool) -> StageShapes:
    """The shapes of every problem of a model with so many stages and virtual ones."""
    sequence = layer_sequence(model)
    return _shapes(sequence, pp, tuple(stage_limits(sequence, pp, vpp, even=even)))


def few_cuts(problem: LayoutProblem, slowest: float) -> StageShapes | None:
    """All layouts without virtual stages of which no stage takes longer than this for a micro-batch [s]; None where
    these are not FEW.
    """
    limits = zip(virtual_stage_limits(problem), most_layers(problem, slowest).tolist(), strict=True)
    within = tuple((low, min(high, most)) for (low, high), most in limits)
    return None if every(within, problem.layers) is None else _shapes(problem.sequence, problem.pp, within)


def near_cuts(problem: LayoutProblem) -> StageShapes:
    """Layouts without virtual stages whose slowest stage takes about the least that it can: all, or those where stages
    hold as many layers as they may then, but for a row of them that holds one less, or two.
    """
    _, slowest = least_slowest(problem)
    if (cuts := few_cuts(problem, slowest)) is not None:
        return cuts
    most = most_layers(problem, slowest)
    # Stages give up the layers that are too many one after the other, from each of them on.
    counts = np.repeat(most[None], problem.pp, axis=0)
    order = np.add.outer(np.arange(problem.pp), np.arange(problem.pp)) % problem.pp
    rows = np.arange(problem.pp)[:, None]
    for _ in range(int(most.max())):
        beyond = counts[0].sum() - problem.layers  # as many of each row
        gives = counts[rows, order] > problem.layers // problem.pp
        counts[rows, order] -= gives & (gives.cumsum(axis=1) <= beyond)
    return _shaped(problem.sequence, problem.pp, counts, virtual_stage_limits(problem))


@lru_cache(maxsize=32)  # of up to 20 MB each
def _shapes(sequence: Runs, pp: int, limits: Limits) -> StageShapes:
    total = sum(count for kind, count in sequence if kind in (DENSE, MOE))
    counts = every(limits, total)
    if counts is None:
        even = [virtual_stages((), total, pp, len(limits) // pp)]
        counts = np.vstack([even, nearly_even(limits, total), *graded(limits, total, pp)])
    return _shaped(sequence, pp, counts, limits)


def _shaped(sequence: Runs, pp: int, counts: IntArray, limits: Sequence[tuple[int, int]]) -> StageShapes:
    """Those of the cuts that are within the limits, once each, with every place that MTP layers may have."""
    names = [kind for kind, count in sequence for _ in range(count) if kind in (DENSE, MOE)]
    before = {kind: np.cumsum([0, *(name == kind for name in names)]) for kind in dict.fromkeys(names)}
    ends = {kind: count for kind, count in sequence if kind not in before}
    low, high = np.array(limits).T
    # Without an index `unique` imports numpy.ma.
    counts, _ = np.unique(counts[((low <= counts) & (counts <= high)).all(axis=1)], axis=0, return_index=True)
    # MTP layers follow all others: in the last virtual stage, or in the one before where that has none.
    sooner = counts[(counts[:, -1] == 0) & (MTP in ends and pp > 2)]
    ahead = np.repeat([0, 1], [len(counts), len(sooner)])
    counts = np.concatenate([counts, sooner])
    filled = (counts[:, 1:-1] > 0) | (np.arange(len(limits) - 2, 0, -1) == ahead[:, None])
    counts, ahead = counts[filled.all(axis=1)], ahead[filled.all(axis=1)]
    start = np.cumsum(counts, axis=1) - counts
    by_kind = {kind: number[start + counts] - number[start] for kind, number in before.items()}
    places = {EMBEDDING: 0 * ahead, HEAD: 0 * ahead + len(limits) - 1, MTP: len(limits) - 1 - ahead}
    for kind, count in ends.items():
        by_kind[kind] = count * (np.arange(len(limits)) == places[kind][:, None])
    return StageShapes(pp=pp, counts=counts, ahead=ahead, by_kind=by_kind, before=before)


@lru_cache(maxsize=32)
def every(limits: Limits, total: int) -> IntArray | None:
    """Layers on each virtual stage in every way within the limits, or None where these are more than FEW.

    >>> every(((1, 2), (0, 2), (0, 1)), 3).tolist()
    [[1, 1, 1], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
    """
    if any(low > high for low, high in limits):
        return np.zeros((0, len(limits)), dtype=np.int64)
    grown, left = np.zeros((1, 0), dtype=np.int64), np.array([total])
    for place, (low, high) in enumerate(limits):
        least, most = (sum(ends) for ends in zip((0, 0), *limits[place + 1 :], strict=True))
        row, here = (
            grid.ravel() for grid in np.meshgrid(np.arange(len(left)), np.arange(low, high + 1), indexing="ij")
        )
        may = (least <= left[row] - here) & (left[row] - here <= most)
        row, here = row[may], here[may]
        grown, left = np.column_stack([grown[row], here]), left[row] - here
        if len(left) > FEW:  # each begins a layout at least
            return None
    return grown


def nearly_even(limits: Limits, total: int) -> IntArray:
    """Layers on each virtual stage: the first and the last two hold what they may, the others as many each, and the
    layers that are left one more for some that follow each other, the first of them after the last.

    >>> nearly_even(((1, 1), (1, 2), (1, 2), (1, 2), (0, 1)), 6).tolist()
    [[1, 2, 2, 1, 0], [1, 2, 1, 2, 0], [1, 1, 2, 2, 0], [1, 2, 1, 1, 1], [1, 1, 2, 1, 1], [1, 1, 1, 2, 1]]
    """
    grown, inside = [], np.arange(len(limits) - 3)
    for last, before_last, first in product(
        *(range(low, high + 1) for low, high in (limits[-1], limits[-2], limits[0]))
    ):
        share, more = divmod(total - first - before_last - last, len(inside))
        behind = (inside - inside[: len(inside) if more else 1, None]) % len(inside)
        middle = share + (behind < more)
        grown.append(np.pad(middle, ((0, 0), (1, 2))))
        grown[-1][:, [0, -2, -1]] = first, before_last, last
    return np.concatenate(grown)


def graded(limits: Limits, total: int, pp: int) -> Iterator[IntArray]:
    """Layers on each virtual stage where every stage but the last holds so many more than the one before, which keeps
    more micro-batches. Stages deal theirs to their virtual stages evenly, the last also to all but the last one.

    >>> [counts.tolist() for counts in graded(((0, 2), (1, 2), (1, 2), (0, 2)), 6, 2)][-2:]
    [[1, 2, 1, 2], [1, 4, 1, 0]]
    """
    vpp, others = len(limits) // pp, pp - 1
    for last, more in product(range(sum(high for _, high in limits[others::pp]) + 1), range(vpp + 1 if pp > 2 else 1)):
        first, left = divmod(total - last - more * others * (others - 1) // 2, others)
        stages = tuple(first + more * stage + (stage >= others - left) for stage in range(others))
        if first >= 0:
            dealt = np.array(virtual_stages((*stages, last), total, pp, vpp))
            ended = dealt.copy()
            ended[others::pp] = *virtual_stages((), last, 1, vpp - 1), 0
            yield from (dealt, ended)
