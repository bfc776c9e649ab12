"""A time limit ends every phase of the search; clocks are made up, nothing is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from optimizer.base.errors import TimeLimit
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.search.infeasible import conflict
from optimizer.search.lattice import deadline, oracle
from optimizer.search.lattice import enumerate as enumerate_
from optimizer.search.lattice.enumerate import Space, plans_of
from optimizer.search.lattice.oracle import sweep
from optimizer.search.layouts.candidates import lay_out, place
from optimizer.search.layouts.one_layout import best_even
from optimizer.search.plan import best, unproven
from optimizer.search.plan.best import best_layouts
from optimizer.search.plan.planner import plan
from tests.search.jobs import small_job


def clock(step: float) -> Callable[[], float]:
    """So many seconds pass between two looks."""
    ticks: Iterator[int] = count()
    return lambda: step * next(ticks)


@pytest.fixture
def plans(gpt3_job: Job) -> Plans:
    answer = plan(gpt3_job, trials=0, top=4)
    assert answer.plan is not None
    found = (answer.plan, *(other.plan for other in answer.alternatives))
    return Plans.of([replace(one, layers_per_stage=(), recompute_layers=(), mtp_ahead=0) for one in found])


def test_a_sweep_ends_with_the_time(gpt3_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes at every look at the clock: at the start and before each batch of plans."""
    rules = structural(gpt3_job)
    parts = list(Space(gpt3_job, rules))
    cost_batches = [part.take(slice(0, 50)) for part in parts for _ in range(4)]
    for seconds, batches in ((0.5, 0), (1.5, 1), (3.5, 3), (100.0, len(cost_batches))):
        monkeypatch.setattr(deadline, "perf_counter", clock(1.0))
        swept = oracle.fold(gpt3_job, cost_batches, time_limit=seconds)
        assert swept.space == sum(map(len, cost_batches[:batches]))
        assert swept.complete is (batches == len(cost_batches))


def test_the_layouts_get_what_the_sweep_left(gpt3_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float | None] = []

    def recorded(*args: Any) -> Any:
        given.append(args[4])
        return best_layouts(*args)

    monkeypatch.setattr(unproven, "best_layouts", recorded)
    monkeypatch.setattr(unproven, "perf_counter", clock(40.0))
    answer = plan(gpt3_job, time_limit=60.0, top=1)
    assert given == [20.0]
    assert answer.plan is not None
    assert answer.search_s["sweep"] == 40.0


def test_without_time_for_any_layout_the_best_even_split_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    def over(*_: Any) -> Any:
        raise TimeLimit("no time is left")

    monkeypatch.setattr(unproven, "best_layouts", over)
    start = unproven.search(small_job(8))
    assert (start.swept.complete, start.layouts, start.plan) == (False, None, None)
    answer, even = plan(small_job(8)), best_even(small_job(8), start.swept.points) if start.swept.points else None
    assert even is not None
    assert (answer.status, answer.plan, answer.conflict) == ("feasible", even.plan, ())
    assert answer.certificate is not None
    assert not answer.certificate.proven


def test_layouts_cut_short_leave_the_even_split_with_a_gap(gpt3_job: Job) -> None:
    space = Space(gpt3_job, structural(gpt3_job))
    swept = sweep(gpt3_job, structural(gpt3_job))
    assert swept.points is not None
    even = best_even(gpt3_job, swept.points)
    whole, cut = lay_out(gpt3_job, space, even=even), lay_out(gpt3_job, space, even=even, time_limit=0.0)
    assert even is not None
    assert whole.best is not None
    assert whole.complete
    assert not cut.complete
    assert cut.best == even
    # The even split is the best: its price as a layout is the same sum in another order.
    assert cut.bound <= whole.best.value * (1 + 1e-12)
    assert whole.best.value <= even.value * (1 + 1e-12)


def test_runners_up_are_laid_out_while_there_is_time(
    gpt3_job: Job, plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert place(gpt3_job, plans, time_limit=0.0) == (None,) * len(plans)
    placed = place(gpt3_job, plans)
    assert all(placed)
    monkeypatch.setattr(deadline, "perf_counter", clock(1.0))
    assert 0 < sum(each is not None for each in place(gpt3_job, plans, time_limit=8.0)) < len(plans)
    best = min(each.value for each in placed if each)
    only = place(gpt3_job, plans, below=lambda found: np.full(len(found), best))
    assert [each for each in only if each] == [each for each in placed if each and each.value == best]


def test_no_runner_up_is_faster_where_layouts_are_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runners-up are laid out after a search that gave up: one of them may be the best that is known."""
    model, cluster, stack = load_model("glm-4.5-air"), load_cluster("dgx-h100"), load_stack("megatron-core")
    job = Job(model=model, cluster=cluster, stack=stack, gpus=64, seq_len=4096, global_batch=256)
    whole = plan(job, trials=0, priced_risk=False)
    monkeypatch.setattr(best, "lay_out", lambda *args, **options: lay_out(*args, **{**options, "time_limit": 0.0}))
    cut = plan(job, trials=0, priced_risk=False)
    assert whole.certificate is not None
    assert whole.certificate.proven
    assert cut.certificate is not None
    assert not cut.certificate.proven
    assert cut.estimate is not None
    assert cut.certificate.best == pytest.approx(cut.estimate.step_time)
    assert cut.certificate.lower_bound <= whole.certificate.best <= cut.certificate.best < cut.certificate.even
    assert all(other.estimate.step_time >= cut.estimate.step_time * (1 - 1e-9) for other in cut.alternatives)


@pytest.mark.parametrize("looks", [1, 8, 24])
def test_the_search_for_a_conflict_ends_with_the_time(
    gpt3_job: Job, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """A second passes at every look at the clock; of sequences of 16 Mi tokens more shapes are possible than memory
    holds, and what they clash with is not known before the time is over.
    """
    monkeypatch.setattr(conflict, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(deadline, "perf_counter", clock(1.0))
    sizes: list[int] = []

    def noted(columns: enumerate_.Columns) -> Plans:
        plans = plans_of(columns)
        sizes.append(len(plans))
        return plans

    monkeypatch.setattr(enumerate_, "plans_of", noted)
    found = conflict.conflict(replace(gpt3_job, seq_len=2**24, global_batch=64), time_limit=looks)
    assert {clash.note for clash in found if not clash.relaxation} == {conflict.CUT_SHORT}
    assert max(sizes) < 2**22
