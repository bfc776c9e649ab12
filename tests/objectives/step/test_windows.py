"""Rates of models with sliding windows stay below the peak: scores outside a window count nowhere."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from optimizer.job import Job
from optimizer.objectives.step.price import price
from optimizer.plan import Plan, Plans
from optimizer.presets import load_cluster, load_model, load_stack
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
