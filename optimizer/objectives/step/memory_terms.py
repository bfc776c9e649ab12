"""The memory of a stage, term by term: what each term takes of elements, layers, micro-batches or the stage itself.

A new term is one entry of MEMORY_TERMS; prices, bounds, CP-SAT and the search for the least memory read all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from optimizer.job.job import WIDE, Job
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.kernels import activations as kernels
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.layer.messages import ELEMENT
from optimizer.objectives.layer.parameters import groups, shard_ranks
from optimizer.objectives.layer.sharded import hosts_weights, reduced_once, synced_last
from optimizer.objectives.pipeline.schedules import copies
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, FULL, HEAD, LAYERS, MOE
from optimizer.objectives.step.elements import weight_size
from optimizer.objectives.step.memory_term import MemoryTerm, activations, memory_term, states

TRAINED = "trained_"  # how the names of elements that are trained begin


def weight_bytes(layer_costs: LayerCosts) -> tuple[FloatArray, FloatArray]:
    """Weights that a rank keeps for each element of the shared parameters and of the experts [B].

    A software that keeps no copy of its weights beside the master copy (param_bytes 0) has one in half precision while
    it computes, for good wherever it is not gathered and freed again. A model that stays as it was lies beside it, in
    half precision and sharded alike.

    Source: Zhao et al., arXiv 2304.11277, section 3; huggingface/trl v1.16.0, trl/models/utils.py (prepare_deepspeed,
    prepare_fsdp).
    """
    size, reference = weight_size(layer_costs.job), layer_costs.job.reference_params
    weights = sharded_bytes(layer_costs, size, 3, size or ELEMENT)
    if not reference:
        return weights
    whole = layer_costs.replicas.whole_of_plans
    half = sharded_bytes(layer_costs, ELEMENT, 3)
    share = reference / layer_costs.plans.tp / (whole.shared + whole.experts)
    return weights[0] + share * half[0], weights[1] + share * half[1]


def resident_state(job: Job) -> float:
    """Optimizer state of an element that lies on the device: all but the moments of a paged optimizer [B].

    Source: Dettmers et al., arXiv 2305.14314, section 3.
    """
    return job.master_bytes if job.update_rule.paged else job.state_bytes


def gradient_bytes(layer_costs: LayerCosts) -> tuple[FloatArray, FloatArray]:
    """Gradients that a rank keeps for each element, and temporaries of its update [B]; none where each is used up at
    once.

    Gradients that are `synced_last` are whole and in half precision until their last micro-batch, but beside weights on
    the host, which no source tells.

    Source: as `states` and `synced_last`; torch/optim/adamw.py, _multi_tensor_adamw, whose square roots are a tensor
    for each weight; bitsandbytes-foundation/bitsandbytes, bitsandbytes/optim/optimizer.py, which updates one tensor
    after the other.
    """
    job = layer_costs.job
    if job.update_rule.in_backward:
        return np.zeros(len(layer_costs)), np.zeros(len(layer_costs))
    gradients = sharded_bytes(layer_costs, job.grad_bytes + job.sum_bytes, 2)
    temporaries = job.stack.features.update_bytes * job.update_rule.at_once
    if temporaries:
        each = sharded_bytes(layer_costs, temporaries, 2)
        # On the host one tensor is updated after the other.
        beyond = np.where(hosts_weights(job, layer_costs.plans), 0.0, 1.0 - _covered(layer_costs, each))
        gradients = gradients[0] + beyond * each[0], gradients[1] + beyond * each[1]
    plans = layer_costs.plans
    waiting = synced_last(job, plans) & ~hosts_weights(job, plans)
    whole = np.where(waiting, ELEMENT, 0.0)
    return np.maximum(whole, gradients[0]), np.maximum(whole, gradients[1])


def _covered(layer_costs: LayerCosts, temporaries: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Share of the update's temporaries that lies where activations and logits lay, which are gone by then [1]; 0 in a
    pipeline, where a stage's layers are not known yet.
    """
    update, gone = _update_and_freed(layer_costs, temporaries)
    return np.where(layer_costs.plans.pp == 1, np.minimum(1.0, gone / np.maximum(update, 1.0)), 0.0)


def _update_and_freed(
    layer_costs: LayerCosts, temporaries: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Temporaries of an update of all layers, and the activations and logits that are gone by then [B]."""
    model, plans = layer_costs.job.model, layer_costs.plans
    counts = {DENSE: model.dense_layers, MOE: model.moe_layers, EMBEDDING: 1, HEAD: 1}
    update, gone = np.zeros(len(plans)), np.zeros(len(plans))
    for kind, costs in layer_costs.by_kind.items():
        count = counts.get(kind, 1)
        update = update + count * (costs.trained_shared * temporaries[0] + costs.trained_experts * temporaries[1])
        if kind in LAYERS:
            whole = plans.recompute == FULL
            recomputed, spared = costs.gathered(costs.cost.resident_recomputed), costs.gathered(costs.cost.resident)
            gone = gone + count * np.where(whole, recomputed, spared)
        elif kind == HEAD:
            gone = gone + costs.gathered(costs.cost.static)
    return update, gone


def optimizer_bytes(layer_costs: LayerCosts) -> tuple[FloatArray, FloatArray]:
    """Optimizer state that a rank keeps for each element, sharded over the copies of the weights too, with the copies
    of gradients in fp32 that DeepSpeed's update has [B].

    Source: as `states`.
    """
    shared, experts = sharded_bytes(layer_costs, resident_state(layer_costs.job), 1)
    if layer_costs.job.stack.features.update_group:
        copied = sharded_bytes(layer_costs, WIDE + ELEMENT, 1)
        share = _widened(layer_costs, copied)
        shared, experts = shared + share * copied[0], experts + share * copied[1]
    several = np.where(layer_costs.plans.zero_stage >= 1, copies(layer_costs.plans), 1.0)
    return shared / several, experts / several


def _widened(layer_costs: LayerCosts, copies_of: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Share of its elements whose gradients a rank has put side by side and in fp32 at once, where activations and
    logits leave them no room [1]: under ZeRO-3 `update_group` elements, else all.

    Source: deepspeedai/DeepSpeed, deepspeed/runtime/zero/stage3.py (_prepare_fp32_grad_for_sub_group),
    stage_1_and_2.py (step).
    """
    update, gone = _update_and_freed(layer_costs, copies_of)
    group = (WIDE + ELEMENT) * layer_costs.job.stack.features.update_group
    at_once = np.where(layer_costs.plans.zero_stage >= 3, np.minimum(update, group), update)
    beyond = np.maximum(at_once - np.where(layer_costs.plans.pp == 1, gone, 0.0), 0.0)
    return np.asarray(beyond / np.maximum(update, 1.0))


def sharded_bytes(
    layer_costs: LayerCosts, size: float, stage: int, whole: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Bytes of an element that is sharded from a ZeRO stage on, and takes the `whole` size before [B].

    Where gradients are reduced once a step, they and the weights are whole at the peak (`reduced_once`).
    """
    whole_at_peak = (stage > 1) & reduced_once(layer_costs.job, layer_costs.plans)
    sharded = (layer_costs.plans.zero_stage >= stage) & ~whole_at_peak
    shared, experts = (
        np.where(sharded, size / shard_ranks(layer_costs.plans, ranks), size if whole is None else whole)
        for _, ranks, _ in groups(layer_costs.plans)
    )
    return shared, experts


def _of_cost(name: str) -> Callable[[LayerCosts, str], FloatArray]:
    """What the cost of a layer has under this name, for every plan [B]."""

    def of_plans(layer_costs: LayerCosts, kind: str) -> FloatArray:
        kind_costs = layer_costs.by_kind[kind]
        return kind_costs.gathered(getattr(kind_costs.cost, name))

    return of_plans


def logits(layer_costs: LayerCosts, kind: str) -> FloatArray:
    """Logits of the loss, those of prediction layers too [B]: layers by kind, static: bytes of each [B].

    Source: Megatron-LM, megatron/core/tensor_parallel/cross_entropy.py; bytes per logit are fitted (logit_memory).
    """
    return _of_cost("static")(layer_costs, kind)


def buffers(
    workspace: FloatArray, unsharded: FloatArray, gathered: FloatArray, whole: FloatArray, updated: FloatArray
) -> FloatArray:
    """Library workspaces; layers that sharding puts together; tokens that sequence parallelism gathers; weights that
    are whole beside their shards; copies of a tensor that is updated [B].

    unsharded: ZeRO-3's gathered weights of two units and the gradient of one, ZeRO-2's gradient of one [B].

    Source: Zhao et al., arXiv 2304.11277, section 4 (the rate limiter keeps two gathered units).
    """
    return workspace + unsharded + gathered + whole + updated


def whole_bytes(layer_costs: LayerCosts) -> FloatArray:
    """Frozen weights that stay whole on each device beside their shards, in software that leaves them there [B].

    Source: Lightning-AI/litgpt @26857050, tutorials/resource-tables.md: on two devices a model of 7 B takes 13.5 GB
    more than its shards, one of 1.4 B 2.3 GB.
    """
    job, plans = layer_costs.job, layer_costs.plans
    whole = job.model.params * ELEMENT / plans.tp * (job.stack.features.loads_whole and job.method.freezes)
    return np.where(plans.zero_stage >= 3, whole, 0.0)


def updated_bytes(layer_costs: LayerCosts) -> FloatArray:
    """Temporaries of an optimizer that updates one tensor after the other: those of the largest that is trained [B].

    bytes of an element (`Optimizer.temporaries`) x its elements on a rank. Activations were many small blocks, where
    the copies of an embedding find no room.

    Source: PyTorch, c10/cuda/CUDACachingAllocator.cpp, which joins no blocks of different cudaMalloc calls.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan, Plans
    >>> from optimizer.objectives.layer.layer_costs import layer_costs_of
    >>> job = Job(model=load_model("llama3.2-1b"), cluster=load_cluster("h200"), stack=load_stack("hf-2026"), gpus=1,
    ...     seq_len=2048, global_batch=1, optimizer="adafactor")
    >>> float(updated_bytes(layer_costs_of(job, Plans.of([Plan()])))[0]) == 16 * 128256 * 2048
    True
    """
    each = layer_costs.job.update_rule.temporaries
    if not each:
        return np.zeros(len(layer_costs))
    largest = np.minimum(_largest_layer(layer_costs, TRAINED), largest_matrix(layer_costs))
    for kind in (EMBEDDING, HEAD):
        trained = layer_costs.by_kind[kind].trained_shared
        largest = np.maximum(largest, np.minimum(trained, layer_costs.job.model.embedding_params))
    return largest * sharded_bytes(layer_costs, each, 1)[0]


def gathered_bytes(layer_costs: LayerCosts) -> FloatArray:
    """Tokens that sequence parallelism gathers before a product, t h 2 B [B]."""
    plans = layer_costs.plans
    tokens = plans.micro_batch * layer_costs.job.seq_len / plans.cp
    return np.where(plans.sequence_parallel, ELEMENT * tokens * layer_costs.job.model.hidden, 0.0)


def unsharded_bytes(layer_costs: LayerCosts) -> FloatArray:
    """Two gathered units and an unsharded gradient under ZeRO-3, the gradient alone under ZeRO-2, or where it is all
    that there is of gradients [B].

    A unit is a layer, the embedding or the head; the largest and the largest layer are gathered together. Where a
    compiler gathers for every product, a layer counts as its largest matrix.

    Source: Zhao et al., arXiv 2304.11277, section 4 (the rate limiter keeps two gathered units).
    """
    job = layer_costs.job
    zero = np.where(reduced_once(job, layer_costs.plans), 0, layer_costs.plans.zero_stage)
    alone = (zero >= 2) | job.update_rule.in_backward
    if not np.any(alone):
        return np.zeros(len(zero))
    layer, largest = _units(layer_costs, "")
    _, trained = _units(layer_costs, TRAINED)
    # What a compiler gathers in half precision has its gradient in half precision until it is scattered.
    size = job.grad_bytes if job.stack.features.gathers_layers else ELEMENT
    gradient = np.where(alone, trained * size, 0.0)
    return gradient + np.where(zero >= 3, (layer + largest) * ELEMENT, 0.0)


def _units(layer_costs: LayerCosts, sort: str) -> tuple[FloatArray, FloatArray]:
    """The largest layer, and the largest of it and the embedding: elements that are held, or trained [elements]."""
    layer = _largest_layer(layer_costs, sort)
    if not layer_costs.job.stack.features.gathers_layers and not layer_costs.job.method.freezes:
        layer = largest_matrix(layer_costs)
    return layer, np.maximum(layer, getattr(layer_costs.by_kind[EMBEDDING], f"{sort}shared"))


def _largest_layer(layer_costs: LayerCosts, sort: str) -> FloatArray:
    """Elements of the largest layer that are held, or trained; those of one that is not frozen [elements]."""
    job, kinds = layer_costs.job, [costs for kind, costs in layer_costs.by_kind.items() if kind in LAYERS]
    layer = np.maximum.reduce([getattr(each, f"{sort}shared") + getattr(each, f"{sort}experts") for each in kinds])
    trained = 1.0 - len(job.frozen_layers) / job.model.layers
    return np.asarray(layer / trained if sort and trained else layer)


def largest_matrix(layer_costs: LayerCosts) -> FloatArray:
    """Elements of the largest matrix of a layer on a rank: of its MLP or its experts, or into attention [elements]."""
    model, plans = layer_costs.job.model, layer_costs.plans
    mixers = max(model.q_dim, model.recurrence.projected if model.recurrence else 0)
    largest = model.hidden * np.maximum(model.ffn_hidden if model.dense_layers else 0, mixers) / plans.tp
    if model.experts:
        each = model.routed_width * model.experts.ffn_hidden * model.experts.count
        largest = np.maximum(largest, each / (plans.ep * plans.etp))
    return np.asarray(largest)


def fragmentation(rate: FloatArray, dynamic: FloatArray) -> FloatArray:
    """What the allocator reserves beyond its peak: a share of the dynamic terms [B]. Source: fitted."""
    return rate * dynamic


MEMORY_TERMS: Mapping[str, MemoryTerm] = {
    term.name: term
    for term in (
        memory_term("weights", "weights", per_element=weight_bytes, formula=states, follows_weights=True),
        memory_term(
            "gradients", "gradients", per_element=gradient_bytes, formula=states, trained=True, follows_weights=True
        ),
        memory_term(
            "optimizer",
            "optimizer",
            per_element=optimizer_bytes,
            formula=states,
            trained=True,
            offloadable=True,
            follows_weights=True,
            knobs=("offload",),
        ),
        memory_term(
            "activations",
            "activations",
            in_flight=_of_cost("resident"),
            recomputed=_of_cost("resident_recomputed"),
            modules=_of_cost("recomputing"),
            whole=_of_cost("recomputing_whole"),
            hosted=_of_cost("hosted"),
            formula=activations,
            fragments=True,
            parameters=("activation_factor",),
            kernels=(kernels.activation_bytes, kernels.norm_bytes),
        ),
        memory_term(
            "logits",
            "logits",
            per_layer=logits,
            # A compiler lays what is recomputed where the logits were.
            free_early=lambda layer_costs: not layer_costs.job.stack.features.gathers_layers,
            fragments=True,
            parameters=("logit_memory",),
        ),
        memory_term(
            "buffers",
            "buffers",
            per_stage={
                "workspace": lambda layer_costs: np.full(len(layer_costs), layer_costs.job.stack["workspace"]),
                "unsharded": unsharded_bytes,
                "gathered": gathered_bytes,
                "whole": whole_bytes,
                "updated": updated_bytes,
            },
            formula=buffers,
            fragments=True,
            parameters=("workspace",),
        ),
        memory_term("fragmentation", "fragmentation", formula=fragmentation, parameters=("fragmentation",)),
    )
}
