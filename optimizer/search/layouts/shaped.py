"""The fastest of all shapes of virtual stages that fit, each recomputing as few layers as lets it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.pipeline.stages import DENSE, MOE, MTP
from optimizer.plan import IntArray
from optimizer.search.layouts.loads import Loads, by_stage
from optimizer.search.layouts.problem import LayoutProblem, partly_recomputed_limits, recomputable
from optimizer.search.layouts.shapes import Shapes, shapes_of

AT_ONCE = 64  # shapes whose schedules are run together
SAME = 1e-9  # relative: times that are equal but for rounding


@dataclass(frozen=True, kw_only=True)
class Shaped:
    """Transformer layers on each virtual stage, virtual stages between the prediction layers and the last one, layers
    of each kind that each stage recomputes, and `first` as Layout has it.
    """

    counts: tuple[int, ...]
    ahead: int
    recomputed: list[dict[str, int]]
    first: int


def fastest(problem: LayoutProblem, at_most: float = inf) -> Shaped | None:
    """The shape whose pipeline is fastest among those that fit, of equals the one whose virtual stages are most alike;
    None where none has a pipeline of `at_most` [s], or would with as little optimizer state on the host as any layout
    needs there.

    In the order of their times where no stage waits; the schedules of those that may be fastest are run.
    """
    shapes = shapes_of(problem)
    loads, first = _recomputing(problem, shapes)
    once, spared = loads.once(), loads.once(spared=True)
    least = loads.pipeline + once
    rows = np.flatnonzero(loads.fits & (loads.pipeline + spared <= at_most))
    rows = rows[_order(loads.take(rows), least[rows], shapes.counts[rows])]
    best, found = inf, None
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        some = some[least[some] < best * (1 - SAME)]
        if not len(some):
            break
        waits = loads.take(some).stalled
        seconds = np.where(loads.pipeline[some] + waits + spared[some] <= at_most, least[some] + waits, inf)
        place = int(np.argmin(seconds))
        if seconds[place] < best * (1 - SAME):
            best, found = float(seconds[place]), int(some[place])
    if found is None:
        return None
    again = [{kind: int(n[found, stage]) for kind, n in loads.recomputed.items()} for stage in range(problem.pp)]
    counts = tuple(shapes.counts[found].tolist())
    return Shaped(counts=counts, ahead=int(shapes.ahead[found]), recomputed=again, first=int(first[found]))


def _order(loads: Loads, least: FloatArray, counts: IntArray) -> IntArray:
    """Shapes by these times; equals by how unlike their virtual stages are in time, then in how many layers follow."""
    forward, backward = loads.passes
    unlike = ((forward + backward) ** 2).sum(axis=(1, 2))
    changes = (np.diff(counts, axis=1) != 0).sum(axis=1)
    keys = (np.round(each / np.min(each, initial=inf) / SAME) for each in (unlike, least))
    return np.asarray(np.lexsort((changes, *keys)))


def _recomputing(problem: LayoutProblem, shapes: Shapes) -> tuple[Loads, IntArray]:
    """The shapes with as few layers recomputed as lets them fit, or with all; and how many first layers of every
    virtual stage those are, where they are, 0 for all.
    """
    loads = Loads(problem=problem, held=shapes.held, recomputed={})
    if not recomputable(problem):
        return loads, np.zeros(len(shapes), dtype=np.int64)
    if problem.alike:
        return _alike(problem, shapes)
    flying, again = np.array(problem.in_flight), dict.fromkeys(recomputable(problem), np.zeros(1, dtype=np.int64))
    for kind in sorted(again, key=(MOE, DENSE).index):
        held, costs = loads.stages[kind], problem.kinds[kind]
        before, saved = Loads(problem=problem, held=shapes.held, recomputed=again), costs.kept - costs.kept_recomputed
        one = Loads(problem=problem, held=shapes.held, recomputed={**again, kind: np.minimum(held, 1)})
        more = np.ceil((one.memory - problem.usable) / np.maximum(flying * saved, 1.0))
        needed = np.where(before.memory > problem.usable, np.clip(1 + more, 0, held), 0)
        again = {**again, kind: needed.astype(np.int64)}
    return Loads(problem=problem, held=shapes.held, recomputed=again), np.zeros(len(shapes), dtype=np.int64)


def _alike(problem: LayoutProblem, shapes: Shapes) -> tuple[Loads, IntArray]:
    """The same where the first so many layers of every virtual stage are recomputed, or all with prediction layers."""
    low, high = np.array(partly_recomputed_limits(problem)).T
    partly = ((low <= shapes.counts) & (shapes.counts <= high)).all(axis=1)
    most, whole = shapes.counts.max(axis=1), {k: by_stage(shapes.held[k], problem.pp) for k in recomputable(problem)}
    chosen, first = dict(whole), np.zeros(len(shapes), dtype=np.int64)
    for layers in range(int(high.max()), 0, -1):
        again = shapes.first(layers) | ({MTP: 0 * whole[MTP]} if MTP in whole else {})
        again = {kind: again[kind] for kind in whole}
        fits = Loads(problem=problem, held=shapes.held, recomputed=again).fits & partly
        fits &= (layers < most) | (MTP in whole)
        chosen = {kind: np.where(fits[:, None], n, chosen[kind]) for kind, n in again.items()}
        first = np.where(fits, layers, first)
    return Loads(problem=problem, held=shapes.held, recomputed=chosen), first
