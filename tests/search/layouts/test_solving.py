"""What is found of one plan, whatever bounds and solvers say of it."""

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
from optimizer.search.layouts import candidates
from optimizer.search.layouts.assigned import Candidate
from optimizer.search.layouts.candidates import SAME
from tests.search.layouts.searches import PLAN, search_of

NUMBER, POSITION, INDEX = 7, 1, 3  # of the plan in the lattice, among prospects, in the floors
LISTED = replace(PLAN, layers_per_stage=(7, 5))


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
        return np.array([(self.said["listed"] if plans.plan(0).layers_per_stage else 1.0) * (1 + offload)])

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
        ({"even": even(1 + SAME)}, 1 + SAME),
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
        ({"even": even(0.8), "uneven": 1.5, "bound": 0.3, **RECOMPUTES, "alike": True}, 0.8),
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


BEYOND = {"bound": 10 * (1 + SAME)}  # the limit


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
        ({"cut": 10 * (1 + SAME)}, False),
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
