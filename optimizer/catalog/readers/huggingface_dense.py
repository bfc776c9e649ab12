"""Dense families of Hugging Face: the keys of their config.json, and how these become the fields of Model.

First what families share, then those with gated MLPs, then those in the style of GPT-2: LayerNorm, an MLP of two
matrices, mostly with biases.

Defaults are those of each family's published configuration class, which config.json may leave out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from optimizer.catalog.readers.tables import Count, Flag, Natural, Share, Text, Texts, Unsigned
from optimizer.job.model import Model, SlidingWindow

Fields = dict[str, Any]
EPSILON = ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "layernorm_epsilon", "norm_eps")
Numbers = Annotated[tuple[Natural, ...], "a list of whole numbers"]


class Config(BaseModel):
    """The keys of a family: an attribute named as a field of Model is its value, read or always the same.

    `_computed` gives the others; it raises ValueError, naming keys and values, for what Model cannot express.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    rope_base: Unsigned = Field(10_000.0, alias="rope_theta")
    rope_share: Share = Field(1.0, alias="partial_rotary_factor")
    norm_epsilon: Unsigned = Field(1e-5, validation_alias=AliasChoices(*EPSILON))

    def fields(self) -> Fields:
        """Arguments of Model."""
        plain = {field.name: getattr(self, field.name) for field in fields(Model) if hasattr(self, field.name)}
        return plain | self._computed()

    def _computed(self) -> Fields:
        return {}

    @model_validator(mode="after")
    def _expressible(self) -> Config:
        self.fields()
        return self


@dataclass(frozen=True, kw_only=True)
class Family:
    """One model_type: its class in `architectures` and its keys.

    `nested` is the key of the text part in a multimodal model's file.
    """

    architecture: str
    keys: type[Config]
    nested: str = ""


class Decoder(Config):
    """Shapes under the names that most families use."""

    vocab: Count = Field(alias="vocab_size")
    hidden: Count = Field(alias="hidden_size")
    layers: Count = Field(alias="num_hidden_layers")
    heads: Count = Field(alias="num_attention_heads")
    kv_heads: Count | None = Field(None, alias="num_key_value_heads")
    head_dim: Count | None = None
    max_seq_len: Count = Field(alias="max_position_embeddings")
    tied_embeddings: Flag = Field(False, alias="tie_word_embeddings")

    def _computed(self) -> Fields:
        heads, hidden = self.heads, self.hidden
        if self.head_dim is None and hidden % heads:
            raise ValueError(f"{heads} attention heads do not divide the hidden size {hidden}; give head_dim")
        return super()._computed() | {"kv_heads": self.kv_heads or heads, "head_dim": self.head_dim or hidden // heads}


class Gated(Decoder):
    """A decoder in the style of Llama: gated MLP and RMS norms."""

    ffn_hidden: Count = Field(alias="intermediate_size")
    norm_epsilon: Unsigned = Field(1e-6, validation_alias=AliasChoices(*EPSILON))
    activation: Text = Field("silu", alias="hidden_act")
    gated_mlp: ClassVar[bool] = True
    norm: ClassVar[str] = "rms"

    def _computed(self) -> Fields:
        gates = {"swiglu": ("silu", "swish"), "geglu": ("gelu", "gelu_new", "gelu_pytorch_tanh")}
        gate = next((gate for gate, inner in gates.items() if self.activation in inner), self.activation)
        return super()._computed() | {"activation": gate}


class Biased(Config):
    """Biases on all projections of attention, or on none."""

    attention_bias: Flag = False

    def _computed(self) -> Fields:
        return super()._computed() | {"attention_out_bias": self.attention_bias}


class Windowed(Gated):
    """A sliding window, but in the last layer of every `global_every`, or in the layers that layer_types says."""

    sliding_window: Count | None = None
    layer_types: Annotated[Texts | None, "a list of texts"] = None
    global_every: ClassVar[int] = 0

    def _computed(self) -> Fields:
        return super()._computed() | {"window": self._window(self.global_every)}

    def _window(self, global_every: int) -> SlidingWindow | None:
        size = self.sliding_window
        if self.layer_types is not None:
            global_every = period([kind == "full_attention" for kind in self.layer_types])
        if size is None or global_every == 1 or size >= self.max_seq_len:
            return None
        return SlidingWindow(size=size, global_every=global_every)


def period(is_global: Sequence[bool]) -> int:
    """The n for which every n-th layer is global: 0 for none, 1 for all; raises ValueError for another pattern."""
    if not any(is_global):
        return 0
    first = is_global.index(True) + 1
    where = [number for number, kind in enumerate(is_global, start=1) if kind]
    if where != list(range(first, len(is_global) + 1, first)):
        raise ValueError(f"full attention in layers {where} does not recur evenly")
    return first


class Llama(Gated, Biased):
    """Llama 1 to 3."""

    mlp_bias: Flag = False


class QwenWindow(Windowed):
    """Qwen's window, in the layers from max_window_layers on, if it is in use at all."""

    use_sliding_window: Flag = False
    max_window_layers: Natural = 0

    def _window(self, global_every: int) -> SlidingWindow | None:
        full = self.max_window_layers if self.layer_types is None else 0
        if not self.use_sliding_window or self.sliding_window is None or full >= self.layers:
            return None
        if full:
            raise ValueError(
                f"max_window_layers = {full} of {self.layers} layers: full attention in the first ones only"
            )
        return super()._window(global_every)


class Qwen2(QwenWindow):
    """Qwen2 and Qwen2.5: biases on queries, keys and values only."""

    attention_bias: ClassVar[bool] = True


class Qwen3(QwenWindow, Biased):
    """Qwen3: norms on queries and keys."""

    head_dim: Count = 128
    qk_norm: ClassVar[bool] = True


class Gemma(Gated):
    """Gemma 1."""

    head_dim: Count = 256
    tied_embeddings: Flag = Field(True, alias="tie_word_embeddings")
    activation: Text = Field("gelu_pytorch_tanh", alias="hidden_act")


class Gemma2(Gemma, Windowed):
    """Gemma 2: norms before and after each block, a window in every other layer."""

    sliding_window: Count = 4096
    global_every: ClassVar[int] = 2
    norms_per_layer: ClassVar[int] = 4


class Gemma3(Gemma2):
    """Gemma 3: as Gemma 2, with norms on queries and keys and five local layers per global one."""

    vocab: Count = Field(262208, alias="vocab_size")
    heads: Count = Field(8, alias="num_attention_heads")
    kv_heads: Count = Field(4, alias="num_key_value_heads")
    max_seq_len: Count = Field(131072, alias="max_position_embeddings")
    rope_base: Unsigned = Field(1_000_000.0, alias="rope_theta")
    pattern: Count = Field(6, validation_alias=AliasChoices("sliding_window_pattern", "_sliding_window_pattern"))
    qk_norm: ClassVar[bool] = True

    def _computed(self) -> Fields:
        return super()._computed() | {"window": self._window(self.pattern)}


class Glm(Gated):
    """GLM-4 9B: biases on queries, keys and values only."""

    head_dim: Count = 128
    attention_bias: Flag = False


class Glm4(Glm):
    """GLM-4-0414: norms before and after each block."""

    norms_per_layer: ClassVar[int] = 4


class Olmo(Gated, Biased):
    """OLMo 1: norms without weights."""

    norm: ClassVar[str] = "layer-plain"


class Olmo2(Gated, Biased):
    """OLMo 2: norms after each block, and over all heads of the queries and of the keys."""

    qk_norm: ClassVar[bool] = True
    qk_norm_full: ClassVar[bool] = True


GATED: dict[str, Family] = {
    "llama": Family(architecture="LlamaForCausalLM", keys=Llama),
    "mistral": Family(architecture="MistralForCausalLM", keys=Windowed),
    "phi3": Family(architecture="Phi3ForCausalLM", keys=Windowed),
    "qwen2": Family(architecture="Qwen2ForCausalLM", keys=Qwen2),
    "qwen3": Family(architecture="Qwen3ForCausalLM", keys=Qwen3),
    "gemma": Family(architecture="GemmaForCausalLM", keys=Gemma),
    "gemma2": Family(architecture="Gemma2ForCausalLM", keys=Gemma2),
    "gemma3_text": Family(architecture="Gemma3ForCausalLM", keys=Gemma3),
    "gemma3": Family(architecture="Gemma3ForConditionalGeneration", keys=Gemma3, nested="text_config"),
    "glm": Family(architecture="GlmForCausalLM", keys=Glm),
    "glm4": Family(architecture="Glm4ForCausalLM", keys=Glm4),
    "olmo": Family(architecture="OlmoForCausalLM", keys=Olmo),
    "olmo2": Family(architecture="Olmo2ForCausalLM", keys=Olmo2),
}


class AllBiased(Config):
    """Biases on every projection."""

    attention_bias: ClassVar[bool] = True
    attention_out_bias: ClassVar[bool] = True
    mlp_bias: ClassVar[bool] = True


class Classic(Decoder):
    """An MLP of four times the width unless given; GELU in all its approximations is one activation."""

    ffn_hidden: Count | None = Field(None, alias="intermediate_size")
    tied_embeddings: Flag = Field(True, alias="tie_word_embeddings")
    activation: Text = Field("gelu", alias="hidden_act")

    def _computed(self) -> Fields:
        return super()._computed() | {
            "ffn_hidden": self.ffn_hidden or 4 * self.hidden,
            "activation": "gelu" if "gelu" in self.activation else self.activation,
        }


class Gpt2(Classic, AllBiased):
    """GPT-2: one key-value head per head, learned positions."""

    hidden: Count = Field(alias="n_embd")
    layers: Count = Field(alias="n_layer")
    heads: Count = Field(alias="n_head")
    max_seq_len: Count = Field(alias="n_positions")
    ffn_hidden: Count | None = Field(None, alias="n_inner")
    activation: Text = Field("gelu_new", alias="activation_function")
    position: ClassVar[str] = "learned"


class GptNeox(Classic, Biased):
    """GPT-NeoX and Pythia: attention and MLP side by side, each after its own norm."""

    rope_base: Unsigned = Field(10_000.0, alias="rotary_emb_base")
    rope_share: Share = Field(0.25, alias="rotary_pct")
    ffn_hidden: Count = Field(alias="intermediate_size")
    tied_embeddings: Flag = Field(False, alias="tie_word_embeddings")
    attention_bias: Flag = True
    parallel_block: Flag = Field(True, alias="use_parallel_residual")
    mlp_bias: ClassVar[bool] = True


class Opt(Classic, Biased):
    """OPT, whose position table has two more rows than positions."""

    ffn_hidden: Count = Field(alias="ffn_dim")
    word_embed_proj_dim: Count | None = None
    do_layer_norm_before: Flag = True
    attention_bias: Flag = Field(True, alias="enable_bias")
    activation: Text = Field("relu", alias="activation_function")
    position: ClassVar[str] = "learned"
    extra_positions: ClassVar[int] = 2

    def _computed(self) -> Fields:
        if (width := self.word_embed_proj_dim or self.hidden) != self.hidden:
            raise ValueError(f"word_embed_proj_dim = {width} differs from hidden_size = {self.hidden} (OPT-350M)")
        if not self.do_layer_norm_before:
            raise ValueError("do_layer_norm_before = false (norms after the blocks) is not supported")
        return super()._computed() | {"mlp_bias": self.attention_bias}


class Bloom(Classic, AllBiased):
    """BLOOM: ALiBi instead of position embeddings, a norm after the word embedding."""

    hidden: Count = Field(validation_alias=AliasChoices("hidden_size", "n_embed"))
    layers: Count = Field(validation_alias=AliasChoices("num_hidden_layers", "n_layer"))
    heads: Count = Field(validation_alias=AliasChoices("num_attention_heads", "n_head"))
    max_seq_len: Count = Field(2048, alias="seq_length")
    position: ClassVar[str] = "alibi"
    embedding_norm: ClassVar[bool] = True


class Falcon(Classic, Biased):
    """Falcon: attention and MLP side by side, after one shared norm (7B) or two (40B and up)."""

    max_seq_len: Count = Field(2048, alias="max_position_embeddings")
    kv_heads: Count | None = Field(None, alias="num_kv_heads")
    ffn_hidden: Count | None = Field(None, alias="ffn_hidden_size")
    activation: Text = "gelu"
    attention_bias: Flag = Field(False, alias="bias")
    alibi: Flag = False
    multi_query: Flag = True
    parallel_attn: Flag = True
    new_decoder_architecture: Flag = False
    num_ln_in_parallel_attn: Count | None = None

    def _computed(self) -> Fields:
        computed, new = super()._computed(), self.new_decoder_architecture
        norms = self.num_ln_in_parallel_attn or (1 if self.parallel_attn and not new else 2)
        return computed | {
            "kv_heads": computed["kv_heads"] if new else 1 if self.multi_query else self.heads,
            "mlp_bias": self.attention_bias,
            "position": "alibi" if self.alibi else "rope",
            "parallel_block": self.parallel_attn or new,
            "norms_per_layer": 1 if norms == 1 else 2,
        }


class Phi(Classic, AllBiased):
    """Phi-1, 1.5 and 2: attention and MLP side by side after one norm, biases everywhere."""

    ffn_hidden: Count = Field(alias="intermediate_size")
    tied_embeddings: Flag = Field(False, alias="tie_word_embeddings")
    activation: Text = Field("gelu_new", alias="hidden_act")
    qk_layernorm: Flag = False
    head_bias: ClassVar[bool] = True
    parallel_block: ClassVar[bool] = True
    norms_per_layer: ClassVar[int] = 1

    def _computed(self) -> Fields:
        if self.qk_layernorm:
            raise ValueError("qk_layernorm = true is not supported for phi")
        return super()._computed()


class Nemotron(Decoder, Biased):
    """Nemotron-4 and Minitron: squared ReLU, LayerNorm with weights centred at 1."""

    ffn_hidden: Count = Field(alias="intermediate_size")
    activation: Text = Field("relu2", alias="hidden_act")
    mlp_bias: Flag = False
    rope_share: Share = Field(0.5, alias="partial_rotary_factor")
    norm: ClassVar[str] = "layer1p"


CLASSIC: dict[str, Family] = {
    "gpt2": Family(architecture="GPT2LMHeadModel", keys=Gpt2),
    "gpt_neox": Family(architecture="GPTNeoXForCausalLM", keys=GptNeox),
    "opt": Family(architecture="OPTForCausalLM", keys=Opt),
    "bloom": Family(architecture="BloomForCausalLM", keys=Bloom),
    "falcon": Family(architecture="FalconForCausalLM", keys=Falcon),
    "phi": Family(architecture="PhiForCausalLM", keys=Phi),
    "nemotron": Family(architecture="NemotronForCausalLM", keys=Nemotron),
}
