"""FSDP that accumulates without syncing: gradients are whole until the last micro-batch reduces them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.step.price import price

EVERY = Plan(dp=8, zero_stage=3, recompute="full", num_microbatches=8)


def job_of(*, syncs_last: bool, global_batch: int = 64) -> Job:
    """Llama 2 13B on eight H100, what it trains in fp32, as Accelerate's FSDP has it."""
    stack = load_stack("hf-2026")
    states = {"optimizer_bytes": 12, "master_bytes": 4, "grad_bytes": 4, "update_bytes": 4, "param_bytes": 0}
    return Job(
        model=load_model("llama2-13b"),
        cluster=load_cluster("dgx-h100"),
        stack=replace(stack, features=replace(stack.features, **states, syncs_last=syncs_last)),
        gpus=8,
        seq_len=2048,
        global_batch=global_batch,
    )


def test_gradients_of_several_micro_batches_are_whole() -> None:
    """13.0 billion of 2 B on each GPU, not an eighth of them in 4 B."""
    last, each = (price(job_of(syncs_last=late), Plans.of([EVERY])) for late in (True, False))
    assert last.memory["gradients"][0] == pytest.approx(2 * 13.016e9, rel=1e-3)
    assert each.memory["gradients"][0] < 0.6 * last.memory["gradients"][0]


@pytest.mark.parametrize("change", [{"num_microbatches": 1}, {"zero_stage": 1}, {"zero_stage": 0}])
def test_one_micro_batch_has_none_and_whole_gradients_are_whole(change: dict[str, int]) -> None:
    plans = Plans.of([replace(EVERY, **change)])
    last, each = (price(job_of(syncs_last=late), plans) for late in (True, False))
    assert last.memory["gradients"][0] == each.memory["gradients"][0]


def test_they_travel_once_a_step() -> None:
    """Of eight micro-batches; those of a single one travel as they come."""
    several, single = Plans.of([EVERY]), Plans.of([replace(EVERY, num_microbatches=1, recompute="none")])
    last, each = (price(job_of(syncs_last=late), several).step_time[0] for late in (True, False))
    assert last < each
    last, each = (price(job_of(syncs_last=late, global_batch=8), single).step_time[0] for late in (True, False))
    assert last == each
