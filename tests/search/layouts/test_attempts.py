"""What a solver is asked for one attempt after the other, what becomes of what it finds, and what a layout says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.base.errors import Infeasible, TimeLimit
from optimizer.constraints.program import INFEASIBLE, OPTIMAL
from optimizer.job.plan import Placement, Plan
from optimizer.objectives.arrays import raised
from optimizer.search.layouts.candidates import LITTLE
from optimizer.search.layouts.problem import LayoutProblem
from optimizer.search.layouts.solve import layout as module
from optimizer.search.layouts.solve.layout import (
    FIRST,
    Layout,
    Solved,
    best_assignment,
    even_layout,
    least_memory_assignment,
    placed_layout,
    recomputed_alike,
)
from optimizer.search.layouts.solve.shapes import StageShapes, few_cuts
from tests.search.layouts.problems import Layer, costs

LAYER: Layer = {"forward": 1.0, "backward": 2.0, "recompute": 1.0, "static": 1.0, "in_flight": 1.0, "chosen": 1.0}
PROBLEM = LayoutProblem(
    **costs({"embedding": {}, "dense": LAYER, "moe": LAYER, "head": {"forward": 1.0}}),
    sequence=(("embedding", 1), ("dense", 2), ("moe", 5), ("head", 1)),
    pp=2,
    microbatches=8,
    in_flight=(2.0, 1.0),
    usable=100.0,
    alternates=True,
)
PREDICTING = replace(
    PROBLEM,
    **costs({"embedding": {}, "dense": LAYER, "moe": LAYER, "mtp": LAYER, "head": {}}),
    sequence=(*PROBLEM.sequence[:-1], ("mtp", 1), ("head", 1)),
)


def laid(*layers: int, problem: LayoutProblem = PROBLEM, **rest: Any) -> Layout:
    return placed_layout(problem, Placement(layers=layers, **rest))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float, float | None, bool]]:
    """Seed, time left, effort and whether all is relaxed, of each attempt, of which none is the last."""
    calls: list[tuple[int, float, float | None, bool]] = []

    def solve(seed: int, left: float, effort: float | None, *, relaxed: bool) -> Any:
        calls.append((seed, left, effort, relaxed))
        return SimpleNamespace(status="", values=None)

    made = SimpleNamespace(program=SimpleNamespace(solve=solve), problem=PROBLEM)
    monkeypatch.setattr(module, "LayoutProgram", lambda problem, *, lean: made if lean else None)
    monkeypatch.setattr(module, "perf_counter", iter([100.0, 101.0, 103.0, 106.0, 110.0]).__next__)
    return calls


def test_little_is_tried_first_with_every_constraint_relaxed_and_another_seed(
    asked: list[tuple[int, float, float | None, bool]],
) -> None:
    with pytest.raises(TimeLimit, match="no layout of 2 stages was found in time"):
        least_memory_assignment(PROBLEM, seed=7, time_limit=20.0, effort=5.0)
    assert asked == [(7, 19.0, FIRST, False), (7, 17.0, FIRST, True), (8, 14.0, FIRST, False), (7, 10.0, 5.0, False)]
    assert 3 * FIRST < LITTLE


@pytest.mark.parametrize(("status", "tries"), [(OPTIMAL, 2), ("", 4)])
def test_attempts_end_with_what_is_proven(status: str, tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []

    def solve(*_: Any, relaxed: bool) -> Any:
        calls.append(relaxed)
        return SimpleNamespace(status=status if relaxed else "", values=[1])

    made = SimpleNamespace(program=SimpleNamespace(solve=solve), problem=PROBLEM)
    monkeypatch.setattr(module, "LayoutProgram", lambda *_, **__: made)
    monkeypatch.setattr(module, "_layout", lambda _, __, proven: replace(laid(4, 3), proven=proven))
    assert least_memory_assignment(PROBLEM).proven is (status == OPTIMAL)
    assert len(calls) == tries


def test_what_the_solver_refutes_is_infeasible(monkeypatch: pytest.MonkeyPatch) -> None:
    solve = SimpleNamespace(solve=lambda *_, **__: SimpleNamespace(status=INFEASIBLE, values=None))
    monkeypatch.setattr(module, "LayoutProgram", lambda *_, **__: SimpleNamespace(program=solve, problem=PROBLEM))
    with pytest.raises(Infeasible, match="no layout fits"):
        least_memory_assignment(PROBLEM)


GOOD, BAD = replace(laid(4, 3), proven=False), replace(laid(6, 1), proven=False)
PROVEN = replace(BAD, proven=True)


@pytest.mark.parametrize(
    ("near", "found", "best", "proven"),
    [
        (None, [BAD, None, GOOD], GOOD, False),
        (None, [None, GOOD, BAD], GOOD, False),
        (BAD, [None, None], BAD, False),
        (BAD, [GOOD, None], GOOD, False),
        (GOOD, [BAD, None], GOOD, False),
        (GOOD, [BAD, PROVEN], GOOD, True),
        (None, [GOOD, PROVEN], GOOD, True),
        (GOOD, [BAD, Infeasible("")], GOOD, True),
        (None, [Infeasible("none")], None, False),
        (None, [None, None], None, False),
    ],
)
def test_the_best_of_all_attempts_is_taken(
    near: Layout | None,
    found: list[Layout | Infeasible | None],
    best: Layout | None,
    proven: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It bounds the others only where they are refuted."""

    def attempts(*_: Any) -> Iterator[Layout | None]:
        for each in found:
            if isinstance(each, Infeasible):
                raise each
            yield each

    assert GOOD.objective < BAD.objective == pytest.approx(BAD.pipeline)
    assert BAD.stalled
    monkeypatch.setattr(module, "fastest", lambda *_: near)
    monkeypatch.setattr(module, "shaped_layout", lambda _, layout: layout)
    monkeypatch.setattr(module, "least_objective", lambda *_: 1.0)
    monkeypatch.setattr(module, "few_cuts", lambda *_: None)
    monkeypatch.setattr(module._Effort, "layouts", attempts)
    if best is None:
        with pytest.raises(Infeasible if isinstance(found[-1], Infeasible) else TimeLimit):
            best_assignment(PROBLEM)
        return
    layout = best_assignment(PROBLEM)
    assert layout == replace(best, proven=proven, least=best.objective if proven else 0.0)


def test_few_cuts_that_are_left_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once where something is known to be beaten, or after a layout was found that leaves few."""
    best = best_assignment(PROBLEM)
    limit, calls = 1.01 * best.objective, list[float]()

    def asked(problem: LayoutProblem, slowest: float) -> StageShapes | None:
        calls.append(slowest)
        return few_cuts(problem, slowest)

    monkeypatch.setattr(module, "near_cuts", lambda problem: few_cuts(problem, 0.0))
    monkeypatch.setattr(module, "few_cuts", asked)
    assert best_assignment(PROBLEM, at_most=limit).objective == pytest.approx(best.objective)
    assert calls == [PROBLEM.slowest_within(limit)]
    calls.clear()
    monkeypatch.setattr(module._Effort, "layouts", lambda *_: iter([None, BAD, BAD, BAD]))
    assert best_assignment(PROBLEM).objective == pytest.approx(best.objective)
    assert calls == pytest.approx([PROBLEM.slowest_within(BAD.objective)])
    monkeypatch.setattr(module, "fastest", lambda _, shapes, at_most: None)
    with pytest.raises(Infeasible):
        best_assignment(PROBLEM, at_most=limit)


@pytest.mark.parametrize(("beyond", "enough"), [(1e-12, True), (1e-6, False)])
def test_a_layout_as_good_as_its_bound_is_not_looked_beyond(
    beyond: float, enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = best_assignment(PROBLEM)
    monkeypatch.setattr(module, "least_objective", lambda *_: best.objective * (1 - beyond))
    monkeypatch.setattr(module, "few_cuts", lambda *_: None)
    monkeypatch.setattr(module._Effort, "layouts", lambda *_: iter(()))
    assert best_assignment(PROBLEM).proven is enough


@pytest.mark.parametrize(
    ("memory", "there", "more", "fits"),
    [
        ((100.0, 9.0), (8.0, 0.0), 0, True),
        ((9.0, 100.0 + 1e-9), (8.0, 0.0), 0, False),
        ((9.0, 100.0 + 1e-9), (8.0, 0.0), 1, True),
        ((9.0, 100.0 + 1e-6), (8.0, 0.0), 1, False),
        ((9.0, 9.0), (0.0, raised(8.0)), 0, True),
        ((9.0, 9.0), (0.0, 8.0 + 1e-6), 0, False),
    ],
)
def test_a_layout_fits_in_the_memory_of_the_device_and_of_the_host(
    memory: tuple[float, ...], there: tuple[float, ...], more: int, fits: bool
) -> None:
    """Where some lies on the host so that it does, rounding counts for nothing."""
    layout = replace(laid(4, 3), memory=memory, on_host=there, more=more)
    assert layout.fits(replace(PROBLEM, host_memory_per_gpu=8.0)) is fits


@pytest.mark.parametrize(
    ("problem", "first", "counted", "recomputed"),
    [
        (PROBLEM, 0, 0, [(("dense", 2), ("moe", 2)), (("moe", 3),)]),
        (PROBLEM, 1, 1, [(("dense", 1),), (("moe", 1),)]),
        (PROBLEM, 3, 3, [(("dense", 2), ("moe", 1)), (("moe", 3),)]),
        (PROBLEM, 4, 0, [(("dense", 2), ("moe", 2)), (("moe", 3),)]),
        (PROBLEM, 9, 0, [(("dense", 2), ("moe", 2)), (("moe", 3),)]),
        (PREDICTING, 4, 4, [(("dense", 2), ("moe", 2)), (("moe", 3),)]),
        (PREDICTING, 9, 4, [(("dense", 2), ("moe", 2)), (("moe", 3),)]),
        (PREDICTING, 0, 0, [(("dense", 2), ("moe", 2)), (("moe", 3), ("mtp", 1))]),
    ],
)
def test_so_many_first_layers_are_recomputed_or_all(
    problem: LayoutProblem, first: int, counted: int, recomputed: list[tuple[tuple[str, int], ...]]
) -> None:
    """All without prediction layers are as many as the longest virtual stage has."""
    alike = replace(problem, alike=True)
    for layout in (
        recomputed_alike(alike, laid(4, 3, problem=alike).kinds, first),
        laid(4, 3, problem=alike, first=first),
    ):
        assert (layout.first, list(layout.recomputed), layout.chosen) == (counted, recomputed, False)
        assert not layout.proven


@pytest.mark.parametrize(
    ("asked_for", "recomputed", "listed"),
    [((), (4, 3), (4, 3)), ((3, 0), (3, 0), (3, 0)), ((9, 9), (4, 3), (4, 3))],
)
def test_stages_recompute_as_many_layers_as_they_are_asked_for(
    asked_for: tuple[int, ...], recomputed: tuple[int, ...], listed: tuple[int, ...]
) -> None:
    """Mixtures before dense layers."""
    layout = laid(4, 3, recomputed=asked_for)
    assert layout.recomputed_per_stage == recomputed
    assert dict(layout.recomputed[0])["moe"] == 2
    placed = layout.of(Plan(pp=2))
    assert (placed.recompute_layers, placed.layers_per_stage, placed.mtp_ahead) == (listed, (4, 3), 0)
    assert even_layout(PROBLEM, recompute=False).recomputed_per_stage == (0, 0)


def test_a_search_takes_over_what_another_has_ruled_out() -> None:
    memory = Solved(effort=1.0)
    assert memory.seed == 0
    best = memory.best(PROBLEM)
    tight = replace(PROBLEM, usable=1.0)
    with pytest.raises(Infeasible):
        memory.best(tight, 50.0)
    known = list(memory.ruled_out.known.values())
    assert known == [(50.0, None)]
    with pytest.raises(Infeasible, match=r"no layout has a pipeline of 50 s"):
        memory.ruled_out.best(tight, 50.0)
    assert memory.ruled_out.best(PROBLEM) == best


def test_a_plan_lists_layers_by_virtual_stage_where_they_are_dealt_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    virtual = replace(PROBLEM, vpp=2)
    assert laid(2, 2, 2, 1, problem=virtual).of(Plan(pp=2, vpp=2)).layers_per_stage == (4, 3)
    assert laid(2, 1, 2, 2, problem=virtual).of(Plan(pp=2, vpp=2)).layers_per_stage == (2, 1, 2, 2)
    three = replace(PREDICTING, pp=3, in_flight=(3.0, 2.0, 1.0), alike=True)
    assert [laid(3, 4, 0, problem=three, mtp_ahead=ahead).of(Plan(pp=3)).mtp_ahead for ahead in (0, 1)] == [0, 1]
    monkeypatch.setattr(module, "near_cuts", None)
    assert best_assignment(virtual).proven  # by a comparison of all shapes
