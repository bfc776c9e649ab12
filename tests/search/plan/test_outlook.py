"""What a sweep says of a job: never more than its best plan, which bounds may spare."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job, Limits
from optimizer.job.plan import Plan
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.layouts.assigned import AssignedLayouts, Candidate
from optimizer.search.plan import best
from optimizer.search.plan import unproven as first_half
from optimizer.search.plan.best import best_plan, outlook
from optimizer.search.plan.planner import plan
from tests.search.jobs import small_job


def job(gpus: int, limits: Limits = Limits()) -> Job:
    return Job(
        model=load_model("llama3-8b"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=gpus,
        seq_len=8192,
        global_batch=256,
        limits=limits,
    )


@pytest.mark.parametrize("limits", [Limits(), Limits(fixed={"pp": 5}), Limits(fixed={"pp": 8, "layout": "even"})])
def test_the_outlook_never_exceeds_the_best_plan_and_finds_it(limits: Limits) -> None:
    asked = job(80, limits)
    found, fastest = outlook(asked), best_plan(asked)
    rate = fastest.worth if fastest else 0.0
    assert found.worth <= rate * (1 + 1e-9)
    assert found.worth_of(found.layouts_beyond()) == pytest.approx(rate, rel=2e-3)
    assert found.worth_of(found.layouts_beyond(0.9 * rate)) == pytest.approx(rate, rel=2e-3)
    assert found.worth_of(found.layouts_beyond(2.0 * rate + 1.0)) <= rate * (1 + 1e-9)


def test_a_count_without_a_plan_has_none() -> None:
    found = outlook(job(8 * 127, Limits(fixed={"tp": 8, "dp": 1})))
    assert (found.worth, found.worth_of(found.layouts_beyond())) == (0.0, 0.0)


def test_what_is_known_is_not_looked_for_again_and_the_answer_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, tuning = job(80), Tuning(trials=0)
    found = outlook(asked, tuning)
    known = found.known(found.layouts_beyond(), 0.0)
    assert known is not None
    alone = plan(asked, trials=0, priced_risk=False)
    monkeypatch.setattr(first_half, "fold", forbidden)
    monkeypatch.setattr(best, "lay_out", forbidden)
    again = plan(asked, trials=0, priced_risk=False, known=known)
    assert replace(again, search_s=alone.search_s) == alone
    # Another job, other settings and layouts that were cut off by a bound are searched.
    assert found.known(known.layouts, 2.0 * found.worth) is None
    for other in (job(64), asked):
        with pytest.raises(AssertionError, match="searched again"):
            plan(other, trials=0 if other.gpus == 64 else 3, known=known)


def test_what_is_known_of_layouts_is_what_no_bound_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound up to what the even split does spares nothing; without one nothing is below it."""
    searched = small_job(2, fixed={"cp": 1, "micro_batch": 1, "recompute": "none"}, bubble=0.5)
    found, layouts, asked = outlook(searched), cast(AssignedLayouts, object()), dict[str, Any]()
    assert found.even is not None
    assert found.worth == searched.tokens / found.even.value
    assert found.worth_of(None) == found.worth_of(cast(AssignedLayouts, SimpleNamespace(best=None))) == 0.0
    assert found.worth_of(cast(AssignedLayouts, SimpleNamespace(best=found.even))) == found.worth
    for least, taken in ((0.0, True), (found.worth, True), (np.nextafter(found.worth, np.inf), False)):
        known = found.known(layouts, least)
        assert (known.layouts if known else None) is (layouts if taken else None)
    assert found.known(None, 0.0) is None
    assert outlook(searched.with_limits(fixed={**searched.limits.fixed, "layout": "even"})).known(layouts, 0.0) is None
    monkeypatch.setattr(best, "lay_out", lambda *_, **options: asked.update(options))
    for least, below in (((), np.inf), ((0.5,), 2 * searched.tokens)):
        found.layouts_beyond(*least)
        assert asked["below"] == below


def test_the_worth_of_a_plan_is_its_tokens_for_what_is_minimised() -> None:
    given = {"cp": 1, "micro_batch": 1, "recompute": "none", "layout": "even"}
    found = best_plan(small_job(2, fixed=given, bubble=0.5))
    assert found is not None
    assert found.value == found.estimate.step_time
    assert found.worth == pytest.approx(48 * 4096 / found.estimate.step_time)


def test_of_a_search_cut_short_the_best_leads_that_has_a_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runners-up without a layout, or not laid out at all, are no better for what is known of them."""
    searched = small_job(2, fixed={"cp": 1, "micro_batch": 1, "recompute": "none"}, bubble=0.5)
    points = outlook(searched).swept.points
    assert points is not None
    first = Candidate(plan=Plan(dp=7), value=5.0, solved=True)
    cut = AssignedLayouts(
        **{"best": first, "candidates": (), "proof": None, "bound": 4.5, "knob_bound": 1.0},
        **{"space": 9, "band": 9, "solved": 1, "complete": False},
    )
    for value, leading in ((4.0, 4.0), (4.75, 4.75), (5.5, 5.0)):
        others = (None, replace(first, value=1.0, solved=False), replace(first, value=value))
        monkeypatch.setattr(best, "runners_up", lambda *_: [0, 1])
        monkeypatch.setattr(best, "place", lambda *_, others=others, **__: others)
        found = best._with_the_leaders(searched, points, cut, first, Tuning(), None)
        assert found.best is not None
        assert (found.best.value, found.bound) == (leading, min(leading, 4.5))
        assert (tuple(found.placed.values()), found.candidates) == (others, (first,))


def forbidden(*_: object, **__: object) -> None:
    raise AssertionError("searched again")
