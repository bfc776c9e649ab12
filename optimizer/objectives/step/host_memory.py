"""What the host's memory can take of a plan: activations first, then as much optimizer state as is left room for."""

from __future__ import annotations

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import KnobColumns, Knobs, Plans
from optimizer.objectives.arrays import ROUNDING, BoolArray, FloatArray, raised
from optimizer.objectives.kernels.shapes import shapes_of
from optimizer.objectives.layer.cost import hosted_bytes, offloads_activations
from optimizer.objectives.layer.layer_costs import LayerCosts, layer_costs_of
from optimizer.objectives.layer.sharded import hosts_weights
from optimizer.objectives.pipeline.schedules import in_flight
from optimizer.objectives.pipeline.stages import DENSE, MOE, MTP, even_stages, kinds_of, stages_of
from optimizer.objectives.step.linear_stage import (
    activations_on_host,
    hosted_of,
    stage_memory,
    states_of_model,
    weights_on_host,
)

FREE = 0.8  # of a host's memory; assumed: the rest is for the system, the loading of data and pinned buffers
UNEVEN = 1.5  # largest stage of a layout over the mean one, as far as layouts with state on the host are searched
OFFLOAD_STEP = 1e-4  # shares of the optimizer state are whole multiples of it


def host_memory_per_gpu(job: Job) -> float:
    """Memory of the host for each GPU of a node, infinite where the cluster does not say [B].

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from dataclasses import replace
    >>> job = Job(model=load_model("gpt3"), cluster=replace(load_cluster("dgx-h100"), host_memory=2e12),
    ...     stack=load_stack("megatron-core"), gpus=1024, seq_len=2048, global_batch=1536)
    >>> host_memory_per_gpu(job)
    200000000000.0
    """
    cluster = job.cluster
    return FREE * cluster.host_memory / cluster.gpus_per_node if cluster.host_memory else float("inf")


def node_memory(job: Job, per_gpu: float) -> float:
    """Memory of a node's host that leaves each GPU so much [B]: per_gpu x GPUs of a node / FREE.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=1024, seq_len=2048, global_batch=1536)
    >>> node_memory(job, 200e9)
    2000000000000.0
    """
    return per_gpu * job.cluster.gpus_per_node / FREE


def least_host_activations(job: Job, plans: Plans) -> FloatArray:
    """Room on the host that the activations of each plan take under any layout of its layers [B].

    Stage s keeps f_s x its layers' bytes b_s, all within a room R: b = sum of b_s <= R x sum of 1 / f_s, with f_s the
    micro-batches in flight.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan
    >>> job = Job(model=load_model("deepseek-v3"), cluster=load_cluster("dgx-h100"),
    ...     stack=load_stack("megatron-core"), gpus=256, seq_len=4096, global_batch=256)
    >>> plan = Plan(tp=8, pp=4, dp=8, ep=8, num_microbatches=32, sequence_parallel=True, activation_offload=100)
    >>> (least_host_activations(job, Plans.of([plan])) / 1e9).round(2).tolist()
    [6.03]
    """
    counts, shapes = kinds_of(job.model), shapes_of(job, plans)
    whole = counts[DENSE] * hosted_bytes(job, plans, shapes, moe=False)
    if more := counts.get(MOE, 0.0) + counts.get(MTP, 0.0):
        whole = whole + more * hosted_bytes(job, plans, shapes, moe=job.model.experts is not None)
    number = np.arange(int(plans.pp.max(initial=1)), dtype=np.float64)[:, None]
    flying = in_flight(plans, np.minimum(number, plans.pp - 1))
    return np.asarray(whole / np.sum(np.where(number < plans.pp, 1.0 / flying, 0.0), axis=0))


def least_weights_on_host(job: Job, plans: Plans) -> FloatArray:
    """What the stage of each plan that has most keeps on the host with sharded weights, under any layout: the mean [B].

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan
    >>> from optimizer.job.switches import switched_to
    >>> stack = switched_to(load_stack("hf-2026"), {"hosted_weights": "on"})
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("rtx-4090"), stack=stack, gpus=1, seq_len=2048,
    ...     global_batch=8, optimizer="adamw-fused")
    >>> whole = least_weights_on_host(job, Plans.of([Plan(zero_stage=3), Plan()]))
    >>> (whole / job.model.params).round(2).tolist()
    [8.0, 0.0]
    """
    if not np.any(hosts_weights(job, plans)):
        return np.zeros(len(plans))
    layer_costs = layer_costs_of(job, plans)
    return hosted_of(layer_costs)(layer_costs.replicas.whole_of_plans) / plans.pp * np.ones(len(plans))


def most_offload(layer_costs: LayerCosts) -> FloatArray:
    """Share of each plan's optimizer state that may lie on the host [1].

    (host memory per GPU - activations of an even split on it) / (UNEVEN x what a stage has of it in the mean), at most
    1, in whole multiples of OFFLOAD_STEP; UNEVEN is assumed, and 1 for a single stage. It hangs on no layout, so that
    every search and every bound may use it; a layout with a stage still larger is left out. None of
    a state that several replicas hold whole.

    Source: NVIDIA/Megatron-LM core_v0.19.0, megatron/core/optimizer/optimizer_config.py, __post_init__: on the host
    with the distributed optimizer alone; DeepSpeed v0.19.8, runtime/engine.py: from ZeRO-1 on.

    >>> from optimizer.objectives.layer.layer_costs import layer_costs_of
    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan, Plans
    >>> from dataclasses import replace
    >>> cluster = replace(load_cluster("dgx-h100"), host_memory=1e12)
    >>> job = Job(model=load_model("gpt3"), cluster=cluster, stack=load_stack("megatron-core"), gpus=16, seq_len=2048,
    ...     global_batch=64)
    >>> plans = Plans.of([Plan(tp=8, dp=2), Plan(tp=8, pp=2, dp=1), Plan(tp=8, dp=2, zero_stage=0)])
    >>> most_offload(layer_costs_of(job, plans)).round(2).tolist()
    [0.76, 0.51, 0.0]
    """
    job, plans = layer_costs.job, layer_costs.plans
    most = np.where((plans.zero_stage >= 1) | (plans.dp * plans.cp == 1), job.most_offload, 0.0)
    if not job.most_offload or not job.cluster.host_memory:
        return most
    mean = states_of_model(layer_costs, offloadable=True) / plans.pp
    free = np.full(len(plans), host_memory_per_gpu(job))
    if np.any(offloads_activations(job, plans)):
        free = np.maximum(free - activations_on_host(layer_costs, even_stages(job.model, plans)).max(axis=0), 0.0)
    share = np.minimum(most, free / (np.maximum(mean, ROUNDING) * np.where(plans.pp > 1, UNEVEN, 1.0)))
    return np.asarray(np.floor(share / OFFLOAD_STEP) * OFFLOAD_STEP)


def on_host(layer_costs: LayerCosts, knobs: Knobs | KnobColumns) -> FloatArray:
    """The most that a stage of each plan keeps on the host for a GPU [B].

    Activations, offload x the optimizer state and what lies there with the weights, of the stage that has most; 12 B
    an element: of 175 billion on 16 GPUs, half there:

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan
    >>> from optimizer.objectives.layer.layer_costs import layer_costs_of
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=16, seq_len=2048, global_batch=64)
    >>> (on_host(layer_costs_of(job, Plans.of([Plan(tp=8, dp=2)])), Knobs(offload=0.5)) / 1e9).round(1).tolist()
    [65.6]
    """
    stages = stages_of(layer_costs.job.model, layer_costs.plans)
    resident = stage_memory(layer_costs, stages).offloadable * knobs.offload + weights_on_host(layer_costs, stages)
    if np.any(offloads_activations(layer_costs.job, layer_costs.plans)):
        resident = resident + activations_on_host(layer_costs, stages)
    return np.asarray(resident.max(axis=0))


def uses_host(job: Job, plans: Plans) -> BoolArray:
    """Plans that keep activations or weights on the host, whatever the knobs."""
    return offloads_activations(job, plans) | hosts_weights(job, plans)


def fits_host(layer_costs: LayerCosts, knobs: Knobs | KnobColumns) -> BoolArray:
    """Plans whose host has room for what they keep on it, as their layers lie."""
    something = np.asarray(knobs.offload > 0) | uses_host(layer_costs.job, layer_costs.plans)
    if not layer_costs.job.cluster.host_memory or not np.any(something):
        return np.ones(len(layer_costs), dtype=np.bool_)
    return on_host(layer_costs, knobs) <= raised(host_memory_per_gpu(layer_costs.job))


def activations_fit_host(layer_costs: LayerCosts) -> BoolArray:
    """Plans whose host has room for the activations that they keep on it, as their layers lie."""
    return fits_host(layer_costs, Knobs())
