"""What a search for layouts does with the plans that it visits, whatever bounds and solvers say of them."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.arrays import FloatArray, lowered
from optimizer.search.layouts import candidates
from optimizer.search.layouts.assigned import Candidate
from optimizer.search.layouts.candidates import _Search
from tests.search.layouts.searches import PLAN, search_of

NUMBER = 7  # of a plan in the lattice


@pytest.mark.parametrize(
    ("usable", "reserved", "factor"),
    [(10.0, 5.0, 0.5), (10.0, 6.0, 0.5), (10.0, 7.0, 2 / 3), (10.0, 9.0, 1.0), (8.0, 5.0, 0.75), (8.0, 11.0, 1.0)],
)
def test_a_layout_is_as_safe_as_the_safest_class_that_it_fits(usable: float, reserved: float, factor: float) -> None:
    search = search_of(classes=((10.0, 3.0), (8.0, 2.0), (6.0, 1.5)))
    assert search.safer(usable, reserved) == pytest.approx(factor)


def test_layouts_beyond_the_limit_are_of_interest_where_a_safer_class_makes_them_better() -> None:
    """Of interleaved pipelines alone, which no solver is asked for, but where all are."""
    vpp = np.array([False, True])
    assert search_of(2.0, wider=1.5).reach == 3.0
    assert search_of(2.0, wider=1.5).worth_solving(vpp).tolist() == [2.0, 3.0]
    assert search_of(2.0, wider=1.5, all_wider=True).worth_solving(vpp).tolist() == [3.0, 3.0]


def test_plans_without_virtual_stages_come_first_then_the_lowest_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "SLICE", 2)
    plans = Plans.of([Plan(pp=2, vpp=vpp, dp=4) for vpp in (2, 1, 1, 3, 1, 2)])
    slices = candidates._slices(plans, np.array([1.0, 9.0, 5.0, 3.0, 2.0, 4.0]))
    assert [part.tolist() for part in slices] == [[4, 2], [0, 3], [5, 1]]


def columns(*vpp: int) -> Any:
    """Prospects of so many plans, with bounds 1, 2, 3, ..."""
    plans = Plans.of([Plan(pp=2, vpp=each, dp=4) for each in vpp])
    floors = SimpleNamespace(layer_costs=SimpleNamespace(plans=plans))
    return SimpleNamespace(floors=floors, plan=np.arange(len(vpp)), bounds=np.arange(1.0, len(vpp) + 1))


def objective(listed: float) -> Any:
    return lambda job: SimpleNamespace(listed=listed)


@pytest.mark.parametrize(
    ("limit", "wider", "visited"),
    [(8.0, 1.0, [0, 1, 2]), (6.0, 1.0, [0, 1]), (4.0, 2.0, [0, 2]), (2.0, 1.0, [])],
)
def test_bounds_of_prospects_count_at_their_scale(
    limit: float, wider: float, visited: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interleaved ones are visited where they may be better in a safer class, the second and the fourth are not."""
    limits: list[float] = []

    def shaped(some: Any, part: Any, at: float) -> FloatArray:
        limits.append(at)
        return np.asarray(np.array([0.0, 0.0, 3.5, 0.0])[part])

    monkeypatch.setattr(candidates, "objective_of", objective(1.0))
    monkeypatch.setattr(candidates, "shaped_bounds", shaped)
    some = columns(1, 1, 2, 1)
    bounds = 2 * some.bounds
    found = list(candidates._next(search_of(limit, wider=wider), some, bounds, 2.0))
    assert found == visited
    assert bounds.tolist() == [2.0, 4.0, 7.0 if 2 in visited else 6.0, 8.0]
    assert limits == [limit * wider / 2] * bool(visited)


@pytest.mark.parametrize(
    ("bound", "listed", "shapes"),
    [
        (9.0, 1.0, True),
        (9.0, 1.1, True),
        (9.0, 1.2, False),
        (10 - 1e-9, 1 + 2e-10, True),
        (5 * (1 + candidates.SAME), 2.0, False),
    ],
)
def test_the_shapes_of_one_prospect_are_bounded_where_another_than_its_even_split_may_be_better(
    bound: float, listed: float, shapes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def shaped(some: Any, part: Any, at: float) -> FloatArray:
        asked.append(len(part))
        return np.zeros(len(part))

    monkeypatch.setattr(candidates, "objective_of", objective(listed))
    monkeypatch.setattr(candidates, "shaped_bounds", shaped)
    assert list(candidates._next(search_of(10.0), columns(1), np.array([bound]), 1.0)) == [0]
    assert asked == [1] * shapes
    two = columns(1, 1)
    assert list(candidates._next(search_of(10.0), two, np.array([bound, bound]), 1.0)) == [0, 1]
    assert asked == [*[1] * shapes, 2]


def test_positions_of_prospects_come_by_raised_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of them at a time, none after a part that is all too high."""
    monkeypatch.setattr(candidates, "TOGETHER", 2)
    monkeypatch.setattr(candidates, "objective_of", objective(1.0))
    monkeypatch.setattr(candidates, "shaped_bounds", lambda _, part, at: np.array([5.0, 0.0, 3.1, 0.0, 6.0])[part])
    some = columns(1, 1, 1, 1, 1)
    bounds = some.bounds.copy()
    assert list(candidates._next(search_of(6.0), some, bounds, 1.0)) == [1, 0, 2, 3]
    assert bounds.tolist() == [5.0, 2.0, 3.1, 4.0, 6.0]


def test_each_plan_gets_the_least_of_what_its_prospects_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    first = SimpleNamespace(plan=np.array([0, 1, 2]), bounds=np.array([1.0, 2.0, 3.0]))
    second = SimpleNamespace(plan=np.array([2, 0]), bounds=np.array([0.5, 4.0]))
    half = Candidate(plan=PLAN, value=4.0, safer=0.5, solved=True)
    solved: dict[tuple[int, float], Any] = {(11, 1.0): half, (12, 1.0): 5.0, (12, 2.0): 1.5}
    noted: list[tuple[Candidate, int]] = []
    monkeypatch.setattr(candidates, "_next", lambda search, some, *_: iter([1, 2] if some is first else [0]))
    monkeypatch.setattr(candidates, "_solve", lambda search, some, position, *at: solved[at])
    monkeypatch.setattr(candidates, "_note", lambda _, candidate, number: noted.append((candidate, number)))
    prospects: Any = [(first, 1.0), (second, 2.0)]
    least = candidates._visit(search_of(), prospects, np.array([10, 11, 12, 13]))
    assert least.tolist() == [1.0, 4.0, 1.5, inf]
    assert noted == [(Candidate(plan=PLAN, value=2.0, solved=True), 11)]


def test_a_search_that_is_over_leaves_the_least_bound_of_what_it_did_not_visit(monkeypatch: pytest.MonkeyPatch) -> None:
    some: Any = SimpleNamespace(plan=np.array([0, 1]), bounds=np.array([3.0, 2.0]))
    monkeypatch.setattr(candidates, "_next", lambda *_: iter([1, 0]))
    search = search_of(cut_short=candidates.CUT_SHORT)
    assert candidates._visit(search, [(some, 2.0)], np.array([0, 1])).tolist() == [6.0, 4.0]
    assert search.undecided == [4.0]


@pytest.mark.parametrize("over", [False, True])
def test_values_of_a_class_are_over_its_factor(over: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four plans in two slices the fourth is too high by its bound, the third by where its memory fits."""

    class Some(SimpleNamespace):
        def take(self, rows: Any) -> Some:
            return Some(plans=None, rows=self.rows[rows])

        def bound(self, any_knobs: bool) -> FloatArray:
            assert any_knobs
            return np.array([1.0, 0.0, 3.0, 5.0])

    asked: list[list[int]] = []

    def fitting(numbers: Any, layer_costs: Any, floor: Any, limit: float) -> FloatArray:
        assert limit == 5.0
        asked.append(numbers.tolist())
        assert layer_costs.rows.tolist() == floor.rows.tolist() == (numbers - 10).tolist()
        return np.asarray(np.array([0.0, 2.5, 5.0, 0.0])[numbers - 10])

    def visit(search: _Search, prospects: Any, numbers: Any) -> FloatArray:
        search.cut_short = candidates.CUT_SHORT * over
        return np.asarray(numbers * 1.0)

    monkeypatch.setattr(candidates, "_slices", lambda *_: iter([np.array([1, 0]), np.array([2, 3])]))
    monkeypatch.setattr(candidates, "_known", lambda *_: None)
    monkeypatch.setattr(candidates, "_prospects", lambda *_: iter(()))
    monkeypatch.setattr(candidates, "_visit", visit)
    search, some = search_of(10.0), Some(plans=None, rows=np.arange(4))
    hosted: Any = SimpleNamespace(fitting=fitting)
    every: Any = some
    found = candidates._class(search, every, every, hosted, np.array([0.5, 2.0, 0.0, 0.0]), np.arange(10, 14), 2.0)
    assert found.tolist() == [5.0, 5.5, 3.0 if over else 5.0, 5.0]
    assert search.undecided == [6.0 if over else inf]
    assert asked == [[11, 10], *([] if over else [[12]])]


def test_bounds_alone_count_at_the_scale_of_prospects(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = None
    monkeypatch.setattr(candidates, "_own", lambda *_: None)
    monkeypatch.setattr(candidates, "_prospects", lambda *_: iter([(lambda _: columns(1, 1, 1), 2.0)]))
    assert candidates._undecided(search_of(4.0), nothing, nothing, nothing, 1.0) == {0}


@pytest.mark.parametrize(
    ("fixed", "slower", "host", "right"),
    [
        (Knobs(), True, 1.5, [("at", [0.0, 0.0], 4.0, 3.0)]),
        (Knobs(offload=0.5), True, 1.5, [("at", [0.5, 0.5], 12 / 4.5, 4.5)]),
        (None, True, 1.5, [("at", [0.0, 0.0], 4.0, 3.0), ("some", None, 12 / 4.5, 4.5)]),
        (None, True, 1.0, [("at", [0.0, 0.0], 4.0, 3.0), ("some", None, 4.0, 3.0)]),
        (None, False, 1.5, [("at", [0.0, 0.0], 4.0, 3.0), ("at", [0.7, 0.9], 12 / 4.5, 4.5)]),
        (None, False, 1.0, [("at", [0.7, 0.9], 4.0, 3.0)]),
    ],
)
def test_prospects_have_nothing_on_the_host_then_something(
    fixed: Knobs | None, slower: bool, host: float, right: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As much as may be where that takes no time; alone where it costs nothing."""
    costly = SimpleNamespace(layout=lambda job, plans, share: np.full(len(plans), host if share else 1.0))
    for name, function in {
        "objective_of": lambda job: costly,
        "slower_on_host": lambda job: slower,
        "most_offload": lambda layer_costs: np.array([0.7, 0.9]),
        "prospects_at": lambda some, share, limit: ("at", share.tolist(), limit),
        "some_on_host": lambda some, limit: ("some", None, limit),
    }.items():
        monkeypatch.setattr(candidates, name, function)

    class Costs(SimpleNamespace):
        def __len__(self) -> int:
            return 2

    own: Any = SimpleNamespace(job=None, layer_costs=Costs(plans=Plans.of([Plan(), Plan()])))
    kinds: list[Any] = list(candidates._prospects(search_of(8.0, wider=1.5, fixed=fixed), own, 3.0))
    assert [(*made(own), scale) for made, scale in kinds] == right


def test_floors_are_found_once_for_all_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rows(SimpleNamespace):
        def take(self, index: Any) -> Rows:
            return Rows(rows=self.rows[index])

        def of(self, layer_costs: Any) -> Any:
            return self.rows.tolist(), layer_costs

    made: list[list[int]] = []

    def own(search: Any, layer_costs: Any, floor: Any) -> Rows:
        made.append(layer_costs.tolist())
        return Rows(rows=layer_costs)

    monkeypatch.setattr(candidates, "_own", own)
    search, floor = search_of(), SimpleNamespace()

    def known(*numbers: int) -> Any:
        some: Any = np.array(numbers)
        nothing: Any = floor
        return candidates._known(search, some, nothing, some)

    assert known(9, 4, 6).rows.tolist() == [9, 4, 6]
    assert known(3, 2).rows.tolist() == [3, 2]
    assert known(6, 9)[0] == [6, 9]
    assert known(2, 3)[0] == [2, 3]
    assert made == [[9, 4, 6], [3, 2]]
    assert known(99).rows.tolist() == [99]


@pytest.mark.parametrize(("whole", "chosen"), [(5, [0, 1, 2, 3, 4]), (4, [1, 2, 3])])
def test_cp_sat_is_given_all_plans_or_those_of_the_lowest_bounds_and_the_best(
    whole: int, chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Rows(SimpleNamespace):
        def take(self, index: Any) -> Rows:
            return Rows(rows=self.rows[index])

        def copied(self) -> Rows:
            return self

    monkeypatch.setattr(candidates, "PROVEN_WHOLE", whole)
    monkeypatch.setattr(candidates, "FASTEST", 2)
    bounds, best = np.array([4.0, 1.0, 5.0, 2.0, 3.0]), Candidate(plan=PLAN, value=5.0)
    lattice: Any = SimpleNamespace(layer_costs=Rows(rows=np.arange(5)), bounds=bounds, space=5)
    search = search_of(best=best, by_number={2: best, 4: replace(best, value=6.0)})
    found = candidates._proof_plans(search, lattice, np.array([4.5, inf, 5.0, inf, 3.5]))
    rows: Any = found.layer_costs
    assert rows.rows.tolist() == chosen
    assert found.values.tolist() == [[4.5, 1.0, 5.0, 2.0, 3.5][row] for row in chosen]
    assert found.fits.tolist() == [[True, False, True, False, True][row] for row in chosen]


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ((True, 2.0), (True, 1.0), 1),
        ((True, 1.0), (True, 2.0), 0),
        ((True, 1.0), (True, 1.0), 0),
        ((False, 1.0), (True, 2.0), 1),
    ],
)
def test_of_several_settings_of_a_plan_the_best_that_is_solved_is_kept(
    first: tuple[bool, float], second: tuple[bool, float], kept: int
) -> None:
    search = search_of(0.5)
    both = [Candidate(plan=PLAN, value=value, solved=solved) for solved, value in (first, second)]
    for each in both:
        candidates._note(search, each, NUMBER)
    assert search.by_number == {NUMBER: both[kept]}
    assert search.by_number[NUMBER] is both[kept]
    assert (search.undecided, search.best, search.limit) == ([], None, 0.5)


@pytest.mark.parametrize(("value", "least"), [(3.0, 2.0), (1.5, 2.0)])
def test_what_is_not_proven_leaves_open_what_it_may_be(value: float, least: float) -> None:
    search = search_of(0.5)
    candidates._note(search, Candidate(plan=PLAN, value=value, least=least, proven=False, solved=True), NUMBER)
    assert search.undecided == [min(value, least)]


@pytest.mark.parametrize(("value", "better"), [(lowered(2.0), False), (lowered(lowered(2.0)), True)])
def test_what_is_better_by_no_more_than_rounding_is_not_the_best(value: float, better: bool) -> None:
    search = search_of(2.0)
    candidates._note(search, Candidate(plan=PLAN, value=value, solved=True), NUMBER)
    assert (search.best is not None) is better
