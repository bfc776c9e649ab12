"""The elements that the optimizer updates, that memory holds and that messages reduce are the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import LayerCosts, layer_costs_of
from optimizer.objectives.layer.parameters import parameters
from optimizer.objectives.layer.sharded import sharded_messages
from optimizer.objectives.layer.trained import local_elements
from optimizer.objectives.network.messages import BACKWARD, Message
from optimizer.objectives.pipeline.schedules import copies
from optimizer.objectives.pipeline.stages import Stages, kinds_of, stages_of
from optimizer.objectives.step.linear_stage import stage_memory
from optimizer.objectives.step.per_step import bucket_messages, weight_size, work_of, work_per_step
from tests.objectives.drawn import MODELS, jobs, knobs, plans

PARTS = ("shared", "experts")


def priced(job: Job, plan: Plan) -> tuple[LayerCosts, Stages]:
    layer_costs = layer_costs_of(job, Plans.of([plan]))
    return layer_costs, stages_of(job.model, layer_costs.plans)


def held(layer_costs: LayerCosts, stages: Stages, part: str) -> FloatArray:
    """Elements on each stage, kind by kind, from what a layer of each kind has."""
    each = local_elements(layer_costs.job, layer_costs.plans)
    return sum(stages.counts[kind][:, 0] * getattr(each[kind], part)[0] for kind in each)


def reduced(message: Message) -> str:
    """Shared parameters or experts."""
    return PARTS[message.purpose.endswith("of experts")]


@settings(max_examples=60)
@given(jobs(), plans(), knobs())
def test_the_optimizer_updates_what_memory_holds_of_its_state(job: Job, plan: Plan, settings_of: Knobs) -> None:
    """12 B for each element that a rank updates, or what the stack has, but for those whose state is on the host."""
    layer_costs, stages = priced(job, plan)
    kept = stage_memory(layer_costs, stages, settings_of).terms["optimizer"]
    updated = work_per_step(work_of(layer_costs, stages), settings_of).inputs["updated"]
    np.testing.assert_allclose(kept, job.state_bytes * (1 - settings_of.offload) * updated, rtol=1e-12)


@settings(max_examples=60)
@given(jobs(), plans())
def test_memory_holds_the_layers_of_a_stage_and_shards_them(job: Job, plan: Plan) -> None:
    """Optimizer state from ZeRO-1 on, gradients from 2, weights from 3, over the replicas or the sharding group.

    A stack whose weights are cast from the master copy has them in half precision while they are not sharded.
    """
    layer_costs, stages = priced(job, plan)
    features, memory = job.stack.features, stage_memory(layer_costs, stages)
    replicas = {"shared": plan.dp * plan.cp, "experts": max(1, plan.dp * plan.cp * plan.tp / (plan.ep * plan.etp))}
    sharded = plan.zero_stage >= 3
    states = {
        "weights": (weight_size(job) if sharded else weight_size(job) or 2, 3),
        "gradients": (features.grad_bytes, 2),
        "optimizer": (job.state_bytes, 1),
    }
    for name, (size, stage) in states.items():
        expected = np.zeros(len(stages.exists))
        for part in PARTS:
            ranks = min(plan.shard or replicas[part], replicas[part]) if plan.zero_stage >= stage else 1
            sort = part if name == "weights" else f"trained_{part}"
            expected = expected + held(layer_costs, stages, sort) * size / ranks
        if name != "optimizer" or plan.zero_stage == 0:  # which is sharded over DualPipe's two copies, too
            expected = expected * copies(layer_costs.plans)[0]
        np.testing.assert_allclose(memory.terms[name][:, 0], expected, rtol=1e-12)


@settings(max_examples=60)
@given(jobs(), plans(), knobs())
def test_messages_reduce_the_gradients_that_memory_holds(job: Job, plan: Plan, settings_of: Knobs) -> None:
    """Once per step under ZeRO-0 and 1, for every micro-batch under ZeRO-2 and 3, each element in its gradient's bytes.

    Between the groups of hybrid sharding travel the shards that a rank keeps.
    """
    layer_costs, stages = priced(job, plan)
    width = float(job.stack.features.grad_bytes)
    whole = {part: width * held(layer_costs, stages, f"trained_{part}") for part in PARTS}
    sent = dict.fromkeys(PARTS, np.zeros(len(stages.exists)))
    for message in bucket_messages(job, layer_costs.plans, layer_costs.groups, settings_of):
        if message.purpose.startswith("gradients"):
            part = reduced(message)
            sent[part] = sent[part] + message.times[0] * message.size[0] * held(layer_costs, stages, f"trained_{part}")
    again = dict.fromkeys(PARTS, np.zeros(len(stages.exists)))
    for kind, kind_costs in layer_costs.by_kind.items():
        for message in sharded_messages(job, layer_costs.plans, kind_costs.elements):
            if message.phase == BACKWARD and message.kind == "reduce_scatter":
                part = reduced(message)
                again[part] = again[part] + stages.counts[kind][:, 0] * message.times[0] * message.size[0]
    kept = stage_memory(layer_costs, stages).inputs["gradients"]
    for part in PARTS:
        mine = kept[part][:, 0] * kept[f"{part.removesuffix('s')}_bytes"][0]
        np.testing.assert_allclose(sent[part] if plan.zero_stage < 2 else again[part], whole[part], rtol=1e-9)
        if plan.zero_stage >= 2:
            assert np.all((np.abs(sent[part] - mine) <= 1e-9 * mine) | (sent[part] == 0))


@pytest.mark.parametrize("model", MODELS, ids=range(len(MODELS)))
def test_one_rank_holds_the_whole_model(model: object) -> None:
    """Without any split; prediction layers have a projection of 2 hidden x hidden and three norms besides."""
    found = parameters(model, Plans.of([Plan()]))
    count = sum(number * float(found[kind].both[0]) for kind, number in kinds_of(model).items())
    assert count == pytest.approx(model.params + model.mtp_params, rel=1e-12)
