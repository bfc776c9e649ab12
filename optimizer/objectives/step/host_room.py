"""How much of a plan's optimizer state the host's memory can take."""

from __future__ import annotations

import numpy as np

from optimizer.job import Job
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.bill import Bill, bill_of
from optimizer.objectives.pipeline.stages import stages_of
from optimizer.objectives.step.memory import stage_memory, state_bytes
from optimizer.plan import KnobColumns, Knobs, Plan, Plans

FREE = 0.8  # of a host's memory; assumed: the rest is for the system, the loading of data and pinned buffers
UNEVEN = 1.5  # largest stage of a layout over the mean one, as far as layouts with state on the host are searched
ROUNDING = 1e-9


def host_room(job: Job) -> float:
    """Memory of the host for each GPU of a node, infinite where the cluster does not say [B].

    >>> from optimizer.presets import load_cluster, load_model, load_stack
    >>> from dataclasses import replace
    >>> job = Job(model=load_model("gpt3"), cluster=replace(load_cluster("dgx-h100"), host_memory=2e12),
    ...     stack=load_stack("megatron-core"), gpus=1024, seq_len=2048, global_batch=1536)
    >>> host_room(job)
    200000000000.0
    """
    cluster = job.cluster
    return FREE * cluster.host_memory / cluster.gpus_per_node if cluster.host_memory else float("inf")


def most_offload(bill: Bill) -> FloatArray:
    """Share of each plan's optimizer state that may lie on the host [1].

    host room / (UNEVEN x what a stage has of it in the mean), at most 1; UNEVEN is assumed, and 1 for a single stage.
    It hangs on no layout, so that every search and every bound may use it; a layout with a stage still larger is left
    out by `holds`.

    >>> from optimizer.objectives.layer.bill import bill_of
    >>> from optimizer.presets import load_cluster, load_model, load_stack
    >>> from optimizer.plan import Plan, Plans
    >>> from dataclasses import replace
    >>> cluster = replace(load_cluster("dgx-h100"), host_memory=1e12)
    >>> job = Job(model=load_model("gpt3"), cluster=cluster, stack=load_stack("megatron-core"), gpus=16, seq_len=2048,
    ...     global_batch=64)
    >>> most_offload(bill_of(job, Plans.of([Plan(tp=8, dp=2), Plan(tp=8, pp=2, dp=1)]))).round(2).tolist()
    [0.76, 0.51]
    """
    job, plans = bill.job, bill.plans
    if not job.most_offload or not job.cluster.host_memory:
        return np.full(len(plans), job.most_offload)
    whole = bill.replicas.whole.take(bill.replicas.rows)
    shared, experts = state_bytes(job, plans)["optimizer"]
    mean = (whole.shared * shared + whole.experts * experts) / plans.pp
    return np.minimum(job.most_offload, host_room(job) / (mean * np.where(plans.pp > 1, UNEVEN, 1.0)))


def on_host(bill: Bill, knobs: Knobs | KnobColumns) -> FloatArray:
    """The most optimizer state that a stage of each plan keeps on the host for a GPU [B].

    offload x the optimizer state of the stage that has most, 12 B an element: of 175 billion on 16 GPUs, half there:

    >>> from optimizer.presets import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=16, seq_len=2048, global_batch=64)
    >>> (on_host(bill_of(job, Plans.of([Plan(tp=8, dp=2)])), Knobs(offload=0.5)) / 1e9).round(1).tolist()
    [65.6]
    """
    stages = stages_of(bill.job.model, bill.plans)
    states = stage_memory(bill, stages).terms["optimizer"] * stages.exists
    return np.asarray(states.max(axis=0) * knobs.offload)


def holds(job: Job, plan: Plan, knobs: Knobs) -> bool:
    """Whether the host has room for what a plan, as it is laid out, keeps there."""
    if not knobs.offload or not job.cluster.host_memory:
        return True
    return bool(on_host(bill_of(job, Plans.of([plan])), knobs)[0] <= host_room(job) * (1 + ROUNDING))
