"""The fastest of all shapes of virtual stages that fit, each recomputing as few layers as lets it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

import numpy as np

from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.pipeline.stages import DENSE, MOE, MTP, Runs
from optimizer.objectives.step.linear_stage import LayerBytes, LinearStage
from optimizer.search.layouts.problem import LayoutProblem, firsts, partly_recomputed_limits, recomputable
from optimizer.search.layouts.solve.loads import Loads, by_stage
from optimizer.search.layouts.solve.shapes import StageShapes, shapes_of

AT_ONCE = 64  # shapes whose schedules are run together
SAME = 1e-9  # relative: times that are equal but for rounding


@dataclass(frozen=True, kw_only=True)
class Shaped:
    """Transformer layers on each virtual stage, virtual stages between the MTP layers and the last one, layers
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
    best, fastest_row = inf, None
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        some = some[least[some] < best * (1 - SAME)]
        if not len(some):
            break
        waits = loads.take(some).stalled
        seconds = np.where(loads.pipeline[some] + waits + spared[some] <= at_most, least[some] + waits, inf)
        place = int(np.argmax(seconds <= seconds.min() * (1 + SAME)))
        if seconds[place] < best * (1 - SAME):
            best, fastest_row = float(seconds[place]), int(some[place])
    return None if fastest_row is None else _shaped(shapes, loads, first, fastest_row)


def least_memory_shape(problem: LayoutProblem) -> Shaped | None:
    """The shape whose fullest stage reserves least, where each recomputes none or all of a kind, MoE layers before
    dense ones, or all virtual stages their first layers. It may not fit; None where there is no shape.
    """
    rest = problem.sequence, problem.pp, problem.vpp, problem.in_flight, problem.even, problem.alike
    return _least_memory_shape(tuple(problem.memory.layers.items()), problem.memory.fixed, *rest)


@lru_cache(maxsize=256)
def _least_memory_shape(
    layers: tuple[tuple[str, LayerBytes[float]], ...],
    fixed: float,
    sequence: Runs,
    pp: int,
    vpp: int,
    in_flight: tuple[float, ...],
    even: bool,
    alike: bool,
) -> Shaped | None:
    """The same, of the fields of LayoutProblem that decide about memory: thousands of plans share a few of these."""
    problem = LayoutProblem(
        kinds={},
        memory=LinearStage(layers=dict(layers), fixed=fixed),
        sequence=sequence,
        pp=pp,
        vpp=vpp,
        microbatches=1,
        in_flight=in_flight,
        usable=0.0,
        even=even,
        alike=alike,
    )
    shapes = shapes_of(problem)
    if not len(shapes):
        return None
    if problem.alike:
        ways = [_first(problem, shapes, layers) for layers in (0, *firsts(problem.sequence))]
        needs = np.stack([np.where(may, loads.memory.max(axis=1), inf) for loads, may in ways])
        least, row = (int(place) for place in np.unravel_index(np.argmin(needs), needs.shape))
        return _shaped(shapes, ways[least][0], np.full(len(shapes), (0, *firsts(problem.sequence))[least]), row)
    names = sorted(recomputable(problem), key=(MOE, DENSE).index)
    none = Loads(problem=problem, by_kind=shapes.by_kind, recomputed={})
    some = [replace(none, recomputed={kind: none.stages[kind] for kind in names[:n]}) for n in range(len(names) + 1)]
    needs = np.stack([loads.memory for loads in some])
    way, row = np.argmin(needs, axis=0), int(np.argmin(needs.min(axis=0).max(axis=1)))
    recomputed_counts = {kind: np.where(way > n, none.stages[kind], 0) for n, kind in enumerate(names)}
    return _shaped(shapes, replace(none, recomputed=recomputed_counts), np.zeros(len(shapes), dtype=np.int64), row)


def _shaped(shapes: StageShapes, loads: Loads, first: IntArray, row: int) -> Shaped:
    recomputed_counts = [
        {kind: int(n[row, stage]) for kind, n in loads.recomputed.items()} for stage in range(shapes.pp)
    ]
    return Shaped(
        counts=tuple(shapes.counts[row].tolist()),
        ahead=int(shapes.ahead[row]),
        recomputed=recomputed_counts,
        first=int(first[row]),
    )


def _order(loads: Loads, least: FloatArray, counts: IntArray) -> IntArray:
    """Shapes by these times; equals by how unlike their virtual stages are in time, then in how many layers follow."""
    forward, backward = loads.passes
    unlike = ((forward + backward) ** 2).sum(axis=(1, 2))
    changes = (np.diff(counts, axis=1) != 0).sum(axis=1)
    keys = (np.round(each / np.min(each, initial=inf) / SAME) for each in (unlike, least))
    return np.asarray(np.lexsort((changes, *keys)))


def _recomputing(problem: LayoutProblem, shapes: StageShapes) -> tuple[Loads, IntArray]:
    """The shapes with as few layers recomputed as lets them fit, or with all; and how many first layers of every
    virtual stage those are, where they are, 0 for all.
    """
    loads, first = Loads(problem=problem, by_kind=shapes.by_kind, recomputed={}), np.zeros(len(shapes), dtype=np.int64)
    if problem.alike:
        loads, _ = _first(problem, shapes, 0)
        for layers in range(int(shapes.counts.max()), 0, -1):
            fewer, may = _first(problem, shapes, layers)
            fits = fewer.fits & may
            chosen = {kind: np.where(fits[:, None], n, loads.recomputed[kind]) for kind, n in fewer.recomputed.items()}
            loads, first = replace(loads, recomputed=chosen), np.where(fits, layers, first)
        return loads, first
    flying = np.array(problem.in_flight)
    for kind in sorted(recomputable(problem), key=(MOE, DENSE).index):
        of_kind = loads.stages[kind]
        one = replace(loads, recomputed={**loads.recomputed, kind: np.minimum(of_kind, 1)})
        more = np.ceil((one.memory - problem.usable) / np.maximum(problem.memory.saved(kind, flying), 1.0))
        needed = np.where(loads.memory > problem.usable, np.clip(1 + more, 0, of_kind), 0)
        loads = replace(loads, recomputed={**loads.recomputed, kind: needed.astype(np.int64)})
    return loads, first


def _first(problem: LayoutProblem, shapes: StageShapes, layers: int) -> tuple[Loads, BoolArray]:
    """The shapes with the first so many layers of every virtual stage recomputed, or for 0 all and MTP layers,
    and which of them may be.
    """
    (low, high), most = np.array(partly_recomputed_limits(problem)).T, shapes.counts.max(axis=1)
    recomputed_counts = {kind: by_stage(shapes.by_kind[kind], problem.pp) for kind in recomputable(problem)}
    may = np.ones(len(shapes), dtype=np.bool_)
    if layers:
        first = shapes.first(layers)
        recomputed_counts = {kind: first.get(kind, 0 * all_layers) for kind, all_layers in recomputed_counts.items()}
        may = ((low <= shapes.counts) & (shapes.counts <= high)).all(axis=1) & (
            (layers < most) | (MTP in recomputed_counts)
        )
    return Loads(problem=problem, by_kind=shapes.by_kind, recomputed=recomputed_counts), may
