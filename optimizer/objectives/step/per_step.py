"""What a rank does once per step: gradients and weights in buckets, and the optimizer, stage by stage.

Every time is linear in the elements that a stage holds, so that a stage costs counts x layer costs too; what hides is
the lesser of two such sums, which makes the whole convex in the layers of a stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from optimizer.job.job import Job
from optimizer.job.plan import IntArray, KnobColumns, Knobs, Plans
from optimizer.job.rows import Rows
from optimizer.objectives.arrays import BoolArray, FloatArray, spread
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.layer.messages import ELEMENT
from optimizer.objectives.layer.parameters import Group, groups_of
from optimizer.objectives.layer.sharded import hosts_weights, overlap_of, reduced_once, reduced_whole, synced_last
from optimizer.objectives.network.messages import DP, STEP, Message
from optimizer.objectives.pipeline.schedules import copies
from optimizer.objectives.pipeline.stages import Stages
from optimizer.objectives.step.elements import counted, elements_on, weight_size
from optimizer.objectives.step.paging import paged_share
from optimizer.objectives.step.time_terms import (
    before_last,
    contention,
    data_parallel,
    hidden,
    optimizer,
    orthogonalising,
    paging,
    quantising,
    update_bytes,
)

FASTEST = Knobs(bucket=1e9, comm_sm_share=0.30)  # the corner of BOX where collectives take least
COVERED = ("backward", "gather", "forward", "overlap", "vpp", "pp")
REFERENCE_SM_SHARE = 0.12  # NCCL's 16 channels on the 132 SMs of an H100


@dataclass(frozen=True, kw_only=True)
class StageWork:
    """What every stage (rows) has to do once per step, whatever the knobs."""

    layer_costs: LayerCosts
    exists: FloatArray  # 0 where a plan has no such stage
    shared: FloatArray  # that a rank holds and trains [elements]
    experts: FloatArray  # the same of experts [elements]
    # computation of a micro-batch on a virtual stage that is not recomputed, under which its messages can hide [s]
    forward: FloatArray
    backward: FloatArray  # the same of the backward pass [s]


@dataclass(frozen=True, kw_only=True)
class PerStep:
    """Seconds of what each stage (rows) does once per step, nothing for stages that a plan does not have."""

    exists: FloatArray  # 0 where a plan has no such stage
    shown: FloatArray  # data parallelism that shows [s]
    slowed: FloatArray  # contention with what hides [s]
    updating: FloatArray  # the optimizer [s]
    hides: FloatArray  # what of the collectives hides [s]
    inputs: Mapping[str, FloatArray]  # of the formulas

    @cached_property
    def total(self) -> FloatArray:
        """All of it [s]."""
        return self.exists * (self.shown + self.slowed + self.updating)


def work_of(layer_costs: LayerCosts, stages: Stages) -> StageWork:
    """The counts of a stage x the layer costs, added up."""
    forward, backward = (
        counted(stages, {kind: getattr(kind_costs, name) for kind, kind_costs in layer_costs.by_kind.items()})
        / layer_costs.plans.vpp
        for name in ("cover_forward", "cover_backward")
    )
    return StageWork(
        layer_costs=layer_costs,
        exists=stages.exists,
        shared=elements_on(layer_costs, stages, "trained_shared"),
        experts=elements_on(layer_costs, stages, "trained_experts"),
        forward=forward,
        backward=backward,
    )


def work_per_step(work: StageWork, knobs: Knobs | KnobColumns = Knobs()) -> PerStep:
    """What each stage does once per step, by the formulas of time_terms."""
    inputs = per_step_inputs(work, knobs)
    hides = hidden(*(inputs[name] for name in ("hideable", *COVERED)))
    exists = by_stage(work.exists, knobs)
    return PerStep(
        exists=exists,
        shown=data_parallel(np.zeros(1), inputs["reduce"], inputs["gather"], hides),
        slowed=contention(hides, inputs["comm_sm_share"]),
        updating=inputs["updated"] * update_time(work.layer_costs, inputs["offload"]),
        hides=exists * hides,
        inputs=inputs,
    )


def least_per_step(work: StageWork, offload: FloatArray) -> FloatArray:
    """What no setting of the knobs beats for what happens once per step on the first stage of each plan [s].

    offload: share of the optimizer state that must be on the host for a plan to fit, or less [1].
    """
    collectives, updated = least_collectives(work)
    return collectives + updated * least_update_time(work.layer_costs, offload)


def least_collectives(work: StageWork) -> tuple[FloatArray, FloatArray]:
    """What no setting of the knobs beats for the collectives once per step on the first stage of each plan [s], and
    what it updates [elements].

    R + G - overlap (min(R, computation) + min(G, computation)) at the largest bucket and the largest share of SMs, all
    but the last bucket hideable and nobody slowed down, grows with the collectives' times R and G, which no other
    setting makes shorter.
    """
    inputs = per_step_inputs(work, FASTEST)
    hides = hidden(*(inputs[name] for name in ("reduce", *COVERED)))
    return np.asarray((inputs["reduce"] + inputs["gather"] - hides)[0]), inputs["updated"][0]


def least_update_time(layer_costs: LayerCosts, offload: FloatArray) -> FloatArray:
    """What the optimizer takes for one element with this share of its state on the host, or more [s].

    It is linear in what is offloaded.
    """
    return np.minimum(update_time(layer_costs, offload), update_time(layer_costs, np.ones(1)))


def per_step_inputs(work: StageWork, knobs: Knobs | KnobColumns) -> dict[str, FloatArray]:
    """Inputs of the formulas for each stage; layers hide under what is not recomputed."""
    job, rates = work.layer_costs.job, rates_of(work.layer_costs, knobs)
    reduce = _by_part(work, knobs, rates.reduce_shared, rates.reduce_experts)
    gather = _by_part(work, knobs, rates.gather_shared, rates.gather_experts)
    updated = _by_part(work, knobs, rates.updated_shared, rates.updated_experts)
    hideable = rates.hideable_shared, rates.hideable_experts
    return {
        "reduce": _sum(reduce),
        "hideable": _sum([part * share for part, share in zip(reduce, hideable, strict=False)]),
        "gather": _sum(gather),
        # Whoever shards the optimizer's state shards it over the copies too.
        "updated": _sum(updated)
        / np.where(work.layer_costs.plans.zero_stage >= 1, copies(work.layer_costs.plans), 1.0),
        "forward": by_stage(work.forward, knobs),
        "backward": by_stage(work.backward, knobs),
        "overlap": overlap_of(job, work.layer_costs.plans),
        "vpp": work.layer_costs.plans.vpp,
        "pp": work.layer_costs.plans.pp,
        "comm_sm_share": np.asarray(knobs.comm_sm_share),
        **_update_inputs(work.layer_costs, np.asarray(knobs.offload)),
    }


def update_time(layer_costs: LayerCosts, offload: FloatArray) -> FloatArray:
    """What the optimizer takes for one element, with this share of its state on the host [s]."""
    return optimizer(np.ones(1), **_update_inputs(layer_costs, offload))


# Reads and writes of a tensor by AdamW kernel by kernel, with the gradients' norm and its clipping / those of a fused
# kernel: 20 + 3 / 6. Counted in PyTorch 2.11, torch/optim/adam.py, _multi_tensor_adam, and nn/utils/clip_grad.py.
EAGER_UPDATE = 23.0 / 6.0


def slower_on_host(job: Job) -> bool:
    """Whether an update takes longer on the host than on the device.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> slower_on_host(Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), gpus=64, seq_len=2048,
    ...     stack=load_stack("megatron-core"), global_batch=64))
    True
    """
    device, host = (
        optimizer(np.ones(1), **_traffic(job, np.asarray(share)), besides=np.zeros(1)) for share in (0.0, 1.0)
    )
    return bool(host[0] >= device[0])


def _update_inputs(layer_costs: LayerCosts, offload: FloatArray) -> dict[str, FloatArray]:
    if layer_costs.job.stack.features.hosted_weights:
        offload = np.where(hosts_weights(layer_costs.job, layer_costs.plans), 1.0, offload)
    return {**_traffic(layer_costs.job, offload), "besides": np.asarray(_besides(layer_costs))}


def _traffic(job: Job, offload: FloatArray) -> dict[str, FloatArray]:
    traffic = job.update_rule.moved or update_bytes(job.state_bytes, job.grad_bytes, weight_size(job))
    if job.stack.features.eager and job.update_rule.at_once:
        traffic *= EAGER_UPDATE
    return {
        "traffic": np.asarray(float(traffic)),
        "passes": np.asarray(job.stack["optimizer_passes"]),
        "bandwidth": np.asarray(job.cluster.device.memory_bandwidth),
        "offload": offload,
        "host_traffic": np.asarray(float(traffic + job.grad_bytes)),
        "host_bandwidth": np.asarray(job.cluster.host_bandwidth),
    }


def _besides(layer_costs: LayerCosts) -> FloatArray | float:
    """What the optimizer takes for an element beside its traffic in device memory [s]."""
    job = layer_costs.job
    rule, model = job.update_rule, job.model
    blocks = quantising(job.cluster.device.sms) if rule.bytes and job.cluster.device.sms > 1 else 0.0
    if rule.paged:
        moments = paging(job.state_bytes - job.master_bytes, job.cluster.host_bandwidth)
        return np.maximum(blocks, paged_share(layer_costs) * moments)
    if rule.orthogonal:
        width = model.ffn_hidden or (model.experts.ffn_hidden if model.experts else model.hidden)
        rate = job.cluster.device.peak(job.wide_dtype) * job.stack["gemm_efficiency"]
        return orthogonalising(model.hidden, width, rate)
    return blocks


def _by_part(work: StageWork, knobs: Knobs | KnobColumns, *rates: FloatArray) -> list[FloatArray]:
    """Elements of each stage x what each of them takes: shared parameters, and the experts of a model that has any."""
    elements = [work.shared, work.experts] if work.layer_costs.job.model.experts else [work.shared]
    return [by_stage(elements, knobs) * rate for elements, rate in zip(elements, rates, strict=False)]


def _sum(parts: list[FloatArray]) -> FloatArray:
    return parts[0] + parts[1] if len(parts) > 1 else parts[0]


def by_stage(values: FloatArray, knobs: Knobs | KnobColumns) -> FloatArray:
    """Values with a row per stage, with an axis between for settings of the knobs that have a row each."""
    rows = isinstance(knobs, KnobColumns) and knobs.bucket.ndim > 1
    return values[:, None] if rows else values


@dataclass(frozen=True, kw_only=True)
class ElementRates(Rows):
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


def rates_of(layer_costs: LayerCosts, knobs: Knobs | KnobColumns) -> ElementRates:
    """Rates of many plans, found once for those that share their replicas unless plans have buckets of their own.

    Software that reduces_once starts when the last backward pass of a virtual stage is over: of the one that a rank
    passes last, nothing hides.
    """
    few, job, plans = layer_costs.replicas, layer_costs.job, layer_costs.plans
    shared = knobs if isinstance(knobs, Knobs) else _shared(knobs)
    settings = (shared.bucket, shared.comm_sm_share) if shared else ()
    if shared is None or (settings not in few.known and len(few.plans) >= len(layer_costs)):
        rates = _rates(job, plans, layer_costs.groups, knobs)
    else:
        if settings not in few.known:
            few.known[settings] = _rates(job, few.plans, groups_of(few.plans, few.whole), shared)
        rates = few.known[settings].take(few.rows)
    if not job.stack.features.reduces_once:
        return rates
    hides = np.where(plans.pp > 1, before_last(plans.vpp.astype(np.float64)), 1.0)
    shares = {name: getattr(rates, name) * hides for name in ("hideable_shared", "hideable_experts")}
    return rates.changed(**shares)


def _shared(knobs: KnobColumns) -> Knobs | None:
    """The settings that plans have alike, whatever each has on the host; None where they differ."""
    if knobs.bucket.ndim != 1 or not knobs.bucket.size:
        return None
    bucket, share = float(knobs.bucket[0]), float(knobs.comm_sm_share[0])
    alike = (knobs.bucket == bucket).all() and (knobs.comm_sm_share == share).all()
    return Knobs(bucket=bucket, comm_sm_share=share) if alike else None


def _rates(job: Job, plans: Plans, groups: tuple[Group, ...], knobs: Knobs | KnobColumns) -> ElementRates:
    share = rate_of_share(knobs.comm_sm_share)
    nothing = np.zeros(len(plans))
    columns: dict[str, FloatArray] = {}
    some, which = _distinct_buckets(knobs)
    for group in groups:
        buckets = buckets_of(job, plans, group, some)
        reduce, gather = (
            sum((message.seconds(job) for message in messages), np.zeros(buckets.shape))[which] / share
            for messages in (gradient_messages(job, plans, group, buckets), weight_messages(plans, group, buckets))
        )
        gather = gather + sliced_seconds(job, plans, group)
        columns[f"reduce_{group.part}"], columns[f"gather_{group.part}"] = reduce, gather
        columns[f"hideable_{group.part}"] = (1.0 - 1.0 / buckets)[which]
        columns[f"updated_{group.part}"] = 1.0 / np.where(plans.zero_stage >= 1, group.shards, 1.0)
    shape = np.broadcast_shapes(*(np.shape(column) for column in columns.values()))
    return ElementRates(**{f.name: spread(columns.get(f.name, nothing), shape) for f in fields(ElementRates)})


def _distinct_buckets(knobs: Knobs | KnobColumns) -> tuple[Knobs | KnobColumns, IntArray | slice]:
    """The settings with rows of unlike buckets alone, and for each row the one like it: what travels hangs on no other.

    >>> bucket = np.array([[1e6, 2e6], [4e6, 4e6], [1e6, 2e6]])
    >>> some, which = _distinct_buckets(KnobColumns(bucket=bucket, comm_sm_share=bucket, offload=bucket))
    >>> some.bucket.tolist(), which.tolist()
    ([[1000000.0, 2000000.0], [4000000.0, 4000000.0]], [0, 1, 0])
    """
    if isinstance(knobs, Knobs) or knobs.bucket.ndim == 1:
        return knobs, slice(None)
    rows: dict[bytes, int] = {}
    which = np.array([rows.setdefault(row.tobytes(), len(rows)) for row in knobs.bucket])
    first = np.unique(which, return_index=True)[1]
    return replace(knobs, bucket=knobs.bucket[first]), which


def bucket_messages(job: Job, plans: Plans, groups: tuple[Group, ...], knobs: Knobs | KnobColumns) -> Iterator[Message]:
    """Everything that travels once per step; `times` of a message is for each element that a rank holds."""
    for group in groups:
        buckets = buckets_of(job, plans, group, knobs)
        yield from gradient_messages(job, plans, group, buckets)
        yield from weight_messages(plans, group, buckets)


def gradient_messages(job: Job, plans: Plans, group: Group, buckets: FloatArray) -> Iterator[Message]:
    """Gradients, reduced in the type in which they travel.

    ZeRO-0: all-reduce, ZeRO-1 and what is `reduced_once` or `synced_last`: reduce-scatter, or an all-reduce where the
    software `reduces_whole`; ZeRO-3 in groups (HSDP): all-reduce of the group's shards among the groups. In buckets of
    `knobs.bucket` bytes, at least `bucket_per_rank` for each rank of the group (Megatron's 4 MB, since a ring's latency
    grows with its ranks; none in PyTorch's DDP), and at most what the mean stage holds.

    Source: Rajbhandari et al., arXiv 1910.02054, section 7; Zhao et al., arXiv 2304.11277, section 3.2.2; Li et al.,
    arXiv 2006.15704, section 3.2 (buckets); NVIDIA/Megatron-LM
    megatron/core/distributed/distributed_data_parallel.py (1e6 elements per rank).
    """
    width, whole = float(job.wire_bytes), reduced_whole(job, plans)
    yield from _bucketed(group, buckets, "gradients", "all_reduce", width, (plans.zero_stage == 0) | whole)
    scattered = (plans.zero_stage == 1) & ~whole | reduced_once(job, plans) | synced_last(job, plans)
    yield from _bucketed(group, buckets, "gradients", "reduce_scatter", width, scattered)
    yield from _bucketed(group, buckets, "gradients", "all_reduce", width, group.divided, among=True)


def weight_messages(plans: Plans, group: Group, buckets: FloatArray) -> Iterator[Message]:
    """Weights that ZeRO-1 and 2 gather after the update, in the buckets of the gradients.

    Source: Rajbhandari et al., arXiv 1910.02054, section 7.
    """
    once = (plans.zero_stage == 1) | (plans.zero_stage == 2)
    yield from _bucketed(group, buckets, "weights", "all_gather", ELEMENT, once)


def _bucketed(
    group: Group,
    buckets: FloatArray,
    purpose: str,
    kind: str,
    width: float,
    sent: BoolArray,
    *,
    among: bool = False,
) -> Iterator[Message]:
    """The message of one bucket where it is `sent`: whole within the replicas, or within each sharding group, of which
    `among` the groups travels the shard that a rank keeps.
    """
    if not sent.any():
        return
    resident = group.reduced / buckets
    whole = resident * group.parts
    ranks, stride = (group.hybrid, group.stride * group.shards) if among else (group.within, group.stride)
    yield Message(
        parallelism=DP,
        purpose=purpose + " of experts" * (group.part == "experts"),
        kind=kind,
        size=(resident if among else whole) * width,
        ranks=np.maximum(ranks, 1.0),
        stride=np.asarray(stride),
        times=np.where(sent & (resident > 0), 1.0 / np.maximum(whole, 1.0), 0.0),
        phase=STEP,
    )


def buckets_of(job: Job, plans: Plans, group: Group, knobs: Knobs | KnobColumns) -> FloatArray:
    """Buckets into which the gradients of the mean stage are cut, whole or not, at least one [1]."""
    volume = np.where(reduced_whole(job, plans), 0.0, group.reduced * job.wire_bytes)
    least = job.stack.features.bucket_per_rank * group.ranks
    return np.maximum(1.0, volume / np.maximum(knobs.bucket, least))


def sliced_seconds(job: Job, plans: Plans, group: Group) -> FloatArray:
    """Host time for each element that a rank holds, where ZeRO-1 deals every matrix and vector out by itself [s].

    tensors x ranks x sliced_host / elements: each rank cuts each of its tensors into a slice for every rank, packs the
    slices for one collective, and copies what it gets back slice by slice. tensors: 6 of each layer (four matrices, two
    norms), embedding, head and norm; shared evenly among the elements of a pipeline.

    Source: huggingface/nanotron @069c21c, src/nanotron/optim/zero.py (_all_gather_params) and
    src/nanotron/distributed.py (all_gather_coalesced, reduce_scatter_coalesced).

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("h100"), gpus=256, global_batch=256,
    ...     stack=load_stack("nanotron-2024"), seq_len=4096)
    >>> one = np.ones(1)
    >>> group = Group(part="shared", ranks=256 * one, stride=np.ones(1, dtype=np.int64), shards=256 * one,
    ...     hybrid=0 * one, reduced=8e9 * one)
    >>> each = sliced_seconds(job, Plans.of([Plan(dp=256, zero_stage=1)]), group)  # 195 tensors, 256 ranks, 8 us
    >>> round(8e9 * float(each[0]), 3)
    0.399
    """
    tensors = 6.0 * job.model.layers + 3.0
    calls = np.where((plans.zero_stage == 1) & (group.ranks > 1), tensors * group.shards, 0.0)
    return calls * job.stack.features.sliced_host / np.maximum(group.reduced * plans.pp, 1.0)


def rate_of_share(share: ArrayLike) -> FloatArray:
    """Collective rate when communication kernels may take this share of the SMs / that at the reference share [1].

    1 - exp(-share / s0) with s0 = 0.05: a few channels feed most of a link, the rest adds little.

    Source: assumed, form and s0 alike; no measurement of a channel sweep stands behind it.

    >>> round(float(rate_of_share(0.12)), 6)
    1.0
    """
    scale = 0.05
    return np.asarray((1 - np.exp(-np.asarray(share) / scale)) / (1 - np.exp(-REFERENCE_SM_SHARE / scale)))
