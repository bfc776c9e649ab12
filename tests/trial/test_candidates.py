"""Which plans are worth a trial."""

from __future__ import annotations

from math import exp
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.base.errors import Infeasible
from optimizer.job.known import MEMORY
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.belief.belief import error_of
from optimizer.objectives.step.interval import mfu
from optimizer.trial import candidates as module
from optimizer.trial.candidates import MOST, candidates
from tests.search.jobs import small_job


def test_candidates_may_fit_and_are_not_far_slower_than_the_first() -> None:
    found = candidates(small_job(8, hbm=4.4e9))
    first, job = found.plans[0], found.job
    assert 1 < len(found) == len(set(found.plans)) <= MOST
    mean, spread = error_of(job, first, 1.0, MEMORY)
    share = found.costs.reserved / job.usable_memory
    assert share[0] <= 1.0 < share.max() <= exp(1.2815515655446004 * spread - mean) * (1 + 1e-9)


def test_leading_plans_are_the_fastest_of_every_structure_and_then_the_fastest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans = Plans.of([Plan(tp=2, dp=4), Plan(tp=2, dp=4, zero_stage=2), Plan(dp=8), Plan(tp=4, dp=2), Plan(tp=8)])
    points: Any = SimpleNamespace(
        plans=plans, values=np.array([1.2, 1.0, 1.3, 1.4, 1.1]), fits=np.array([True, True, True, True, False])
    )
    assert module._leading(points, 1.4) == [1, 2, 3, 0]
    assert module._leading(points, 1.39) == [1, 2, 0]
    monkeypatch.setattr(module, "MOST", 8)
    assert module._leading(points, 1.4) == [1, 2, 0, 3]
    monkeypatch.setattr(module, "MOST", 4)
    assert module._leading(points, 1.4) == [1, 0]


def test_candidates_are_slower_by_three_deviations_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def leading(points: Any, limit: float) -> list[int]:
        limits.append(limit)
        return [0]

    monkeypatch.setattr(module, "_leading", leading)
    found = candidates(small_job(8))
    step = float(found.costs.step_time[0])
    _, spread = error_of(found.job, found.plans[0], mfu(found.job, step))
    assert limits == [pytest.approx(step * exp(3.0 * spread))] * 2


def test_without_a_plan_that_fits_there_are_none() -> None:
    with pytest.raises(Infeasible, match="says which conflict"):
        candidates(small_job(8, hbm=2.5e9))
