"""What a search for layouts does with the plans that it visits, one by one, whatever bounds and solvers say of them."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.base.errors import Infeasible, TimeLimit
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.arrays import FloatArray
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.layouts import candidates
from optimizer.search.layouts.assigned import Candidate
from optimizer.search.layouts.candidates import SAME, _Search
from tests.search.jobs import small_job

NUMBER, POSITION, INDEX = 7, 1, 3  # of the plan in the lattice, among prospects, in the floors
PLAN = Plan(pp=2, dp=4, num_microbatches=12)
LISTED = replace(PLAN, layers_per_stage=(7, 5))


def search_of(limit: float = inf, *, fixed: Knobs | None = None, layouts: Any = None, **rest: Any) -> _Search:
    deadline: Any = SimpleNamespace(left=9.0)
    own: Any = None
    tuning: Any = replace(Tuning(), fixed=fixed)
    return _Search(job=small_job(8), tuning=tuning, deadline=deadline, layouts=layouts, own=own, limit=limit, **rest)


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


class Laid(SimpleNamespace):
    """A layout that takes so long, by a list or not."""

    def fits(self, problem: Any) -> bool:
        return bool(self.fitting)

    def of(self, plan: Plan) -> Plan:
        return replace(plan, layers_per_stage=LISTED.layers_per_stage) if self.listed else plan


def laid(seconds: float, *, listed: bool = True, least: float = 0.0, proven: bool = True, more: int = 0) -> Laid:
    rest = {"listed": listed, "proven": proven, "more": more, "least": least, "memory": (5.0, 8.0)}
    return Laid(objective=seconds, fitting=True, **rest)


class Case:
    """A plan of which bounds and solvers say so much; times are values, over the scale."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **said: Any) -> None:
        usual: dict[str, Any] = {
            "bound": 1.0,
            "uneven": 0.0,
            "cut": None,
            "limit": 10.0,
            "listed": 1.0,
            "scale": 1.0,
            "vpp": 1,
        }
        usual |= {"even": None, "whole": None, "found": laid(4.0), "room": True, "chosen": (), "more": 0}
        said = usual | {"alike": False} | said
        self.asked: list[Any] = []
        self.said = said
        objective = SimpleNamespace(listed=said["listed"], layout=self.layout)
        problem = SimpleNamespace(alike=said["alike"], more=said["more"], vpp=said["vpp"], usable=9.0)
        problem.at_most_offload = "with most on the host"
        floor = SimpleNamespace(value_of=lambda time, index: time * (index == INDEX), within=self.within)
        uneven, bounds = np.full(INDEX + 1, 99.0), np.full(2, 99.0)
        uneven[INDEX], bounds[POSITION] = said["uneven"], said["bound"]
        plans = SimpleNamespace(plan=lambda index: replace(PLAN, vpp=said["vpp"]) if index == INDEX else None)
        floors = SimpleNamespace(
            floor=floor, uneven=uneven, layer_costs=SimpleNamespace(plans=plans), floor_at=lambda *at: ("floor", *at)
        )
        self.prospects: Any = SimpleNamespace(
            floors=floors,
            plan=np.array([0, INDEX]),
            bounds=bounds,
            low=np.array([0.0, 0.25]),
            problem=lambda position, plan: problem,
            knobs=lambda position, more: Knobs(offload=0.25 + more / 100),
        )
        for name, function in {
            "objective_of": lambda job: objective,
            "even_layout": lambda problem, recompute=True: said["even" if recompute == said["alike"] else "whole"],
            "recomputable": lambda problem: said["chosen"],
            "bounded": lambda problem: said["cut"] is not None,
            "cut_bound": self.cut_bound,
            "fitting_layout": self.fitting,
        }.items():
            monkeypatch.setattr(candidates, name, function)
        self.search = search_of(
            said["limit"], layouts=SimpleNamespace(best=self.best), classes=((9.0, 2.0), (8.0, 1.0)), wider=1.5
        )
        unfit = laid(0.0)
        unfit.fitting = False
        said["even"], said["whole"] = said["even"] or unfit, said["whole"] or unfit

    def layout(self, job: Any, plans: Plans, offload: float) -> FloatArray:
        return np.array([self.said["listed"] if plans.plan(0).layers_per_stage else 1.0])

    def within(self, value: float, index: int) -> float:
        assert index == INDEX
        return value

    def cut_bound(self, problem: Any, floor: Any, limit: float) -> float:
        self.asked.append(("cut", *floor, limit))
        return float(self.said["cut"])

    def fitting(self, problem: Any, left: float) -> object:
        assert (problem, left) == ("with most on the host", 9.0)
        return "a layout" if self.said["room"] else None

    def best(self, problem: Any, at_most: float, left: float) -> Any:
        self.asked.append(("best", at_most))
        found = self.said["found"]
        if isinstance(found, Exception):
            raise found
        return found

    def solved(self) -> Any:
        return candidates._solve(self.search, self.prospects, POSITION, NUMBER, self.said["scale"])

    @property
    def solver_asked(self) -> bool:
        assert ("best" in [name for name, *_ in self.asked]) == (self.search.solved == {NUMBER})
        return bool(self.search.solved)


def even(seconds: float) -> Laid:
    return laid(seconds, listed=False, proven=False)


RECOMPUTES = {"chosen": ("dense",)}


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ({"even": even(1.0)}, 1.0),  # no layout is better than the bound
        ({"even": even(1 + 0.5 * SAME)}, 1 + 0.5 * SAME),
        ({"even": even(1.05), "listed": 1.1}, 1.05),  # all others are listed
        ({"even": even(1.05), "listed": 1.1, "scale": 2.0}, 2.1),
        ({"even": even(1.4), "uneven": 1.5}, 1.4),  # all others take longer
        ({"even": even(1.6), "uneven": 1.5, "listed": 1.1, "scale": 3.0}, 4.8),
        ({"even": even(1.4), "uneven": 1.5, **RECOMPUTES}, 1.4),
        ({"even": even(1.4), "uneven": 1.5, "alike": True}, 1.4),
        ({"even": even(1.4), "uneven": 1.5, "more": 1}, 1.4),
        ({"even": even(9.0), "whole": even(1.0), **RECOMPUTES}, 1.0),  # all recomputed
        ({"even": even(1.0), "whole": even(2.0), **RECOMPUTES}, 1.0),
    ],
)
def test_an_even_split_that_meets_the_bound_of_all_layouts_is_the_best(
    said: dict[str, Any], value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(monkeypatch, **said)
    found = case.solved()
    assert not case.asked
    assert (found.plan, found.proven, found.solved) == (PLAN, True, True)
    assert found.value == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ({"even": even(1 + 2 * SAME)}, 1 + 2 * SAME),
        ({"even": even(1.2), "listed": 1.1}, 1.2),
        ({"even": even(1.6), "uneven": 1.5}, 1.6),
        ({"even": even(1.4), "uneven": 1.5, **RECOMPUTES, "alike": True}, 1.4),  # another may recompute less
        ({"even": even(1.4), "uneven": 1.5, **RECOMPUTES, "more": 1}, 1.4),  # or have less on the host
        ({"whole": even(1.4), "uneven": 1.5, **RECOMPUTES}, 1.4),
        ({"whole": even(1.0), **RECOMPUTES, "alike": True}, 4.0),
        ({"whole": even(1.0)}, 4.0),
        ({}, 4.0),
    ],
)
def test_else_a_solver_is_asked(said: dict[str, Any], value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, **said)
    found = case.solved()
    assert case.solver_asked
    assert (found.plan, found.value, found.proven) == (LISTED if value == 4.0 else PLAN, value, True)


BEYOND = {"bound": 10 * (1 + 2 * SAME)}  # the limit


@pytest.mark.parametrize(
    ("said", "solves"),
    [
        (BEYOND, False),
        ({"bound": 10 * (1 + 0.5 * SAME)}, True),
        ({"bound": 9.5, "listed": 1.1}, False),
        ({"bound": 9.0, "listed": 1.1}, True),
        ({"bound": 4.7, "listed": 1.1, "scale": 2.0}, False),
        ({"bound": 4.5, "listed": 1.1, "scale": 2.0}, True),
        ({"bound": 12.0, "vpp": 2}, True),  # no solver is asked, so that safer layouts are of interest
        ({"bound": 15 * (1 + 2 * SAME), "vpp": 2}, False),
        ({"cut": 10 * (1 + 2 * SAME)}, False),
        ({"cut": 10 * (1 + 0.5 * SAME)}, True),
        ({"cut": 4.7, "listed": 1.1, "scale": 2.0}, False),
        ({"cut": 4.5, "listed": 1.1, "scale": 2.0}, True),
        ({"cut": 99.0, "limit": inf}, True),
        ({"found": Infeasible("")}, True),
    ],
)
@pytest.mark.parametrize(("split", "worth"), [(None, False), (9.99, True), (10.0, False)])
def test_layouts_that_are_no_better_are_not_looked_for(
    said: dict[str, Any], solves: bool, split: float | None, worth: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An even split below the limit is what the plan has then, else the limit is what no layout of it beats."""
    scale = said.get("scale", 1.0)
    limit = said.get("limit", 15.0 if "vpp" in said else 10.0)
    shorter = 1.0 if limit < inf else 0.0
    at = None if split is None else even(split * (limit / 10 if shorter else 1.0) / scale)
    # So low a bound would make the even split the best.
    case = Case(monkeypatch, **said, even=at)
    found = case.solved()
    if at is not None and at.objective <= case.said["bound"] * case.said["listed"] * (1 + SAME):
        assert not case.solver_asked
        return
    assert case.solver_asked is solves
    if not solves or isinstance(case.said["found"], Exception):
        assert (found.value if worth else found) == pytest.approx(at.objective * scale if at and worth else limit)
        assert isinstance(found, Candidate) is worth
    assert [call for call in case.asked if call[0] == "cut"] == (
        [("cut", "floor", INDEX, 0.25, limit / (scale * case.said["listed"]))]
        if case.said["cut"] is not None and limit < inf
        else []
    )


@pytest.mark.parametrize(("vpp", "solves"), [(1, False), (2, True)])
def test_a_plan_without_virtual_stages_that_fits_nowhere_is_not_solved(
    vpp: int, solves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(monkeypatch, room=False, vpp=vpp)
    found = case.solved()
    assert case.solver_asked is solves
    assert isinstance(found, Candidate) if solves else found == inf


@pytest.mark.parametrize(("scale", "listed"), [(1.0, 1.0), (2.0, 1.1)])
def test_what_a_solver_finds_is_valued(scale: float, listed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, scale=scale, listed=listed, found=laid(4.0, least=3.5, more=2))
    found = case.solved()
    assert case.asked == [("best", pytest.approx(10 * (1 + SAME) / (scale * listed), rel=1e-12))]
    assert found.value == pytest.approx(4.0 * scale * listed)
    assert (found.plan, found.knobs, found.solved, found.proven) == (LISTED, Knobs(offload=0.27), True, True)
    assert found.least == pytest.approx(3.5 * scale)
    assert found.safer == 0.5
    assert case.search.cut_short == 0
    low = Case(monkeypatch, scale=scale, listed=listed, found=laid(4.0, least=0.5)).solved()
    assert low.least == pytest.approx(scale)


@pytest.mark.parametrize(
    ("split", "seconds", "least", "proven", "better", "surely"),
    [
        (3.0, 4.0, 2.0, True, True, True),
        (3.0, 4.0, 2.0, False, True, False),
        (3.0, 4.0, 3.0, False, True, True),
        (4.0, 4.0, 2.0, True, False, True),
        (5.0, 4.0, 2.0, False, False, False),
    ],
)
def test_an_even_split_better_than_what_is_found_is_the_layout(
    split: float,
    seconds: float,
    least: float,
    proven: bool,
    better: bool,
    surely: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch, even=even(split), found=laid(seconds, least=least, proven=proven))
    found = case.solved()
    assert found.plan == (PLAN if better else LISTED)
    assert (found.value, found.proven, found.least) == (min(split, seconds), surely, least)
    assert case.search.cut_short == (not proven)


def test_a_plan_that_no_time_is_left_for_is_worth_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, scale=2.0, even=even(3.0), found=TimeLimit(""))
    assert case.solved() == Candidate(plan=PLAN, value=2.0, proven=False, least=2.0)
    assert case.search.cut_short == 1


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
        return np.zeros(len(part))

    monkeypatch.setattr(candidates, "objective_of", objective(1.0))
    monkeypatch.setattr(candidates, "shaped_bounds", shaped)
    some = columns(1, 1, 2, 1)
    found = list(candidates._next(search_of(limit, wider=wider), some, 2 * some.bounds, 2.0))
    assert found == visited
    assert limits == [limit * wider / 2] * bool(visited)


@pytest.mark.parametrize(
    ("bound", "listed", "shapes"),
    [(9.0, 1.0, True), (9.0, 1.1, True), (9.0, 1.2, False), (10 - 1e-9, 1 + 2e-10, True), (9.0, 10 / 9 + 1e-8, False)],
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
    monkeypatch.setattr(candidates, "shaped_bounds", lambda _, part, at: np.array([5.0, 0.0, 3.1, 0.0, 9.0])[part])
    some = columns(1, 1, 1, 1, 1)
    bounds = some.bounds.copy()
    assert list(candidates._next(search_of(6.0), some, bounds, 1.0)) == [1, 0, 2, 3]
    assert bounds.tolist() == [5.0, 2.0, 3.1, 4.0, 9.0]


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

    def fitting(numbers: Any, layer_costs: Any, floor: Any, limit: float) -> FloatArray:
        assert limit == 5.0
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
    kinds = list(candidates._prospects(search_of(8.0, wider=1.5, fixed=fixed), own, 3.0))
    assert [(*made(own), scale) for made, scale in kinds] == right  # type: ignore[misc]


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
    [((True, 2.0), (True, 1.0), 1), ((True, 1.0), (True, 2.0), 0), ((False, 1.0), (True, 2.0), 1)],
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
