"""The elements that the optimizer updates, that memory holds and that messages reduce are the same numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings

from optimizer.catalog import load_model
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import LayerCosts, layer_costs_of
from optimizer.objectives.layer.parameters import parameters
from optimizer.objectives.layer.sharded import sharded_messages
from optimizer.objectives.layer.trained import local_elements
from optimizer.objectives.network.messages import BACKWARD, Message
from optimizer.objectives.pipeline.schedules import copies
from optimizer.objectives.pipeline.stages import DENSE, Stages, kinds_of, stages_of
from optimizer.objectives.step.elements import weight_size
from optimizer.objectives.step.linear_stage import stage_memory
from optimizer.objectives.step.per_step import bucket_messages, work_of, work_per_step
from tests.objectives.drawn import MODELS, cluster, jobs, knobs, plans, stack

PARTS = ("shared", "experts")
PIPED = Job(
    model=MODELS[2],
    cluster=cluster("dgx-h100"),
    stack=stack("torchtitan-2024"),
    gpus=64,
    seq_len=4096,
    global_batch=64,
)
IN_GROUPS = Plan(dp=8, pp=4, ep=2, zero_stage=3, shard=2, num_microbatches=8)
TWICE = Plan(dp=8, pp=4, ep=2, zero_stage=1, num_microbatches=8, schedule="dualpipe")


def priced(job: Job, plan: Plan) -> tuple[LayerCosts, Stages]:
    layer_costs = layer_costs_of(job, Plans.of([plan]))
    return layer_costs, stages_of(job.model, layer_costs.plans)


def held(layer_costs: LayerCosts, stages: Stages, part: str) -> FloatArray:
    """Elements on each stage, kind by kind, from what a layer of each kind has."""
    each = local_elements(layer_costs.job, layer_costs.plans)
    return sum(stages.counts[kind][:, 0] * getattr(each[kind], part)[0] for kind in each)


def replicas_of(plan: Plan) -> dict[str, float]:
    """Ranks that hold the same shared parameters, and the same experts."""
    return {"shared": plan.dp * plan.cp, "experts": max(1, plan.dp * plan.cp * plan.tp / (plan.ep * plan.etp))}


def gradient_size(job: Job) -> float:
    """Bytes of a trained element's gradient: as the stack keeps them, or 4 of adapters that it trains in fp32."""
    features = job.stack.features
    return 4.0 if job.train.startswith(("lora", "qlora")) and features.wide_adapters else float(features.grad_bytes)


def waits(job: Job, plan: Plan) -> bool:
    """Whether weights and gradients of ZeRO-3 are whole until the last backward pass of a pipeline's stage."""
    return job.stack.features.reduces_once and plan.pp > 1 and plan.zero_stage == 3


def reduced(message: Message) -> str:
    """Shared parameters or experts."""
    return PARTS[message.purpose.endswith("of experts")]


@settings(max_examples=60)
@given(jobs(), plans(), knobs())
@example(PIPED, TWICE, Knobs())
@example(PIPED, replace(TWICE, zero_stage=0), Knobs())
def test_the_optimizer_updates_what_memory_holds_of_its_state(job: Job, plan: Plan, settings_of: Knobs) -> None:
    """12 B for each element that a rank updates, or what the stack has, but for those whose state is on the host."""
    layer_costs, stages = priced(job, plan)
    kept = stage_memory(layer_costs, stages, settings_of).terms["optimizer"]
    updated = work_per_step(work_of(layer_costs, stages), settings_of).inputs["updated"]
    np.testing.assert_allclose(kept, job.state_bytes * (1 - settings_of.offload) * updated, rtol=1e-12)


@settings(max_examples=60)
@given(jobs(), plans())
@example(PIPED, IN_GROUPS)
@example(PIPED, replace(IN_GROUPS, shard=0))
def test_memory_holds_the_layers_of_a_stage_and_shards_them(job: Job, plan: Plan) -> None:
    """Optimizer state from ZeRO-1 on, gradients from 2, weights from 3, over the replicas or the sharding group.

    A stack whose weights are cast from the master copy has them in half precision while they are not sharded. What
    waits for a pipeline's last backward pass is whole. The update's temporaries lie beside the gradients, and so do
    sums of those in bf16.
    """
    layer_costs, stages = priced(job, plan)
    memory = stage_memory(layer_costs, stages)
    replicas = replicas_of(plan)
    whole = waits(job, plan)
    sharded = plan.zero_stage >= 3 and not whole
    beside = job.stack.features.update_bytes * job.update_rule.at_once
    beside += job.stack.features.sum_bytes * (job.dtype == "bf16")
    states = {
        "weights": (weight_size(job) if sharded else weight_size(job) or 2, 3),
        "gradients": (gradient_size(job) + beside, 2),
        "optimizer": (job.state_bytes, 1),
    }
    for name, (size, stage) in states.items():
        expected = np.zeros(len(stages.exists))
        for part in PARTS:
            divided = plan.zero_stage >= stage and not (whole and name != "optimizer")
            ranks = min(plan.shard or replicas[part], replicas[part]) if divided else 1
            sort = part if name == "weights" else f"trained_{part}"
            expected = expected + held(layer_costs, stages, sort) * size / ranks
        if name != "optimizer" or plan.zero_stage == 0:  # which is sharded over DualPipe's two copies, too
            expected = expected * copies(layer_costs.plans)[0]
        np.testing.assert_allclose(memory.terms[name][:, 0], expected, rtol=1e-12)


@settings(max_examples=60)
@given(jobs(), plans(), knobs())
@example(PIPED, IN_GROUPS, Knobs())
@example(PIPED, replace(IN_GROUPS, shard=0), Knobs())
def test_messages_reduce_the_gradients_that_memory_holds(job: Job, plan: Plan, settings_of: Knobs) -> None:
    """Once per step under ZeRO-0 and 1, for every micro-batch under ZeRO-2 and 3, each element in its gradient's bytes.

    What waits for a pipeline's last backward pass is reduced once per step under ZeRO-3, too. Among the groups of
    hybrid sharding travel the shards that a rank keeps.
    """
    layer_costs, stages = priced(job, plan)
    width = gradient_size(job)
    whole = {part: width * held(layer_costs, stages, f"trained_{part}") for part in PARTS}
    once, among = (dict.fromkeys(PARTS, np.zeros(len(stages.exists))) for _ in range(2))
    for message in bucket_messages(job, layer_costs.plans, layer_costs.groups, settings_of):
        if message.purpose.startswith("gradients"):
            part = reduced(message)
            sent = among if plan.zero_stage >= 2 and message.kind == "all_reduce" else once
            if sent is once and waits(job, plan):
                assert message.ranks[0] == min(plan.shard or np.inf, replicas_of(plan)[part])
            sent[part] = sent[part] + message.times[0] * message.size[0] * held(layer_costs, stages, f"trained_{part}")
    again = dict.fromkeys(PARTS, np.zeros(len(stages.exists)))
    for kind, kind_costs in layer_costs.by_kind.items():
        for message in sharded_messages(job, layer_costs.plans, kind_costs.elements):
            if message.phase == BACKWARD and message.kind == "reduce_scatter":
                part = reduced(message)
                again[part] = again[part] + stages.counts[kind][:, 0] * message.times[0] * message.size[0]
    waiting = plan.zero_stage < 2 or waits(job, plan)
    for part, ranks in replicas_of(plan).items():
        np.testing.assert_allclose((once if waiting else again)[part], whole[part], rtol=1e-9)
        assert not np.any((again if waiting else once)[part])
        repeated = plan.zero_stage == 3 and 0 < plan.shard < ranks
        np.testing.assert_allclose(among[part], whole[part] / plan.shard if repeated else 0.0, rtol=1e-9)


@pytest.mark.parametrize("model", MODELS, ids=range(len(MODELS)))
def test_one_rank_holds_the_whole_model(model: object) -> None:
    """Without any split; prediction layers have a projection of 2 hidden x hidden and three norms besides."""
    found = parameters(model, Plans.of([Plan()]))
    count = sum(number * float(found[kind].both[0]) for kind, number in kinds_of(model).items())
    assert count == pytest.approx(model.params + model.mtp_params, rel=1e-12)


def test_tensor_parallelism_splits_matrices_and_copies_vectors() -> None:
    """Of a gated attention the gate too; 2 key-value heads are copied to 8 ranks."""
    (model,) = {kind.model for kind in load_model("qwen3-next-80b-a3b").kinds if kind.model.has_attention}
    assert (model.gate_dim, model.kv_heads, model.mla) == (model.q_dim, 2, None)
    whole, halves, eighths = parameters(replace(model, experts=None), Plans.of([Plan(tp=tp) for tp in (1, 2, 8)]))[
        DENSE
    ].shared
    vectors = model.mixer_vectors + model.norm_vectors
    matrices, keys_values = whole - vectors, 2 * model.hidden * model.kv_dim
    assert halves == matrices / 2 + vectors
    assert eighths == (matrices + 3 * keys_values) / 8 + vectors


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        (1, {"gradients": ("all_reduce", 1), "weights": ("all_gather", 1)}),
        (0, {"gradients": ("all_reduce", 64)}),
    ],
)
def test_nanotron_reduces_in_buckets_of_ddp_or_all_at_once(zero: int, expected: dict[str, tuple[str, int]]) -> None:
    """3.2e9 bytes of gradients in buckets of 50 MB whatever the ranks, under ZeRO-1 in one call (see reduced_whole)."""
    job = replace(PIPED, stack=stack("nanotron-2024"), gpus=256, global_batch=256)
    layer_costs, _ = priced(job, Plan(dp=256, zero_stage=zero))
    (group,) = (group for group in layer_costs.groups if group.part == "shared")
    elements = np.full(1, 0.8e9)
    messages = bucket_messages(job, layer_costs.plans, (replace(group, reduced=elements),), Knobs(bucket=50e6))
    assert {each.purpose: (each.kind, round(float(elements[0] * each.times[0]))) for each in messages} == expected
