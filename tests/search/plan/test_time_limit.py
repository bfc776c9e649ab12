"""A time limit ends every phase of the search; clocks are made up, nothing is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from optimizer.job import Job
from optimizer.plan import Knobs, Plans
from optimizer.search.lattice.oracle import Sweep
from optimizer.search.layouts.band import place
from optimizer.search.plan import knobs as tuning
from optimizer.search.plan import planner
from optimizer.search.plan.knobs import IMPORTING, grid, tune
from optimizer.search.plan.planner import plan


def clock(step: float) -> Callable[[], float]:
    """So many seconds pass between two looks."""
    ticks: Iterator[int] = count()
    return lambda: step * next(ticks)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("Optuna was asked")


@pytest.fixture
def plans(gpt3_job: Job) -> Plans:
    answer = plan(gpt3_job, trials=0, top=4)
    assert answer.plan is not None
    return Plans.of([answer.plan, *(other.plan for other in answer.alternatives)]).without_placements()


def test_without_time_the_default_knobs_stay(gpt3_job: Job, plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_study", refuse)
    found = tune(gpt3_job, plans, time_limit=0.0)
    assert found is not None
    assert found.knobs == Knobs()


def test_with_too_little_time_for_optuna_the_grid_is_all(
    gpt3_job: Job, plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "_study", refuse)
    monkeypatch.setattr(tuning, "perf_counter", clock(0.0))
    found = tune(gpt3_job, plans, time_limit=IMPORTING / 2)
    assert found is not None
    assert found.knobs in (Knobs(), *grid())
    with pytest.raises(AssertionError, match="Optuna was asked"):
        tune(gpt3_job, plans, time_limit=2 * IMPORTING)


def test_trials_end_with_the_time(gpt3_job: Job, plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes at every look at the clock: at the start, before the trials, and before each round of eight."""
    sizes: list[int] = []
    priced = tuning._priced

    def counted(job: Job, some: Plans, settings: Any, price: Any) -> Any:
        sizes.append(len(settings))
        return priced(job, some, settings, price)

    monkeypatch.setattr(tuning, "_priced", counted)
    for seconds, rounds in ((1.5, 0), (2.5, 1), (3.5, 2), (100.0, 3)):
        monkeypatch.setattr(tuning, "perf_counter", clock(1.0))
        sizes.clear()
        tune(gpt3_job, plans, trials=24, time_limit=seconds)
        assert sizes.count(8) == rounds


def test_the_tuning_gets_what_the_sweep_left(gpt3_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def recorded(*args: Any, time_limit: float | None = None, **options: Any) -> Any:
        assert time_limit is not None
        given.append(time_limit)
        return tune(*args, time_limit=time_limit, **options)

    monkeypatch.setattr(planner, "tune", recorded)
    monkeypatch.setattr(planner, "perf_counter", clock(40.0))
    answer = plan(gpt3_job, time_limit=60.0, top=1)
    assert given == [20.0]
    assert answer.plan is not None
    assert answer.search_s["sweep"] == 40.0


def test_a_sweep_cut_short_at_the_tuned_knobs_leaves_the_defaults(
    gpt3_job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold = planner.fold
    limits: list[float | None] = []

    def cut(job: Job, chunks: Any, price: Any, time_limit: float | None = None) -> Sweep:
        limits.append(time_limit)
        return fold(job, chunks, price, time_limit if len(limits) == 1 else -1.0)

    monkeypatch.setattr(planner, "fold", cut)
    answer = plan(gpt3_job, time_limit=1000.0, top=1)
    assert len(limits) == 2
    assert answer.knobs == Knobs()
    assert answer.status == "optimal"


def test_runners_up_are_laid_out_while_there_is_time(gpt3_job: Job, plans: Plans) -> None:
    assert place(gpt3_job, plans, time_limit=0.0) == ()
    assert len(place(gpt3_job, plans)) == len(plans)
