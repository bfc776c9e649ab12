"""The operators that one GPU runs for one layer and one micro-batch, with their local shapes.

Every field is an array with one entry per plan shape (see Shapes); nothing here knows about time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optimizer.job.loss import LogitBytes
from optimizer.job.model import NOTHING, Model
from optimizer.job.recurrence import Recurrence
from optimizer.job.stack import Stack
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.kernels.routed_rows import FUSED, grouped_rate, permuting
from optimizer.objectives.kernels.shapes import Shapes

# Passes of an activation that clamps, as it is written (bias, two clamps, scale, sigmoid, product, sum, product with
# the other half, product with the router's weights in fp32 and the cast back: 26 reads and writes of the width) over
# those of a fused SwiGLU (3). Counted in NVIDIA/Megatron-LM, megatron/core/transformer/moe/experts.py, unfused.
UNFUSED_CLAMP = 26.0 / 3.0
# Kernel by kernel, in half-precision passes: of a rotary embedding half of a negation, a concatenation, two products
# and a sum, where a fused one reads and writes; of a gated activation the activation and the product.
# Source: huggingface/transformers v5.17.0, src/transformers/models/llama/modeling_llama.py.
EAGER_ROTARY, EAGER_ROTARY_KERNELS, EAGER_GATED = 10.0, 10, 5.0
# Likewise of queries or keys that are cast to fp32, multiplied as complex numbers and cast back: PyTorch's compiler has
# no code for these. Source: pytorch/torchtitan @9dec370, torchtitan/models/llama/model.py, apply_rotary_emb; issue 15.
COMPLEX_ROTARY, COMPLEX_ROTARY_KERNELS = 10.0, 6
UNFUSED_NORM = 16.0  # half-precision passes of an RMS norm built from cast, square, mean, scale and cast kernels


@dataclass(frozen=True, kw_only=True)
class Gemm:
    """`batch` products of (m x k) by (k x n), at `rate` times what the device reaches on this shape.

    `weight` products also need a weight gradient in the backward pass.
    """

    name: str
    m: FloatArray
    n: FloatArray
    k: FloatArray
    batch: FloatArray | float = 1.0
    weight: bool = True
    low_precision: bool = True
    rate: FloatArray | float = 1.0

    @property
    def flops(self) -> FloatArray:
        """Floating-point operations of the forward product [FLOP]."""
        return 2.0 * self.m * self.n * self.k * self.batch


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Scaled dot-product attention: `scores` = micro_batch x heads x queries x keys seen on this rank.

    `flops` counts the forward products over `scores` with `context_share` of them unmasked.
    """

    scores: FloatArray
    qk_dim: int
    v_dim: int
    context_share: FloatArray | float
    heads: FloatArray
    queries: FloatArray
    keys: FloatArray

    @property
    def flops(self) -> FloatArray:
        """Forward operations without the masked scores [FLOP]."""
        return 2.0 * self.scores * (self.qk_dim + self.v_dim) * self.context_share


@dataclass(frozen=True, kw_only=True)
class Scan:
    """A recurrence over the tokens of a micro-batch: operations forward, bytes through HBM, blocks that run at once."""

    flops: FloatArray  # of the kernels on chunks [FLOP]
    moved: FloatArray  # inputs, outputs and the states between chunks [B]
    blocks: FloatArray  # chunks x heads [1]


@dataclass(frozen=True, kw_only=True)
class Elementwise:
    """Kernels limited by HBM: bytes they move forward and backward, and how many kernels that takes."""

    name: str
    forward_bytes: FloatArray
    backward_bytes: FloatArray
    kernels: FloatArray | float


@dataclass(frozen=True, kw_only=True)
class Layer:
    """All operators of one kind of layer (or of the head), in the order they run."""

    gemms: tuple[Gemm, ...]
    attention: Attention | Scan | None
    elementwise: tuple[Elementwise, ...]


def context_share(model: Model, seq_len: float) -> float:
    """Mean share of the seq_len x seq_len scores that causal masks and sliding windows leave.

    Causal: (S + 1) / 2S. A window of w < S: w / S - w (w - 1) / 2S^2, on all layers but the global ones; likewise the
    w best of all tokens that an indexer chose.

    >>> from optimizer.catalog import load_model
    >>> context_share(load_model("gpt3"), 2048)
    0.500244140625
    """
    causal = (seq_len + 1) / (2 * seq_len)
    if model.indexer:
        return causal if model.indexer.top_k >= seq_len else _local_share(model.indexer.top_k, seq_len)
    if model.window is None or model.window.size >= seq_len:
        return causal
    local = _local_share(model.window.size, seq_len)
    return model.mean_context_fraction * causal + (1 - model.mean_context_fraction) * local


def shared_context(model: Model, shapes: Shapes) -> FloatArray | float:
    """Mean share of the scores of a sequence that masks leave, of its documents where it is not one [1].

    E[l^2 c(l)] / (S E[l]): l, the documents' lengths [tokens]; c, context_share of one; S, computed tokens of a
    sequence. Packed documents attend to themselves alone.

    >>> from optimizer.catalog import load_model
    >>> one = np.ones(1)
    >>> shapes = Shapes(tp=one, cp=one, ep=one, etp=one, micro_batch=one, sequence_parallel=one > 2,
    ...     seq_len=2048 * one, documents=(np.array([512.0]), one[None]))
    >>> [round(float(share), 4) for share in (shared_context(load_model("gpt3"), shapes)[0], 513 / 512 / 2 / 4)]
    [0.1252, 0.1252]
    """
    if shapes.documents is None:
        assert isinstance(shapes.seq_len, int)
        return context_share(model, shapes.seq_len)
    sizes, shares = shapes.documents
    return np.asarray(shares @ attended(model, sizes) / (shapes.seq_len * (shares @ sizes)))


def attended(model: Model, sizes: FloatArray) -> FloatArray:
    """Scores of documents of these lengths that masks leave, for one head [1]."""
    return np.array([size**2 * context_share(model, size) for size in sizes.tolist()])


def _local_share(width: int, seq_len: float) -> float:
    """Share of the scores that a token's last (or best) `width` tokens are [1]."""
    return width / seq_len - width * (width - 1) / (2 * seq_len**2)


def mixer_gemms(model: Model, shapes: Shapes) -> tuple[Gemm, ...]:
    """Products of what mixes tokens in a layer, of a model of one kind."""
    if model.has_attention:
        return attention_gemms(model, shapes) + indexer_gemms(model, shapes)
    return recurrence_gemms(model, shapes)


def recurrence_gemms(model: Model, shapes: Shapes) -> tuple[Gemm, ...]:
    """Projections around a recurrence, its heads split over tp, keys copied where they have fewer groups than ranks.

    Source: NVIDIA/Megatron-LM, megatron/core/ssm/mamba_mixer.py (in_proj column-, out_proj row-parallel).
    """
    state = model.state
    if state is None:
        return ()
    t, tp = shapes.tokens, shapes.tp
    inside = (
        (Gemm(name="state_inner", m=t, n=_full(t, state.inner_weights / state.inner), k=state.inner / tp),)
        if state.inner_weights
        else ()
    )
    return (
        Gemm(name="state_in", m=t, n=state.projected / tp, k=_full(t, model.hidden)),
        *inside,
        Gemm(name="state_out", m=t, n=_full(t, model.hidden), k=state.inner / tp),
    )


def indexer_gemms(model: Model, shapes: Shapes) -> tuple[Gemm, ...]:
    """Products of a sparse attention's indexer, on every TP rank, in the mean of the layers that share one.

    Queries from the latent ones, a key and weights for the heads from the layer's input, and the scores of all pairs,
    of which the masked half is not computed: rate 2.

    Source: DeepSeek-V3.2, arXiv 2512.02556, section 2.1; NVIDIA/Megatron-LM, experimental_attention_variant/dsa.py.
    """
    own = model.indexer
    if own is None:
        return ()
    t, shared = shapes.tokens / own.every, shapes.seq_len / shapes.cp / own.every
    queries = (model.mla.q_rank if model.mla else 0) or model.hidden
    return (
        Gemm(name="indexer_q", m=t, n=_full(t, own.heads * own.head_dim), k=_full(t, queries)),
        Gemm(name="indexer_k", m=t, n=_full(t, own.head_dim + own.heads), k=_full(t, model.hidden)),
        Gemm(
            name="indexer_scores",
            m=shared * own.heads,
            n=_full(t, shapes.seq_len),
            k=_full(t, own.head_dim),
            batch=shapes.micro_batch,
            low_precision=False,
            rate=2.0,
        ),
    )


def attention_gemms(model: Model, shapes: Shapes) -> tuple[Gemm, ...]:
    """Projections around attention: column-parallel in, row-parallel out (Megatron-LM, arXiv 1909.08053).

    Key-value heads are replicated when tp exceeds them. MLA's down-projections are computed by every TP rank.
    """
    t, tp = shapes.tokens, shapes.tp
    out: tuple[Gemm, ...] = (Gemm(name="attention_out", m=t, n=_full(t, model.hidden), k=model.v_dim / tp),)
    if model.mla is None:
        wide = model.q_dim / tp + keys_values_width(model, tp) + model.gate_dim / tp
        return (Gemm(name="qkv", m=t, n=wide, k=_full(t, model.hidden)), *out)
    if model.gate_dim:
        out = (Gemm(name="gate", m=t, n=model.gate_dim / tp, k=_full(t, model.hidden)), *out)
    mla = model.mla
    local = t / shapes.sp
    kv_down = Gemm(name="kv_down", m=local, n=_full(t, mla.kv_rank + mla.rope_dim), k=_full(t, model.hidden))
    kv_up = Gemm(name="kv_up", m=t, n=model.heads * (mla.nope_dim + mla.v_dim) / tp, k=_full(t, mla.kv_rank))
    if not mla.q_rank:
        return (Gemm(name="q", m=t, n=model.q_dim / tp, k=_full(t, model.hidden)), kv_down, kv_up, *out)
    q_down = Gemm(name="q_down", m=local, n=_full(t, mla.q_rank), k=_full(t, model.hidden))
    q_up = Gemm(name="q_up", m=t, n=model.q_dim / tp, k=_full(t, mla.q_rank))
    return (q_down, q_up, kv_down, kv_up, *out)


def kv_width(model: Model, tp: FloatArray) -> FloatArray:
    """Width of the keys, and of the values, that a TP rank holds in grouped-query attention [elements].

    max(kv_dim / tp, head_dim): heads are copied where there are fewer than ranks.

    >>> from optimizer.catalog import load_model
    >>> kv_width(load_model("llama3-70b"), np.array([1.0, 8.0, 16.0])).tolist()
    [1024.0, 128.0, 128.0]
    """
    return np.maximum(model.kv_dim / tp, model.head_dim)


def keys_values_width(model: Model, tp: FloatArray) -> FloatArray:
    """Width of keys and values together that a TP rank holds in grouped-query attention [elements]."""
    keys = kv_width(model, tp)
    return keys * (1.0 + model.v_head_dim / model.head_dim) if model.v_head_dim else 2.0 * keys


def attention_width(model: Model, tp: FloatArray) -> FloatArray:
    """Width of queries, keys and values that the attention core of a TP rank reads [elements].

    Latent attention expands its keys to the width of the queries, its values to their own.

    >>> from optimizer.catalog import load_model
    >>> attention_width(load_model("deepseek-v3"), np.ones(1)).tolist() == [2 * 128 * 192 + 128 * 128]
    True
    """
    if model.mla:
        return (2.0 * model.q_dim + model.v_dim) / tp
    return model.q_dim / tp + keys_values_width(model, tp)


def mlp_gemms(model: Model, shapes: Shapes, width: int, prefix: str = "mlp") -> tuple[Gemm, ...]:
    """A dense MLP of the given width, split over tp: up (and gate, in one product) and down."""
    t = shapes.tokens
    up = (2 if model.gated_mlp else 1) * width / shapes.tp
    return (
        Gemm(name=f"{prefix}_up", m=t, n=up, k=_full(t, model.hidden)),
        Gemm(name=f"{prefix}_down", m=t, n=_full(t, model.hidden), k=width / shapes.tp),
    )


def expert_gemms(
    model: Model, shapes: Shapes, imbalance: float, rate: float, multiple: float = 1.0
) -> tuple[Gemm, ...]:
    """Router and routed experts, one grouped product per matrix over the rank's E / ep experts.

    A rank computes tokens / tp * top_k * etp routed tokens on experts split etp ways; the busiest of several ranks
    computes `imbalance` times the mean, in grouped kernels at `rate` times what one product of that shape reaches, and
    `grouped_rate` of that: experts differ in their tokens, and each starts and ends on its own. One expert alone is a
    product as any other. The rows of each expert are filled up to a `multiple`, (multiple - 1) / 2 of them on average.

    Source: NVIDIA/TransformerEngine, transformer_engine/pytorch/module/grouped_linear.py (a product for each expert).
    """
    experts = model.experts
    if experts is None:
        return ()
    t = shapes.tokens
    local = experts.count / shapes.ep
    busy = shapes.busiest(imbalance)
    rows = t / shapes.tp * experts.top_k * shapes.etp * busy / local + (multiple - 1.0) / 2.0
    width = experts.ffn_hidden / shapes.etp
    up = (2 if model.gated_mlp else 1) * width
    grouped = np.where(local > 1.0, rate * grouped_rate(rows), 1.0)
    gemms: tuple[Gemm, ...] = (
        Gemm(name="router", m=t / shapes.sp, n=_full(t, experts.count), k=_full(t, model.hidden), low_precision=False),
        Gemm(name="experts_up", m=rows, n=up, k=_full(t, model.hidden), batch=local, rate=grouped),
        Gemm(name="experts_down", m=rows, n=_full(t, model.hidden), k=width, batch=local, rate=grouped),
    )
    if experts.latent:
        gemms = latent_experts(model, shapes, gemms)
    shared = experts.shared_ffn_hidden
    return gemms + (mlp_gemms(model, shapes, shared, "shared") if shared else ())


def latent_experts(model: Model, shapes: Shapes, gemms: tuple[Gemm, ...]) -> tuple[Gemm, ...]:
    """The products of experts that work on a narrower width, and the projections to it and back around them.

    Source: Nemotron 3, NVIDIA 2025, "LatentMoE": tokens are projected before the dispatch and back after the combine.
    """
    experts = model.experts
    if experts is None:
        return gemms
    router, up, down = gemms
    t = shapes.tokens / shapes.sp
    wide, narrow = _full(t, model.hidden), _full(t, experts.latent)
    return (
        router,
        Gemm(name="latent_down", m=t, n=narrow, k=wide),
        replace(up, k=narrow),
        replace(down, n=narrow),
        Gemm(name="latent_up", m=t, n=wide, k=narrow),
    )


def scan_core(model: Model, shapes: Shapes) -> Scan | None:
    """The recurrence of one micro-batch on one rank: its heads / tp.

    FLOP: Recurrence.chunk_flops a token. Bytes: its inputs read and output written, and the state of every chunk
    written and read in 4 B an element.

    Source: Dao, Gu, arXiv 2405.21060, section 6 (what is written between chunks).
    """
    state = model.state
    if state is None or not state.state_dim:
        return None
    share = shapes.tokens / shapes.tp
    states = 8.0 * state.inner * state.state_dim / state.chunk
    heads = state.heads if state.heads > 1 else state.inner / 64.0
    return Scan(
        flops=share * state.chunk_flops,
        moved=share * (2.0 * (state.projected + state.inner) + states),
        blocks=share * heads / state.chunk,
    )


def attention_core(model: Model, shapes: Shapes) -> Attention:
    """Scores of one micro-batch on one rank: micro_batch x heads / tp x (S / cp) x S."""
    head_q = model.q_dim // model.heads
    head_v = model.v_dim // model.heads
    heads = model.heads / shapes.tp
    queries = shapes.seq_len / shapes.cp
    return Attention(
        scores=shapes.micro_batch * heads * queries * shapes.seq_len,
        qk_dim=head_q,
        v_dim=head_v,
        context_share=shared_context(model, shapes),
        heads=heads * shapes.micro_batch,
        queries=queries,
        keys=_full(queries, shapes.seq_len),
    )


def elementwise(model: Model, shapes: Shapes, stack: Stack, moe: bool) -> tuple[Elementwise, ...]:
    """Norms, residuals, dropout, rotary embedding, activation and (for MoE) permutation, 2 bytes an element.

    Per element of the residual stream a fused norm reads and writes once, a residual addition reads twice and
    writes once; the backward pass moves about twice as much. Activation: reads its inputs, writes its output; one that
    clamps has no fused kernel and is UNFUSED_CLAMP times as much. Routed tokens are read and written as often as the
    plan's dispatcher has it, in rows gathered by index (see routed_rows).

    With fused_experts the dispatcher writes each row where its expert wants it and reads it from there, once each, the
    backward pass once more for the router's weights; and the products of the experts apply the gate themselves.

    Source: NVIDIA/Megatron-LM megatron/core/transformer/moe/token_dispatcher.py for the order of permutations;
    release notes of Transformer Engine 2.14 ("fused GEMM + SwiGLU grouped MLP for MXFP8") and of Megatron-Bridge 0.5.1.
    """
    t, half = shapes.tokens, 2.0
    stream = t * model.hidden / shapes.sp
    dropout = 1.5 if stack.features.dropout else 0.0
    norm = 2.0 if stack.features.fused_norm else UNFUSED_NORM
    residual = (norm * model.norms_per_layer + 3 * model.blocks + 2 * dropout) * half * stream
    # A fused norm is one kernel that reads and writes; an unfused one has a kernel for every read and write.
    kernels = model.norms_per_layer * norm / 2 + model.blocks + 2 * dropout
    eager = stack.features.eager and not stack.features.fused_norm
    if eager and model.qk_norm and model.has_attention:
        residual = residual + norm * half * t * (model.q_dim + model.kv_dim) / shapes.tp
        kernels += norm
    ops = [Elementwise(name="norm_residual", forward_bytes=residual, backward_bytes=2 * residual, kernels=kernels)]
    if model.state:
        ops.append(state_elementwise(model.state, shapes))
    if model.has_attention and model.gate_dim:
        gate = 3 * half * t * model.v_dim / shapes.tp
        ops.append(Elementwise(name="gate", forward_bytes=gate, backward_bytes=1.67 * gate, kernels=2))
    if model.has_attention and model.position.startswith("rope"):
        if eager:
            passes, launches = EAGER_ROTARY, EAGER_ROTARY_KERNELS
        elif stack.features.complex_rotary:
            passes, launches = COMPLEX_ROTARY, COMPLEX_ROTARY_KERNELS
        else:
            passes, launches = 2.0, 4
        rotary = passes * half * t * (model.q_dim + model.kv_dim) / shapes.tp
        ops.append(Elementwise(name="rotary", forward_bytes=rotary, backward_bytes=rotary, kernels=launches))
    if model.feed_forwards == NOTHING:
        return tuple(ops)
    inputs = 2 if model.gated_mlp else 1
    if moe and model.experts:
        rows = t / shapes.tp * model.experts.top_k
        row = model.routed_width
        moved, width = half * rows * row, model.experts.shared_ffn_hidden * t / shapes.tp
        if stack.features.fused_experts:
            forward, backward, permutations = (
                np.full_like(t, each) for each in (FUSED.forward, FUSED.backward, FUSED.kernels)
            )
        else:
            forward, backward, permutations = permuting(shapes)
            width = width + model.experts.ffn_hidden * rows
        ops.append(
            Elementwise(
                name="permute", forward_bytes=forward * moved, backward_bytes=backward * moved, kernels=permutations
            )
        )
    else:
        width = model.ffn_hidden * t / shapes.tp
    unfused = UNFUSED_CLAMP if model.activation == "clamped-swiglu" else 1.0
    passes = EAGER_GATED if eager and model.gated_mlp else inputs + 1
    activation = passes * half * width * unfused
    ops.append(Elementwise(name="activation", forward_bytes=activation, backward_bytes=1.67 * activation, kernels=2))
    return tuple(ops)


def state_elementwise(state: Recurrence, shapes: Shapes) -> Elementwise:
    """Short convolution, norms of queries and keys and the gated norm around a recurrence, 2 bytes an element.

    The convolution reads and writes its channels; the gated norm reads output and gate and writes one; the backward
    pass moves twice as much.

    Source: NVIDIA/Megatron-LM, megatron/core/ssm/mamba_mixer.py and gated_delta_net.py for the order of kernels.
    """
    moved = 2.0 * (2 * state.channels + 3 * state.inner) * shapes.tokens / shapes.tp
    return Elementwise(name="state", forward_bytes=moved, backward_bytes=2 * moved, kernels=4)


def layer_operators(model: Model, shapes: Shapes, stack: Stack, moe: bool, multiple: float = 1.0) -> Layer:
    """Everything one layer of a model of one kind runs: mixer, MLP or experts, element-wise kernels.

    multiple: of rows that the products of an expert are filled up to [1] (Job.row_multiple).
    """
    dense = () if moe or model.feed_forwards == NOTHING else mlp_gemms(model, shapes, model.ffn_hidden)
    experts = expert_gemms(model, shapes, stack.imbalance, stack["expert_efficiency"], multiple) if moe else ()
    return Layer(
        gemms=mixer_gemms(model, shapes) + dense + experts,
        attention=attention_core(model, shapes) if model.has_attention else scan_core(model, shapes),
        elementwise=elementwise(model, shapes, stack, moe),
    )


def head_operators(
    model: Model, shapes: Shapes, stack: Stack, own: LogitBytes | None = None, gradients: bool = True
) -> Layer:
    """Final norm, output projection over the padded vocabulary / tp, and the cross-entropy over its logits.

    The loss reads the logits as stored, writes them as `logit_bytes` floats, reads them for the maximum, the sum and
    the gradient: about 2 + 3 x logit_bytes bytes forward and 2 + logit_bytes backward per logit, all of them on every
    rank where the stack gathers them. A compiled one reads them twice forward, reads them again and writes their
    gradients, all in half precision; one that computes them again reads them once forward. A loss that has `own` bytes
    moves these instead, fewer in a pass without `gradients`. Where tensor parallelism does not split the vocabulary,
    the product runs at `unsplit_head_rate` (see Features).

    Source: pytorch/torchtitan @bbb1b616e, torchtitan/components/loss.py, for the compiled loss; huggingface/trl
    v1.16.0, trl/kernels/chunked_logprob.py, for logits that are computed again.
    """
    t = shapes.tokens
    vocab = padded_vocab(model.vocab, shapes.tp)
    logits = t * vocab / (1.0 if stack.features.gathered_logits else shapes.tp)
    wide = float(stack.features.logit_bytes)
    each = (4.0, 4.0) if stack.features.compiled_loss else (2.0 + 3.0 * wide, 2.0 + wide)
    if stack.features.recomputed_logits:
        each = (2.0, 4.0)
    if own:
        each = (own.forward if gradients else own.alone, own.backward)
    stream = t * model.hidden / shapes.sp
    return Layer(
        gemms=(
            Gemm(
                name="head",
                m=t,
                n=vocab / shapes.tp,
                k=_full(t, model.hidden),
                low_precision=False,
                rate=np.where(shapes.tp > 1, 1.0, stack.features.unsplit_head_rate),
            ),
        ),
        attention=None,
        elementwise=(
            Elementwise(
                name="cross_entropy",
                forward_bytes=logits * each[0] + 4 * stream,
                backward_bytes=logits * each[1] + 8 * stream,
                kernels=12,
            ),
        ),
    )


def padded_vocab(vocab: int, tp: FloatArray) -> FloatArray:
    """Vocabulary rounded up to a multiple of 128 tp, as Megatron-LM pads it [tokens].

    >>> padded_vocab(50257, np.array([1.0, 8.0]))
    array([50304., 51200.])
    """
    multiple = 128.0 * np.asarray(tp, dtype=float)
    return np.ceil(vocab / multiple) * multiple


def _full(like: FloatArray, value: FloatArray | float) -> FloatArray:
    return np.broadcast_to(np.asarray(value, dtype=float), np.shape(like)).copy()
