"""What a rank does once per step: gradients and weights in buckets, and the optimizer, stage by stage.

Every time is linear in the elements that a stage holds, so that a stage costs counts x bill here too; what hides is the
lesser of two such sums, which makes the whole convex in the layers of a stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike

from optimizer.job import Job
from optimizer.objectives.arrays import FloatArray, distinct
from optimizer.objectives.layer.bill import Bill
from optimizer.objectives.layer.messages import ELEMENT
from optimizer.objectives.layer.parameters import LocalParameters, groups, hybrid_groups, parameters, shard_ranks
from optimizer.objectives.layer.shapes import REPLICA_KEYS
from optimizer.objectives.layer.sharded import overlap_of
from optimizer.objectives.network.messages import DP, STEP, Message
from optimizer.objectives.pipeline.stages import Stages, kinds_of
from optimizer.objectives.step.time_terms import contention, data_parallel, hidden, optimizer
from optimizer.plan import KnobColumns, Knobs, Plans

BUCKET_PER_RANK = 4e6  # smallest bucket per rank of the group [B]
FASTEST = Knobs(bucket=1e9, comm_sm_share=0.30)  # the corner of BOX where collectives take least
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


@dataclass(frozen=True, kw_only=True)
class Once:
    """Seconds of what each stage (rows) does once per step, nothing for stages that a plan does not have.

    shown: data parallelism that shows, slowed: contention with what hides, updating: the optimizer, hides: what of the
    collectives hides [s]; inputs: of the formulas.
    """

    shown: FloatArray
    slowed: FloatArray
    updating: FloatArray
    hides: FloatArray
    inputs: Mapping[str, FloatArray]

    @property
    def total(self) -> FloatArray:
        """All of it [s]."""
        return self.shown + self.slowed + self.updating


def once_per_step(bill: Bill, stages: Stages, knobs: Knobs | KnobColumns = Knobs()) -> Once:
    """What each stage does once per step, by the formulas of time_terms."""
    inputs = once_inputs(bill, stages, knobs)
    hides = hidden(*(inputs[name] for name in ("hideable", "backward", "gather", "forward", "overlap")))
    exists = by_stage(stages.exists, knobs)
    device = ("updated", "passes", "bandwidth", "offload", "host_bandwidth")
    return Once(
        shown=exists * data_parallel(np.zeros(1), inputs["reduce"], inputs["gather"], hides),
        slowed=exists * contention(hides, inputs["comm_sm_share"]),
        updating=exists * optimizer(*(inputs[name] for name in device)),
        hides=exists * hides,
        inputs=inputs,
    )


def least_once(bill: Bill, stages: Stages) -> FloatArray:
    """What no setting of the knobs beats for what happens once per step on one stage of each plan [s].

    R + G - overlap (min(R, computation) + min(G, computation)) at the largest bucket and the largest share of SMs, all
    but the last bucket hideable and nobody slowed down, grows with the collectives' times R and G, which no other
    setting makes shorter; the optimizer is linear in what is offloaded.
    """
    fastest = [once_inputs(bill, stages, replace(FASTEST, offload=offload)) for offload in (0.0, 1.0)]
    inputs = fastest[0]
    hides = hidden(*(inputs[name] for name in ("reduce", "backward", "gather", "forward", "overlap")))
    device = ("updated", "passes", "bandwidth", "offload", "host_bandwidth")
    updating = np.minimum(*(optimizer(*(each[name] for name in device)) for each in fastest))
    return np.asarray((inputs["reduce"] + inputs["gather"] - hides + updating)[0])


def once_inputs(bill: Bill, stages: Stages, knobs: Knobs | KnobColumns) -> dict[str, FloatArray]:
    """Inputs of the formulas for each stage; layers hide under what is not rebuilt."""
    job, plans = bill.job, bill.plans
    rates = rates_of(job, plans, knobs)
    held = {name: by_stage(elements_on(bill, stages, name), knobs) for name in ("shared", "experts")}

    def of(what: str) -> FloatArray:
        return sum((held[part] * getattr(rates, f"{what}_{part}") for part in held), np.zeros(1))

    reduce = {part: held[part] * getattr(rates, f"reduce_{part}") for part in held}
    forward, backward = (
        by_stage(counted(stages, {k: e.gathered(getattr(e.cost, name)) for k, e in bill.entries.items()}), knobs)
        / plans.vpp
        for name in ("cover_forward", "cover_backward")
    )
    return {
        "reduce": reduce["shared"] + reduce["experts"],
        "hideable": reduce["shared"] * rates.hideable_shared + reduce["experts"] * rates.hideable_experts,
        "gather": of("gather"),
        "updated": of("updated"),
        "forward": forward,
        "backward": backward,
        "overlap": overlap_of(job, plans),
        "comm_sm_share": np.asarray(knobs.comm_sm_share),
        "offload": np.asarray(knobs.offload),
        "passes": np.asarray(job.stack["optimizer_passes"]),
        "bandwidth": np.asarray(job.cluster.device.memory_bandwidth),
        "host_bandwidth": np.asarray(job.cluster.host_bandwidth),
    }


def counted(stages: Stages, each: Mapping[str, FloatArray]) -> FloatArray:
    """Sum over the kinds of layers on each stage x what one of the kind has."""
    return sum((stages.counts[kind] * values for kind, values in each.items()), np.zeros(1))


def elements_on(bill: Bill, stages: Stages, part: str) -> FloatArray:
    """Elements of the shared parameters or the experts on each stage [elements]."""
    return counted(stages, {kind: getattr(entry, part) for kind, entry in bill.entries.items()})


def by_stage(values: FloatArray, knobs: Knobs | KnobColumns) -> FloatArray:
    """Values with a row per stage, with an axis between for settings of the knobs that have a row each."""
    rows = isinstance(knobs, KnobColumns) and knobs.bucket.ndim > 1
    return values[:, None] if rows else values


def rates_of(job: Job, plans: Plans, knobs: Knobs | KnobColumns) -> Rates:
    """Rates of many plans, found once for those that share their replicas unless every plan has knobs of its own."""
    if isinstance(knobs, KnobColumns):
        return _rates(job, plans, knobs)
    few, rows = distinct(plans, REPLICA_KEYS)
    found = _rates(job, few, knobs)
    return Rates(**{f.name: getattr(found, f.name)[rows] for f in fields(Rates)})


def _rates(job: Job, plans: Plans, knobs: Knobs | KnobColumns) -> Rates:
    share = rate_of_share(knobs.comm_sm_share)
    columns: dict[str, FloatArray] = {}
    messages = bucket_messages(job, plans, knobs)
    for part, ranks, _ in groups(plans):
        mine = [message for message in messages if message.purpose.endswith("of experts") == (part == "experts")]
        gradients = [message for message in mine if message.purpose.startswith("gradients")]
        weights = [message for message in mine if message.purpose.startswith("weights")]
        columns[f"reduce_{part}"] = sum((message.seconds(job) for message in gradients), np.zeros(1)) / share
        columns[f"gather_{part}"] = sum((message.seconds(job) for message in weights), np.zeros(1)) / share
        columns[f"hideable_{part}"] = 1.0 - 1.0 / buckets_of(job, plans, knobs, part)
        shards = np.where(plans.zero_stage >= 1, shard_ranks(plans, ranks), 1.0)
        columns[f"updated_{part}"] = 1.0 / shards
    shape = np.broadcast_shapes(*(np.shape(column) for column in columns.values()))
    return Rates(**{name: np.broadcast_to(column, shape) for name, column in columns.items()})


def bucket_messages(job: Job, plans: Plans, knobs: Knobs | KnobColumns) -> tuple[Message, ...]:
    """Gradients reduced and weights gathered once per step, in buckets; `times` is for each element that a rank holds.

    ZeRO-0: all-reduce of the gradients. ZeRO-1: reduce-scatter of the gradients; ZeRO-1 and 2: all-gather of the
    weights. ZeRO-3 in groups (HSDP): all-reduce of the group's shards of the gradients among the groups. Gradients
    travel in the type in which they are held, in buckets of `knobs.bucket` bytes, at least 4 MB per rank of the group,
    since a ring's latency grows with its ranks, and at most what the mean stage holds.

    Source: Rajbhandari et al., arXiv 1910.02054, section 7; Zhao et al., arXiv 2304.11277, section 3.2.2; Li et al.,
    arXiv 2006.15704, section 3.2 (buckets); NVIDIA/Megatron-LM
    megatron/core/distributed/distributed_data_parallel.py (1e6 elements per rank).
    """
    width, zero = float(job.stack.features.grad_bytes), plans.zero_stage
    found = []
    for part, ranks, stride in groups(plans):
        of = " of experts" * (part == "experts")
        hybrid = hybrid_groups(plans, ranks)
        held = mean_elements(job, plans, part) / np.where(hybrid > 1, shard_ranks(plans, ranks), 1.0)
        elements = held / buckets_of(job, plans, knobs, part)
        each = 1.0 / np.maximum(elements * np.where(hybrid > 1, shard_ranks(plans, ranks), 1.0), 1.0)
        some = elements > 0
        for purpose, kind, size, times, group, apart in (
            ("gradients", "all_reduce", width, zero == 0, ranks, stride),
            ("gradients", "reduce_scatter", width, zero == 1, ranks, stride),
            ("weights", "all_gather", ELEMENT, (zero == 1) | (zero == 2), ranks, stride),
            (
                "gradients",
                "all_reduce",
                width,
                hybrid > 1,
                np.maximum(hybrid, 1.0),
                stride * np.maximum(plans.shard, 1),
            ),
        ):
            found.append(
                Message(
                    parallelism=DP,
                    purpose=f"{purpose}{of}",
                    kind=kind,
                    size=elements * size,
                    ranks=np.broadcast_to(group, np.shape(elements)),
                    stride=np.broadcast_to(apart, np.shape(elements)),
                    times=np.where(times & some, each, 0.0),
                    phase=STEP,
                )
            )
    return tuple(found)


def buckets_of(job: Job, plans: Plans, knobs: Knobs | KnobColumns, part: str) -> FloatArray:
    """Buckets into which the gradients of the mean stage are cut, whole or not, at least one [1]."""
    name_of = {name: ranks for name, ranks, _ in groups(plans)}
    ranks = name_of[part]
    hybrid = hybrid_groups(plans, ranks)
    volume = mean_elements(job, plans, part) * job.stack.features.grad_bytes
    volume = volume / np.where(hybrid > 1, shard_ranks(plans, ranks), 1.0)
    return np.maximum(1.0, volume / np.maximum(knobs.bucket, BUCKET_PER_RANK * ranks))


def mean_elements(job: Job, plans: Plans, part: str) -> FloatArray:
    """Elements that a rank of the mean stage holds [elements]."""
    whole = whole_elements(job, plans)
    return np.asarray(getattr(whole, part) / plans.pp)


def whole_elements(job: Job, plans: Plans) -> LocalParameters:
    """Elements of all stages together on the ranks of one pipeline [elements]."""
    counts = kinds_of(job.model)
    each = parameters(job.model, plans)
    return LocalParameters(
        shared=np.asarray(sum(counts[kind] * each[kind].shared for kind in each)),
        experts=np.asarray(sum(counts[kind] * each[kind].experts for kind in each)),
    )


def rate_of_share(share: ArrayLike) -> FloatArray:
    """Collective rate when communication kernels may take this share of the SMs / that at the reference share [1].

    1 - exp(-share / s0) with s0 = 0.05: a few channels feed most of a link, the rest adds little.

    Source: assumed, form and s0 alike; no measurement of a channel sweep stands behind it.

    >>> round(float(rate_of_share(0.12)), 6)
    1.0
    """
    scale = 0.05
    return np.asarray((1 - np.exp(-np.asarray(share) / scale)) / (1 - np.exp(-REFERENCE_SM_SHARE / scale)))
