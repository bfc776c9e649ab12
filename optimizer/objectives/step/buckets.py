"""Gradients and weights that travel once per step, in buckets, and what each element of them costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from optimizer.job.job import Job
from optimizer.job.plan import KnobColumns, Knobs, Plans
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.layer.bill import Bill
from optimizer.objectives.layer.messages import ELEMENT
from optimizer.objectives.layer.parameters import Group, groups_of
from optimizer.objectives.network.messages import DP, STEP, Message

BUCKET_PER_RANK = 4e6  # smallest bucket per rank of the group [B]
REFERENCE_SM_SHARE = 0.12  # NCCL's 16 channels on the 132 SMs of an H100


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Seconds of a step for each element that a rank holds, of shared parameters and of experts.

    reduce: of its gradient, gather: of its weight [s]; hideable: share of `reduce` that is not the last bucket [1];
    updated: elements that the rank updates itself for each that it holds [1].
    """

    reduce_shared: FloatArray
    reduce_experts: FloatArray
    gather_shared: FloatArray
    gather_experts: FloatArray
    hideable_shared: FloatArray
    hideable_experts: FloatArray
    updated_shared: FloatArray
    updated_experts: FloatArray


def rates_of(bill: Bill, knobs: Knobs | KnobColumns) -> Rates:
    """Rates of many plans, found once for those that share their replicas unless every plan has knobs of its own."""
    few = bill.replicas
    if isinstance(knobs, KnobColumns) or len(few.plans) >= len(bill):
        return _rates(bill.job, bill.plans, bill.groups, knobs)
    found = _rates(bill.job, few.plans, groups_of(few.plans, few.whole), knobs)
    return Rates(**{f.name: getattr(found, f.name)[few.rows] for f in fields(Rates)})


def _rates(job: Job, plans: Plans, groups: tuple[Group, ...], knobs: Knobs | KnobColumns) -> Rates:
    share = rate_of_share(knobs.comm_sm_share)
    nothing = np.zeros(len(plans))
    columns: dict[str, FloatArray] = {}
    for group in groups:
        reduce, gather = (
            sum((message.seconds(job) for message in messages), nothing) / share
            for messages in (gradient_messages(job, plans, group, knobs), weight_messages(job, plans, group, knobs))
        )
        columns[f"reduce_{group.part}"], columns[f"gather_{group.part}"] = reduce, gather
        columns[f"hideable_{group.part}"] = 1.0 - 1.0 / buckets_of(job, group, knobs)
        columns[f"updated_{group.part}"] = 1.0 / np.where(plans.zero_stage >= 1, group.shards, 1.0)
    shape = np.broadcast_shapes(*(np.shape(column) for column in columns.values()))
    return Rates(**{f.name: np.broadcast_to(columns.get(f.name, nothing), shape) for f in fields(Rates)})


def bucket_messages(job: Job, plans: Plans, groups: tuple[Group, ...], knobs: Knobs | KnobColumns) -> Iterator[Message]:
    """Everything that travels once per step; `times` of a message is for each element that a rank holds."""
    for group in groups:
        yield from gradient_messages(job, plans, group, knobs)
        yield from weight_messages(job, plans, group, knobs)


def gradient_messages(job: Job, plans: Plans, group: Group, knobs: Knobs | KnobColumns) -> Iterator[Message]:
    """Gradients, reduced in the type in which they are held.

    ZeRO-0: all-reduce, ZeRO-1: reduce-scatter; ZeRO-3 in groups (HSDP): all-reduce of the group's shards among the
    groups. In buckets of `knobs.bucket` bytes, at least 4 MB per rank of the group, since a ring's latency grows with
    its ranks, and at most what the mean stage holds.

    Source: Rajbhandari et al., arXiv 1910.02054, section 7; Zhao et al., arXiv 2304.11277, section 3.2.2; Li et al.,
    arXiv 2006.15704, section 3.2 (buckets); NVIDIA/Megatron-LM
    megatron/core/distributed/distributed_data_parallel.py (1e6 elements per rank).
    """
    width, zero = float(job.stack.features.grad_bytes), plans.zero_stage
    yield from _bucketed(job, group, knobs, "gradients", "all_reduce", width, zero == 0)
    yield from _bucketed(job, group, knobs, "gradients", "reduce_scatter", width, zero == 1)
    yield from _bucketed(job, group, knobs, "gradients", "all_reduce", width, group.hybrid > 1, among=True)


def weight_messages(job: Job, plans: Plans, group: Group, knobs: Knobs | KnobColumns) -> Iterator[Message]:
    """Weights that ZeRO-1 and 2 gather after the update, in the buckets of the gradients.

    Source: Rajbhandari et al., arXiv 1910.02054, section 7.
    """
    once = (plans.zero_stage == 1) | (plans.zero_stage == 2)
    yield from _bucketed(job, group, knobs, "weights", "all_gather", ELEMENT, once)


def _bucketed(
    job: Job,
    group: Group,
    knobs: Knobs | KnobColumns,
    purpose: str,
    kind: str,
    width: float,
    sent: BoolArray,
    *,
    among: bool = False,
) -> Iterator[Message]:
    """The message of one bucket where it is `sent`, within the replicas or `among` their sharding groups."""
    if not np.any(sent):
        return
    elements = group.held / buckets_of(job, group, knobs)
    whole = elements * np.where(group.hybrid > 1, group.shards, 1.0)
    ranks, stride = (group.hybrid, group.stride * group.shards) if among else (group.ranks, group.stride)
    yield Message(
        parallelism=DP,
        purpose=purpose + " of experts" * (group.part == "experts"),
        kind=kind,
        size=elements * width,
        ranks=np.maximum(ranks, 1.0),
        stride=np.asarray(stride),
        times=np.where(sent & (elements > 0), 1.0 / np.maximum(whole, 1.0), 0.0),
        phase=STEP,
    )


def buckets_of(job: Job, group: Group, knobs: Knobs | KnobColumns) -> FloatArray:
    """Buckets into which the gradients of the mean stage are cut, whole or not, at least one [1]."""
    volume = group.held * job.stack.features.grad_bytes
    return np.maximum(1.0, volume / np.maximum(knobs.bucket, BUCKET_PER_RANK * group.ranks))


def rate_of_share(share: ArrayLike) -> FloatArray:
    """Collective rate when communication kernels may take this share of the SMs / that at the reference share [1].

    1 - exp(-share / s0) with s0 = 0.05: a few channels feed most of a link, the rest adds little.

    Source: assumed, form and s0 alike; no measurement of a channel sweep stands behind it.

    >>> round(float(rate_of_share(0.12)), 6)
    1.0
    """
    scale = 0.05
    return np.asarray((1 - np.exp(-np.asarray(share) / scale)) / (1 - np.exp(-REFERENCE_SM_SHARE / scale)))
