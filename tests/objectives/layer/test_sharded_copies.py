"""What PyTorch's FSDP2 copies between its buffers and the tensors that kernels read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.layer.parameters import LocalParameters
from optimizer.objectives.layer.sharded import Covers, copied_seconds, hosted_seconds, sharded_messages
from optimizer.objectives.network.messages import BACKWARD, FORWARD
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


def test_what_no_backward_pass_reaches_is_gathered_for_the_forward_passes_alone(job: Job) -> None:
    """8 of 32 layers, a policy and its reference, 3e9 elements of which 1e9 are trained, over 8 ranks."""
    loss = replace(job, train="frozen:embedding,layers.0-7", loss="dpo", seq_len=4096)
    loss = replace(loss, stack=replace(loss.stack, features=replace(loss.stack.features, hosted_weights=True)))
    elements = replace(
        LocalParameters.all_trained(shared=np.array([3e9]), experts=np.zeros(1)), trained_shared=np.array([1e9])
    )
    plans = Plans.of([SHARDED])
    rate = 2.4e12 * job.stack["hbm_efficiency"]
    copies = copied_seconds(loss, plans, elements)
    assert [seconds[0] * rate for seconds in copies] == pytest.approx([2 * 4 * 3e9, 0.75 * 4 * 3e9 + 6 * 1e9])
    hosted = hosted_seconds(loss, plans, elements)
    assert [seconds[0] * job.cluster.host_bandwidth for seconds in hosted] == pytest.approx(
        [2 * 2 * 3e9 / 8, 2 * 3e9 / 8]
    )
    sent = [m for m in sharded_messages(loss, plans, elements) if not m.purpose.endswith("experts")]
    assert [(m.kind, m.phase, float(m.size[0] * np.asarray(m.times)[0])) for m in sent] == [
        ("all_gather", FORWARD, 2 * 2 * 3e9),
        ("all_gather", BACKWARD, 0.75 * 2 * 3e9),
        ("reduce_scatter", BACKWARD, 4 * 1e9),
    ]


def test_hooks_make_a_host_late_by_what_outlasts_the_pass_and_what_shows(job: Job) -> None:
    """Launches of 3 and 7 s and hooks of 2 in each pass: over 4, 5 and 5 + 6 s of the GPU; 0.5 show besides."""
    hooked = replace(job, stack=replace(job.stack, features=replace(job.stack.features, sharded_host=2.0)))
    one = np.ones(1)
    covers = Covers(forward=4 * one, backward=5 * one, recompute=6 * one, host_forward=3 * one, host_backward=7 * one)
    assert [float(late[0]) for late in covers.late(hooked, (one / 2, one / 2, one / 2))] == [0.5, 3.5, 0.5]
    assert float(covers.late(replace(hooked, loss="dpo"), (one / 2, one, 9 * one))[0][0]) == 5.5
    assert float(covers.late(hooked, (one, one, 9 * one))[2][0]) == 0.0
