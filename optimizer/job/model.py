"""Architecture of a language model: shapes and parameter counts, no timing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a preset's numbers come from: source, date, and grade (A primary, B secondary, C unconfirmed)."""

    source: str = ""
    date: str = ""
    grade: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Mixture-of-experts MLP: `count` routed experts of width `ffn_hidden`, `top_k` of them per token.

    `shared_ffn_hidden` is the total width of the shared experts, `first_dense_layers` the layers before the
    first MoE layer, `every` the stride between MoE layers after them (1: all, 2: the last of every two).
    `router` scores with "softmax" over those that were chosen, "pre-softmax" over all experts before, or "sigmoid".
    `router_bias`: one bias per routed expert; `shared_gate`: a gate on the shared experts (Qwen2-MoE). With
    `group_limit` a token's experts come from at most so many of `groups` groups of experts (DeepSeek-V3: 4 of 8).
    """

    count: int
    top_k: int
    ffn_hidden: int
    shared_ffn_hidden: int = 0
    first_dense_layers: int = 0
    every: int = 1
    router: str = "softmax"
    router_bias: bool = False
    shared_gate: bool = False
    groups: int = 0
    group_limit: int = 0


@dataclass(frozen=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): low-rank queries, keys and values.

    `q_rank` 0 means that queries are projected directly.
    """

    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int


@dataclass(frozen=True, kw_only=True)
class SlidingWindow:
    """Attention limited to the last `size` tokens, in all layers but one of every `global_every` (0: in all)."""

    size: int
    global_every: int = 0


@dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder-only transformer. Counts are of elements; `ffn_hidden` is the width of a dense layer's MLP.

    norm: "layer", "layer1p", "rms", or "layer-plain" (LayerNorm without weights). qk_norm: a norm with weights on
    queries and keys, over each head or, with `qk_norm_full`, over all heads together. attention_sinks: one learned
    logit per head (gpt-oss). extra_positions: rows of a learned position table beyond `max_seq_len` (OPT has 2).
    rope_base, rope_share: base of the rotary frequencies and share of a head that is rotated. `title` is the name for
    people.
    """

    name: str
    title: str = ""
    family: str = ""
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    vocab: int
    max_seq_len: int
    gated_mlp: bool = False
    activation: str = "gelu"
    norm: str = "layer"
    norm_epsilon: float = 1e-5
    norms_per_layer: int = 2
    norm_bias: bool = True
    qk_norm: bool = False
    qk_norm_full: bool = False
    attention_bias: bool = False
    attention_out_bias: bool = False
    attention_sinks: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    position: str = "rope"
    rope_base: float = 10_000.0
    rope_share: float = 1.0
    extra_positions: int = 0
    tied_embeddings: bool = False
    parallel_block: bool = False
    embedding_norm: bool = False
    window: SlidingWindow | None = None
    experts: Experts | None = None
    mla: LatentAttention | None = None
    mtp_layers: int = 0
    published_params: float | None = None
    published_active_params: float | None = None
    provenance: Provenance = Provenance()

    @property
    def moe_layers(self) -> int:
        """Number of layers whose MLP is a mixture of experts."""
        if self.experts is None:
            return 0
        return max(0, self.layers - self.experts.first_dense_layers) // self.experts.every

    @property
    def dense_layers(self) -> int:
        """Number of layers with a dense MLP."""
        return self.layers - self.moe_layers

    @property
    def q_dim(self) -> int:
        """Width of all query heads together, as the attention scores see them."""
        head = self.mla.nope_dim + self.mla.rope_dim if self.mla else self.head_dim
        return self.heads * head

    @property
    def v_dim(self) -> int:
        """Width of all heads' outputs together, the input of the output projection."""
        return self.heads * (self.mla.v_dim if self.mla else self.head_dim)

    @property
    def kv_dim(self) -> int:
        """Width of the keys (equally of the values) of all key-value heads together."""
        return self.kv_heads * self.head_dim

    @property
    def attention_weights(self) -> int:
        """Matrix elements of one layer's attention projections [parameters].

        GQA: hidden x (q_dim + 2 kv_dim) + v_dim x hidden. MLA: the low-rank factors and the output projection.
        """
        if self.mla is None:
            return self.hidden * (self.q_dim + 2 * self.kv_dim) + self.v_dim * self.hidden
        mla = self.mla
        q = self.hidden * mla.q_rank + mla.q_rank * self.q_dim if mla.q_rank else self.hidden * self.q_dim
        kv = self.hidden * (mla.kv_rank + mla.rope_dim) + mla.kv_rank * self.heads * (mla.nope_dim + mla.v_dim)
        return q + kv + self.v_dim * self.hidden

    @property
    def attention_vectors(self) -> int:
        """Biases and norm weights inside one layer's attention [parameters]."""
        vectors = 0
        if self.attention_bias:
            vectors += self.q_dim + 2 * self.kv_dim
        if self.attention_out_bias:
            vectors += self.hidden
        if self.attention_sinks:
            vectors += self.heads
        if self.qk_norm:
            vectors += self.q_dim + self.kv_dim if self.qk_norm_full else 2 * self.head_dim
        if self.mla:
            vectors += self.mla.q_rank + self.mla.kv_rank
        return vectors

    @property
    def norm_params(self) -> int:
        """Weights, and biases if any, of one norm over the hidden width [parameters]."""
        if self.norm == "layer-plain":
            return 0
        return self.hidden * (2 if self.norm.startswith("layer") and self.norm_bias else 1)

    @property
    def norm_vectors(self) -> int:
        """Weights (and biases) of the norms of one layer, without those inside attention [parameters]."""
        return self.norms_per_layer * self.norm_params

    @property
    def mlp_matrices(self) -> int:
        """Number of matrices in an MLP: up and down, and the gate if there is one."""
        return 3 if self.gated_mlp else 2

    def mlp_params(self, width: int) -> int:
        """Parameters of an MLP of the given width, biases included [parameters].

        >>> from optimizer.catalog import load_model
        >>> load_model("llama3-8b").mlp_params(14336)
        176160768
        """
        biases = (self.mlp_matrices - 1) * width + self.hidden if self.mlp_bias else 0
        return self.mlp_matrices * self.hidden * width + biases

    @property
    def dense_layer_params(self) -> int:
        """Parameters of one layer with a dense MLP [parameters]."""
        return self.attention_weights + self.attention_vectors + self.norm_vectors + self.mlp_params(self.ffn_hidden)

    @property
    def expert_params(self) -> int:
        """Parameters of one routed expert [parameters]."""
        return self.mlp_params(self.experts.ffn_hidden) if self.experts else 0

    @property
    def moe_shared_params(self) -> int:
        """Parameters of one MoE layer that every token uses: attention, norms, router, shared experts."""
        if self.experts is None:
            return 0
        gates = self.experts.count + (1 if self.experts.shared_gate else 0)
        router = self.hidden * gates + (self.experts.count if self.experts.router_bias else 0)
        shared = self.mlp_params(self.experts.shared_ffn_hidden) if self.experts.shared_ffn_hidden else 0
        return self.attention_weights + self.attention_vectors + self.norm_vectors + router + shared

    @property
    def embedding_params(self) -> int:
        """Word embeddings, learned positions and the norm after them, if any [parameters]."""
        positions = self.max_seq_len + self.extra_positions if self.position == "learned" else 0
        norm = self.norm_params if self.embedding_norm else 0
        return (self.vocab + positions) * self.hidden + norm

    @property
    def head_params(self) -> int:
        """Output projection, without its weight when that is the word embedding itself [parameters]."""
        bias = self.vocab if self.head_bias else 0
        return bias + (0 if self.tied_embeddings else self.vocab * self.hidden)

    @property
    def final_norm_params(self) -> int:
        """The norm before the output projection [parameters]."""
        return self.norm_params

    @property
    def mtp_params(self) -> int:
        """Parameters that multi-token-prediction layers add, embedding and output projection shared [parameters].

        Each is one more layer of the last kind, a 2 hidden -> hidden projection, two norms before it and one after.
        Source: DeepSeek-V3, arXiv 2412.19437, section 2.2.

        >>> from optimizer.catalog import load_model
        >>> load_model("deepseek-v3").mtp_params
        11610068224
        """
        if self.experts is None:
            layer = self.dense_layer_params
        else:
            layer = self.moe_shared_params + self.experts.count * self.expert_params
        return self.mtp_layers * (layer + 2 * self.hidden**2 + 3 * self.norm_params)

    @cached_property
    def params(self) -> int:
        """All parameters, without multi-token-prediction layers [parameters].

        >>> from optimizer.catalog import load_model
        >>> load_model("llama3-8b").params
        8030261248
        """
        layers = self.dense_layers * self.dense_layer_params
        if self.experts:
            layers += self.moe_layers * (self.moe_shared_params + self.experts.count * self.expert_params)
        return layers + self.embedding_params + self.head_params + self.final_norm_params

    @cached_property
    def active_params(self) -> int:
        """Parameters used by one token: routed experts count `top_k` times instead of `count` [parameters]."""
        if self.experts is None:
            return self.params
        idle = self.moe_layers * (self.experts.count - self.experts.top_k) * self.expert_params
        return self.params - idle

    @property
    def mean_context_fraction(self) -> float:
        """Share of layers with full attention (1 without a sliding window)."""
        if self.window is None:
            return 1.0
        return 1.0 / self.window.global_every if self.window.global_every else 0.0
