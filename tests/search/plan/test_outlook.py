"""What a sweep says of a job: never more than its best plan, which bounds may spare."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job, Limits
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.plan import best
from optimizer.search.plan import unproven as first_half
from optimizer.search.plan.best import best_plan, outlook
from optimizer.search.plan.planner import plan


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


def forbidden(*_: object, **__: object) -> None:
    raise AssertionError("searched again")
