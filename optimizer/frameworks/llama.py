"""The block that most programs have: a gated MLP, norms of root mean squares, rotary positions, no experts."""

from __future__ import annotations

from optimizer.frameworks.refusal import lacks
from optimizer.job.model import Model


def unlike_llama(model: Model) -> tuple[str, ...]:
    """What of a model is unlike Llama, in words, biases of queries, keys and values aside; nothing where it is like it.

    >>> from optimizer.catalog import load_model
    >>> unlike_llama(load_model("llama3-8b")), unlike_llama(load_model("gpt2-xl"))[:1]
    ((), ('the activation gelu',))
    """
    missing = {
        f"the activation {model.activation}": (model.activation, model.gated_mlp) != ("swiglu", True),
        f"{model.position} positions": model.position != "rope" or model.rope_share != 1.0,
        f"the norm {model.norm}": model.norm != "rms" or model.norms_per_layer != 2,
        "experts": model.experts is not None,
        "latent attention": model.mla is not None,
        "a sliding window": model.window is not None,
        "layers of several kinds": not model.is_uniform,
        "norms of queries and keys": model.qk_norm or model.qk_norm_full,
        "biases besides those of queries, keys and values": (
            model.mlp_bias or model.attention_out_bias or model.head_bias
        ),
        "another block": model.parallel_block or model.embedding_norm or model.attention_gate != "none",
        "sinks, an indexer or MTP layers": (
            model.attention_sinks or model.indexer is not None or model.mtp_layers > 0 or model.v_head_dim > 0
        ),
    }
    return lacks(missing)
