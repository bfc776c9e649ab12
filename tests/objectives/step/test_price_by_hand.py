"""The price of a step against a simulated pipeline with what happens once per step, and against its floor."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import assume, given, settings

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import KnobColumns, Knobs, Plan, Plans, virtual_stages
from optimizer.objectives.layer.layer_costs import LayerCosts, layer_costs_of
from optimizer.objectives.pipeline.schedules import schedule_order
from optimizer.objectives.pipeline.simulator import simulate
from optimizer.objectives.pipeline.stages import EMBEDDING, HEAD, LAYERS, MTP, Runs, layer_sequence, stages_of
from optimizer.objectives.step.per_step import work_of, work_per_step
from optimizer.objectives.step.price import Step, price_layer_costs
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.layouts.bounds.step_floor import step_floor
from optimizer.search.layouts.costs import pass_times, stage_costs
from tests.objectives.drawn import CLUSTERS, MODELS, STACKS, cluster, jobs, knobs, plans, stack
from tests.thorough import THOROUGH


def runs_of(job: Job, plan: Plan) -> list[Runs]:
    """Runs of layers on each virtual stage, embedding first, prediction layers and head last."""
    kinds = [kind for kind, count in layer_sequence(job.model) for _ in range(count)]
    layers = iter(kind for kind in kinds if kind not in (EMBEDDING, MTP, HEAD))
    counts = virtual_stages(plan.layers_per_stage, job.model.layers, plan.pp, plan.vpp)
    parts = [list(islice(layers, count)) for count in counts]
    parts[0] = [EMBEDDING, *parts[0]]
    parts[-1] = [*parts[-1], *[MTP] * job.model.mtp_layers, HEAD]
    return [tuple((kind, 1) for kind in part) for part in parts]


def simulated(layer_costs: LayerCosts, plan: Plan, setting: Knobs) -> float:
    """Seconds of the pipeline of one plan, pass by pass."""
    runs = runs_of(layer_costs.job, plan)
    recomputed = [
        tuple(
            run
            for virtual in runs[stage :: plan.pp]
            for run in virtual
            if plan.recompute == "full" and run[0] in LAYERS
        )
        for stage in range(plan.pp)
    ]
    order = schedule_order(plan.schedule, plan.pp, plan.vpp, plan.num_microbatches)
    split = plan.schedule.startswith("zero-bubble")
    times = pass_times(stage_costs(layer_costs, setting).row(0), runs, recomputed, pp=plan.pp, split=split)
    return simulate(order, times).makespan


def with_the_rest(layer_costs: LayerCosts, setting: Knobs, pipeline: float) -> float:
    """A pipeline with the once-per-step work of the stage that has most of it, the host's time and stragglers [s]."""
    job, stages = layer_costs.job, stages_of(layer_costs.job.model, layer_costs.plans)
    step = (
        pipeline + float(work_per_step(work_of(layer_costs, stages), setting).total.max()) + job.stack["step_overhead"]
    )
    nodes = max(1.0, float(layer_costs.plans.gpus[0]) / job.cluster.gpus_per_node)
    return step * (1 + job.stack["straggler"] * float(np.log2(nodes)))


@settings(max_examples=60)
@given(jobs(), plans(pipeline=1), knobs())
def test_without_a_pipeline_the_price_is_that_of_the_passes(job: Job, plan: Plan, setting: Knobs) -> None:
    layer_costs = layer_costs_of(job, Plans.of([plan]))
    by_hand = with_the_rest(layer_costs, setting, simulated(layer_costs, plan, setting))
    assert float(price_layer_costs(layer_costs, setting).step_time[0]) == pytest.approx(by_hand, rel=1e-9)


@settings(max_examples=60)
@given(jobs(), plans(), knobs())
def test_a_slow_last_stage_costs_what_the_simulated_pipeline_takes(job: Job, plan: Plan, setting: Knobs) -> None:
    """1F1B whose last stage, which has the head besides, is the slowest: nobody works while it would have waited."""
    plan = replace(plan, vpp=1, schedule="1f1b", layers_per_stage=())
    layer_costs = layer_costs_of(job, Plans.of([plan]))
    busy = Step(layer_costs=layer_costs, stages=stages_of(job.model, layer_costs.plans), knobs=setting).busy[:, 0]
    assume(busy[2 if plan.pp > 1 else 0] == busy.max())
    by_hand = with_the_rest(layer_costs, setting, simulated(layer_costs, plan, setting))
    assert float(price_layer_costs(layer_costs, setting).step_time[0]) == pytest.approx(by_hand, rel=1e-9)


@settings(max_examples=60)
@given(jobs(), plans(), knobs())
def test_like_stages_cost_what_the_simulated_pipeline_takes(job: Job, plan: Plan, setting: Knobs) -> None:
    """Every schedule but ZB-2p, whose stages end one after the other, and DualPipe, whose formula takes F for W
    (objectives/pipeline/test_dualpipe.py); the head is priced like the embedding, at none.

    Layers are all of one kind, as many on every virtual stage, and no gradients of the embedding travel in every one.
    """
    plan = replace(plan, layers_per_stage=(), zero_stage=min(plan.zero_stage, 1))
    assume(plan.schedule not in ("zero-bubble-2p", "dualpipe"))
    assume(len(layer_sequence(job.model)) == 3)
    layer_costs = layer_costs_of(job, Plans.of([plan]))
    layer_costs = replace(layer_costs, by_kind={**layer_costs.by_kind, HEAD: layer_costs.by_kind[EMBEDDING]})
    by_hand = with_the_rest(layer_costs, setting, simulated(layer_costs, plan, setting))
    assert float(price_layer_costs(layer_costs, setting).step_time[0]) == pytest.approx(by_hand, rel=1e-9)


@settings(max_examples=60)
@given(jobs(), plans(), knobs())
def test_unlike_stages_take_no_longer_than_their_price(job: Job, plan: Plan, setting: Knobs) -> None:
    plan = replace(plan, vpp=1, schedule="1f1b")
    layer_costs = layer_costs_of(job, Plans.of([plan]))
    by_hand = with_the_rest(layer_costs, setting, simulated(layer_costs, plan, setting))
    assert by_hand <= float(price_layer_costs(layer_costs, setting).step_time[0]) * (1 + 1e-9)


@pytest.mark.parametrize("name", STACKS)
def test_no_floor_exceeds_the_price_of_the_even_split(name: str) -> None:
    """At the knobs of the price, and of plans that fit at any."""
    random = np.random.default_rng(STACKS.index(name))
    for model in MODELS if THOROUGH else MODELS[STACKS.index(name) % 4 :: 4]:
        where = cluster(CLUSTERS[int(random.integers(len(CLUSTERS)))])
        job = Job(model=model, cluster=where, stack=stack(name), gpus=16, seq_len=4096, global_batch=32)
        found = list(lattice(job.with_limits(bubble=1.0), structural(job.with_limits(bubble=1.0))))
        some = Plans.joined(found)
        some = some.take(random.integers(0, len(some), 400))
        layer_costs, count = layer_costs_of(job, some), len(some)
        setting = KnobColumns(
            bucket=random.uniform(10e6, 1e9, count),
            comm_sm_share=random.uniform(0.02, 0.3, count),
            offload=random.choice([0.0, 0.5, 1.0], count),
        )
        costs = price_layer_costs(layer_costs, setting)
        seconds, fits = costs.step_time, costs.reserved <= safe_memory(job)
        floor = step_floor(layer_costs, setting)
        assert np.all(floor.tuned <= floor.per_step - floor.collectives)  # knobs change nothing of the least
        assert np.all(floor.step_time(floor.slowest()) <= seconds)
        assert np.all(floor.step_time(floor.slowest(), any_knobs=True)[fits] <= seconds[fits])
