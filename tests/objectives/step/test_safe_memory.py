"""How much a plan may be predicted to reserve, and how likely it is to fit."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.base.errors import InputError
from optimizer.job.job import Job, Limits
from optimizer.job.known import MEMORY
from optimizer.job.plan import Plan
from optimizer.job.stack import Stack
from optimizer.objectives.belief.places import place
from optimizer.objectives.step.safe_memory import chance_to_fit, chances, margin, memory_error, reach, safe_memory

RISKS = st.floats(0.001, 0.5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(risk=RISKS)
def test_a_plan_that_reserves_the_safe_memory_takes_exactly_the_risk(gpt3_job: Job, risk: float) -> None:
    for stack in (gpt3_job.stack, Stack(name="mine")):
        job = replace(gpt3_job, stack=stack).with_limits(oom_risk=risk)
        assert chance_to_fit(job, safe_memory(job)) == pytest.approx(1 - risk, abs=1e-9)
        assert reach(job, safe_memory(job)) == pytest.approx(job.usable_memory, rel=1e-12)


def test_less_risk_or_less_known_software_leaves_less(gpt3_job: Job) -> None:
    left = [safe_memory(gpt3_job.with_limits(oom_risk=risk)) for risk in (0.01, 0.1, 0.3, 0.5)]
    assert left == sorted(left)
    assert left[-1] == gpt3_job.usable_memory
    vague = replace(gpt3_job, stack=replace(gpt3_job.stack, name="mine"))
    assert safe_memory(vague) < safe_memory(gpt3_job)


def test_the_margin_is_that_of_a_normal_table(gpt3_job: Job) -> None:
    """10 % lie below -1.2816 standard deviations."""
    mean, spread = memory_error(gpt3_job)
    assert mean == 0.0
    assert margin(gpt3_job, 0.1) == pytest.approx(exp(-1.2816 * spread), rel=1e-4)


def test_runs_of_ones_own_that_reserve_more_leave_less(gpt3_job: Job) -> None:
    """Two runs that reserve a fifth more than predicted: the median of others is believed to, and they are surer."""
    row = replace(place(gpt3_job, Plan(tp=8, pp=8, dp=16), 1.0, quantity=MEMORY), error=log(1.2))
    own = replace(gpt3_job, stack=replace(gpt3_job.stack, known=(row, replace(row, size=(13, 37, 9, 11)))))
    (mean, spread), (_, before) = memory_error(own), memory_error(gpt3_job)
    assert 0.05 < mean < log(1.2)
    assert spread < before
    assert margin(own, 0.5) == pytest.approx(exp(-mean))


def test_chances_fall_with_what_is_reserved_and_none_fits_without_memory(gpt3_job: Job) -> None:
    reserved = np.array([1e9, 40e9, gpt3_job.usable_memory, 200e9])
    found = chances(gpt3_job, reserved)
    assert list(found) == sorted(found, reverse=True)
    assert found[2] == pytest.approx(0.5)
    assert not chances(gpt3_job.with_limits(hbm=1e9), reserved).any()
    assert safe_memory(gpt3_job.with_limits(hbm=1e9)) == gpt3_job.with_limits(hbm=1e9).usable_memory < 0


@pytest.mark.parametrize("risk", [0.0, -0.1, 0.51, 1.0])
def test_no_other_risk_can_be_taken(gpt3_job: Job, risk: float) -> None:
    with pytest.raises(InputError, match=r"risk to go out of memory must be above 0 and at most 50%"):
        replace(gpt3_job, limits=Limits(oom_risk=risk))
