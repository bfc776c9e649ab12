"""A model as Megatron-LM's arguments describe it, or why they cannot.

Source of names and meaning: NVIDIA/Megatron-LM core_v0.19.0, megatron/training/arguments.py, transformer_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.frameworks.refusal import lacks
from optimizer.job.model import Experts, LatentAttention, Model

Flags = dict[str, str | None]  # a flag without a value maps to None
ACTIVATIONS: Mapping[str, Flags] = {
    "gelu": {},
    "swiglu": {"--swiglu": None},
    "squared-relu": {"--squared-relu": None},
    "relu2": {"--squared-relu": None},
    "quick-geglu": {"--quick-geglu": None},
    "clamped-swiglu": {"--quick-geglu": None, "--glu-linear-offset": "1.0", "--activation-func-clamp-value": "7.0"},
}
POSITIONS: Mapping[str, str] = {"rope": "rope", "learned": "learned_absolute", "none": "none"}
NORMS: Mapping[str, Flags] = {
    "layer": {"--normalization": "LayerNorm"},
    "layer1p": {"--normalization": "LayerNorm", "--apply-layernorm-1p": None},
    "rms": {"--normalization": "RMSNorm"},
}
ROUTERS: Mapping[str, Flags] = {
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
        "layers that carry a state": model.recurrence is not None,
        "layers of several kinds": not model.is_uniform,
        "an indexer of sparse attention": model.indexer is not None,
        "a gate on the attention's output": model.attention_gate != "none",
        "values of another width than keys": model.v_head_dim > 0,
        "experts on a latent width": model.experts is not None and model.experts.latent > 0,
        "biases of some linear layers only": not (attention_out and attention_in),
        "biases of the router alone, or of all but the router": (
            # Routers of gpt-oss add a learned bias to their logits; that of sigmoid routers balances experts.
            model.experts is not None
            and (model.experts.router_bias and model.experts.router != "sigmoid") != model.mlp_bias
        ),
    }
    return lacks(missing)


def differing(model: Model) -> tuple[str, ...]:
    """What Megatron-LM adds to a model that it otherwise has, in words.

    >>> from optimizer.catalog import load_model
    >>> differing(load_model("dbrx"))
    ('every LayerNorm has a bias there, which the model has not',)
    """
    plain = model.norm.startswith("layer") and not model.norm_bias and model.norm in NORMS
    return ("every LayerNorm has a bias there, which the model has not",) * plain


def given(values: Mapping[str, object]) -> Flags:
    """Flags from values: those that are False are left out, True has no value of its own.

    >>> given({"--bf16": True, "--fp16": False, "--seq-length": 2048})
    {'--bf16': None, '--seq-length': '2048'}
    """
    return {
        flag: None if value is None or value is True else str(value)
        for flag, value in values.items()
        if value is not False
    }


def model_flags(model: Model, seq_len: int = 0) -> Flags:
    """Shape and numerics of the model, for sequences of `seq_len` tokens."""
    mla, window, rope = model.mla, model.window, model.position == "rope"
    grouped = model.kv_heads != model.heads and mla is None
    return given(
        {
            "--num-layers": model.layers,
            "--hidden-size": model.hidden,
            "--ffn-hidden-size": model.ffn_hidden,
            "--num-attention-heads": model.heads,
            "--group-query-attention": grouped,
            "--num-query-groups": grouped and str(model.kv_heads),
            "--kv-channels": mla is None and model.head_dim * model.heads != model.hidden and str(model.head_dim),
            **ACTIVATIONS[model.activation],
            **NORMS[model.norm],
            "--norm-epsilon": f"{model.norm_epsilon:g}",
            "--position-embedding-type": POSITIONS[model.position],
            "--rotary-base": rope and f"{model.rope_base:.0f}",
            "--rotary-percent": rope and f"{model.rope_share:g}",
            "--max-position-embeddings": max(model.max_seq_len, seq_len),
            "--vocab-size": model.vocab,
            "--untie-embeddings-and-output-weights": not model.tied_embeddings,
            "--disable-bias-linear": not model.mlp_bias,
            "--add-qkv-bias": model.attention_bias and not model.mlp_bias,
            "--qk-layernorm": model.qk_norm or mla is not None,
            "--softmax-type": model.attention_sinks and "learnable",
            "--window-size": window is not None and f"{window.size},0",
            "--window-attn-skip-freq": window is not None and (window.global_every or False),
            **(_latent_attention_flags(mla) if mla else {}),
            "--mtp-num-layers": model.mtp_layers or False,
            **(_expert_flags(model.layers, model.experts) if model.experts else {}),
        }
    )


def _latent_attention_flags(mla: LatentAttention) -> Mapping[str, object]:
    """Multi-head latent attention, with its norms on the low ranks among others."""
    return {
        "--multi-latent-attention": True,
        "--q-lora-rank": mla.q_rank or False,
        "--kv-lora-rank": mla.kv_rank,
        "--qk-head-dim": mla.nope_dim,
        "--qk-pos-emb-head-dim": mla.rope_dim,
        "--v-head-dim": mla.v_dim,
        "--rope-type": "rope",
        "--no-rope-fusion": True,  # which latent attention has with YaRN only
    }


def _expert_flags(layers: int, experts: Experts) -> Mapping[str, object]:
    """Sizes of the experts, routing, and which layers are MoE; a single expert is scored before the choice."""
    return {
        "--num-experts": experts.count,
        "--moe-router-topk": experts.top_k,
        "--moe-ffn-hidden-size": experts.ffn_hidden,
        "--moe-grouped-gemm": True,
        **ROUTERS["pre-softmax" if experts.router == "softmax" and experts.top_k == 1 else experts.router],
        "--moe-router-enable-expert-bias": experts.router_bias and experts.router == "sigmoid",
        "--moe-router-num-groups": bool(experts.group_limit) and str(experts.groups),
        "--moe-router-group-topk": experts.group_limit or False,
        "--moe-shared-expert-intermediate-size": experts.shared_ffn_hidden or False,
        "--moe-shared-expert-gate": experts.shared_gate,
        "--moe-layer-freq": (experts.first_dense_layers > 0 or experts.every > 1) and layer_pattern(layers, experts),
    }


def layer_pattern(layers: int, experts: Experts) -> str:
    """Which layers are MoE, as the Python list that --moe-layer-freq evaluates: 1 marks an MoE layer.

    >>> from optimizer.job.model import Experts
    >>> layer_pattern(61, Experts(count=256, top_k=8, ffn_hidden=2048, first_dense_layers=3))
    '([0]*3+[1]*58)'
    >>> layer_pattern(9, Experts(count=8, top_k=2, ffn_hidden=64, every=2))
    '([0,1]*4+[0]*1)'
    """
    dense, every = experts.first_dense_layers, experts.every
    head = [f"[0]*{dense}"] if dense else []
    if every == 1:
        return f"({'+'.join([*head, f'[1]*{layers - dense}'])})"
    period = ",".join(["0"] * (every - 1) + ["1"])
    whole, rest = divmod(layers - dense, every)
    tail = [f"[0]*{rest}"] if rest else []
    return f"({'+'.join([*head, f'[{period}]*{whole}', *tail])})"
