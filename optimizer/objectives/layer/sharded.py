"""Weights and gradients that sharding moves for every micro-batch, and what of it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plans
from optimizer.job.rows import Rows
from optimizer.objectives.arrays import BoolArray, FloatArray, nothing
from optimizer.objectives.layer.messages import ELEMENT
from optimizer.objectives.layer.parameters import LocalParameters, groups, shard_ranks
from optimizer.objectives.network.messages import BACKWARD, DP, FORWARD, Message, beyond, exposed
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, LAYERS


@dataclass(frozen=True, kw_only=True)
class Covers:
    """Under what the weights and gradients of a layer can travel, in its forward and backward pass and while it is
    recomputed; and what the host needs to launch the kernels of each [s].
    """

    forward: FloatArray
    backward: FloatArray
    recompute: FloatArray
    host_forward: FloatArray
    host_backward: FloatArray

    def late(self, job: Job, shown: tuple[FloatArray, ...]) -> tuple[FloatArray, ...]:
        """Time by which hooks of sharding make the host late in the forward pass, in the backward pass and in one that
        recomputes, given what messages show in each [s].

        max(0, host + sharded_host - cover - shown): hooks and allocations run while the GPU computes.

        Source: QwenLM/Qwen README: a step of 1.8B under ZeRO-3 takes 2.1 to 2.3 s at 256 to 2,048 tokens, and 2.8 at
        4,096, where its products take as long as the host.
        """
        hooks, passes = job.stack.features.sharded_host, job.forward_passes
        work = (
            (passes * (self.host_forward + hooks), self.forward),
            (self.host_backward + hooks, self.backward),
            (self.host_backward + self.host_forward + hooks, self.backward + self.recompute),
        )
        return tuple(np.maximum(0.0, host - cover - each) for (host, cover), each in zip(work, shown, strict=True))


@dataclass(frozen=True, kw_only=True)
class Exposure(Rows):
    """Seconds of one layer and micro-batch that show in each pass [s]."""

    forward: FloatArray
    backward: FloatArray
    recompute: FloatArray  # change that recomputing the layer makes to the backward pass, under which more can hide
    after_forward: FloatArray  # what would hide too if there were more to compute, see `beyond`
    after_backward: FloatArray  # the same of the backward pass

    @classmethod
    def none(cls, count: int) -> Exposure:
        """Nothing is sharded."""
        return cls(**{field.name: nothing(count) for field in fields(cls)})


def reduced_once(job: Job, plans: Plans) -> BoolArray:
    """Plans whose ZeRO-3 holds gradients whole until the end of a step, and weights from a backward pass to a forward.

    Pipelines of PyTorch sync gradients in the last backward pass of a stage, and reshard weights after it alone.

    Source: pytorch/pytorch v2.7, torch/distributed/pipelining/stage.py, backward_maybe_with_nosync
    (set_requires_gradient_sync, set_reshard_after_backward).
    """
    return np.asarray((plans.zero_stage == 3) & (plans.pp > 1) & job.stack.features.reduces_once)


def synced_last(job: Job, plans: Plans) -> BoolArray:
    """Plans whose ZeRO-2 or 3 reduces gradients once a step, in the last of several micro-batches, and gathers weights
    in each.

    Source: huggingface/accelerate v1.15.0, src/accelerate/accelerator.py (no_sync); pytorch/pytorch v2.7,
    torch/distributed/fsdp/_runtime_utils.py (_post_backward_hook) and
    torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (post_backward without reduce_grads).
    """
    return np.asarray((plans.zero_stage >= 2) & (plans.num_microbatches > 1) & job.stack.features.syncs_last)


def reduced_whole(job: Job, plans: Plans) -> BoolArray:
    """Plans of ZeRO-1 whose ranks reduce all gradients, in one call, and gather all weights in another.

    Source: huggingface/nanotron @069c21c, src/nanotron/trainer.py (sync_gradients_across_dp: reduce_scatter=False),
    src/nanotron/optim/gradient_accumulator.py (one all_reduce of the contiguous buffer).
    """
    return np.asarray((plans.zero_stage == 1) & job.stack.features.reduces_whole)


def hosts_weights(job: Job, plans: Plans) -> BoolArray:
    """Plans whose sharded weights, gradients and optimizer state lie on the host."""
    return np.asarray((plans.zero_stage == 3) & job.stack.features.hosted_weights)


def hosted_seconds(job: Job, plans: Plans, elements: LocalParameters) -> tuple[FloatArray, FloatArray]:
    """What a layer's weights and gradients that lie on the host travel in a forward and in a backward pass [s].

    A rank's shard of the weights, 2 B / ranks an element, goes to the device before each gather, that of the gradients
    back to the host after each scatter; the link carries both at once.

    Source: Rajbhandari et al., arXiv 2104.07857, section 5 (ZeRO-Infinity); pytorch/pytorch v2.7,
    torch/distributed/fsdp/_fully_shard/_fsdp_param.py (offload_to_cpu).

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan
    >>> from optimizer.job.switches import switched_to
    >>> stack = switched_to(load_stack("hf-2026"), {"hosted_weights": "on"})
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), stack=stack, gpus=4, seq_len=2048,
    ...     global_batch=4)
    >>> each = LocalParameters.all_trained(shared=np.array([1e9]), experts=np.zeros(1))
    >>> forward, _ = hosted_seconds(job, Plans.of([Plan(dp=4, zero_stage=3)]), each)
    >>> float(forward[0] * job.cluster.host_bandwidth)
    500000000.0
    """
    weights, gradients = nothing(len(plans)), nothing(len(plans))
    for part, ranks, _ in groups(plans):
        shards = shard_ranks(plans, ranks)
        weights = weights + ELEMENT * getattr(elements, part) / shards
        gradients = gradients + job.grad_bytes * getattr(elements, f"trained_{part}") / shards
    rate = np.where(hosts_weights(job, plans), 1.0 / job.cluster.host_bandwidth, 0.0)
    return job.forward_passes * weights * rate, np.maximum(weights, gradients) * rate


def copied_seconds(job: Job, plans: Plans, elements: LocalParameters) -> tuple[FloatArray, FloatArray]:
    """What copies of a layer's weights and gradients take in a forward and in a backward pass of ZeRO-3 [s].

    Gathered weights are read from the buffer and written to their tensors, 2 + 2 B an element, before each pass that
    gathers them; gradients are read in half precision and written as they travel, 2 + wire_bytes B.

    Source: pytorch/pytorch v2.7, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (split_with_sizes_copy in
    foreach_all_gather_copy_out, chunk_cat in foreach_reduce_scatter_copy_in, both on the stream that computes).

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), stack=load_stack("torchtitan-2024"),
    ...     gpus=8, seq_len=8192, global_batch=16)
    >>> each = LocalParameters.all_trained(shared=np.array([1e9]), experts=np.zeros(1))
    >>> rate = job.cluster.device.memory_bandwidth * job.stack["hbm_efficiency"]
    >>> both = copied_seconds(job, Plans.of([Plan(dp=8, zero_stage=3)]), each)
    >>> [round(float(seconds[0]) * rate / 1e9, 6) for seconds in both]
    [4.0, 10.0]
    """
    each = np.where(reduced_once(job, plans), 0.0, 1.0)
    behind = 1.0 - job.reached / job.model.layers
    forward, backward = nothing(len(plans)), nothing(len(plans))
    for part, ranks, _ in groups(plans):
        sharded = (plans.zero_stage == 3) & (shard_ranks(plans, ranks) > 1)
        gathered = np.where(sharded, 2.0 * ELEMENT * getattr(elements, part), 0.0)
        scattered = np.where(sharded, (ELEMENT + job.wire_bytes) * getattr(elements, f"trained_{part}"), 0.0)
        forward = forward + gathered * each * job.forward_passes
        backward = backward + gathered * behind + scattered * each
    rate = job.cluster.device.memory_bandwidth * job.stack["hbm_efficiency"]
    return forward / rate, backward / rate


def sharded_messages(job: Job, plans: Plans, elements: LocalParameters) -> tuple[Message, ...]:
    """What ZeRO-2 and ZeRO-3 send of one layer for every micro-batch.

    ZeRO-3 gathers the weights before the forward and again before the backward pass; whole layers that are recomputed
    keep the second copy. Both scatter the gradients after the backward pass, since nobody holds them whole. With a
    sharding group (HSDP) they stay inside it. Weights are gathered for every forward pass of the loss, and for no
    backward pass that does not reach their layer. Where gradients are `reduced_once`, a forward pass finds the weights
    that the backward pass before it gathered; where they are `synced_last`, they travel once a step too.

    Source: Zhao et al., arXiv 2304.11277, section 3 (FSDP); Rajbhandari et al., arXiv 1910.02054, section 5 (ZeRO-2);
    deepspeed/runtime/zero/stage_1_and_2.py (partition_gradients: gradients are reduced in every backward pass).
    """
    messages = []
    gathers, scatters = (np.where(plans.zero_stage >= stage, 1.0, 0.0) for stage in (3, 2))
    each = np.where(reduced_once(job, plans), 0.0, 1.0)
    summed = np.where(synced_last(job, plans), 0.0, each)
    behind = 1.0 - job.reached / job.model.layers
    for part, ranks, stride in groups(plans):
        local, trained = getattr(elements, part), getattr(elements, f"trained_{part}")
        of = " of experts" * (part == "experts")
        for purpose, kind, size, times, phase in (
            ("weights", "all_gather", ELEMENT * local, gathers * each * job.forward_passes, FORWARD),
            ("weights", "all_gather", ELEMENT * local, gathers * behind, BACKWARD),
            ("gradients", "reduce_scatter", job.wire_bytes * trained, scatters * summed, BACKWARD),
        ):
            messages.append(
                Message(
                    parallelism=DP,
                    purpose=f"{purpose}{of}",
                    kind=kind,
                    size=size,
                    ranks=shard_ranks(plans, ranks),
                    stride=stride.astype(np.float64),
                    times=times,
                    phase=phase,
                )
            )
    return tuple(messages)


def sharded_exposures(
    job: Job,
    plans: Plans,
    few: Plans,
    rows: IntArray,
    elements: Mapping[str, LocalParameters],
    covers: Mapping[str, Covers],
) -> dict[str, Exposure]:
    """What of each kind's sharded weights and gradients neighbouring layers' computation does not hide [s].

    exposed = sent - overlap x min(sent, computation) in each pass, at `sharded_rate` of the rate of whole layers, with
    `hosted_seconds` before and after it, and what hooks make the host late (`Covers.late`). The embedding, which
    computes nothing, hides under a neighbouring dense layer and what shows of that.
    `few` are the plans with distinct replicas, `rows` the one of each plan.
    """
    if not np.any(plans.zero_stage >= 2):
        return {kind: Exposure.none(len(plans)) for kind in covers}
    by_kind: dict[str, Exposure] = {}
    overlap = overlap_of(job, plans)
    for kind in sorted(covers, key=EMBEDDING.__eq__):  # the embedding last
        cover = covers[kind]
        ahead, behind, recompute = cover.forward, cover.backward, cover.recompute
        if kind == EMBEDDING:
            ahead, behind = ahead + by_kind[DENSE].after_forward, behind + by_kind[DENSE].after_backward
        messages = sharded_messages(job, few, elements[kind])
        forward, backward = (
            sum((m.seconds(job) for m in messages if m.phase == phase), np.zeros(len(few)))[rows]
            / job.stack.features.sharded_rate
            for phase in (FORWARD, BACKWARD)
        )
        if job.stack.features.hosted_weights:
            ways = hosted_seconds(job, few, elements[kind])
            forward, backward = forward + ways[0][rows], backward + ways[1][rows]
        shown: tuple[FloatArray, ...] = (
            exposed(forward, ahead, overlap),
            exposed(backward, behind, overlap),
            exposed(backward, behind + recompute, overlap),
        )
        if job.stack.features.copies_sharded:
            ahead_copies, behind_copies = (seconds[rows] for seconds in copied_seconds(job, few, elements[kind]))
            shown = (shown[0] + ahead_copies, shown[1] + behind_copies, shown[2] + behind_copies)
        if job.stack.features.sharded_host and kind in LAYERS:
            late = cover.late(job, shown)
            shown = tuple(
                each + np.where(plans.zero_stage >= 3, more, 0.0) for each, more in zip(shown, late, strict=True)
            )
        by_kind[kind] = Exposure(
            forward=shown[0],
            backward=shown[1],
            recompute=shown[2] - shown[1],
            after_forward=beyond(forward, ahead, overlap),
            after_backward=beyond(backward, behind, overlap),
        )
    return by_kind


def overlap_of(job: Job, plans: Plans) -> FloatArray:
    """Share of the hideable collectives of data parallelism that each plan hides [1]."""
    hides = (plans.zero_stage == 0) | (plans.zero_stage == 3) | job.stack.features.overlap_sharded
    return np.where(hides, job.stack["dp_overlap"], 0.0)
