"""The fastest and the leanest of the shapes of small pipelines, against all that their stages may recompute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest

from optimizer.job.plan import IntArray
from optimizer.search.layouts.problem import LayoutProblem, partly_recomputed_limits, recomputable
from optimizer.search.layouts.solve.fastest_shape import Shaped, fastest, least_memory_shape
from optimizer.search.layouts.solve.layout import Layout, recomputed_alike, shaped_layout
from optimizer.search.layouts.solve.loads import Loads
from optimizer.search.layouts.solve.shapes import StageShapes, few_cuts, shapes_of
from tests.search.layouts.test_shapes import interleaved
from tests.thorough import cases

KINDS = ("dense", "moe")


def small(seed: int, vpp: int) -> tuple[LayoutProblem, StageShapes]:
    """Four or five layers on two stages, some of which may be on the host, with all shapes of theirs."""
    rng = np.random.default_rng(seed)
    problem = interleaved(3 * seed + 1)
    ends = [run for run in problem.sequence if run[0] not in KINDS]
    chosen = [bool(rng.integers(0, 4)) for _ in KINDS]
    sizes, times = dict(problem.memory.layers), dict(problem.kinds)
    for kind in sizes:
        again = kind in KINDS and chosen[KINDS.index(kind)]
        again |= kind == "mtp" and seed % 2 == 1 and any(chosen)
        sizes[kind] = replace(
            sizes[kind],
            chosen=float(again),
            recomputed=1.0 if again else sizes[kind].in_flight,
            recomputing=2.0 * again,
            state=float(rng.integers(0, 40)),
        )
        times[kind] = replace(
            times[kind],
            recompute=again * float(rng.integers(1, 4)),
            recompute_price=again * float(rng.uniform(0, 1)),
            hosted=float(rng.uniform(0, 9)),
            per_step=float(rng.uniform(0, 3)),
        )
    problem = replace(
        problem,
        kinds=times,
        memory=replace(problem.memory, layers=sizes),
        sequence=(ends[0], ("dense", 1), ("moe", int(rng.integers(3, 5))), *ends[1:]),
        vpp=vpp,
        in_flight=problem.in_flight if vpp > 1 else (2.0, 1.0),
        usable=float(rng.integers(25, 75)) + 0.25,
        more=int(rng.choice([0, 4])),
        hosted_price=float(rng.uniform(0, 5)),
        alternates=vpp == 1 and bool(seed % 4 > 1),
        alike=seed % 2 == 1 and any(chosen),
    )
    shapes = few_cuts(problem, inf) if vpp == 1 else shapes_of(problem)
    assert shapes is not None
    return problem, shapes


def recomputed(problem: LayoutProblem, shapes: StageShapes, row: int) -> Iterator[Mapping[str, IntArray]]:
    """All that the stages of a shape may recompute: any number of layers, those of mixtures first, or the first so many
    of every virtual stage, or all with the MTP layers.
    """
    held = {kind: shapes.stages[kind][row] for kind in recomputable(problem)}
    if not problem.alike:
        for numbers in product(*(product(*(range(n + 1) for n in some.tolist())) for some in held.values())):
            chosen = dict(zip(held, map(np.array, numbers), strict=True))
            if len(held) < 2 or not np.any((chosen["dense"] > 0) & (chosen["moe"] < held["moe"])):
                yield chosen
        return
    yield held
    counts, names = shapes.counts[row].tolist(), ["dense"] + ["moe"] * (problem.layers - 1)
    if any(not low <= n <= high for n, (low, high) in zip(counts, partly_recomputed_limits(problem), strict=True)):
        return
    for first in range(1, max(counts) + ("mtp" in held)):
        chosen = {kind: np.zeros(problem.pp, dtype=np.int64) for kind in held}
        start = 0
        for virtual, count in enumerate(counts):
            for name in names[start : start + count][:first]:
                if name in chosen:
                    chosen[name][virtual % problem.pp] += 1
            start += count
        yield chosen


def every(problem: LayoutProblem, shapes: StageShapes) -> Loads:
    pairs = [(row, chosen) for row in range(len(shapes)) for chosen in recomputed(problem, shapes, row)]
    rows = np.array([row for row, _ in pairs])
    return Loads(
        problem=problem,
        by_kind={kind: n[rows] for kind, n in shapes.by_kind.items()},
        stages={kind: n[rows] for kind, n in shapes.stages.items()},
        recomputed={kind: np.array([chosen[kind] for _, chosen in pairs]) for kind in recomputable(problem)},
    )


def laid_out(problem: LayoutProblem, shape: Shaped | None) -> Layout:
    """The layout; where stages recompute alike its number of first layers says it all."""
    layout = shaped_layout(problem, shape)
    assert layout is not None
    if problem.alike:
        again = recomputed_alike(problem, layout.kinds, layout.first)
        assert (again.memory, again.objective) == (layout.memory, layout.objective)
    return layout


@pytest.mark.parametrize("vpp", [1, 2])
@pytest.mark.parametrize("seed", range(cases(100, sample=12)))
def test_no_shape_that_fits_is_faster_whatever_is_recomputed(seed: int, vpp: int) -> None:
    problem, shapes = small(seed, vpp)
    loads = every(problem, shapes)
    seconds = loads.pipeline + loads.stalled + loads.once
    best = float(np.min(seconds[loads.fits], initial=inf))
    shape = fastest(problem, shapes)
    if best == inf:
        assert shape is None
        return
    found = laid_out(problem, shape)
    assert found.fits(problem)
    assert found.objective == pytest.approx(best, rel=1e-8)
    assert laid_out(problem, fastest(problem, shapes, best * (1 + 1e-6))).objective == found.objective
    assert fastest(problem, shapes, best * (1 - 1e-6)) is None


@pytest.mark.parametrize("seed", range(cases(100, sample=12)))
def test_no_shape_is_leaner_whatever_is_recomputed(seed: int) -> None:
    problem, shapes = small(seed, 2)
    problem = replace(problem, more=0)
    least = every(problem, shapes).memory.max(axis=1).min()
    assert max(laid_out(problem, least_memory_shape(problem)).memory) == pytest.approx(least, rel=1e-12)
