"""Mixture-of-experts families of Hugging Face: the keys of their config.json and what they mean."""

from __future__ import annotations

from optimizer.model import Experts, LatentAttention, SlidingWindow
from optimizer.readers.huggingface_dense import (
    COUNT,
    DECODER,
    FLAG_OFF,
    FLAG_ON,
    MAYBE_COUNT,
    QWEN_SLIDING,
    SLIDING,
    Config,
    Family,
    Fields,
    Unsupported,
    count,
    decoder,
    gated_rms,
    head_dim,
    mistral,
    period,
    qwen2,
    qwen3,
    text,
    window,
)
from optimizer.readers.keys import Key


def mixtral(config: Config) -> Fields:
    """Mixtral: every layer has experts."""
    experts = Experts(
        count=config["num_local_experts"],
        top_k=config["num_experts_per_tok"],
        ffn_hidden=config["intermediate_size"],
    )
    return mistral(config) | {"experts": experts}


def qwen_experts(config: Config, shared: int = 0) -> Experts:
    """Experts in the last layer of every decoder_sparse_step, but for the dense layers listed."""
    dense, every = sorted(config["mlp_only_layers"]), config["decoder_sparse_step"]
    if dense != list(range(len(dense))) or (dense and every > 1):
        raise Unsupported(f"mlp_only_layers = {dense} with decoder_sparse_step = {every} are not the first layers")
    return Experts(
        count=config["num_experts"],
        top_k=config["num_experts_per_tok"],
        ffn_hidden=config["moe_intermediate_size"],
        shared_ffn_hidden=shared,
        shared_gate=bool(shared),
        first_dense_layers=len(dense),
        every=every,
    )


def qwen2_moe(config: Config) -> Fields:
    """Qwen1.5-MoE and Qwen2-57B-A14B: gated shared experts."""
    return qwen2(config) | {"experts": qwen_experts(config, config["shared_expert_intermediate_size"])}


def qwen3_moe(config: Config) -> Fields:
    """Qwen3-30B-A3B, 235B-A22B and Coder: no shared experts."""
    return qwen3(config) | {"experts": qwen_experts(config)}


def deepseek(config: Config) -> Fields:
    """DeepSeek-V2, V3, R1 and Kimi K2: latent attention, the first layers dense."""
    if config["attention_bias"]:
        raise Unsupported("attention_bias = true is not supported with latent attention")
    mla = LatentAttention(
        q_rank=config["q_lora_rank"] or 0,
        kv_rank=config["kv_lora_rank"],
        nope_dim=config["qk_nope_head_dim"],
        rope_dim=config["qk_rope_head_dim"],
        v_dim=config["v_head_dim"],
    )
    shapes = gated_rms(config) | {"kv_heads": config["num_attention_heads"], "head_dim": config["v_head_dim"]}
    return shapes | {
        "mla": mla,
        "experts": routed_experts(config, router_bias=config["topk_method"] == "noaux_tc"),
        "mtp_layers": config["num_nextn_predict_layers"],
    }


def glm4_moe(config: Config) -> Fields:
    """GLM-4.5: DeepSeek's experts with grouped-query attention."""
    return gated_rms(config) | {
        "attention_bias": config["attention_bias"],
        "qk_norm": config["use_qk_norm"],
        "experts": routed_experts(config, router_bias=True),
        "mtp_layers": config["num_nextn_predict_layers"],
    }


def routed_experts(config: Config, router_bias: bool) -> Experts:
    """Routed and shared experts of one width, after the first dense layers."""
    if config["moe_layer_freq"] != 1:
        raise Unsupported(f"moe_layer_freq = {config['moe_layer_freq']}; only 1 is supported")
    width = config["moe_intermediate_size"]
    return Experts(
        count=config["n_routed_experts"],
        top_k=config["num_experts_per_tok"],
        ffn_hidden=width,
        shared_ffn_hidden=width * (config["n_shared_experts"] or 0),
        first_dense_layers=config["first_k_dense_replace"],
        router_bias=router_bias,
    )


def dbrx(config: Config) -> Fields:
    """DBRX: gated experts in every layer, LayerNorm without biases."""
    width, hidden = config["ffn_config.ffn_hidden_size"], config["d_model"]
    experts = Experts(
        count=config["ffn_config.moe_num_experts"], top_k=config["ffn_config.moe_top_k"], ffn_hidden=width
    )
    return {
        "vocab": config["vocab_size"],
        "hidden": hidden,
        "ffn_hidden": width,
        "layers": config["n_layers"],
        "heads": config["n_heads"],
        "kv_heads": config["attn_config.kv_n_heads"],
        "head_dim": head_dim(hidden, config["n_heads"]),
        "max_seq_len": config["max_seq_len"],
        "tied_embeddings": config["tie_word_embeddings"],
        "gated_mlp": True,
        "activation": "swiglu",
        "norm_bias": False,
        "experts": experts,
    }


def grok(config: Config) -> Fields:
    """Grok-1: norms before and after each block, experts in every layer."""
    shapes = decoder(config) | {"gated_mlp": True, "activation": "geglu", "norm": "rms", "norms_per_layer": 4}
    width = config["intermediate_size"]
    return shapes | {
        "experts": Experts(count=config["num_experts"], top_k=config["num_experts_per_tok"], ffn_hidden=width)
    }


def gpt_oss(config: Config) -> Fields:
    """gpt-oss: biases everywhere, attention sinks, a clamped activation, a window in every other layer."""
    experts = Experts(
        count=config["num_local_experts"],
        top_k=config["num_experts_per_tok"],
        ffn_hidden=config["intermediate_size"],
        router_bias=True,
    )
    return (
        gated_rms(config)
        | window(config["sliding_window"], config, 2)
        | {
            "activation": "clamped-swiglu",
            "attention_bias": config["attention_bias"],
            "attention_out_bias": config["attention_bias"],
            "attention_sinks": True,
            "mlp_bias": True,
            "experts": experts,
        }
    )


def llama4(config: Config) -> Fields:
    """Llama 4: one shared expert, experts in every or every other layer, chunked attention but for some layers.

    A chunk is taken as a window of its size.
    """
    rotary = config["no_rope_layers"]
    every = period([not flag for flag in rotary]) if rotary else config["no_rope_layer_interval"]
    width = config["intermediate_size"]
    return gated_rms(config) | {
        "ffn_hidden": config["intermediate_size_mlp"],
        "attention_bias": config["attention_bias"],
        "attention_out_bias": config["attention_bias"],
        "window": SlidingWindow(size=config["attention_chunk_size"], global_every=every),
        "experts": Experts(
            count=config["num_local_experts"],
            top_k=config["num_experts_per_tok"],
            ffn_hidden=width,
            shared_ffn_hidden=width,
            every=config["interleave_moe_layer_step"],
        ),
    }


_LOCAL = {"num_local_experts": COUNT, "num_experts_per_tok": COUNT}
_QWEN = QWEN_SLIDING | {
    "num_experts": COUNT,
    "num_experts_per_tok": COUNT,
    "moe_intermediate_size": COUNT,
    "decoder_sparse_step": count(1),
    "mlp_only_layers": Key(kind="numbers", default=()),
}
_ROUTED = {
    "n_routed_experts": COUNT,
    "n_shared_experts": Key(kind="number", default=None),
    "num_experts_per_tok": COUNT,
    "moe_intermediate_size": COUNT,
    "first_k_dense_replace": Key(kind="number", default=0),
    "moe_layer_freq": count(1),
    "num_nextn_predict_layers": Key(kind="number", default=0),
}
_DEEPSEEK = (
    DECODER
    | _ROUTED
    | {
        "q_lora_rank": MAYBE_COUNT,
        "kv_lora_rank": COUNT,
        "qk_nope_head_dim": COUNT,
        "qk_rope_head_dim": COUNT,
        "v_head_dim": COUNT,
    }
)
_DEEPSEEK_V3 = _DEEPSEEK | {"topk_method": text("noaux_tc")}
_LLAMA4 = DECODER | {
    "intermediate_size_mlp": COUNT,
    "num_local_experts": COUNT,
    "num_experts_per_tok": COUNT,
    "interleave_moe_layer_step": count(1),
    "attention_chunk_size": count(8192),
    "no_rope_layers": Key(kind="numbers", default=()),
    "no_rope_layer_interval": count(4),
}

MOE: dict[str, Family] = {
    "mixtral": Family(architecture="MixtralForCausalLM", keys=DECODER | SLIDING | _LOCAL, fields=mixtral),
    "qwen2_moe": Family(
        architecture="Qwen2MoeForCausalLM",
        keys=DECODER | _QWEN | {"shared_expert_intermediate_size": COUNT},
        fields=qwen2_moe,
    ),
    "qwen3_moe": Family(architecture="Qwen3MoeForCausalLM", keys=DECODER | _QWEN, fields=qwen3_moe),
    "deepseek_v2": Family(
        architecture="DeepseekV2ForCausalLM", keys=_DEEPSEEK | {"topk_method": text("greedy")}, fields=deepseek
    ),
    "deepseek_v3": Family(architecture="DeepseekV3ForCausalLM", keys=_DEEPSEEK_V3, fields=deepseek),
    "kimi_k2": Family(architecture="KimiK2ForCausalLM", keys=_DEEPSEEK_V3, fields=deepseek),
    "glm4_moe": Family(
        architecture="Glm4MoeForCausalLM", keys=DECODER | _ROUTED | {"use_qk_norm": FLAG_OFF}, fields=glm4_moe
    ),
    "dbrx": Family(
        architecture="DbrxForCausalLM",
        keys={
            "vocab_size": COUNT,
            "d_model": COUNT,
            "n_layers": COUNT,
            "n_heads": COUNT,
            "max_seq_len": COUNT,
            "attn_config.kv_n_heads": COUNT,
            "ffn_config.ffn_hidden_size": COUNT,
            "ffn_config.moe_num_experts": COUNT,
            "ffn_config.moe_top_k": COUNT,
            "tie_word_embeddings": FLAG_OFF,
        },
        fields=dbrx,
    ),
    "grok-1": Family(
        architecture="Grok1ModelForCausalLM",
        keys=DECODER | {"num_experts": COUNT, "num_experts_per_tok": COUNT, "tie_word_embeddings": FLAG_ON},
        fields=grok,
    ),
    "gpt_oss": Family(
        architecture="GptOssForCausalLM",
        keys=DECODER
        | SLIDING
        | {
            "num_local_experts": COUNT,
            "num_experts_per_tok": Key(kind="count", names=("experts_per_token",)),
            "attention_bias": FLAG_ON,
        },
        fields=gpt_oss,
    ),
    "llama4_text": Family(architecture="Llama4ForCausalLM", keys=_LLAMA4, fields=llama4),
    "llama4": Family(architecture="Llama4ForConditionalGeneration", keys=_LLAMA4, fields=llama4, nested="text_config"),
}
