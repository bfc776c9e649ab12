"""A model as Megatron-LM's arguments describe it, or why they cannot.

Source of names and meaning: NVIDIA/Megatron-LM core_v0.19.0, megatron/training/arguments.py, transformer_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.job.model import Experts, Model

ACTIVATIONS: Mapping[str, dict[str, str | None]] = {
    "gelu": {},
    "swiglu": {"--swiglu": None},
    "squared-relu": {"--squared-relu": None},
    "relu2": {"--squared-relu": None},
    "quick-geglu": {"--quick-geglu": None},
    "clamped-swiglu": {
        "--quick-geglu": None,
        "--glu-linear-offset": "1.0",
        "--activation-func-clamp-value": "7.0",
    },
}
POSITIONS: Mapping[str, str] = {"rope": "rope", "learned": "learned_absolute", "none": "none"}
NORMS: Mapping[str, dict[str, str | None]] = {
    "layer": {"--normalization": "LayerNorm"},
    "layer1p": {"--normalization": "LayerNorm", "--apply-layernorm-1p": None},
    "rms": {"--normalization": "RMSNorm"},
}
ROUTERS: Mapping[str, dict[str, str | None]] = {
    "softmax": {},
    "pre-softmax": {"--moe-router-pre-softmax": None},
    "sigmoid": {"--moe-router-score-function": "sigmoid"},
}


def lacking(model: Model) -> tuple[str, ...]:
    """What of a model Megatron-LM does not have, in words; nothing where its arguments describe it.

    >>> from optimizer.catalog import load_model
    >>> lacking(load_model("llama3-8b")), lacking(load_model("falcon-7b"))
    ((), ('attention and MLP side by side (parallel blocks)',))
    """
    attention_out = model.attention_out_bias == model.mlp_bias
    attention_in = model.attention_bias or not model.mlp_bias
    missing = {
        f"the activation {model.activation}": model.activation not in ACTIVATIONS,
        f"{model.position} positions": model.position not in POSITIONS,
        f"{model.extra_positions} rows of positions beyond the sequence": model.extra_positions > 0,
        f"the norm {model.norm}": model.norm not in NORMS,
        f"{model.norms_per_layer} norms per layer": model.norms_per_layer != 2 and not model.parallel_block,
        "norms over all heads of the queries and keys": model.qk_norm_full,
        "attention and MLP side by side (parallel blocks)": model.parallel_block,
        "a norm behind the embedding": model.embedding_norm,
        "a bias of the output head": model.head_bias,
        "biases of some linear layers only": not (attention_out and attention_in),
        "biases of the router alone, or of all but the router": (
            model.experts is not None and _learned_router_bias(model) != model.mlp_bias
        ),
    }
    return tuple(what for what, holds in missing.items() if holds)


def differing(model: Model) -> tuple[str, ...]:
    """What Megatron-LM adds to a model that it otherwise has, in words.

    >>> from optimizer.catalog import load_model
    >>> differing(load_model("dbrx"))
    ('every LayerNorm has a bias there, which the model has not',)
    """
    plain = model.norm.startswith("layer") and not model.norm_bias and model.norm in NORMS
    return ("every LayerNorm has a bias there, which the model has not",) * plain


def model_flags(model: Model, seq_len: int = 0) -> dict[str, str | None]:
    """Shape and numerics of the model, for sequences of `seq_len` tokens."""
    flags: dict[str, str | None] = {
        "--num-layers": str(model.layers),
        "--hidden-size": str(model.hidden),
        "--ffn-hidden-size": str(model.ffn_hidden),
        "--num-attention-heads": str(model.heads),
    }
    if model.kv_heads != model.heads and model.mla is None:
        flags |= {"--group-query-attention": None, "--num-query-groups": str(model.kv_heads)}
    if model.mla is None and model.head_dim * model.heads != model.hidden:
        flags["--kv-channels"] = str(model.head_dim)
    flags |= ACTIVATIONS[model.activation] | NORMS[model.norm]
    flags |= {"--norm-epsilon": f"{model.norm_epsilon:g}", "--position-embedding-type": POSITIONS[model.position]}
    if model.position == "rope":
        flags |= {"--rotary-base": f"{model.rope_base:.0f}", "--rotary-percent": f"{model.rope_share:g}"}
    flags["--max-position-embeddings"] = str(max(model.max_seq_len, seq_len))
    flags["--vocab-size"] = str(model.vocab)
    switches = {
        "--untie-embeddings-and-output-weights": not model.tied_embeddings,
        "--disable-bias-linear": not model.mlp_bias,
        "--add-qkv-bias": model.attention_bias and not model.mlp_bias,
        "--qk-layernorm": model.qk_norm or model.mla is not None,
    }
    flags |= {flag: None for flag, on in switches.items() if on}
    if model.attention_sinks:
        flags["--softmax-type"] = "learnable"
    if model.window:
        flags["--window-size"] = f"{model.window.size},0"
        if model.window.global_every:
            flags["--window-attn-skip-freq"] = str(model.window.global_every)
    return flags | latent_attention_flags(model) | (expert_flags(model.layers, model.experts) if model.experts else {})


def latent_attention_flags(model: Model) -> dict[str, str | None]:
    """Multi-head latent attention, its norms on the low ranks among others, and multi-token prediction."""
    flags: dict[str, str | None] = {}
    if model.mla:
        flags["--multi-latent-attention"] = None
        if model.mla.q_rank:
            flags["--q-lora-rank"] = str(model.mla.q_rank)
        flags |= {
            "--kv-lora-rank": str(model.mla.kv_rank),
            "--qk-head-dim": str(model.mla.nope_dim),
            "--qk-pos-emb-head-dim": str(model.mla.rope_dim),
            "--v-head-dim": str(model.mla.v_dim),
            "--rope-type": "rope",
            "--no-rope-fusion": None,  # which latent attention has with YaRN only
        }
    if model.mtp_layers:
        flags["--mtp-num-layers"] = str(model.mtp_layers)
    return flags


def expert_flags(layers: int, experts: Experts) -> dict[str, str | None]:
    """Mixture of experts: sizes, routing, and which layers have it; a single expert is scored before the choice."""
    flags: dict[str, str | None] = {
        "--num-experts": str(experts.count),
        "--moe-router-topk": str(experts.top_k),
        "--moe-ffn-hidden-size": str(experts.ffn_hidden),
        "--moe-grouped-gemm": None,
    }
    flags |= ROUTERS["pre-softmax" if experts.router == "softmax" and experts.top_k == 1 else experts.router]
    if experts.router_bias and experts.router == "sigmoid":
        flags["--moe-router-enable-expert-bias"] = None
    if experts.group_limit:
        flags |= {
            "--moe-router-num-groups": str(experts.groups),
            "--moe-router-group-topk": str(experts.group_limit),
        }
    if experts.shared_ffn_hidden:
        flags["--moe-shared-expert-intermediate-size"] = str(experts.shared_ffn_hidden)
    if experts.shared_gate:
        flags["--moe-shared-expert-gate"] = None
    if experts.first_dense_layers or experts.every > 1:
        flags["--moe-layer-freq"] = layer_pattern(layers, experts)
    return flags


def _learned_router_bias(model: Model) -> bool:
    """Whether routers add a learned bias to their logits, as gpt-oss's do; that of sigmoid routers balances experts."""
    return model.experts is not None and model.experts.router_bias and model.experts.router != "sigmoid"


def layer_pattern(layers: int, experts: Experts) -> str:
    """Which layers are mixtures, as the Python list that --moe-layer-freq evaluates: 1 marks a mixture.

    >>> from optimizer.job.model import Experts
    >>> layer_pattern(61, Experts(count=256, top_k=8, ffn_hidden=2048, first_dense_layers=3))
    '([0]*3+[1]*58)'
    """
    dense, every = experts.first_dense_layers, experts.every
    head = [f"[0]*{dense}"] if dense else []
    if every == 1:
        return f"({'+'.join([*head, f'[1]*{layers - dense}'])})"
    period = ",".join(["0"] * (every - 1) + ["1"])
    whole, rest = divmod(layers - dense, every)
    tail = [f"[0]*{rest}"] if rest else []
    return f"({'+'.join([*head, f'[{period}]*{whole}', *tail])})"
