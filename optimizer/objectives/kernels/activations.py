"""Bytes that a layer keeps for its backward pass: all, without what is recomputed, and what may lie on the host.

Source of which inputs may lie on the host: NVIDIA/Megatron-LM, fine-grained activation offloading,
docs.nvidia.com/megatron-core/developer-guide/0.19.0/user-guide/features/fine_grained_activation_offloading.html.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from optimizer.job.model import NOTHING, Model
from optimizer.job.plan import IntArray
from optimizer.job.recomputation import modules_of
from optimizer.job.recurrence import KINDS
from optimizer.job.stack import Features
from optimizer.objectives.arrays import FloatArray, pick
from optimizer.objectives.kernels.modules import freed_bytes, modes, recomputes
from optimizer.objectives.kernels.operators import attention_width, kv_width
from optimizer.objectives.kernels.shapes import Shapes

WHOLE_MLP = ("dense", "routed", "shared")
DOUBLE = 2.0  # layers' worth of buffers on the device: one on its way out, one on its way back
# Modules of which recomputing leaves nothing to send to the host.
RECOMPUTED = {"core_attn": "mla_up_proj", "expert_fc1": "moe", "moe_act": "moe"}


@dataclass(frozen=True, kw_only=True)
class ActivationBytes:
    """Bytes that one layer keeps for one micro-batch [B]."""

    none: FloatArray  # everything
    selective: FloatArray  # without the scores
    full: FloatArray  # its input alone
    passing: FloatArray | float = 0.0  # gradients of these while the backward pass is in a recomputed layer
    modules: Mapping[str, FloatArray] = field(default_factory=dict)  # bytes fewer when a module is recomputed
    movable: Mapping[str, FloatArray] = field(default_factory=dict)  # those that may lie on the host


@dataclass(frozen=True, kw_only=True)
class ResidentBytes:
    """Bytes of one layer under a plan's recomputation: per micro-batch, and while it is recomputed."""

    each: FloatArray  # for each micro-batch in flight [B]
    recomputing: FloatArray  # while it is recomputed [B]


def resident_bytes(
    table: ActivationBytes,
    recompute: IntArray,
    on_host: IntArray | None = None,
    selective_on_host: bool = False,
    inputs_on_host: bool = False,
) -> ResidentBytes:
    """What the mode of recomputation keeps, and recomputes for a micro-batch at a time: scores, modules, the layer [B].

    `on_host` per cent of what may lie on the host do, with `inputs_on_host` the inputs of recomputed layers too, or all
    that selective recomputation keeps, and buffers on the device are DOUBLE what one layer moves.

    >>> from optimizer.job.recomputation import RECOMPUTE
    >>> some = {"mlp": np.ones(4), "moe": 3 * np.ones(4)}
    >>> table = ActivationBytes(none=9 * np.ones(4), selective=6 * np.ones(4), full=2 * np.ones(4), modules=some)
    >>> resident = resident_bytes(table, np.array([0, 1, 2, RECOMPUTE.index("mlp+moe")]))
    >>> resident.each.tolist(), resident.recomputing.tolist()
    ([9.0, 6.0, 2.0, 5.0], [0.0, 3.0, 9.0, 4.0])
    """
    mode = modes(recompute)
    each = pick(mode, (table.none, table.selective, table.full))
    recomputing = pick(mode, (0.0, table.none - table.selective, table.none + table.passing))
    if selective_on_host:
        moved = selective_bytes(table, recompute)
        each, recomputing = each - moved, recomputing + DOUBLE * moved
    for module, freed in table.modules.items():
        chosen = recomputes(recompute, module)
        if np.any(chosen):
            fewer = np.where(chosen, freed, 0.0)
            each, recomputing = each - fewer, recomputing + fewer
    if on_host is not None and np.any(on_host):
        moved = moved_bytes(table.movable, recompute, on_host / 100.0)
        if inputs_on_host:
            moved = moved + input_bytes_of(table, recompute) * on_host / 100.0
        each, recomputing = each - moved, recomputing + DOUBLE * moved
    return ResidentBytes(each=each, recomputing=recomputing)


def input_bytes_of(table: ActivationBytes, recompute: IntArray) -> FloatArray:
    """The input of a layer that is recomputed whole, nothing under other modes [B]."""
    return np.asarray(pick(modes(recompute), (0.0, 0.0, table.full)))


def selective_bytes(table: ActivationBytes, recompute: IntArray) -> FloatArray:
    """What selective recomputation keeps of a layer and micro-batch, nothing under other modes [B]."""
    return np.asarray(pick(modes(recompute), (0.0, table.selective, 0.0)))


def activation_bytes(
    model: Model,
    shapes: Shapes,
    features: Features,
    moe: bool,
    imbalance: float,
    fp8: bool = False,
    wide: bool = False,
) -> ActivationBytes:
    """Activations one layer keeps for the backward pass, per micro-batch and rank [B].

    For GPT: t h (10 + 24 / tp) + 5 heads S t / tp, the last term only with unfused attention; sequence parallelism
    divides the 10 as well. In general: what norms keep (8 h and more, norm_bytes), dropout masks (2 h), queries, keys
    and values, the attention's output, the MLP's inputs to activation and its output. Under `fp8` the inputs of
    products (norm outputs, activation output) are kept in one byte; `wide`, the residual stream is in single precision.
    Eager code keeps the fp32 input of a norm and what it scales, and the output of a gated MLP's activation besides,
    and while it goes back through a layer the gradients of gate, up and their product.

    Source: huggingface/transformers v5.17.0, src/transformers/models/llama/modeling_llama.py; Korthikanti et al.,
    arXiv 2205.05198, equations 1, 2 and 4; Micikevicius et al., arXiv 2209.05433 for fp8.

    >>> from optimizer.catalog import load_model
    >>> one = np.ones(1)
    >>> shapes = Shapes(tp=one, cp=one, ep=one, etp=one, micro_batch=one, sequence_parallel=one > 2, seq_len=2048)
    >>> gpt = Features(attention="unfused", dropout=True)
    >>> float(activation_bytes(load_model("gpt3"), shapes, gpt, False, 1.0).selective[0] / (2048 * 12288))
    34.0
    """
    t, tp = shapes.tokens, shapes.tp
    input_bytes = 1.0 if fp8 else 2.0
    twice = 2.0 if wide else 1.0
    chained = features.eager and not features.fused_norm  # a norm keeps its input in fp32 and what it scales, too
    masks = t * model.hidden / shapes.sp * (2.0 if features.dropout else 0.0)
    stream = (2.0 if wide or chained else 1.0) * norm_bytes(model, shapes, input_bytes) + masks
    attention = mixer_bytes(model, shapes)
    scores = np.zeros_like(t)
    if model.has_attention and not features.attention.startswith("flash"):
        scores = (
            (5.0 if features.dropout else 4.0) * model.heads / tp * shapes.micro_batch * shapes.seq_len**2 / shapes.cp
        )
    mlp = _mlp_bytes(model, shapes, features, moe, imbalance, input_bytes)
    resident = stream + attention + sum((mlp[part] for part in WHOLE_MLP if part in mlp), np.zeros_like(t))
    layer_input = twice * 2.0 * t * model.hidden / shapes.sp
    output = model.v_dim if model.has_attention else model.state.inner if model.state else 0
    lean = {"ops": layer_input + (resident - stream) / 2, "qkv": layer_input + attention - 2.0 * t * output / tp}
    selective = lean.get(features.selective, resident)
    parts = mlp | {"scores": scores}
    freed = freed_bytes(model, shapes, features, moe, parts, input_bytes) if features.recompute_modules else {}
    movable = movable_bytes(model, shapes, moe, imbalance, input_bytes) if features.activation_offload else {}
    passing = np.zeros_like(t)
    if features.eager and model.feed_forwards != NOTHING and not moe:
        # Of gate, up and their product; of a norm its output and input in fp32, and the stream's.
        passing = t * (2.0 * (3 if model.gated_mlp else 2) * model.ffn_hidden / tp + 10.0 * model.hidden / shapes.sp)
    return ActivationBytes(
        none=resident + scores,
        selective=selective,
        full=layer_input,
        passing=passing,
        modules=freed,
        movable=movable,
    )


def gathered_inputs(model: Model, shapes: Shapes, moe: bool, input_bytes: float, recompute: IntArray) -> FloatArray:
    """What software that keeps what sequence parallelism gathers has of a layer besides, per micro-batch and rank [B].

    The inputs of attention and dense MLP whole, i t h (1 - 1 / tp) each, i the bytes of an element, t tokens and h the
    hidden size, but of a layer that is recomputed.

    Source: huggingface/nanotron @2cde8f63, src/nanotron/parallel/tensor_parallel/functional.py.

    >>> from optimizer.catalog import load_model
    >>> one = np.ones(1)
    >>> shapes = Shapes(tp=4 * one, cp=one, ep=one, etp=one, micro_batch=one, sequence_parallel=one > 0, seq_len=1)
    >>> [float(gathered_inputs(load_model("gpt3"), shapes, False, 2.0, np.array([mode]))[0] / 12288) for mode in (0, 2)]
    [3.0, 0.0]
    """
    blocks = model.has_attention + (model.feed_forwards != NOTHING and not moe)
    each = blocks * input_bytes * shapes.tokens * model.hidden * (1.0 - 1.0 / shapes.sp)
    return np.asarray(each * pick(modes(recompute), (1.0, 1.0, 0.0)))


def mixer_bytes(model: Model, shapes: Shapes) -> FloatArray:
    """What mixes tokens in one layer keeps, without scores, per micro-batch and rank [B].

    Attention: queries, keys, values and the output, 2 t (q + k + v + o) / tp, with the gate; an indexer its queries,
    keys and the numbers of the tokens that it chose. A recurrence: its projected input, its output before and after the
    gated norm, 2 t (projected + 2 inner) / tp; the delta rule also what its convolution wrote and the C x C system of
    every chunk and head, 2 t (channels + heads x C) / tp.

    Source: state-spaces/mamba, mamba_ssm/ops/triton/ssd_combined.py, and fla-org/flash-linear-attention,
    fla/ops/gated_delta_rule/chunk.py, what their autograd functions save.

    >>> from optimizer.catalog import load_model
    >>> one = np.ones(1)
    >>> shapes = Shapes(tp=one, cp=one, ep=one, etp=one, micro_batch=one, sequence_parallel=one > 2, seq_len=1)
    >>> float(mixer_bytes(load_model("llama3-8b"), shapes)[0]) == 2 * (4096 + 2 * 1024 + 4096)
    True
    """
    t, tp = shapes.tokens, shapes.tp
    if model.has_attention:
        resident = 2.0 * t * (attention_width(model, tp) + model.v_dim / tp)
        if model.gate_dim:
            resident = resident + 2.0 * t * (model.gate_dim + model.v_dim) / tp
        if own := model.indexer:
            resident = resident + t * (2.0 * (own.heads + 1) * own.head_dim + 4.0 * own.top_k) / own.every
        return np.asarray(resident)
    state = model.state
    if state is None:
        return np.zeros_like(t)
    width = state.projected + 2 * state.inner
    if KINDS[state.kind].inverts:
        width += state.channels + state.heads * state.chunk
    return 2.0 * t * width / tp


def norm_bytes(model: Model, shapes: Shapes, input_bytes: float = 2.0) -> FloatArray:
    """What the norms of one layer keep, per micro-batch and rank [B].

    t ((2 + i) h before + 2 h after + (2 + i) latent) / sp, and 2 t (q / tp + k) for norms of queries and keys. Every
    norm keeps its input; `before`, two or one of a parallel block, and those of latent vectors also their output, which
    enters a product (i: its bytes). `after`: those of a layer beyond two, whose outputs are added to the stream.

    Source: Korthikanti et al., arXiv 2205.05198, section 4.1; Transformer Engine's RMSNorm and LayerNormLinear, which
    save the norm's input.

    >>> from optimizer.catalog import load_model
    >>> one = np.ones(1)
    >>> shapes = Shapes(tp=one, cp=one, ep=one, etp=one, micro_batch=one, sequence_parallel=one > 2, seq_len=1)
    >>> [float(norm_bytes(load_model(name), shapes)[0]) for name in ("gpt3", "gemma2-9b", "qwen3-8b", "deepseek-v3")]
    [98304.0, 43008.0, 43008.0, 65536.0]
    """
    before = 1 if model.parallel_block else model.blocks
    after = max(model.norms_per_layer - model.blocks, 0)
    latent = model.mla.q_rank + model.mla.kv_rank if model.mla and model.has_attention else 0
    width = (2.0 + input_bytes) * (before * model.hidden + latent) + 2.0 * after * model.hidden
    heads = (
        2.0 * (model.q_dim / shapes.tp + kv_width(model, shapes.tp)) if model.qk_norm and model.has_attention else 0.0
    )
    return np.asarray(shapes.tokens * (width / shapes.sp + heads))


def _mlp_bytes(
    model: Model, shapes: Shapes, features: Features, moe: bool, imbalance: float, input_bytes: float
) -> dict[str, FloatArray]:
    """What a dense MLP keeps, or of an MoE layer the routed experts, their activation's output and the shared ones [B].

    Every rank of expert-tensor parallelism gathers the rows of all of them: a row into the experts is the input of a
    product, i h etp. Unless it was weighed before, what its sender gets back of it is kept to weigh it, 2 h; where
    the tokens of a tensor-parallel group are not split before their experts (whole_experts), that of all of them.

    Source: NVIDIA/Megatron-LM @2659630721 (core 0.12), memory efficient token permutation, and its token_dispatcher.py,
    which scatters to the expert-tensor ranks before it weighs; torchtitan/models/moe.py.
    """
    before = input_bytes if features.narrow_inputs else 2.0
    per_width = before * (2 if model.gated_mlp else 1) + input_bytes
    if features.eager and not features.fused_norm and model.gated_mlp:
        per_width += before  # the activation's output, which enters a product of its own
    if model.feed_forwards == NOTHING:
        return {}
    if not moe or model.experts is None:
        return {"dense": per_width * model.ffn_hidden * shapes.tokens / shapes.tp}
    experts = model.experts
    rows, row = shapes.tokens / shapes.tp * experts.top_k * shapes.busiest(imbalance), model.routed_width
    weighed = 0.0 if features.weighed_early else 2.0 * (shapes.etp if features.whole_experts else 1.0)
    routed = rows * (per_width * experts.ffn_hidden + (input_bytes * shapes.etp + weighed) * row)
    shared = per_width * experts.shared_ffn_hidden * shapes.tokens / shapes.tp
    probabilities = 8.0 * experts.count * shapes.tokens / shapes.sp
    activation = rows * input_bytes * experts.ffn_hidden
    return {"routed": routed + probabilities, "shared": shared, "routed activation": activation}


def movable_bytes(
    model: Model, shapes: Shapes, moe: bool, imbalance: float, input_bytes: float = 2.0
) -> dict[str, FloatArray]:
    """Inputs of modules that one layer may keep on the host, per micro-batch and rank, by module [B].

    attn_norm, mlp_norm: the residual stream before a norm that is a kernel of its own, 2 t h / sp. core_attn: queries,
    keys and values. attn_proj: the attention's output. expert_fc1: the routed tokens. moe_act: what the experts' first
    products return. A dense MLP has none.

    Source: Megatron-Core developer guide, fine-grained activation offloading, --offload-modules.

    >>> from optimizer.catalog import load_model
    >>> one = np.ones(1)
    >>> shapes = Shapes(tp=one, cp=one, ep=one, etp=one, micro_batch=one, sequence_parallel=one > 2, seq_len=1)
    >>> {name: float(b[0]) for name, b in movable_bytes(load_model("gpt3"), shapes, False, 1.0).items()}
    {'core_attn': 73728.0, 'attn_proj': 24576.0}
    """
    t, tp = shapes.tokens, shapes.tp
    stream = 2.0 * t * model.hidden / shapes.sp
    movable = {}
    if model.has_attention:
        movable = {"core_attn": 2.0 * t * attention_width(model, tp), "attn_proj": 2.0 * t * model.v_dim / tp}
    if model.mla and model.has_attention:
        movable["attn_norm"] = stream
    if moe and model.experts:
        rows = t / tp * model.experts.top_k * shapes.busiest(imbalance)
        movable["mlp_norm"] = stream
        movable["expert_fc1"] = input_bytes * rows * (model.routed_width) * shapes.etp
        movable["moe_act"] = 2.0 * (2 if model.gated_mlp else 1) * rows * model.experts.ffn_hidden
    return movable


def offloaded_modules(model: Model, recompute: str) -> tuple[str, ...]:
    """Names of the modules of a model that have something to send to the host, in the order of a layer.

    >>> from optimizer.catalog import load_model
    >>> offloaded_modules(load_model("deepseek-v3"), "layernorm+mla_up_proj")
    ('attn_norm', 'attn_proj', 'mlp_norm', 'expert_fc1', 'moe_act')
    """
    attention = ("attn_norm",) * (model.mla is not None) + ("core_attn", "attn_proj")
    of_moe = ("mlp_norm", "expert_fc1", "moe_act") * (model.experts is not None)
    recomputed = modules_of(recompute)
    return tuple(name for name in (*attention, *of_moe) if RECOMPUTED.get(name) not in recomputed)


def moved_bytes(movable: Mapping[str, FloatArray], recompute: IntArray, share: FloatArray) -> FloatArray:
    """What a layer keeps on the host: the share of what may be there and is not recomputed anyhow [B].

    >>> from optimizer.job.recomputation import RECOMPUTE
    >>> some = {"core_attn": np.full(2, 6.0), "attn_proj": np.full(2, 2.0)}
    >>> moved_bytes(some, np.array([0, RECOMPUTE.index("mla_up_proj")]), np.full(2, 0.5)).tolist()
    [4.0, 1.0]
    """
    total = np.zeros(len(recompute))
    for module, size in movable.items():
        resident = ~recomputes(recompute, RECOMPUTED[module]) if module in RECOMPUTED else True
        total = total + np.where(resident, size, 0.0)
    return total * share
