"""Rates of models with sliding windows stay below the peak: scores outside a window count nowhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.step.flops import ALL_SCORES
from optimizer.objectives.step.interval import mfu
from optimizer.objectives.step.price import price
from optimizer.reports.plan_words import convention_words
from optimizer.search.plan.alternatives import estimate_of
from tests.objectives.drawn import plans

JOB = Job(
    model=load_model("gemma3-4b"),
    cluster=load_cluster("dgx-h100"),
    stack=load_stack("megatron-core"),
    gpus=64,
    seq_len=131_072,
    global_batch=64,
)


@settings(max_examples=100)
@given(plans())
def test_no_rate_reaches_the_peak(plan: Plan) -> None:
    costs = price(JOB, Plans.of([replace(plan, layers_per_stage=())]))
    assert 0 < costs.mfu[0] <= costs.hfu[0] < 1


@pytest.mark.parametrize(("seq_len", "above"), [(8192, False), (131_072, True)])
def test_a_count_of_masked_scores_above_the_peak_is_told_as_such(seq_len: int, above: bool) -> None:
    job = replace(JOB, seq_len=seq_len)
    costs = price(job, Plans.of([Plan(dp=64, cp=1)]))
    assert (mfu(job, float(costs.step_time[0]), ALL_SCORES) > 1) == above
    assert ("most of which the mask leaves out" in convention_words(job, estimate_of(job, costs, 0))) == above
