"""What PyTorch's FSDP2 copies between its buffers and the tensors that kernels read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.layer.parameters import LocalParameters
from optimizer.objectives.layer.sharded import copied_seconds
from optimizer.objectives.step.price import price

SHARDED = Plan(dp=8, zero_stage=3, micro_batch=2)


@pytest.fixture
def job() -> Job:
    """Llama 3.1 8B as torchtitan's benchmark of December 2024 ran it."""
    return Job(
        model=load_model("llama3.1-8b"),
        cluster=load_cluster("grand-teton"),
        stack=load_stack("torchtitan-2024"),
        gpus=8,
        seq_len=8192,
        global_batch=16,
    )


def test_weights_are_copied_before_each_pass_and_gradients_after_one(job: Job) -> None:
    """2 + 2 B an element in each pass, and 2 + 4 of a gradient that travels in fp32."""
    element = LocalParameters.all_trained(shared=np.array([1e9]), experts=np.zeros(1))
    forward, backward = copied_seconds(job, Plans.of([SHARDED]), element)
    rate = 2.4e12 * job.stack["hbm_efficiency"]
    assert [forward[0] * rate, backward[0] * rate] == pytest.approx([4e9, 10e9])


@pytest.mark.parametrize("plan", [Plan(dp=8, zero_stage=2), Plan(tp=8, zero_stage=3)])
def test_nothing_is_copied_that_is_not_gathered(job: Job, plan: Plan) -> None:
    element = LocalParameters.all_trained(shared=np.array([1e9]), experts=np.zeros(1))
    assert sum(each[0] for each in copied_seconds(job, Plans.of([plan]), element)) == 0.0


def test_a_step_takes_as_much_longer(job: Job) -> None:
    """14 B for each of 8.03e9 elements at 1.92 TB/s; no collective hides them."""
    without = replace(job, stack=replace(job.stack, features=replace(job.stack.features, copies_sharded=False)))
    step, less = (float(price(each, Plans.of([SHARDED])).step_time[0]) for each in (job, without))
    assert step - less == pytest.approx(14 * job.model.params / 1.92e12, rel=0.01)
