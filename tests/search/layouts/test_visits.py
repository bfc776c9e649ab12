"""Plans whose bound rules out every layout of theirs are laid out no more."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.fields import EXPECTED, FAST
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import RECOMPUTE_BY, Features
from optimizer.objectives.minimised.registry import objective_of
from optimizer.search.lattice.enumerate import Space, lattice
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.layouts import candidates
from optimizer.search.layouts.assigned import Candidate, LayoutBounds
from optimizer.search.layouts.candidates import lay_out, place
from optimizer.search.layouts.solve.layout import Solved
from tests.search.jobs import DENSE, MIXTURE, small_job


@pytest.mark.parametrize("by", RECOMPUTE_BY)
@pytest.mark.parametrize("model", [DENSE, MIXTURE], ids=("dense", "mixture"))
def test_one_stage_that_does_not_fit_is_not_laid_out(model: Any, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[object] = []
    solve = candidates._solve

    def recorded(*args: Any) -> object:
        visited.append(solve(*args))
        return visited[-1]

    monkeypatch.setattr(candidates, "_solve", recorded)
    features = Features(recompute=("none", "full"), recompute_by=by, zero_stages=(0, 1, 3))
    for hbm in (3.5e9, 4.5e9, 6e9):
        job = small_job(8, model=model, features=features, hbm=hbm, fixed={"pp": 1})
        lay_out(job, Space(job, structural(job)))
    assert visited
    assert float("inf") not in visited


def test_runners_up_that_fit_nowhere_are_left_out_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    features = Features(recompute=("none", "full"), zero_stages=(0, 1))
    job = replace(small_job(8, features=features, hbm=4.5e9), prefer=EXPECTED)
    plans = Plans.joined(list(lattice(job, structural(job))))
    some = plans.take(np.arange(0, len(plans), max(1, len(plans) // 24)))
    placed = place(job, some)
    assert 0 < sum(best is None for best in placed) < len(placed)
    monkeypatch.setattr(candidates, "_fit_at_all", lambda floors: np.ones(len(floors.layer_costs), dtype=np.bool_))
    assert place(job, some) == placed


@pytest.mark.parametrize("prefer", [EXPECTED, FAST])
def test_no_solver_looks_for_a_layout_that_a_list_alone_makes_worse(
    prefer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the even split does not fit, all other layouts cost at least what a list does."""
    asked: list[tuple[float, float]] = []
    best, solve = Solved.best, candidates._solve

    def bounded(search: Any, prospects: Any, position: int, *rest: Any) -> object:
        floor = float(prospects.bounds[position]) * rest[-1]
        asked.append((floor * objective_of(search.job).listed, search.limit))
        return solve(search, prospects, position, *rest)

    solved: list[tuple[float, float]] = []

    def looked_for(self: Solved, *args: Any, **options: Any) -> object:
        solved.append(asked[-1])
        return best(self, *args, **options)

    monkeypatch.setattr(candidates, "_solve", bounded)
    monkeypatch.setattr(Solved, "best", looked_for)
    job: Job = replace(small_job(12, model=replace(DENSE, layers=11), hbm=4.5e9), prefer=prefer)
    lay_out(job, Space(job, structural(job)))
    assert solved
    assert all(least < limit * (1 + candidates.SAME) for least, limit in solved)


@pytest.mark.parametrize(
    ("cut_short", "left", "over"), [(0, None, False), (4, None, True), (3, 0.0, True), (3, 9.0, False)]
)
def test_a_search_ends_with_its_time_or_where_layouts_are_too_hard(
    cut_short: int, left: float | None, over: bool
) -> None:
    assert candidates.CUT_SHORT == 4
    rest: Any = dict.fromkeys(("tuning", "layouts", "own"))
    search = candidates._Search(job=small_job(), deadline=cast(Any, SimpleNamespace(left=left)), **rest)
    search.cut_short = cut_short
    assert search.expired() is over


def test_layouts_of_the_value_that_is_asked_for_are_found_and_no_worse_ones() -> None:
    job = small_job(8, hbm=5e9, bubble=1.0)
    space = Space(job, structural(job))
    best = lay_out(job, space).best
    assert best is not None
    assert lay_out(job, space, below=best.value).best == best
    assert lay_out(job, space, below=best.value * (1 - 1e-8)).best is None


TIES = np.array([1.0, 2.0, 3.0])  # bounds of plans of which the second is as good as what was found


def tied(limit: float) -> Any:
    nothing: Any = None
    rest: Any = {"tuning": Tuning(), "deadline": SimpleNamespace(left=None), "layouts": nothing, "own": nothing}
    return candidates._Search(job=small_job(8), limit=limit, **rest)


class Some(SimpleNamespace):
    """As many plans as there are TIES, or fewer, by their numbers."""

    def take(self, numbers: Any) -> Some:
        return Some(plans=self.plans.take(numbers), numbers=self.numbers[numbers])

    def bound(self, any_knobs: bool) -> Any:
        return TIES[self.numbers]


def some() -> Any:
    return Some(plans=Plans.of([Plan(dp=8), Plan(tp=2, dp=4), Plan(tp=4, dp=2)]), numbers=np.arange(3))


@pytest.mark.parametrize(("limit", "visited"), [(2.0, [0]), (2.001, [0, 1]), (9.0, [0, 1, 2])])
def test_plans_that_are_no_better_than_what_was_found_are_not_looked_at(
    limit: float, visited: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[list[int]] = []

    def visit(search: Any, prospects: Any, numbers: Any) -> Any:
        looked.append(numbers.tolist())
        return TIES[numbers] + 10.0

    fitted: list[list[int]] = []

    def fitting(numbers: Any, *_: Any) -> Any:
        fitted.append(numbers.tolist())
        return TIES[numbers]

    monkeypatch.setattr(candidates, "_known", lambda *_: None)
    monkeypatch.setattr(candidates, "_prospects", lambda *_: iter(()))
    monkeypatch.setattr(candidates, "_visit", visit)
    hosted: Any = SimpleNamespace(fitting=fitting)
    found = candidates._class(tied(limit), some(), some(), hosted, np.zeros(3), np.arange(3), 1.0)
    assert fitted == looked == [visited]
    assert found.tolist() == [bound + 10.0 * (number in visited) for number, bound in enumerate(TIES.tolist())]


@pytest.mark.parametrize(("limit", "left"), [(2.0, {0}), (2.001, {0, 1}), (0.5, set())])
def test_bounds_leave_open_what_may_be_better(limit: float, left: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    prospects = SimpleNamespace(plan=np.arange(3), bounds=TIES)
    monkeypatch.setattr(candidates, "_own", lambda *_: None)
    monkeypatch.setattr(candidates, "_prospects", lambda *_: iter([(lambda own: prospects, 1.0)]))
    nothing: Any = None
    assert candidates._undecided(tied(limit), nothing, nothing, np.arange(3), 1.0) == left


def test_the_lowest_bounds_come_first_until_none_is_below_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[list[int]] = []

    def shaped(some: Any, part: Any, limit: float) -> Any:
        raised.append(part.tolist())
        return np.array([0.0, 2.5, 0.0, 0.0])[part]

    monkeypatch.setattr(candidates, "shaped_bounds", shaped)
    monkeypatch.setattr(candidates, "TOGETHER", 2)
    bounds = np.array([3.0, 1.0, 2.0, 4.0])
    plans: Any = SimpleNamespace(vpp=np.ones(4, dtype=np.int64))
    prospects: Any = SimpleNamespace(
        plan=np.arange(4), floors=SimpleNamespace(layer_costs=SimpleNamespace(plans=plans))
    )
    assert list(candidates._next(tied(3.5), prospects, bounds, 1.0)) == [2, 1, 0]
    assert raised == [[1, 2], [0]]
    assert bounds.tolist() == [3.0, 2.5, 2.0, 4.0]
    assert list(candidates._next(tied(2.0), prospects, bounds, 1.0)) == []


def test_a_plan_whose_best_layout_takes_least_risk_is_laid_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: list[object] = []
    solve = candidates._solve

    def recorded(search: Any, prospects: Any, position: int, number: int, scale: float) -> object:
        looked_for.append((number, bool(prospects.low[position])))
        return solve(search, prospects, position, number, scale)

    monkeypatch.setattr(candidates, "_solve", recorded)
    features = Features(schedules=("1f1b", "interleaved"), max_vpp=2)
    fixed = {"pp": 2, "vpp": 2, "tp": 1, "micro_batch": 1}
    job = replace(
        small_job(4, model=replace(DENSE, layers=11), features=features, fixed=fixed, hbm=80e9), prefer=EXPECTED
    )
    assert lay_out(job, Space(job, structural(job))).best
    assert looked_for
    assert len(looked_for) == len(set(looked_for))


@pytest.mark.parametrize(("beyond", "solves"), [(0.5, True), (2.0, False)])
@pytest.mark.parametrize("cut", [False, True])
def test_a_solver_looks_for_layouts_up_to_a_rounding_beyond_the_limit(
    beyond: float, solves: bool, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the bound of a plan, or by that of its cuts where it is higher."""
    asked: list[Any] = []
    solve = candidates._solve
    monkeypatch.setattr(candidates, "_solve", lambda *args: asked.append(args) or solve(*args))
    job = small_job(12, model=replace(DENSE, layers=11), hbm=4.5e9, fixed={"pp": 3, "tp": 1, "micro_batch": 1})
    lay_out(job, Space(job, structural(job)))
    search, prospects, position, number, scale = asked[0]
    listed, more = objective_of(job).listed, 1 + beyond * candidates.SAME
    least = float(prospects.bounds[position]) * scale * listed
    again = replace(search, limit=2 * least if cut else least / more, solved=set())
    monkeypatch.setattr(candidates, "bounded", lambda _: cut)
    monkeypatch.setattr(candidates, "cut_bound", lambda *_: again.limit * more / (scale * listed))
    solve(again, prospects, position, number, scale)
    assert (again.solved == {number}) is solves


def test_bounds_alone_leave_open_what_is_better_by_more_than_rounding() -> None:
    job = small_job(8, fixed={"pp": 1, "tp": 1, "cp": 1})
    space = Space(job, structural(job))
    best = lay_out(job, space).best
    assert best is not None
    values = [best.value * (1 + more * candidates.SAME) for more in (0.0, 0.5, 2.0)]
    found = [candidates.bounds_of(job, space, Tuning(), value, value) for value in values]
    assert [each.undecided for each in found] == [0, 0, 2]
    assert candidates.bounds_of(job, [], Tuning(), 3.0, 2.0) == LayoutBounds(band=0, undecided=0, knob_bound=2.0)


@pytest.mark.parametrize(
    ("limit", "below", "left"), [(5.0, 3.0, 3.0 * (1 + candidates.SAME)), (3.0, 3.0, 3.0), (2.0, 3.0, 2.0)]
)
def test_limits_are_lowered_to_what_is_of_interest(limit: float, below: float, left: float) -> None:
    search = tied(limit)
    assert candidates._lowered([search], None).tolist() == [limit]
    assert candidates._lowered([search], lambda _: np.array([below])).tolist() == [search.limit] == [left]


@pytest.mark.parametrize(
    ("solved", "value", "best"),
    [(True, 1.0, True), (True, 2.0, False), (False, 1.0, False), (True, 2 - 1e-14, False)],
)
def test_what_is_solved_and_better_by_more_than_rounding_is_the_best(solved: bool, value: float, best: bool) -> None:
    search, plan = tied(2.0), Plan(dp=8)
    first, second = (
        Candidate(plan=plan, value=value, solved=solved, proven=False, least=0.5 * value),
        Candidate(plan=plan, value=0.9, solved=False),
    )
    for each in (first, second):
        candidates._note(search, each, 7)
    assert (search.best is first, search.limit) == (best, value if best else 2.0)
    assert search.undecided[:1] == [0.5 * value]
    assert search.by_number == {7: first if solved else second}
