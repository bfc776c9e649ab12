"""Architecture of a language model: shapes and parameter counts, no timing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a preset's numbers come from."""

    source: str = ""  # where it is written
    date: str = ""  # when it was written or read
    grade: str = ""  # A primary, B secondary, C derived or unconfirmed
    note: str = ""  # what else is to be known


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Mixture-of-experts MLP."""

    count: int  # routed experts of a layer
    top_k: int  # experts of a token
    ffn_hidden: int  # width of a routed expert
    shared_ffn_hidden: int = 0  # width of all shared experts together
    first_dense_layers: int = 0  # dense layers before the first MoE layer
    every: int = 1  # stride between MoE layers after them; 2: the last of every two
    router: str = "softmax"  # how it scores: softmax over the chosen experts, pre-softmax over all before, or sigmoid
    router_bias: bool = False  # one bias for each routed expert
    shared_gate: bool = False  # the shared experts have a gate (Qwen2-MoE)
    groups: int = 0  # groups of experts
    group_limit: int = 0  # groups that a token's experts come from at most (DeepSeek-V3: 4 of 8); 0: all


@dataclass(frozen=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: low-rank queries, keys and values (DeepSeek-V2, arXiv 2405.04434)."""

    q_rank: int  # rank of the queries; 0: projected directly
    kv_rank: int  # rank of keys and values
    nope_dim: int  # width of a head without positions
    rope_dim: int  # width of a head with positions
    v_dim: int  # width of a head's values


@dataclass(frozen=True, kw_only=True)
class SlidingWindow:
    """Attention limited to the last tokens, in all layers or all but some."""

    size: int  # tokens that attention sees
    global_every: int = 0  # every so many layers one sees all; 0: none does


@dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder-only transformer; counts are of elements."""

    name: str  # what the model is called
    title: str = ""  # its name for people
    family: str = ""  # architecture family, such as llama
    layers: int  # transformer layers
    hidden: int  # width of the residual stream
    heads: int  # query heads of a layer
    kv_heads: int  # key-value heads of a layer
    head_dim: int  # width of a head
    ffn_hidden: int  # width of a dense layer's MLP
    vocab: int  # tokens of the vocabulary
    max_seq_len: int  # longest sequence [tokens]
    gated_mlp: bool = False  # the MLP has a gate, as SwiGLU
    activation: str = "gelu"  # activation of the MLP
    norm: str = "layer"  # layer, layer1p, rms, or layer-plain (LayerNorm without weights)
    norm_epsilon: float = 1e-5  # epsilon of the norms
    norms_per_layer: int = 2  # norms of a layer
    norm_bias: bool = True  # norms of kind layer have a bias
    qk_norm: bool = False  # queries and keys have a norm with weights, over each head
    qk_norm_full: bool = False  # that norm is over all heads together
    attention_bias: bool = False  # queries, keys and values have biases
    attention_out_bias: bool = False  # the output projection has a bias
    attention_sinks: bool = False  # one learned logit for each head (gpt-oss)
    mlp_bias: bool = False  # the MLP has biases
    head_bias: bool = False  # the output head has a bias
    position: str = "rope"  # rope, learned or alibi
    rope_base: float = 10_000.0  # base of the rotary frequencies
    rope_share: float = 1.0  # share of a head that is rotated [1]
    extra_positions: int = 0  # rows of a learned position table beyond max_seq_len (OPT: 2)
    tied_embeddings: bool = False  # the output head is the word embedding
    parallel_block: bool = False  # attention and MLP run side by side
    embedding_norm: bool = False  # a norm follows the embedding
    window: SlidingWindow | None = None  # sliding-window attention
    experts: Experts | None = None  # experts of its MoE layers
    mla: LatentAttention | None = None  # multi-head latent attention
    mtp_layers: int = 0  # MTP layers, which predict further tokens
    published_params: float | None = None  # parameters that its publisher says
    published_active_params: float | None = None  # active parameters that its publisher says
    provenance: Provenance = Provenance()  # where the numbers come from

    @property
    def moe_layers(self) -> int:
        """Number of MoE layers."""
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
