"""Weights, gradients and states that ZeRO-3 shards, on the host."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.job.switches import switched_to
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.pipeline.stages import stages_of
from optimizer.objectives.step.host_memory import fits_host, node_memory, on_host
from optimizer.objectives.step.linear_stage import linear_stage, stage_memory
from optimizer.objectives.step.price import price
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.plan.best import best_plan


def asked(hosted: str = "on", **changes: object) -> Job:
    job = Job(
        model=load_model("llama3-8b"),
        cluster=load_cluster("rtx-4090"),
        stack=switched_to(load_stack("hf-2026"), {"hosted_weights": hosted}),
        gpus=4,
        seq_len=2048,
        global_batch=32,
    )
    return replace(job, **changes)  # type: ignore[arg-type]


SHARDED = Plan(dp=4, zero_stage=3, micro_batch=1, num_microbatches=8, recompute="full")


@pytest.mark.parametrize(("train", "each"), [("full", 2 + 2 + 4), ("lora", 2)])
def test_what_leaves_the_device_lies_on_the_host(train: str, each: float) -> None:
    on, off = (asked(name, train=train, optimizer="adamw-fused") for name in ("on", "off"))
    plans = Plans.of([SHARDED])
    there = float(on_host(layer_costs_of(on, plans), Knobs())[0])
    memory = {
        name: stage_memory(layer_costs_of(job, plans), stages_of(job.model, plans)).terms
        for name, job in (("on", on), ("off", off))
    }
    states = ("weights", "gradients", "optimizer")
    moved = sum(float((memory["off"][name] - memory["on"][name])[0, 0]) for name in states)
    assert there == pytest.approx(moved)
    assert there == pytest.approx(each * on.model.params / 4, rel=0.05)
    assert all(float(memory["on"][name][0, 0]) == 0.0 for name in states)


@pytest.mark.parametrize(("room", "fits"), [(1.0, True), (1 - 1e-6, False)])
def test_a_host_holds_what_fills_it_to_the_last_byte(room: float, fits: bool) -> None:
    job, plans = asked(), Plans.of([SHARDED])
    there = float(on_host(layer_costs_of(job, plans), Knobs())[0])
    full = replace(job.cluster, host_memory=node_memory(job, room * there))
    assert fits_host(layer_costs_of(replace(job, cluster=full), plans), Knobs()).tolist() == [fits]


def test_a_micro_batch_pays_for_the_host_link() -> None:
    """Twice the micro-batch takes half the traffic, which is weights in both passes, where no computation hides it."""
    slow = replace(load_cluster("rtx-4090"), host_bandwidth=1e8)
    one = replace(SHARDED, micro_batch=2, num_microbatches=4)
    seconds = {
        (name, plan.micro_batch): float(price(asked(name, cluster=slow), Plans.of([plan])).step_time[0])
        for name in ("on", "off")
        for plan in (SHARDED, one)
    }
    update = [
        float(price(asked(cluster=slow), Plans.of([replace(SHARDED, num_microbatches=count)])).step_time[0])
        for count in (8, 4)
    ]
    shard = 2.0 * load_model("llama3-8b").params / 4 / 1e8
    assert (update[0] - update[1]) / 4 == pytest.approx(2 * shard, rel=0.05)
    assert seconds["on", 1] - seconds["on", 2] == pytest.approx(4 * 2 * shard, rel=0.1)
    assert seconds["on", 1] > 10 * seconds["off", 1]


def test_other_stages_keep_them_on_the_device() -> None:
    plans = Plans.of([replace(SHARDED, zero_stage=2), replace(SHARDED, zero_stage=0)])
    on, off = (price(asked(name), plans) for name in ("on", "off"))
    assert on.step_time.tolist() == off.step_time.tolist()
    assert on.reserved.tolist() == off.reserved.tolist()


def test_both_readings_have_as_much_on_the_host() -> None:
    """Bytes of layers, which the search adds up, and of given stages are the same."""
    costs = layer_costs_of(asked(), Plans.of([SHARDED]))
    memory = linear_stage(costs).row(0)
    stages = stages_of(costs.job.model, costs.plans)
    counts = {kind: np.array([float(count[0, 0])]) for kind, count in stages.counts.items()}
    assert float(memory.hosted(counts, np.ones(1))[0]) == pytest.approx(float(on_host(costs, Knobs())[0]))


@pytest.mark.parametrize("host", [0.0, 32e9, 1e12])
def test_the_search_keeps_to_the_host(host: float) -> None:
    """All weights of 8B on one card of 24 GB: where the host has room, and nowhere else."""
    job = asked(gpus=1, global_batch=8).with_limits(fixed={"zero_stage": 3})
    found = best_plan(job.with_host_memory(host * 8), Tuning(trials=0))
    assert (found is not None) == (host != 32e9)
