"""Families of Hugging Face in the style of GPT-2: LayerNorm, an MLP of two matrices, mostly with biases."""

from __future__ import annotations

from typing import ClassVar

from pydantic import AliasChoices, Field

from optimizer.catalog.readers.huggingface_keys import Biased, Config, Decoder, Family, Fields
from optimizer.catalog.readers.tables import Count, Flag, Share, Text, Unsigned


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
