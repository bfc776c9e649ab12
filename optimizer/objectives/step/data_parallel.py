"""Seconds of data parallelism that show: gradient reduction and weight gathering, less what hides under compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optimizer.job import Job
from optimizer.objectives.kernels.operators import FloatArray
from optimizer.objectives.network.in_training import collective
from optimizer.objectives.pipeline.parameters import LocalParameters, layer_parameters, replicas
from optimizer.plan import IntArray, KnobColumns, Knobs, Plans

BUCKET_PER_RANK = 4e6  # smallest bucket per rank of the group [B]
REFERENCE_SM_SHARE = 0.12  # NCCL's 16 channels on the 132 SMs of an H100


@dataclass(frozen=True, kw_only=True)
class DataParallel:
    """Collective seconds of one step: gradients reduced and weights gathered once; ZeRO-3's per micro-batch."""

    reduce: FloatArray
    gather: FloatArray
    tail: FloatArray


def rate_of_share(share: ArrayLike) -> FloatArray:
    """Collective rate when communication kernels may take this share of the SMs / that at the reference share [1].

    1 - exp(-share / s0) with s0 = 0.05: a few channels feed most of a link, the rest adds little.

    Source: assumed, form and s0 alike; no measurement of a channel sweep stands behind it.

    >>> round(float(rate_of_share(0.12)), 6)
    1.0
    """
    scale = 0.05
    return np.asarray((1 - np.exp(-np.asarray(share) / scale)) / (1 - np.exp(-REFERENCE_SM_SHARE / scale)))


def per_step(job: Job, plans: Plans, parameters: LocalParameters, knobs: Knobs | KnobColumns) -> DataParallel:
    """Gradient reduction and weight gathering of ZeRO-0/1/2, once per step [s].

    ZeRO-0: all-reduce of the gradients. ZeRO-1/2: reduce-scatter of the gradients and all-gather of the weights.
    ZeRO-3 in groups (HSDP): all-reduce of the group's shards of the gradients among the groups, for the last
    micro-batch. Gradients go in buckets of `knobs.bucket` bytes, at least 4 MB per rank of the group, since a ring's
    latency grows with its ranks; the last bucket has nothing to hide under.

    Source: Rajbhandari et al., arXiv 1910.02054, section 7; Zhao et al., arXiv 2304.11277, section 3.2.2; Li et al.,
    arXiv 2006.15704, section 3.2 (buckets); NVIDIA/Megatron-LM
    megatron/core/distributed/distributed_data_parallel.py (1e6 elements per rank).
    """
    shared_ranks, expert_ranks = replicas(plans)
    reduce, gather, tail = np.zeros(len(plans)), np.zeros(len(plans)), np.zeros(len(plans))
    gradient = 4.0 if job.stack.features.fp32_reduce else 2.0
    for elements, ranks, stride in (
        (parameters.shared, shared_ranks, plans.tp),
        (parameters.experts, expert_ranks, plans.ep * plans.etp),
    ):
        if not np.any(elements):
            continue
        hybrid = hybrid_groups(plans, ranks)
        volume = elements * gradient / np.where(hybrid > 1, plans.shard, 1)
        buckets = np.maximum(1.0, np.ceil(volume / np.maximum(knobs.bucket, BUCKET_PER_RANK * ranks)))
        reduction, gathering = np.zeros(len(plans)), np.zeros(len(plans))
        if np.any(plans.zero_stage == 0):
            reduction = collective(job, "all_reduce", volume / buckets, ranks, stride)
        if np.any(plans.zero_stage > 0):
            scatter = collective(job, "reduce_scatter", volume / buckets, ranks, stride)
            reduction = np.where(plans.zero_stage == 0, reduction, scatter)
            gathering = collective(job, "all_gather", elements * 2.0 / buckets, ranks, stride)
        if np.any(hybrid > 1):
            among = collective(
                job, "all_reduce", volume / buckets, np.maximum(hybrid, 1), stride * np.maximum(plans.shard, 1)
            )
            reduction = np.where(hybrid > 1, among, reduction)
            gathering = np.where(hybrid > 1, 0.0, gathering)
        # What is not there costs no latency either, whatever the other plans hold.
        reduction, gathering = np.where(elements > 0, reduction, 0.0), np.where(elements > 0, gathering, 0.0)
        reduce = reduce + buckets * reduction
        gather = gather + np.where(plans.zero_stage == 0, 0.0, buckets * gathering)
        tail = tail + reduction
    rate = rate_of_share(knobs.comm_sm_share)
    return DataParallel(reduce=reduce / rate, gather=gather / rate, tail=tail / rate)


def sharded_layer(job: Job, plans: Plans, moe: bool) -> tuple[FloatArray, FloatArray]:
    """ZeRO-3 seconds of one layer and micro-batch: gathering its weights, scattering its gradients [s].

    Weights are gathered before the forward and again before the backward pass, gradients reduce-scattered after it.
    With a sharding group (HSDP) both stay inside it. A software that gathers parameter by parameter reaches
    `sharded_rate` of the rate of whole layers (see Features).

    Source: Zhao et al., arXiv 2304.11277, section 3 (FSDP).
    """
    local = layer_parameters(job.model, plans, moe)
    shared_ranks, expert_ranks = replicas(plans)
    gather, scatter = np.zeros(len(plans)), np.zeros(len(plans))
    gradient = 4.0 if job.stack.features.fp32_reduce else 2.0
    for elements, ranks, stride in (
        (local.shared, shared_ranks, plans.tp),
        (local.experts, expert_ranks, plans.ep * plans.etp),
    ):
        if not np.any(elements):
            continue
        group = shard_ranks(plans, ranks)
        gather = gather + collective(job, "all_gather", elements * 2.0, group, stride)
        scatter = scatter + collective(job, "reduce_scatter", elements * gradient, group, stride)
    rate = job.stack.features.sharded_rate
    return gather / rate, scatter / rate


def hybrid_groups(plans: Plans, ranks: FloatArray) -> IntArray:
    """Groups over which ZeRO-3 repeats the states that it shards inside each (HSDP); 0 where it shards over all.

    >>> from optimizer.plan import Plan
    >>> hybrid_groups(Plans.of([Plan(dp=64, zero_stage=3, shard=8), Plan(dp=64, zero_stage=3)]), np.full(2, 64.0))
    array([8, 0])
    """
    grouped = (plans.zero_stage == 3) & (plans.shard > 0) & (plans.shard < ranks)
    return np.where(grouped, ranks / np.maximum(plans.shard, 1), 0).astype(np.int64)


def shard_ranks(plans: Plans, ranks: FloatArray) -> IntArray:
    """Ranks over which states are sharded: all replicas, or the plan's sharding group where it has one."""
    return np.where(plans.shard > 0, np.minimum(plans.shard, ranks), ranks).astype(np.int64)
