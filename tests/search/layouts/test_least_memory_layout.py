"""The layout of least memory, with and without a solver, is that of exhaustion."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest

from optimizer.base.errors import Infeasible
from optimizer.job.plan import Placement
from optimizer.search.layouts.problem import LayoutProblem
from optimizer.search.layouts.solve import least_memory as module
from optimizer.search.layouts.solve.fastest_shape import least_memory_shape
from optimizer.search.layouts.solve.layout import (
    Layout,
    best_assignment,
    least_memory_assignment,
    placed_layout,
    shaped_layout,
)
from optimizer.search.layouts.solve.least_memory import (
    filled,
    fitting_layout,
    least_memory_layout,
    recomputed_for_least_memory,
)
from tests.search.layouts.problems import costs
from tests.search.layouts.test_layout import every_layout, random_problem
from tests.search.layouts.test_shapes import interleaved
from tests.thorough import cases


@pytest.mark.parametrize("freed", [0.0, 1.5, 3.0])
@pytest.mark.parametrize("seed", range(cases(60, sample=12)))
def test_the_least_memory_layout_is_that_of_exhaustion(seed: int, freed: float) -> None:
    problem = replace(random_problem(np.random.default_rng(seed), freed), usable=1000.25)
    least = min(max(layout.memory) for layout in every_layout(problem))
    found, solved = least_memory_layout(problem), least_memory_assignment(problem)
    assert found is not None
    assert max(found.memory) == pytest.approx(least, rel=1e-6)
    assert max(solved.memory) == pytest.approx(least, rel=1e-5)
    assert fitting_layout(replace(problem, usable=least * (1 + 1e-6))) is not None
    too_little = replace(problem, usable=least * (1 - 1e-4))
    assert fitting_layout(too_little) is None
    assert least_memory_layout(too_little) is None
    with pytest.raises(Infeasible, match="no layout fits"):
        least_memory_assignment(too_little)


def test_where_no_memory_is_usable_no_layout_fits() -> None:
    problem = replace(random_problem(np.random.default_rng(1), 0.0), usable=0.0)
    with pytest.raises(Infeasible):
        least_memory_assignment(problem)
    with pytest.raises(Infeasible):
        best_assignment(problem)


@pytest.mark.parametrize(("usable", "first"), [(20, (4, True)), (17, (4, True)), (16.9, (None, False))])
def test_mtp_layers_are_left_alone_where_to_recompute_them_takes_more(
    usable: float, first: tuple[int | None, bool]
) -> None:
    """Four layers of two bytes and two MTP layers of three, with three while a layer is recomputed; else 12 and 8."""
    layer = {"static": 1.0, "in_flight": 2.0, "recomputed": 1.0, "chosen": 1.0, "recomputing": 3.0}
    mtp = {**layer, "recomputing": 8.0}
    problem = LayoutProblem(
        **costs({"embedding": {}, "dense": layer, "mtp": mtp, "head": {}}),
        sequence=(("embedding", 1), ("dense", 4), ("mtp", 2), ("head", 1)),
        pp=1,
        microbatches=1,
        in_flight=(1.0,),
        usable=usable,
        alike=True,
    )
    layout, possible = filled(problem)
    assert (layout and layout.first, possible) == first


def lean(seed: int, alike: bool) -> LayoutProblem:
    """A problem with up to four stages, whose ends and MTP layers may be heavier than layers, and first stages too."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, float(rng.choice([0.0, 1.5])))
    pp, layers = int(rng.integers(1, 5)), dict(problem.memory.layers)
    layers["embedding"] = replace(layers["embedding"], static=float(rng.integers(0, 12)))
    layers["head"] = replace(layers["head"], static=float(rng.integers(0, 30)))
    layers["mtp"] = replace(layers["mtp"], static=float(rng.integers(1, 30)), chosen=alike * layers["moe"].chosen)
    return replace(
        problem,
        memory=replace(problem.memory, layers=layers),
        pp=pp,
        in_flight=tuple(float(pp - stage) ** (1 + seed // 2 % 3) for stage in range(pp)),
        alike=alike,
    )


def least_by_trial(problem: LayoutProblem) -> float:
    """Least memory of the fullest stage over all cuts into stages that hold something, MTP layers on the last two, and
    any numbers of recomputed layers of each kind, or the first so many of every stage and, with all of them, MTP ones.
    """
    layers = [kind for kind, count in problem.sequence for _ in range(count)]
    chosen = [kind for kind, layer in problem.memory.layers.items() if layer.chosen]

    def held(stage: list[str], recomputed: list[str], flying: float) -> float:
        counts, again = Counter(stage), Counter(kind for kind in recomputed if kind in chosen)
        return float(problem.memory.reserved(counts, again, flying))

    def fullest(stages: list[list[str]]) -> float:
        bodies = [[kind for kind in stage if kind in ("dense", "moe")] for stage in stages]
        each = list(zip(stages, bodies, problem.in_flight, strict=True))
        if problem.alike:
            some = (
                max(held(stage, body[:first], flying) for stage, body, flying in each)
                for first in range(1, problem.layers + 1)
            )
            return min(max(held(stage, stage, flying) for stage, _, flying in each), *some)
        return max(
            min(
                held(stage, ["dense"] * dense + ["moe"] * moe, flying)
                for dense in range(body.count("dense") + 1)
                for moe in range(body.count("moe") + 1)
            )
            for stage, body, flying in each
        )

    edges = ((0, *cuts, len(layers)) for cuts in combinations(range(1, len(layers)), problem.pp - 1))
    return min(fullest([layers[a:b] for a, b in pairwise(each)]) for each in edges)


@pytest.mark.parametrize("seed", range(cases(200, sample=32)))
def test_stages_that_are_filled_one_after_the_other_hold_what_any_can(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last byte; where that fails the solver decides, such as where stages could be empty."""
    problem = lean(seed, alike=bool(seed % 2))
    least = least_by_trial(problem)

    layout, possible = filled(replace(problem, usable=least))
    assert possible
    if layout is None:  # with the first layers recomputed alike more layers may need less, which is not seen
        assert problem.alike
        return
    assert max(layout.memory) == least
    assert all(layout.kinds)

    def solver(asked: LayoutProblem, time_limit: float | None) -> Layout:
        if asked.usable < least:
            raise Infeasible("no layout fits")
        return layout

    monkeypatch.setattr(module, "least_memory_assignment", solver)
    assert fitting_layout(replace(problem, usable=least)) == layout
    assert fitting_layout(replace(problem, usable=least - 0.25)) is None
    found = least_memory_layout(replace(problem, usable=3 * least), bound=least / 2)
    assert found is not None
    assert max(found.memory) == least
    assert least_memory_layout(replace(problem, usable=least - 0.25)) is None


def test_the_solver_is_asked_where_empty_stages_or_the_host_stand_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three layers of a byte in flight each: no room for one on the second of four stages, which must not be empty."""
    problem = LayoutProblem(
        **costs({"embedding": {}, "dense": {"in_flight": 1.0, "hosted": 1.0}, "head": {}}),
        sequence=(("embedding", 1), ("dense", 3), ("head", 1)),
        pp=4,
        microbatches=4,
        in_flight=(4.0, 3.0, 2.0, 1.0),
        usable=2.5,
    )
    asked: list[tuple[float, float | None]] = []

    def solver(problem: LayoutProblem, *, time_limit: float | None) -> Layout:
        asked.append((problem.usable, time_limit))
        raise Infeasible("no layout fits")

    monkeypatch.setattr(module, "least_memory_assignment", solver)
    assert filled(problem) == (None, True)
    assert fitting_layout(problem, 7.0) is None
    assert fitting_layout(replace(problem, usable=0.5)) is None
    assert asked == [(2.5, 7.0)]
    wide = fitting_layout(replace(problem, usable=3.0))
    assert wide is not None
    assert wide.layers_per_stage == (0, 1, 1, 1)
    assert fitting_layout(replace(problem, usable=3.0, host_memory_per_gpu=0.5)) is None
    assert asked[1:] == [(3.0, None)]


@pytest.mark.parametrize("seed", range(6))
def test_virtual_stages_and_even_cuts_have_one_leanest_layout(seed: int) -> None:
    problem = interleaved(seed)
    lean = shaped_layout(problem, least_memory_shape(problem))
    assert lean is not None
    sequence = (("embedding", 1), ("dense", 2), ("moe", 4), ("head", 1))
    even = replace(problem, sequence=sequence, vpp=1, pp=2, even=True, in_flight=(2.0, 1.0))
    halved = recomputed_for_least_memory(even, placed_layout(even, Placement()))
    for each, layout in ((problem, lean), (even, halved)):
        least = max(layout.memory)
        for usable, fits in ((least, True), (least * 1.5, True), (least * (1 - 1e-9), False)):
            some = replace(each, usable=usable)
            for found in (fitting_layout(some), least_memory_layout(some)):
                assert (found and found.memory) == (layout.memory if fits else None)
    assert halved.layers_per_stage[0] == halved.layers_per_stage[1]
