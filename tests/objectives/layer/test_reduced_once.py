"""FSDP under a pipeline: gradients wait whole for the last backward pass, and weights from it to a forward pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.calibration.rows.recipe import with_async_tp
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.layer.sharded import reduced_once
from optimizer.objectives.step.per_step import rates_of
from optimizer.objectives.step.price import price
from optimizer.search.plan.planner import plan

PIPED = Plan(tp=8, pp=8, dp=8, micro_batch=4, num_microbatches=8, sequence_parallel=True, recompute="full")
INTERLEAVED = replace(PIPED, vpp=2, schedule="interleaved")


@pytest.fixture
def job() -> Job:
    """Llama 3.1 405B as torchtitan's benchmark of December 2024 ran it."""
    return Job(
        model=load_model("llama3.1-405b"),
        cluster=load_cluster("grand-teton"),
        stack=with_async_tp(load_stack("torchtitan-2024")),
        gpus=512,
        seq_len=8192,
        global_batch=256,
        dtype="fp8",
    )


def twice_a_micro_batch(job: Job) -> Job:
    """The same in software that scatters gradients after every backward pass."""
    return replace(job, stack=replace(job.stack, features=replace(job.stack.features, reduces_once=False)))


def test_it_is_zero_3_of_pipelines_alone(job: Job) -> None:
    plans = Plans.of([replace(PIPED, zero_stage=zero) for zero in (1, 3)] + [Plan(dp=512, zero_stage=3)])
    assert reduced_once(job, plans).tolist() == [False, True, False]
    assert not reduced_once(twice_a_micro_batch(job), plans).any()


def test_weights_and_gradients_are_whole_at_the_peak(job: Job) -> None:
    """As under ZeRO-1: 2 B of weight and 4 of gradient an element beside the share of states, not 6 B over 8 ranks."""
    one, three = (price(job, Plans.of([replace(PIPED, zero_stage=zero)])) for zero in (1, 3))
    every = price(twice_a_micro_batch(job), Plans.of([replace(PIPED, zero_stage=3)]))
    for term in ("weights", "gradients", "optimizer"):
        assert three.memory[term] == pytest.approx(one.memory[term])
    assert every.memory["gradients"] == pytest.approx(one.memory["gradients"] / 8)
    assert every.memory["weights"] < one.memory["weights"] / 8  # cast from the master copy when they are gathered


def test_a_forward_pass_finds_gathered_weights(job: Job) -> None:
    """One gathering a micro-batch and one reduction a step: slower than ZeRO-1, faster than a scatter a micro-batch."""
    one, three = (price(job, Plans.of([replace(PIPED, zero_stage=zero)])).step_time[0] for zero in (1, 3))
    every = price(twice_a_micro_batch(job), Plans.of([replace(PIPED, zero_stage=3)])).step_time[0]
    assert one < three < every


def test_the_reduction_hides_under_no_pass_of_the_last_virtual_stage(job: Job) -> None:
    plans = Plans.of([replace(PIPED, zero_stage=1), replace(INTERLEAVED, zero_stage=1), Plan(dp=512, zero_stage=1)])
    of = {
        once: rates_of(layer_costs_of(each, plans), Knobs())
        for once, each in ((True, job), (False, twice_a_micro_batch(job)))
    }
    shares = of[True].hideable_shared / of[False].hideable_shared
    assert shares.tolist() == pytest.approx([0.0, 0.5, 1.0])
    np.testing.assert_array_equal(of[True].reduce_shared, of[False].reduce_shared)


def test_steps_of_the_benchmark(job: Job) -> None:
    """100 and 128 tokens/s and GPU with 1F1B and interleaved: 41.0 and 32.0 s a step.

    Source: pytorch/torchtitan @31a17bfdb, benchmarks/llama3_h100_202412_torchtitan.md, table 5.
    """
    steps = price(job, Plans.of([replace(each, zero_stage=1) for each in (PIPED, INTERLEAVED)])).step_time
    assert steps == pytest.approx([40.96, 32.0], rel=0.10)


def test_a_pin_is_planned_and_loses_to_whole_weights(job: Job) -> None:
    small = replace(job, model=load_model("llama3-8b"), gpus=16, global_batch=64, dtype="bf16")
    free, pinned = (
        plan(small.with_limits(fixed={"pp": 2, **fixed}, bubble=1.0), top=0) for fixed in ({}, {"zero_stage": 3})
    )
    assert [answer.plan.zero_stage for answer in (free, pinned) if answer.plan] == [1, 3]
    best, gathered = (answer.estimate.step_time for answer in (free, pinned) if answer.estimate)
    assert best < gathered
