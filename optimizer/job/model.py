"""Architecture of a language model: shapes and parameter counts, no timing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

from optimizer.job.recurrence import Recurrence

ATTENTION, LOCAL, RECURRENT, NOTHING = "a", "w", "r", "n"  # letters of Model.mixers
DENSE_MLP, WITH_EXPERTS = "d", "e"  # letters of Model.feed_forwards, besides NOTHING
MIXERS, FEED_FORWARDS = (ATTENTION, LOCAL, RECURRENT, NOTHING), (DENSE_MLP, WITH_EXPERTS, NOTHING)
GATES = ("none", "heads", "elements")  # what a gate on the attention's output multiplies


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
    latent: int = 0  # width to which tokens are projected before they are sent to experts; 0: not


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
    heads: int = 0  # query heads of these layers; 0: as in the others
    kv_heads: int = 0  # key-value heads of these layers; 0: as in the others
    head_dim: int = 0  # width of a head of these layers; 0: as in the others


@dataclass(frozen=True, kw_only=True)
class Indexer:
    """Small heads that score all tokens and leave attention the best (DeepSeek-V3.2, arXiv 2512.02556)."""

    heads: int  # heads of a layer's indexer
    head_dim: int  # width of such a head; keys have one
    top_k: int  # tokens that attention sees
    every: int = 1  # layers that share what one indexer chose


@dataclass(frozen=True, kw_only=True)
class Tower:
    """A vision tower in front of the language model, which sees one image of each sequence."""

    layers: int  # transformer layers
    hidden: int  # width of its residual stream
    heads: int  # heads of a layer
    ffn_hidden: int  # width of a layer's MLP
    gated_mlp: bool = False  # the MLP has a gate
    patches: int = 4  # of an image, that become one token of the language model
    image_tokens: int = 0  # of a sequence, which its length counts; 0: the passes of the tower are not priced
    whole_layers: int = 0  # layers that attend to the whole image, the others to windows; 0: all
    outside: int = 0  # parameters of its patches, positions and projections

    @property
    def params(self) -> int:
        """All its parameters, with biases and norms of the layers [parameters].

        >>> Tower(layers=27, hidden=1152, heads=16, ffn_hidden=4304).params
        411466608
        """
        matrices = 3 if self.gated_mlp else 2
        vectors = 9 * self.hidden + (matrices - 1) * self.ffn_hidden
        each = 4 * self.hidden**2 + matrices * self.hidden * self.ffn_hidden + vectors
        return self.layers * each + self.outside

    @property
    def language_like(self) -> Model:
        """A language model of the same layers."""
        return Model(
            name="vision tower",
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.heads,
            head_dim=self.hidden // self.heads,
            ffn_hidden=self.ffn_hidden,
            gated_mlp=self.gated_mlp,
            vocab=1,
            max_seq_len=max(self.image_tokens * self.patches, 1),
        )


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
    # what mixes tokens in each layer, a letter each, from the first on again after the last: a attention, w attention
    # in the window, r recurrence, n nothing; empty: a, or as window.global_every says
    mixers: str = ""
    # what follows in each layer, likewise: d dense MLP, e experts, n nothing; empty: as experts say
    feed_forwards: str = ""
    norm: str = "layer"  # layer, layer1p, rms, or layer-plain (LayerNorm without weights)
    norm_epsilon: float = 1e-5  # epsilon of the norms
    norms_per_layer: int = 2  # norms of a layer
    norm_bias: bool = True  # norms of kind layer have a bias
    qk_norm: bool = False  # queries and keys have a norm with weights, over each head
    qk_norm_full: bool = False  # that norm is over all heads together
    attention_bias: bool = False  # queries, keys and values have biases
    attention_out_bias: bool = False  # the output projection has a bias
    attention_sinks: bool = False  # one learned logit for each head (gpt-oss)
    attention_gate: str = "none"  # the attention's output is gated: none, by heads or by elements
    v_head_dim: int = 0  # width of a head's values, where it is not head_dim
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
    indexer: Indexer | None = None  # sparse attention
    recurrence: Recurrence | None = None  # mixer of the layers r
    tower: Tower | None = None  # vision tower in front
    mtp_layers: int = 0  # MTP layers, which predict further tokens
    published_params: float | None = None  # parameters that its publisher says
    published_active_params: float | None = None  # active parameters that its publisher says
    provenance: Provenance = Provenance()  # where the numbers come from

    @cached_property
    def moe_pattern(self) -> tuple[bool, ...]:
        """Whether each layer has experts."""
        if self.feed_forwards:
            return tuple(letter == WITH_EXPERTS for letter in repeated(self.feed_forwards, self.layers))
        if self.experts is None:
            return (False,) * self.layers
        first, every = self.experts.first_dense_layers, self.experts.every
        return tuple(layer >= first and (layer - first) % every == every - 1 for layer in range(self.layers))

    @cached_property
    def moe_layers(self) -> int:
        """Number of MoE layers."""
        if self.feed_forwards:
            return sum(self.moe_pattern)
        if self.experts is None:
            return 0
        return max(0, self.layers - self.experts.first_dense_layers) // self.experts.every

    @property
    def dense_layers(self) -> int:
        """Number of layers without experts."""
        return self.layers - self.moe_layers

    @property
    def is_uniform(self) -> bool:
        """Whether all layers mix tokens alike, or as `window` says, and experts lie where `experts` says."""
        return not self.mixers and not self.feed_forwards

    @property
    def routed_width(self) -> int:
        """Width of a token as it is sent to its experts."""
        return (self.experts.latent if self.experts else 0) or self.hidden

    @cached_property
    def attention_layers(self) -> int:
        """Number of layers that attend."""
        return sum(kind.count for kind in self.kinds if kind.model.has_attention)

    @cached_property
    def mlp_layers(self) -> int:
        """Number of layers with a dense MLP."""
        return sum(kind.count for kind in self.kinds if not kind.moe and kind.model.feed_forwards != NOTHING)

    @cached_property
    def split_heads(self) -> int:
        """What tensor parallelism must divide: the greatest common divisor of the heads of all kinds of layers."""
        attending = [kind.model.heads for kind in self.kinds if kind.model.has_attention]
        states = [kind.model.state for kind in self.kinds if kind.model.state]
        heads = [state.heads if state.heads > 1 else state.inner for state in states]
        return gcd(*attending, *heads, *(state.groups for state in states if state.groups > 1))

    @cached_property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kinds of layers that the model has, each as a model all of whose layers are of that kind.

        >>> from optimizer.catalog import load_model
        >>> [(kind.count, kind.moe) for kind in load_model("deepseek-v3").kinds]
        [(3, False), (58, True)]
        """
        if self.is_uniform:
            counts = ((self.dense_layers, False), (self.moe_layers, True))
            return tuple(LayerKind(model=self, count=count, moe=moe) for count, moe in counts if count)
        mixers = repeated(self.mixers or ATTENTION, self.layers)
        moe = "".join(WITH_EXPERTS if has else DENSE_MLP for has in self.moe_pattern)
        pairs = list(zip(mixers, repeated(self.feed_forwards or moe, self.layers), strict=True))
        return tuple(
            LayerKind(model=self._of_kind(*pair), count=pairs.count(pair), moe=pair[1] == WITH_EXPERTS)
            for pair in dict.fromkeys(pairs)
        )

    def kinds_with(self, moe: bool) -> tuple[LayerKind, ...]:
        """The kinds of layers with experts, or those without; of a model that has none such, what they would be."""
        if self.is_uniform:
            return (LayerKind(model=self, count=self.moe_layers if moe else self.dense_layers, moe=moe),)
        kinds = tuple(kind for kind in self.kinds if kind.moe == moe)
        letter = WITH_EXPERTS if moe else DENSE_MLP
        return kinds or tuple(
            replace(kind, model=replace(kind.model, feed_forwards=letter), moe=moe) for kind in self.kinds
        )

    def _of_kind(self, mixer: str, feed_forward: str) -> Model:
        """This model with all its layers of one kind."""
        window = self.window
        changes: dict[str, object] = {"window": None} if self.mixers else {}
        if window is not None and mixer == LOCAL:
            own = {"heads": window.heads, "kv_heads": window.kv_heads, "head_dim": window.head_dim}
            changes = {name: value for name, value in own.items() if value}
            changes["window"] = SlidingWindow(size=window.size) if window.size else None
        if NOTHING in (mixer, feed_forward):
            changes["norms_per_layer"] = self.norms_per_layer // 2
        local = ATTENTION if mixer == LOCAL else mixer
        return replace(self, mixers=local, feed_forwards=feed_forward, **changes)  # type: ignore[arg-type]

    @property
    def has_attention(self) -> bool:
        """Whether layers attend; of a model of one kind."""
        return self.mixers in ("", ATTENTION, LOCAL)

    @property
    def state(self) -> Recurrence | None:
        """The recurrence that mixes tokens, of a model of one kind; None where that is something else."""
        return self.recurrence if self.mixers == RECURRENT else None

    @property
    def blocks(self) -> int:
        """Residual blocks of a layer, of a model of one kind: mixer and MLP, or one of them alone."""
        return 1 if NOTHING in (self.mixers, self.feed_forwards) else 2

    @property
    def q_dim(self) -> int:
        """Width of all query heads together, as the attention scores see them."""
        head = self.mla.nope_dim + self.mla.rope_dim if self.mla else self.head_dim
        return self.heads * head

    @property
    def v_dim(self) -> int:
        """Width of all heads' outputs together, the input of the output projection."""
        return self.heads * (self.mla.v_dim if self.mla else self.v_head_dim or self.head_dim)

    @property
    def kv_dim(self) -> int:
        """Width of the keys (equally of the values) of all key-value heads together."""
        return self.kv_heads * self.head_dim

    @property
    def gate_dim(self) -> int:
        """Width of the gate on the attention's output, projected from the layer's input."""
        return {"none": 0, "heads": self.heads, "elements": self.v_dim}[self.attention_gate]

    @property
    def kv_width(self) -> int:
        """Width of keys and values of all key-value heads together."""
        return self.kv_heads * (self.head_dim + (self.v_head_dim or self.head_dim))

    @property
    def attention_weights(self) -> int:
        """Matrix elements of one layer's attention projections [parameters].

        GQA: hidden x (q_dim + 2 kv_dim) + v_dim x hidden. MLA: the low-rank factors and the output projection. Both:
        the gate, hidden x gate_dim, and the indexer.
        """
        more = self.hidden * self.gate_dim + self.indexer_weights
        if self.mla is None:
            return self.hidden * (self.q_dim + self.kv_width) + self.v_dim * self.hidden + more
        mla = self.mla
        q = self.hidden * mla.q_rank + mla.q_rank * self.q_dim if mla.q_rank else self.hidden * self.q_dim
        kv = self.hidden * (mla.kv_rank + mla.rope_dim) + mla.kv_rank * self.heads * (mla.nope_dim + mla.v_dim)
        return q + kv + self.v_dim * self.hidden + more

    @property
    def indexer_weights(self) -> int:
        """Matrix elements of the indexer, in the mean of the layers that share it [parameters].

        (q_rank x heads x head_dim + hidden x (head_dim + heads)) / every: queries from the latent ones, one key and a
        weight for each head from the layer's input.

        Source: DeepSeek-V3.2, arXiv 2512.02556, section 2.1.

        >>> from dataclasses import replace
        >>> from optimizer.catalog import load_model
        >>> replace(load_model("deepseek-v3"), indexer=Indexer(heads=64, head_dim=128, top_k=2048)).indexer_weights
        13959168
        """
        if self.indexer is None:
            return 0
        own, queries = self.indexer, (self.mla.q_rank if self.mla else 0) or self.hidden
        return (queries * own.heads * own.head_dim + self.hidden * (own.head_dim + own.heads)) // own.every

    @property
    def attention_vectors(self) -> int:
        """Biases and norm weights inside one layer's attention [parameters]."""
        vectors = 0
        if self.attention_bias:
            vectors += self.q_dim + self.kv_width
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
    def mixer_weights(self) -> int:
        """Matrix elements of what mixes tokens in a layer, of a model of one kind [parameters]."""
        if self.has_attention:
            return self.attention_weights
        return self.state.weights(self.hidden) if self.state else 0

    @property
    def mixer_vectors(self) -> int:
        """Biases, norms and other vectors of what mixes tokens in a layer, of a model of one kind [parameters]."""
        if self.has_attention:
            return self.attention_vectors
        return self.state.vectors if self.state else 0

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

    def mlp_params(self, width: int, hidden: int = 0) -> int:
        """Parameters of an MLP of the given width, biases included [parameters].

        Its input and output are as wide as the model, or `hidden`.

        >>> from optimizer.catalog import load_model
        >>> load_model("llama3-8b").mlp_params(14336)
        176160768
        """
        hidden = hidden or self.hidden
        biases = (self.mlp_matrices - 1) * width + hidden if self.mlp_bias else 0
        return self.mlp_matrices * hidden * width + biases

    @property
    def dense_layer_params(self) -> int:
        """Parameters of one layer without experts, of a model of one kind [parameters]."""
        mlp = 0 if self.feed_forwards == NOTHING else self.mlp_params(self.ffn_hidden)
        return self.mixer_weights + self.mixer_vectors + self.norm_vectors + mlp

    @property
    def expert_params(self) -> int:
        """Parameters of one routed expert [parameters]."""
        return self.mlp_params(self.experts.ffn_hidden, self.experts.latent) if self.experts else 0

    @property
    def moe_shared_params(self) -> int:
        """Parameters of one MoE layer that every token uses: mixer, norms, router, shared experts.

        Of a model of one kind. The router has a row for each expert and one for the shared ones' gate; experts that
        work on a latent width have a projection to it and one back.
        """
        if self.experts is None:
            return 0
        gates = self.experts.count + (1 if self.experts.shared_gate else 0)
        router = self.hidden * gates + (self.experts.count if self.experts.router_bias else 0)
        shared = self.mlp_params(self.experts.shared_ffn_hidden) if self.experts.shared_ffn_hidden else 0
        router += 2 * self.hidden * self.experts.latent
        return self.mixer_weights + self.mixer_vectors + self.norm_vectors + router + shared

    @property
    def layer_params(self) -> int:
        """All parameters of one layer with experts if the model has any, of a model of one kind [parameters]."""
        if self.experts is None or self.feed_forwards in (DENSE_MLP, NOTHING):
            return self.dense_layer_params
        return self.moe_shared_params + self.experts.count * self.expert_params

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
        kinds = self.kinds_with(self.experts is not None)
        count = sum(kind.count for kind in kinds)
        layer = sum(kind.count * kind.model.layer_params for kind in kinds) // count if count else self.layer_params
        return self.mtp_layers * (layer + 2 * self.hidden**2 + 3 * self.norm_params)

    @cached_property
    def params(self) -> int:
        """All parameters, without multi-token-prediction layers [parameters].

        >>> from optimizer.catalog import load_model
        >>> load_model("llama3-8b").params
        8030261248
        """
        layers = 0
        for kind in self.kinds:
            model = kind.model
            layers += kind.count * (model.layer_params if kind.moe else model.dense_layer_params)
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


@dataclass(frozen=True, kw_only=True)
class LayerKind:
    """A kind of layer: what mixes its tokens and what follows, as a model all of whose layers are like that."""

    model: Model  # its fields are those of these layers
    count: int  # layers of this kind
    moe: bool  # these layers have experts


def repeated(letters: str, layers: int) -> str:
    """A letter for each layer, from the first on again after the last.

    >>> repeated("rrra", 6)
    'rrrarr'
    """
    return (letters * (layers // max(len(letters), 1) + 1))[:layers]
