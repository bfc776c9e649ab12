"""The fastest of all shapes of virtual stages that fit, each recomputing as few layers as lets it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

import numpy as np

from optimizer.job.plan import IntArray
from optimizer.job.rows import Rows
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, MOE, MTP, Runs
from optimizer.objectives.step.host_memory import OFFLOAD_STEP
from optimizer.objectives.step.linear_stage import LayerBytes, LinearStage
from optimizer.search.layouts.problem import LayoutProblem, firsts, partly_recomputed_limits, recomputable
from optimizer.search.layouts.solve.loads import Loads
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


def fastest(problem: LayoutProblem, shapes: StageShapes, at_most: float = inf) -> Shaped | None:
    """The shape whose pipeline is fastest among those that fit, of equals the one whose virtual stages are most alike;
    None where none of `shapes` has a pipeline of `at_most` [s].

    In the order of their times where no stage waits; the schedules of those that may be fastest are run.
    """
    if at_most < inf:
        # Recomputing takes time and what lies on the host too: without either, most shapes take too long already.
        roomy = shapes.loads(replace(problem, usable=inf), {})
        shapes = shapes.take(np.flatnonzero(roomy.least <= at_most))
    if not len(shapes):
        return None
    options = [
        option.take(np.flatnonzero(option.loads.fits & (option.loads.least <= at_most)))
        for option in _options(problem, shapes, at_most)
    ]
    row, first = (np.concatenate([getattr(option, name) for option in options]) for name in ("row", "first"))
    loads = Loads.joined([option.loads for option in options])
    least = loads.least
    best, fastest_row = inf, None
    order = _order(loads, least, shapes.counts[row])
    for start in range(0, len(order), AT_ONCE):
        some = order[start : start + AT_ONCE]
        some = some[least[some] < best * (1 - SAME)]
        if not len(some):
            break
        seconds = least[some] + (loads.take(some).stalled if problem.vpp > 1 else 0.0)
        seconds = np.where(seconds <= at_most, seconds, inf)
        place = int(np.argmax(seconds <= seconds.min() * (1 + SAME)))
        if seconds[place] < best * (1 - SAME):
            best, fastest_row = float(seconds[place]), int(some[place])
    return None if fastest_row is None else _shaped(shapes, loads, int(row[fastest_row]), first, fastest_row)


@dataclass(frozen=True, kw_only=True)
class _Option(Rows):
    """Shapes, by their `row`, with what they recompute: `first` as Layout has it."""

    loads: Loads
    row: IntArray
    first: IntArray


def _options(problem: LayoutProblem, shapes: StageShapes, at_most: float) -> Iterator[_Option]:
    """Every shape with all that it may recompute and that may be best: the fewer layers, the more lies on the host.

    Without more layers recomputed alike than leave a pipeline of `at_most` [s].
    """
    every, none = np.arange(len(shapes)), shapes.loads(problem, {})
    if problem.alike:
        for layers in (*range(1, int(shapes.counts.max(initial=0)) + 1), 0):
            loads, may = _first(problem, shapes, layers)
            index = np.flatnonzero(may)
            yield _Option(loads=loads, row=every, first=np.full(len(shapes), layers)).take(index)
            left = np.flatnonzero(~(may & loads.fits & (loads.more == 0)) & ~loads.late(at_most))
            shapes, every = shapes.take(left), every[left]
        return
    for more in _shares(none):
        index = np.flatnonzero(more <= problem.more)
        loads = _fewest(none.take(index), more[index])
        yield _Option(loads=loads, row=index, first=np.zeros(len(index), dtype=np.int64))


def _shares(none: Loads) -> Iterator[FloatArray]:
    """OFFLOAD_STEPs more on the host from which on some stage recomputes a layer less, by shape."""
    yield np.zeros(len(none))
    names = sorted(recomputable(none.problem), key=(MOE, DENSE).index)
    layers_here = sum((none.stages[kind] for kind in names), 0 * none.stages[EMBEDDING])
    for layers in range(int(layers_here.max(initial=0)) + 1) if none.problem.more and names else ():
        left, recomputed = np.full_like(layers_here, layers), {}
        for kind in names:
            recomputed[kind] = np.minimum(left, none.stages[kind])
            left = left - recomputed[kind]
        yield from replace(none, recomputed=recomputed).needs.T


def _fewest(loads: Loads, more: FloatArray) -> Loads:
    """The shapes with as few layers recomputed on each stage as lets it fit with so much more on the host, or all."""
    problem, flying = loads.problem, np.array(loads.problem.in_flight)
    usable = problem.usable + more[:, None] * OFFLOAD_STEP * loads.states
    for kind in sorted(recomputable(problem), key=(MOE, DENSE).index):
        of_kind = loads.stages[kind]
        one = replace(loads, recomputed={**loads.recomputed, kind: np.minimum(of_kind, 1)})
        further = np.ceil((one.resident - usable) / np.maximum(problem.memory.saved(kind, flying), 1.0))
        needed = np.where(loads.resident > usable, np.clip(1 + further, 0, of_kind), 0)
        loads = replace(loads, recomputed={**loads.recomputed, kind: needed.astype(np.int64)})
    return loads


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
        memory=LinearStage(layers=dict(layers), fixed=fixed, offload=0.0),
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
        return _shaped(shapes, ways[least][0], row, np.full(len(shapes), (0, *firsts(problem.sequence))[least]), row)
    names = sorted(recomputable(problem), key=(MOE, DENSE).index)
    none = shapes.loads(problem, {})
    some = [replace(none, recomputed={kind: none.stages[kind] for kind in names[:n]}) for n in range(len(names) + 1)]
    needs = np.stack([loads.memory for loads in some])
    way, row = np.argmin(needs, axis=0), int(np.argmin(needs.min(axis=0).max(axis=1)))
    recomputed_counts = {kind: np.where(way > n, none.stages[kind], 0) for n, kind in enumerate(names)}
    return _shaped(shapes, replace(none, recomputed=recomputed_counts), row, np.zeros(len(shapes), dtype=np.int64), row)


def _shaped(shapes: StageShapes, loads: Loads, row: int, first: IntArray, place: int) -> Shaped:
    """A shape, and what is recomputed at this place of the loads."""
    recomputed_counts = [
        {kind: int(n[place, stage]) for kind, n in loads.recomputed.items()} for stage in range(shapes.pp)
    ]
    return Shaped(
        counts=tuple(shapes.counts[row].tolist()),
        ahead=int(shapes.ahead[row]),
        recomputed=recomputed_counts,
        first=int(first[place]),
    )


def _order(loads: Loads, least: FloatArray, counts: IntArray) -> IntArray:
    """Shapes by these times; equals by how unlike their virtual stages are in time, then in how many layers follow."""
    forward, backward = loads.passes
    unlike = ((forward + backward) ** 2).sum(axis=(1, 2))
    changes = (np.diff(counts, axis=1) != 0).sum(axis=1)
    keys = (np.round(each / np.min(each, initial=inf) / SAME) for each in (unlike, least))
    return np.asarray(np.lexsort((changes, *keys)))


def _first(problem: LayoutProblem, shapes: StageShapes, layers: int) -> tuple[Loads, BoolArray]:
    """The shapes with the first so many layers of every virtual stage recomputed, or for 0 all and MTP layers,
    and which of them may be.
    """
    (low, high), most = np.array(partly_recomputed_limits(problem)).T, shapes.counts.max(axis=1)
    recomputed_counts = {kind: shapes.stages[kind] for kind in recomputable(problem)}
    may = np.ones(len(shapes), dtype=np.bool_)
    if layers:
        first = shapes.first(layers)
        recomputed_counts = {kind: first.get(kind, 0 * all_layers) for kind, all_layers in recomputed_counts.items()}
        may = ((low <= shapes.counts) & (shapes.counts <= high)).all(axis=1) & (
            (layers < most) | (MTP in recomputed_counts)
        )
    return shapes.loads(problem, recomputed_counts), may
