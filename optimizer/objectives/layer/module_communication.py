"""Collectives that rebuilding a module runs again."""

from __future__ import annotations

import numpy as np

from optimizer.job import Job
from optimizer.model import Model
from optimizer.objectives.kernels.operators import FloatArray, Shapes
from optimizer.objectives.layer.communication import expert_seconds, exposed, tensor_seconds
from optimizer.objectives.network.in_training import collective

GATHERS = ("mlp", "moe", "shared_experts")  # modules whose products tensor parallelism splits between two collectives


def module_communication(
    job: Job, shapes: Shapes, module: str, moe: bool, products: FloatArray
) -> tuple[dict[str, FloatArray], FloatArray, FloatArray]:
    """Exposed seconds of a module's collectives in a forward pass, the hidden ones, and how many collectives [s, s, 1].

    MLP, mixture and shared experts: the MLP's share of the layer's tensor parallelism, under their products. Mixture:
    dispatch and combine too. Up-projections of latent attention: the gathered latent vectors of sequence parallelism.
    """
    nothing = np.zeros_like(shapes.tp)
    tensor, expert, count, several = nothing, nothing, nothing, (shapes.tp > 1).astype(np.float64)
    if module in GATHERS:
        tensor = tensor_seconds(job, shapes) / (1 if job.model.parallel_block else 2)
        count = several * np.where(shapes.sequence_parallel, 2.0, 1.0)
    elif module == "mla_up_proj":
        tensor, count = latent_seconds(job, shapes), several * shapes.sequence_parallel
    if module == "moe" and moe:
        expert, count = expert_seconds(job, shapes), count + np.where(shapes.ep > 1, 2.0, 0.0)
    shown = {
        "tp_communication": exposed(tensor, products, job.stack["tp_overlap"]),
        "cp_communication": nothing,
        "ep_communication": exposed(expert, products, job.stack["ep_overlap"]),
    }
    return shown, tensor + expert - shown["tp_communication"] - shown["ep_communication"], count


def latent_width(model: Model) -> int:
    """Elements per token that the up-projections of latent attention read [1].

    >>> from optimizer.presets import load_model
    >>> latent_width(load_model("deepseek-v3")) == 1536 + 512
    True
    """
    return (model.mla.q_rank or model.hidden) + model.mla.kv_rank if model.mla else 0


def latent_seconds(job: Job, shapes: Shapes) -> FloatArray:
    """Gathering the latent vectors before they are projected, under sequence parallelism [s].

    tokens x (q_rank + kv_rank) x 2 B; queries that have no latent vector are projected from the layer's input, of the
    model's width.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/multi_latent_attention.py.
    """
    if job.model.mla is None or not np.any(shapes.sequence_parallel):
        return np.zeros_like(shapes.tp)
    message = 2.0 * shapes.tokens * latent_width(job.model)
    return np.where(shapes.sequence_parallel, collective(job, "all_gather", message, shapes.tp, 1), 0.0)
