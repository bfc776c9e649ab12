"""Plans are laid out class of risk by class of risk: those of a lattice, and runners-up."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.arrays import FloatArray, lowered
from optimizer.objectives.expected import RiskClass
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.layouts import candidates
from optimizer.search.layouts.assigned import Candidate, LayoutBounds
from optimizer.search.layouts.bounds.lattice_bounds import LatticeBounds
from optimizer.search.layouts.candidates import SAME, _Search
from optimizer.search.layouts.solve.layout import Solved
from tests.search.jobs import small_job
from tests.search.layouts.searches import PLAN, search_of

CLASSES = (RiskClass(risk=0.5, factor=4.0), RiskClass(risk=0.1, factor=2.0))
ABOUT = lowered(3.0) / 2  # in the safer class as good as 3 but for rounding


class Lattice(SimpleNamespace):
    """Four plans, and what is asked about them."""

    bounds = np.array([1.0, 2.0, 3.0, 5.0 * (1 + SAME)])
    fits = np.zeros(0)
    layer_costs = None
    space = 4

    def most_hosted(self, open_plans: Any) -> Any:
        self.asked.append(("hosted", open_plans.tolist()))
        return SimpleNamespace(fitting=self.fitting)

    def fitting(self, numbers: Any, layer_costs: Any, floor: Any, limit: float) -> FloatArray:
        self.asked.append(("fitting", numbers.tolist(), limit))
        return np.asarray(self.fits[numbers])

    def at(self, numbers: Any, risk: float | None) -> Any:
        self.asked.append(("at", numbers.tolist(), risk))
        return Taken(rows=numbers), Taken(rows=numbers)

    def knob_bound(self, hosted: Any, value: float) -> float:
        return value / 8


class Taken(SimpleNamespace):
    def take(self, index: Any) -> Taken:
        return Taken(rows=self.rows[index])


@pytest.mark.parametrize("fixed", [None, Knobs()])
@pytest.mark.parametrize(
    ("split", "below", "found", "undecided", "best", "bound", "complete"),
    [
        (6.0, inf, 3.0, inf, 3.0, 3.0, True),
        (6.0, inf, 3.0, 2.5, 3.0, 2.5, False),
        (6.0, inf, 3.0, 3.0 * (1 - 0.5 * SAME), 3.0, 3.0 * (1 - 0.5 * SAME), True),
        (6.0, 5.0, None, inf, 6.0, 6.0, True),
        (None, 5.0, None, inf, None, inf, True),
        (None, inf, 3.0, inf, 3.0, 3.0, True),
    ],
)
def test_plans_are_laid_out_class_by_class(
    split: float | None,
    below: float,
    found: float | None,
    undecided: float,
    best: float | None,
    bound: float,
    complete: bool,
    fixed: Knobs | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All in the largest risk; in a smaller one those that may be better there than what was found."""
    classes: list[Any] = []
    limit = min(split or inf, below) * (1 + SAME)

    def of_class(search: _Search, some: Any, floor: Any, hosted: Any, bounds: Any, numbers: Any, factor: float) -> Any:
        assert some.rows.tolist() == floor.rows.tolist() == numbers.tolist()
        classes.append((bounds.tolist(), numbers.tolist(), factor, search.wider, search.limit))
        search.undecided.append(undecided)
        if found:
            search.best, search.limit = Candidate(plan=PLAN, value=found), found
        return np.array([ABOUT, 2.0, inf, inf])[numbers]

    monkeypatch.setattr(candidates, "risk_classes", lambda job: CLASSES)
    monkeypatch.setattr(candidates, "_class", of_class)
    monkeypatch.setattr(candidates, "_proof_plans", lambda search, lattice, fitting: fitting.tolist())
    even_split = Candidate(plan=PLAN, value=split) if split else None
    lattice: Any = Lattice(asked=[])
    tuning: Any = replace(Tuning(), fixed=fixed)
    done = candidates.lay_out(
        small_job(8), [], tuning, even=even_split, below=below, lattice=lattice, with_knob_bound=found is not None
    )
    # What is as good at least as what was found is not looked for.
    low = [] if found else [0, 1]
    assert classes == [
        (Lattice.bounds.tolist(), [0, 1, 2, 3], 4.0, 2.0, limit),
        ([ABOUT, 2.0][: len(low)], low, 2.0, 1.0, found or limit),
    ]
    open_plans = [True, True, True, below == inf]
    assert lattice.asked == [("hosted", open_plans), ("at", [0, 1, 2, 3], None), ("at", low, 0.1)]
    assert (done.best.value if done.best else None) == best
    assert (done.bound, done.complete, done.space) == (bound, complete, 4)
    assert done.knob_bound == (bound if fixed is not None else (best or inf) / 8 if found else -inf)
    assert done.band == (2 if split else 4)
    proof: Any = done.proof
    assert proof == [2 * ABOUT, 4.0, inf, inf]  # at the factor of the safest class


def test_bounds_are_asked_class_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the best value by more than rounding, in the smaller risk too, by bounds and by where the memory fits."""
    limit = 10 * (1 - SAME)
    lattice: Any = Lattice(asked=[])
    lattice.bounds = np.array([1.0, 2.0, limit / 4, 10.0, 1.5])
    lattice.fits = np.array([9.0, limit / 2, 2.4, 0.0, 1.6])
    seen: list[Any] = []

    def undecided(search: _Search, layer_costs: Any, floor: Any, numbers: Any, factor: float) -> set[int]:
        assert layer_costs.rows.tolist() == floor.rows.tolist() == numbers.tolist()
        assert search.limit == limit
        seen.append((numbers.tolist(), factor))
        return {len(numbers) - 1}

    costs: Any = [1]
    monkeypatch.setattr(candidates, "risk_classes", lambda job: CLASSES)
    monkeypatch.setattr(LatticeBounds, "of", lambda *_: lattice)
    monkeypatch.setattr(candidates, "_undecided", undecided)
    found = candidates.bounds_of(small_job(8), [costs], Tuning(), 4.0, 10.0)
    assert lattice.asked == [
        ("hosted", [True, True, True, False, True]),
        *(("at", [0, 1, 4], None), ("fitting", [0, 1, 4], limit / 4)),
        *(("at", [0, 1, 2, 4], 0.1), ("fitting", [0, 1, 2, 4], limit / 2)),
    ]
    assert seen == [([4], 4.0), ([2, 4], 2.0)]
    assert found == LayoutBounds(band=2, undecided=1, knob_bound=1.25)
    assert candidates.bounds_of(small_job(8), [costs], Tuning(), 4.0, 1.0).undecided == 0
    assert candidates.bounds_of(small_job(8), [], Tuning(), 4.0, 1.0) == LayoutBounds(
        band=0, undecided=0, knob_bound=1.0
    )


def test_plans_fit_at_all_where_they_do_in_the_largest_risk(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing on the host up to as much as may be."""
    asked: list[Any] = []

    class Memory(SimpleNamespace):
        layer_costs = np.zeros(2)
        job = None

        def of(self, layer_costs: Any) -> Memory:
            return self

        def bounds(self, plan: Any, low: Any, high: Any, limit: float) -> FloatArray:
            asked.append((plan.tolist(), low.tolist(), high.tolist(), limit))
            return np.array([1.0, inf])

    def at_risk(layer_costs: Any, risk: float) -> Any:
        asked.append(risk)
        return layer_costs

    monkeypatch.setattr(candidates, "risk_classes", lambda job: CLASSES)
    monkeypatch.setattr(candidates, "at_risk", at_risk)
    monkeypatch.setattr(candidates, "most_offload", lambda layer_costs: np.array([0.5, 1.0]))
    floors: Any = Memory()
    assert candidates._fit_at_all(floors).tolist() == [True, False]
    assert asked == [0.5, ([0, 1], [0.0, 0.0], [0.5, 1.0], inf)]


def test_a_search_begins_with_what_is_known_or_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "risk_classes", lambda job: CLASSES)
    monkeypatch.setattr(candidates, "safe_memory", lambda job: 100.0 * job.limits.oom_risk)
    tuning = Tuning(seed=3)
    new = candidates._search(small_job(8), tuning, None, 0.5)
    assert (new.layouts, new.classes) == (Solved(seed=3, effort=0.5), ((50.0, 4.0), (10.0, 2.0)))
    assert new.own is not None
    again = candidates._search(small_job(8), tuning, None, 0.5, new.own, new.layouts)
    assert (again.own is new.own, again.layouts is new.layouts) == (True, True)
    assert candidates._search(small_job(8), tuning, None).layouts.effort == candidates.EFFORT
    assert candidates._search(small_job(8), tuning, None).deadline.left is None


@pytest.mark.parametrize("fixed", [None, Knobs(bucket=1e8)])
def test_floors_are_at_the_fixed_settings_or_at_those_of_each_plan(
    fixed: Knobs | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "plan_floors", lambda *given: given)
    search = search_of(fixed=fixed)
    own: Any = SimpleNamespace(of=lambda layer_costs: "own")
    costs: Any = object()
    floor: Any = object()
    search.own = own
    found: Any = candidates._own(search, costs, floor)
    assert found == ((costs, "own", floor) if fixed is None else (costs, fixed))


class Floors(SimpleNamespace):
    """Plans in a class of risk, whose layouts take at least so long over its factor."""

    def of(self, risk: float) -> Floors:
        return Floors(least=self.least, layer_costs=self.layer_costs, risk=risk)

    def take(self, index: Any) -> Any:
        return SimpleNamespace(least=self.least[index], risk=self.risk)


class Chosen(SimpleNamespace):
    def take(self, index: Any) -> Chosen:
        return Chosen(plan=self.plan[index], risk=self.risk)


Visit = tuple[float, int, float]  # in the class of a risk, of a plan, of layouts beyond the limit by a factor


def placed(
    monkeypatch: pytest.MonkeyPatch,
    factors: dict[float, float],
    found: dict[tuple[float, int], Any],
    *,
    below: Any = None,
    least: tuple[float, ...] = (3.0, 1.0, 2.0),
    over: int = 99,
) -> tuple[list[Visit], list[float | None], list[float]]:
    """What is visited by `place` of plans, the last of which fits nowhere; what they have at last, and the limits.

    Args:
        factors: of the classes by their risk.
        found: in a class of a plan: a candidate's value in the class, or a value that none beats and what is undecided.
        below: values that are of interest, by the candidates.
        least: of the plans.
        over: after so many visits no time is left.
    """
    visits: list[Visit] = []
    limits: list[float] = []
    search = search_of(inf)

    def visit(one: _Search, prospects: Any, numbers: Any) -> FloatArray:
        ((some, scale),) = prospects
        assert one.all_wider
        assert scale == factors[some.risk]
        assert one.undecided == []
        (place,) = set(some.plan.tolist())
        plan = int(numbers[place])
        visits.append((some.risk, plan, one.wider))
        value, *undecided = found.get((some.risk, plan), (inf,))
        one.undecided += undecided
        if not undecided and value < one.limit:
            one.best, one.limit = Candidate(plan=PLAN, value=value), value
        search.cut_short = candidates.CUT_SHORT * (len(visits) >= over)
        return np.where(np.arange(len(numbers)) == place, value, 0.0)

    def of_class(search: _Search, floors: Floors, factor: float) -> Any:
        def chosen(some: Any) -> Chosen:
            limits.append(search.limit)
            return Chosen(plan=np.arange(len(some.least)), risk=some.risk)

        return iter([(chosen, factor)])

    plans = Plans.of([Plan(dp=dp) for dp in range(1, len(least) + 1)])
    floors = Floors(least=np.array(least), layer_costs=None)
    for name, function in {
        "_search": lambda *_: search,
        "_own": lambda search, layer_costs: floors,
        "layer_costs_of": lambda job, plans: None,
        "_fit_at_all": lambda floors: np.arange(len(least)) < len(least) - 1,
        "risk_classes": lambda job: [RiskClass(risk=risk, factor=factor) for risk, factor in factors.items()],
        "at_risk": lambda layer_costs, risk: risk,
        "_prospects": of_class,
        "_visit": visit,
    }.items():
        monkeypatch.setattr(candidates, name, function)
    best = candidates.place(small_job(8), plans, below=below)
    return visits, [each.value if each else None for each in best], limits


THREE = {0.5: 2.0, 0.2: 1.5, 0.1: 1.0}  # factors by risk


def test_runners_up_are_placed_in_the_safest_class_then_in_the_riskiest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lowest bound first. In the largest risk so far beyond the limit that what takes longer is in no class better:
    the second plan might be in the one between, the first not.
    """
    found = {(0.1, 0): (8.0,), (0.1, 1): (4.0,), (0.5, 0): (11.0,), (0.5, 1): (5.2,)}
    visits, best, limits = placed(monkeypatch, THREE, found, below=lambda best: np.full(3, 20.0))
    wider = 2.0 / 1.5
    assert visits == [(0.1, 1, 1.0), (0.1, 0, 1.0), (0.5, 1, wider), (0.5, 0, wider), (0.2, 1, 1.0)]
    assert best == [8.0, 4.0, None]
    assert limits == pytest.approx([20.0, 20.0 * wider, 20.0])


@pytest.mark.parametrize(
    ("riskiest", "between"),
    [((5.2,), True), ((5.5,), False), ((9.0, 5.2), True), ((9.0, 7.0), False), ((5.2, 9.0), True)],
)
def test_a_class_between_is_asked_where_something_shorter_is_left_open(
    riskiest: tuple[float, ...], between: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below 4 x 2 / 1.5, which is as much as 4 in that class."""
    visits, _, _ = placed(monkeypatch, THREE, {(0.1, 0): (4.0 - 1e-9,), (0.5, 0): riskiest}, least=(1.0, 9.0))
    assert [risk for risk, *_ in visits] == [0.1, 0.5, *[0.2] * between]


@pytest.mark.parametrize(
    ("factors", "risks"), [({0.1: 1.0}, [0.1]), ({0.5: 2.0, 0.1: 1.0}, [0.1, 0.5]), (THREE, [0.1, 0.5, 0.2])]
)
@pytest.mark.parametrize("least", [1.0, 2.0, 3.9, 4.0])
def test_plans_whose_bounds_are_no_lower_in_a_class_are_not_placed_there(
    factors: dict[float, float], risks: list[float], least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one class or two nothing is looked for beyond the limit."""
    visits, best, _ = placed(monkeypatch, factors, {(0.1, 0): (4.0,), (0.5, 0): (9.0, 2 * least)}, least=(least, 9.0))
    beyond = 2.0 / 1.5 if len(factors) == 3 else 1.0
    most = {0.1: inf, 0.5: 4.0 * beyond, 0.2: 4.0}
    assert [visit[0] for visit in visits] == [risk for risk in risks if least * factors[risk] < most[risk]]
    assert {wider for risk, _, wider in visits} <= {1.0, beyond}
    assert best == [4.0, None]


def test_what_is_found_for_one_plan_lowers_what_is_of_interest_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def below(best: Any) -> FloatArray:
        return np.array([5.0 if each is None and any(best) else 20.0 for each in best])

    found = {(0.1, 0): (7.0,), (0.1, 1): (4.0,)}
    visits, best, limits = placed(monkeypatch, {0.1: 1.0}, found, below=below)
    assert visits == [(0.1, 1, 1.0), (0.1, 0, 1.0)]
    assert best == [None, 4.0, None]
    assert limits == [20.0 * (1 + SAME)]


@pytest.mark.parametrize(("over", "best"), [(0, [None] * 3), (1, [None, 4.0, None]), (2, [8.0, 4.0, None])])
def test_runners_up_have_what_was_found_in_time(
    over: int, best: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {(0.1, 0): (8.0,), (0.1, 1): (4.0,), (0.5, 1): (3.0,)}
    if over:
        assert placed(monkeypatch, THREE, found, over=over)[1] == best
        return
    search = search_of(cut_short=candidates.CUT_SHORT)
    monkeypatch.setattr(candidates, "_search", lambda *_: search)
    assert list(candidates.place(small_job(8), Plans.of([PLAN] * 3))) == [None] * len(best)
