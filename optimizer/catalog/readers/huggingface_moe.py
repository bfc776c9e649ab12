"""MoE families of Hugging Face: the keys of their config.json and what they mean."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import AliasChoices, Field

from optimizer.catalog.readers.huggingface_dense import (
    Biased,
    Config,
    Decoder,
    Family,
    Fields,
    Gated,
    Numbers,
    Qwen2,
    Qwen3,
    QwenWindow,
    Windowed,
    period,
)
from optimizer.catalog.readers.tables import Count, Flag, Natural, Text, Unsigned
from optimizer.job.model import Experts, LatentAttention, SlidingWindow


class MoeConfig(Config):
    """Experts, in every layer and as wide as a dense MLP unless a family says otherwise."""

    ffn_hidden: Count = Field(alias="intermediate_size")
    expert_count: Count = Field(alias="num_local_experts")
    top_k: Count = Field(alias="num_experts_per_tok")

    def _computed(self) -> Fields:
        return super()._computed() | {"experts": self._experts(ffn_hidden=self.ffn_hidden)}

    def _experts(self, **own: Any) -> Experts:
        return Experts(count=self.expert_count, top_k=self.top_k, **own)


class Mixtral(Windowed, MoeConfig):
    """Mixtral: every layer has experts."""


class QwenExperts(QwenWindow, MoeConfig):
    """Experts in the last layer of every decoder_sparse_step, but for the dense layers listed."""

    expert_count: Count = Field(alias="num_experts")
    expert_hidden: Count = Field(alias="moe_intermediate_size")
    decoder_sparse_step: Count = 1
    mlp_only_layers: Numbers = ()

    def _experts(self, **own: Any) -> Experts:
        dense, every = sorted(self.mlp_only_layers), self.decoder_sparse_step
        if dense != list(range(len(dense))) or (dense and every > 1):
            raise ValueError(f"mlp_only_layers = {dense} with decoder_sparse_step = {every} are not the first layers")
        own |= {"ffn_hidden": self.expert_hidden, "first_dense_layers": len(dense), "every": every}
        return super()._experts(**own)


class Qwen2Moe(QwenExperts, Qwen2):
    """Qwen1.5-MoE and Qwen2-57B-A14B: gated shared experts."""

    shared_hidden: Count = Field(alias="shared_expert_intermediate_size")
    norm_topk_prob: Flag = False

    def _experts(self, **own: Any) -> Experts:
        own |= {"shared_ffn_hidden": self.shared_hidden, "shared_gate": True}
        return super()._experts(**own, router="softmax" if self.norm_topk_prob else "pre-softmax")


class Qwen3Moe(QwenExperts, Qwen3):
    """Qwen3-30B-A3B, 235B-A22B and Coder: no shared experts."""


class Routed(Gated, MoeConfig):
    """Routed and shared experts of one width, after the first dense layers."""

    expert_count: Count = Field(alias="n_routed_experts")
    n_shared_experts: Natural | None = None
    expert_hidden: Count = Field(alias="moe_intermediate_size")
    first_k_dense_replace: Natural = 0
    moe_layer_freq: Count = 1
    mtp_layers: Natural = Field(0, alias="num_nextn_predict_layers")
    attention_bias: Flag = False
    topk_method: Text = "noaux_tc"
    n_group: Natural | None = None
    topk_group: Natural | None = None

    def _experts(self, **own: Any) -> Experts:
        if self.moe_layer_freq != 1:
            raise ValueError(f"moe_layer_freq = {self.moe_layer_freq}; only 1 is supported")
        # Groups of experts of which a token may use some; none where it may use all.
        groups, limit = self.n_group or 0, self.topk_group or 0
        return super()._experts(
            ffn_hidden=self.expert_hidden,
            shared_ffn_hidden=self.expert_hidden * (self.n_shared_experts or 0),
            first_dense_layers=self.first_k_dense_replace,
            router="sigmoid" if self.topk_method == "noaux_tc" else "pre-softmax",
            router_bias=self.topk_method == "noaux_tc",
            **({"groups": groups, "group_limit": limit} if 0 < limit < groups else {}),
        )


class Glm4Moe(Routed):
    """GLM-4.5: DeepSeek's experts with grouped-query attention."""

    qk_norm: Flag = Field(False, alias="use_qk_norm")


class DeepSeek(Routed):
    """DeepSeek-V3, R1 and Kimi K2: latent attention, the first layers dense."""

    q_lora_rank: Count | None = None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    head_dim: Count = Field(alias="v_head_dim")

    def _computed(self) -> Fields:
        if self.attention_bias:
            raise ValueError("attention_bias = true is not supported with latent attention")
        mla = LatentAttention(
            q_rank=self.q_lora_rank or 0,
            kv_rank=self.kv_lora_rank,
            nope_dim=self.qk_nope_head_dim,
            rope_dim=self.qk_rope_head_dim,
            v_dim=self.head_dim,
        )
        return super()._computed() | {"kv_heads": self.heads, "mla": mla}


class DeepSeekV2(DeepSeek):
    """DeepSeek-V2, whose routers have no bias unless said."""

    topk_method: Text = "greedy"


class DbrxAttention(Config):
    """The part attn_config of DBRX."""

    kv_n_heads: Count
    rope_theta: Unsigned = 10_000.0


class DbrxExperts(Config):
    """The part ffn_config of DBRX."""

    ffn_hidden_size: Count
    moe_num_experts: Count
    moe_top_k: Count


class Dbrx(Decoder):
    """DBRX: gated experts in every layer, LayerNorm without biases."""

    hidden: Count = Field(alias="d_model")
    layers: Count = Field(alias="n_layers")
    heads: Count = Field(alias="n_heads")
    max_seq_len: Count = Field(alias="max_seq_len")
    attn_config: DbrxAttention
    ffn_config: DbrxExperts
    gated_mlp: ClassVar[bool] = True
    activation: ClassVar[str] = "swiglu"
    norm_bias: ClassVar[bool] = False

    def _computed(self) -> Fields:
        ffn, width = self.ffn_config, self.ffn_config.ffn_hidden_size
        return super()._computed() | {
            "kv_heads": self.attn_config.kv_n_heads,
            "rope_base": self.attn_config.rope_theta,
            "ffn_hidden": width,
            "experts": Experts(count=ffn.moe_num_experts, top_k=ffn.moe_top_k, ffn_hidden=width),
        }


class Grok(Decoder, MoeConfig):
    """Grok-1: norms before and after each block, experts in every layer."""

    expert_count: Count = Field(alias="num_experts")
    tied_embeddings: Flag = Field(True, alias="tie_word_embeddings")
    gated_mlp: ClassVar[bool] = True
    activation: ClassVar[str] = "geglu"
    norm: ClassVar[str] = "rms"
    norms_per_layer: ClassVar[int] = 4


class GptOss(Windowed, MoeConfig, Biased):
    """gpt-oss: biases everywhere, attention sinks, a clamped activation, a window in every other layer."""

    top_k: Count = Field(validation_alias=AliasChoices("num_experts_per_tok", "experts_per_token"))
    attention_bias: Flag = True
    global_every: ClassVar[int] = 2
    attention_sinks: ClassVar[bool] = True
    mlp_bias: ClassVar[bool] = True

    def _computed(self) -> Fields:
        return super()._computed() | {"activation": "clamped-swiglu"}

    def _experts(self, **own: Any) -> Experts:
        return super()._experts(**own, router_bias=True)


class Llama4(Gated, MoeConfig, Biased):
    """Llama 4: one shared expert, experts in every or every other layer, chunked attention but for some layers.

    A chunk is taken as a window of its size.
    """

    ffn_hidden: Count = Field(alias="intermediate_size_mlp")
    expert_hidden: Count = Field(alias="intermediate_size")
    interleave_moe_layer_step: Count = 1
    attention_chunk_size: Count = 8192
    no_rope_layers: Numbers = ()
    no_rope_layer_interval: Count = 4

    def _computed(self) -> Fields:
        rotary = self.no_rope_layers
        every = period([not flag for flag in rotary]) if rotary else self.no_rope_layer_interval
        return super()._computed() | {"window": SlidingWindow(size=self.attention_chunk_size, global_every=every)}

    def _experts(self, **own: Any) -> Experts:
        width, every = self.expert_hidden, self.interleave_moe_layer_step
        return super()._experts(ffn_hidden=width, shared_ffn_hidden=width, every=every, router="sigmoid")


MOE: dict[str, Family] = {
    "mixtral": Family(architecture="MixtralForCausalLM", keys=Mixtral),
    "qwen2_moe": Family(architecture="Qwen2MoeForCausalLM", keys=Qwen2Moe),
    "qwen3_moe": Family(architecture="Qwen3MoeForCausalLM", keys=Qwen3Moe),
    "deepseek_v2": Family(architecture="DeepseekV2ForCausalLM", keys=DeepSeekV2),
    "deepseek_v3": Family(architecture="DeepseekV3ForCausalLM", keys=DeepSeek),
    "kimi_k2": Family(architecture="KimiK2ForCausalLM", keys=DeepSeek),
    "glm4_moe": Family(architecture="Glm4MoeForCausalLM", keys=Glm4Moe),
    "dbrx": Family(architecture="DbrxForCausalLM", keys=Dbrx),
    "grok-1": Family(architecture="Grok1ModelForCausalLM", keys=Grok),
    "gpt_oss": Family(architecture="GptOssForCausalLM", keys=GptOss),
    "llama4_text": Family(architecture="Llama4ForCausalLM", keys=Llama4),
    "llama4": Family(architecture="Llama4ForConditionalGeneration", keys=Llama4, nested="text_config"),
}
