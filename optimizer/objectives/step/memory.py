"""Bytes on the fullest GPU of every pipeline stage: states, activations in flight, logits, buffers, fragmentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from optimizer.job import Job
from optimizer.model import Model
from optimizer.objectives.kernels.modes import modes, rebuilds
from optimizer.objectives.kernels.modules import freed_bytes
from optimizer.objectives.kernels.operators import FloatArray, Shapes, padded_vocab
from optimizer.objectives.layer.activation_offload import DOUBLE, movable_bytes, moved_bytes
from optimizer.objectives.layer.distinct import pick
from optimizer.objectives.pipeline.parameters import layer_parameters, replicas, stage_parameters
from optimizer.objectives.pipeline.stages import Stage
from optimizer.objectives.step.data_parallel import shard_ranks
from optimizer.plan import IntArray, KnobColumns, Knobs, Plans
from optimizer.stack import Features

OPTIMIZER_BYTES = 12.0  # fp32 master weight and Adam's two moments
WHOLE_MLP = ("dense", "routed", "shared")
TERMS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers", "fragmentation")


@dataclass(frozen=True, kw_only=True)
class ActivationBytes:
    """Bytes that one layer keeps for one micro-batch: everything, without the scores, and its input alone.

    `modules`: bytes fewer when a module is rebuilt, `movable`: those that may lie on the host.
    """

    none: FloatArray
    selective: FloatArray
    full: FloatArray
    modules: Mapping[str, FloatArray] = field(default_factory=dict)
    movable: Mapping[str, FloatArray] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class KeptBytes:
    """Bytes of one layer under a plan's recomputation: `each` micro-batch in flight, and `once` while it is rebuilt."""

    each: FloatArray
    once: FloatArray


def kept_bytes(table: ActivationBytes, recompute: IntArray, on_host: IntArray | None = None) -> KeptBytes:
    """What the mode of recomputation keeps, and rebuilds for one micro-batch at a time: scores, modules, the layer [B].

    `on_host` per cent of what may lie on the host do, and buffers on the device are DOUBLE what one layer moves.

    >>> from optimizer.recomputation import RECOMPUTE
    >>> some = {"mlp": np.ones(4), "moe": 3 * np.ones(4)}
    >>> table = ActivationBytes(none=9 * np.ones(4), selective=6 * np.ones(4), full=2 * np.ones(4), modules=some)
    >>> kept = kept_bytes(table, np.array([0, 1, 2, RECOMPUTE.index("mlp+moe")]))
    >>> kept.each.tolist(), kept.once.tolist()
    ([9.0, 6.0, 2.0, 5.0], [0.0, 3.0, 9.0, 4.0])
    """
    mode = modes(recompute)
    each = pick(mode, (table.none, table.selective, table.full))
    once = pick(mode, (0.0, table.none - table.selective, table.none))
    for module, freed in table.modules.items():
        chosen = rebuilds(recompute, module)
        if np.any(chosen):
            fewer = np.where(chosen, freed, 0.0)
            each, once = each - fewer, once + fewer
    if on_host is not None and np.any(on_host):
        moved = moved_bytes(table.movable, recompute, on_host / 100.0)
        each, once = each - moved, once + DOUBLE * moved
    return KeptBytes(each=each, once=once)


def activation_bytes(
    model: Model, shapes: Shapes, features: Features, moe: bool, imbalance: float, fp8: bool = False
) -> ActivationBytes:
    """Activations one layer keeps for the backward pass, per micro-batch and rank [B].

    For GPT: t h (10 + 24 / tp) + 5 heads S t / tp, the last term only with unfused attention; sequence parallelism
    divides the 10 as well. In general: two norm inputs and two norm outputs (8 h), dropout masks (2 h), queries, keys
    and values, the attention's output, the MLP's inputs to activation and its output. Under `fp8` the inputs of
    products (norm outputs, activation output) are kept in one byte.

    Source: Korthikanti et al., arXiv 2205.05198, equations 1, 2 and 4; Micikevicius et al., arXiv 2209.05433 for fp8.

    >>> from optimizer.presets import load_model
    >>> one = np.ones(1)
    >>> shapes = Shapes(tp=one, cp=one, ep=one, etp=one, micro_batch=one, sequence_parallel=one > 2, seq_len=2048)
    >>> gpt = Features(attention="unfused", dropout=True)
    >>> float(activation_bytes(load_model("gpt3"), shapes, gpt, False, 1.0).selective[0] / (2048 * 12288))
    34.0
    """
    t, tp = shapes.tokens, shapes.tp
    norms = 2 if model.parallel_block else 4
    kept_input = 1.0 if fp8 else 2.0
    per_norm = 2.0 + kept_input
    stream = t * model.hidden / shapes.sp * (per_norm * norms / 2 + (2.0 if features.dropout else 0.0))
    kv = 2.0 * np.maximum(model.kv_dim / tp, model.head_dim) if model.mla is None else 2.0 * model.q_dim / tp
    attention = 2.0 * t * (model.q_dim / tp + kv + model.v_dim / tp)
    scores = np.zeros_like(t)
    if not features.attention.startswith("flash"):
        scores = (
            (5.0 if features.dropout else 4.0) * model.heads / tp * shapes.micro_batch * shapes.seq_len**2 / shapes.cp
        )
    mlp = _mlp_bytes(model, shapes, moe, imbalance, kept_input)
    kept = stream + attention + sum((mlp[part] for part in WHOLE_MLP if part in mlp), np.zeros_like(t))
    layer_input = 2.0 * t * model.hidden / shapes.sp
    lean = {"ops": layer_input + (kept - stream) / 2, "qkv": layer_input + attention - 2.0 * t * model.v_dim / tp}
    selective = lean.get(features.selective, kept)
    parts = mlp | {"scores": scores}
    freed = freed_bytes(model, shapes, features, moe, parts, kept_input) if features.recompute_modules else {}
    movable = movable_bytes(model, shapes, moe, imbalance) if features.activation_offload else {}
    return ActivationBytes(none=kept + scores, selective=selective, full=layer_input, modules=freed, movable=movable)


def _mlp_bytes(model: Model, shapes: Shapes, moe: bool, imbalance: float, kept_input: float) -> dict[str, FloatArray]:
    """What a dense MLP keeps, or of a mixture the routed experts, their activation's output and the shared ones."""
    per_width = 2.0 * (2 if model.gated_mlp else 1) + kept_input
    if not moe or model.experts is None:
        return {"dense": per_width * model.ffn_hidden * shapes.tokens / shapes.tp}
    experts = model.experts
    rows = shapes.tokens / shapes.tp * experts.top_k * imbalance
    routed = rows * (per_width * experts.ffn_hidden + 4.0 * model.hidden)
    shared = per_width * experts.shared_ffn_hidden * shapes.tokens / shapes.tp
    probabilities = 8.0 * experts.count * shapes.tokens / shapes.sp
    activation = rows * kept_input * experts.ffn_hidden
    return {"routed": routed + probabilities, "shared": shared, "routed activation": activation}


def stage_memory(
    job: Job,
    plans: Plans,
    stage: Stage,
    dense: KeptBytes,
    moe: KeptBytes,
    held: dict[str, FloatArray],
    buffered: FloatArray,
    spared: tuple[KeptBytes, ...] = (),
) -> dict[str, FloatArray]:
    """Every byte of one stage by term; the allocator's peak is their sum without fragmentation [B].

    `dense` and `moe` hold one layer's activations, `spared` those of dense and MoE layers that are not rebuilt. `held`
    are the stage's states, `buffered` its buffers; prediction layers have logits of their own. Dynamic terms
    (activations, logits, buffers) are what fragments: reserved = allocated + fragmentation x dynamic.
    """
    counts = stage.counts
    kept, rebuilt = counts[0] * dense.each, dense.once * (counts[0] > 0)
    if job.model.experts:
        kept = kept + counts[1] * moe.each
        rebuilt = np.maximum(rebuilt, moe.once * (counts[1] > 0))
    for count, layer in zip(counts[2:], spared, strict=True):
        kept = kept + count * layer.each
    activations = (kept * stage.in_flight + rebuilt) * job.stack["activation_factor"]
    tokens = plans.micro_batch * job.seq_len / plans.cp
    vocab = padded_vocab(job.model.vocab, plans.tp.astype(np.float64))
    vocab = vocab if job.stack.features.gathered_logits else vocab / plans.tp
    logits = stage.head * (1 + job.model.mtp_layers) * tokens * vocab * job.stack["logit_memory"]
    embedding = stage.embedding * stage.in_flight * 2.0 * tokens * job.model.hidden / _sp(plans)
    dynamic = activations + embedding + logits + buffered
    return held | {
        "activations": activations + embedding,
        "logits": logits,
        "buffers": buffered,
        "fragmentation": job.stack["fragmentation"] * dynamic,
    }


def states(job: Job, plans: Plans, stage: Stage, knobs: Knobs | KnobColumns) -> dict[str, FloatArray]:
    """Weights, gradients and optimizer state of one stage [B].

    ZeRO-1 divides the optimizer state by the sharding ranks, ZeRO-2 the gradients, ZeRO-3 the weights as well.

    Source: Rajbhandari et al., arXiv 1910.02054, section 5 and figure 1.
    """
    local = stage_parameters(job.model, plans, stage)
    weights, gradients, optimizer = np.zeros(len(plans)), np.zeros(len(plans)), np.zeros(len(plans))
    features = job.stack.features
    for elements, ranks in zip((local.shared, local.experts), replicas(plans), strict=True):
        shards = shard_ranks(plans, ranks).astype(np.float64)
        weights = weights + elements * features.param_bytes / np.where(plans.zero_stage >= 3, shards, 1.0)
        gradients = gradients + elements * features.grad_bytes / np.where(plans.zero_stage >= 2, shards, 1.0)
        optimizer = optimizer + elements * OPTIMIZER_BYTES / np.where(plans.zero_stage >= 1, shards, 1.0)
    return {"weights": weights, "gradients": gradients, "optimizer": optimizer * (1 - knobs.offload)}


def buffers(job: Job, plans: Plans) -> FloatArray:
    """Library workspaces; two gathered layers and an unsharded gradient under ZeRO-3; gathered tokens under SP [B].

    Source: Zhao et al., arXiv 2304.11277, section 4 (the rate limiter keeps two gathered units).
    """
    moe = job.model.experts is not None
    layer = layer_parameters(job.model, plans, moe)
    elements = layer.shared + layer.experts
    sharded = np.where(plans.zero_stage >= 3, elements * (2 * 2.0 + job.stack.features.grad_bytes), 0.0)
    gathered = np.where(
        plans.sequence_parallel, 2.0 * plans.micro_batch * job.seq_len / plans.cp * job.model.hidden, 0.0
    )
    return job.stack["workspace"] + sharded + gathered


def _sp(plans: Plans) -> FloatArray:
    return np.where(plans.sequence_parallel, plans.tp, 1).astype(np.float64)
