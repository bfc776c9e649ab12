"""How much of a plan's optimizer state the host's memory can take, whatever its layout."""

from __future__ import annotations

import numpy as np

from optimizer.job import Job
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.memory import STATES, state_bytes
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.plan import Plans

FREE = 0.8  # of a host's memory; assumed: the rest is for the system, the loading of data and pinned buffers


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


def most_offload(job: Job, plans: Plans) -> FloatArray:
    """Share of each plan's optimizer state that may lie on the host in every layout of it [1].

    host room / ((o / (w + g)) safe memory), at most 1. Weights and gradients of a stage, w and g bytes an element, lie
    on the device, so that it has no more elements than fit there, and o bytes of optimizer state for each. They are
    those of optimizer.objectives.step.memory.state_bytes, of shared parameters or experts, whichever ask for more.

    >>> from optimizer.presets import load_cluster, load_model, load_stack
    >>> from optimizer.plan import Plan
    >>> from dataclasses import replace
    >>> cluster = replace(load_cluster("dgx-h100"), host_memory=1e12)
    >>> job = Job(model=load_model("gpt3"), cluster=cluster, stack=load_stack("megatron-core"), gpus=64, seq_len=2048,
    ...     global_batch=64)
    >>> most_offload(job, Plans.of([Plan(tp=8, pp=8, dp=1), Plan(tp=8, pp=4, dp=2)])).round(2).tolist()
    [0.64, 1.0]
    """
    if not job.most_offload or job.usable_memory <= 0:
        return np.full(len(plans), job.most_offload)
    weights, gradients, optimizer = (state_bytes(job, plans)[state] for state in STATES)
    parts = range(2 if job.model.experts else 1)
    ratios = [optimizer[part] / (weights[part] + gradients[part]) for part in parts]
    return np.asarray(np.minimum(job.most_offload, host_room(job) / (np.maximum.reduce(ratios) * safe_memory(job))))
