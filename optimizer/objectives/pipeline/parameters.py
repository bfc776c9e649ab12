"""Parameters that one GPU holds, by pipeline stage, and over how many replicas they are repeated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.model import Model
from optimizer.objectives.kernels.operators import FloatArray, padded_vocab
from optimizer.objectives.pipeline.stages import Stage
from optimizer.plan import Plans


@dataclass(frozen=True, kw_only=True)
class LocalParameters:
    """Elements on one GPU: `shared` are replicated over dp * cp ranks, `experts` over dp * cp * tp / (ep * etp)."""

    shared: FloatArray
    experts: FloatArray


def layer_parameters(model: Model, plans: Plans, moe: bool) -> LocalParameters:
    """Elements of one layer on one GPU: matrices split by tp (experts by ep * etp), vectors replicated."""
    tp = plans.tp.astype(np.float64)
    vectors = model.attention_vectors + model.norm_vectors
    attention = model.attention_weights / tp + vectors
    if not moe or model.experts is None:
        return LocalParameters(shared=attention + model.mlp_params(model.ffn_hidden) / tp, experts=np.zeros_like(tp))
    shared = model.mlp_params(model.experts.shared_ffn_hidden) / tp if model.experts.shared_ffn_hidden else 0.0
    router = model.hidden * model.experts.count
    experts = model.experts.count * model.expert_params / (plans.ep * plans.etp)
    return LocalParameters(shared=attention + router + shared, experts=experts.astype(np.float64))


def stage_parameters(model: Model, plans: Plans, stage: Stage) -> LocalParameters:
    """Elements of one stage on one GPU; tied embeddings are held twice when the pipeline is split.

    Prediction layers add a 2 hidden -> hidden projection and three norms, and the embedding where it is not at hand.

    Source: DeepSeek-V3, arXiv 2412.19437, section 2.2; Megatron-LM, megatron/core/models/gpt/gpt_model.py.
    """
    tp = plans.tp.astype(np.float64)
    dense, moe = layer_parameters(model, plans, False), layer_parameters(model, plans, True)
    words = padded_vocab(model.vocab, tp) * model.hidden / tp
    positions = model.max_seq_len * model.hidden if model.position == "learned" else 0.0
    tied_copy = np.where(plans.pp > 1, 1.0, 0.0) if model.tied_embeddings else 1.0
    shared = (
        stage.dense * dense.shared
        + stage.moe * moe.shared
        + stage.embedding * (words + positions)
        + stage.head * (words * tied_copy + model.final_norm_params)
    )
    if model.mtp_layers:
        projection = 2.0 * model.hidden**2 / tp + 3.0 * model.norm_params
        lookup = (1.0 - stage.embedding) * np.minimum(stage.mtp, 1.0) * (words + positions)
        shared = shared + stage.mtp * projection + lookup
    return LocalParameters(shared=shared, experts=stage.moe * moe.experts)


def replicas(plans: Plans) -> tuple[FloatArray, FloatArray]:
    """GPUs that hold the same shared parameters (dp * cp) and the same experts (dp * cp * tp / (ep * etp))."""
    shared = (plans.dp * plans.cp).astype(np.float64)
    experts = np.maximum(1.0, shared * plans.tp / (plans.ep * plans.etp))
    return shared, experts
