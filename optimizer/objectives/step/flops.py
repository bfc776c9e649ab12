"""Floating-point operations of a training step, by the conventions that published MFU figures use."""

from __future__ import annotations

import numpy as np

from optimizer.job.job import Job
from optimizer.job.method import OF_LAYERS
from optimizer.job.model import Model
from optimizer.job.plan import Plans
from optimizer.objectives.arrays import FloatArray, pick
from optimizer.objectives.kernels.modules import modes, module_flops, recomputes
from optimizer.objectives.kernels.operators import context_share
from optimizer.objectives.pipeline.stages import Stages

CAUSAL, ALL_SCORES, PARAMETERS = "causal", "megatron-2021", "6n"
CONVENTIONS = (CAUSAL, ALL_SCORES, PARAMETERS)  # the first is the one that is printed


def matmul_params(model: Model) -> float:
    """Parameters that multiply every token: active weights and the head, without embedding lookups [parameters]."""
    lookups = model.embedding_params + (model.final_norm_params)
    head = model.vocab * model.hidden
    return float(model.active_params - lookups - model.head_params + head)


def prediction_params(model: Model) -> float:
    """Parameters that multiply every token in prediction layers: layer, projection, the head again [parameters].

    >>> from optimizer.catalog import load_model
    >>> round(prediction_params(load_model("deepseek-v3")) / 1e9, 2)
    1.61
    """
    experts = model.experts
    idle = (experts.count - experts.top_k) * model.expert_params if experts else 0
    return float(model.mtp_params + model.mtp_layers * (model.vocab * model.hidden - idle))


def model_flops(model: Model, seq_len: float, tokens: float, convention: str = CAUSAL) -> float:
    """Forward and backward operations of one step, recomputation excluded [FLOP].

    causal: 6 N + 6 S c L (d_qk + d_v) per token, c being the share of the scores that causal masks, windows and chunks
    leave: nobody computes the others, so that a rate by this count cannot exceed the peak. A recurrence counts with its
    products on the state, an indexer with its scores. megatron-2021: all scores
    (Narayanan et al., arXiv 2104.04473, appendix, without its recomputation), which can; 6n: 6 N alone. N counts
    matrices and the head. The first two count prediction layers too, each a layer, its projection and another pass
    through the head; in 6n, N are the active parameters of the model that remains.

    Source: Megatron-LM, megatron/training/training.py, num_floating_point_operations, which leaves out the masked half
    by now and counts prediction layers.

    >>> from optimizer.catalog import load_model
    >>> round(model_flops(load_model("gpt3"), 2048, 1536 * 2048, ALL_SCORES) / 1e18, 3)
    3.386
    >>> deepseek = load_model("deepseek-v3")
    >>> [round(model_flops(deepseek, 4096, 1.0, convention) / 1e9, 1) for convention in CONVENTIONS]
    [260.7, 291.9, 219.8]
    """
    products = 6.0 * matmul_params(model) * tokens
    if convention == PARAMETERS:
        return products
    scores = score_flops(model, seq_len) if convention == ALL_SCORES else causal_score_flops(model, seq_len)
    return products + (6.0 * prediction_params(model) + scores + state_flops(model)) * tokens


def useful_flops(job: Job, convention: str = CAUSAL) -> float:
    """Operations of a step that the job's method needs [FLOP]: what is frozen has no gradients of weights.

    `model_flops` less 2 for each frozen parameter and token that multiplies it: 4 N of 6 N where all are; a third is
    left of layers that no backward pass reaches. Adapters do not count. Passes of the loss without gradients are a
    third of it each; a loss without a vocabulary has no head.

    Source: Hu et al., arXiv 2106.09685, section 4.2.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> jobs = [Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=8, seq_len=2048, global_batch=64, train=train) for train in ("full", "lora")]
    >>> [round(useful_flops(job, "6n") / job.tokens / matmul_params(job.model), 3) for job in jobs]
    [6.0, 4.0]
    """
    per_token, heads = (
        _per_token(job, convention),
        6.0 * job.model.vocab * job.model.hidden * (1 + job.model.mtp_layers),
    )
    frozen = frozen_params(job) if job.method.freezes else 0.0
    skipped = 2.0 / 3.0 * (per_token - heads) * job.reached / job.model.layers
    if job.training_loss.scored:
        head = float(job.model.vocab * job.model.hidden)
        per_token -= 6.0 * head
        frozen -= head * (job.method.freezes and not job.method.trains("head"))
    return (per_token + per_token * (job.forward_passes - 1.0) / 3.0 - 2.0 * frozen - skipped) * job.tokens


def _per_token(job: Job, convention: str = CAUSAL) -> float:
    """Operations of a token where all is trained, its scores by the documents of the job [FLOP]."""
    per_token = model_flops(job.model, job.seq_len, 1.0, convention)
    if job.documents is None or convention != CAUSAL:
        return per_token
    return per_token + job_score_flops(job) - causal_score_flops(job.model, job.seq_len)


def frozen_params(job: Job) -> float:
    """Frozen parameters that multiply every token and that backward passes reach, prediction layers' too; of layers
    that are frozen whole by their share [parameters].
    """
    model, method = job.model, job.method
    every = matmul_params(model) + prediction_params(model)
    if method.adapts:
        return every
    experts = model.experts
    head = float(model.vocab * model.hidden * (1 + model.mtp_layers))
    routed = float(model.moe_layers * experts.top_k * model.expert_params) if experts else 0.0
    dense = float(model.mlp_layers * model.mlp_params(model.ffn_hidden))
    shared = float(model.moe_layers * model.mlp_params(experts.shared_ffn_hidden)) if experts else 0.0
    sizes = {"head": head, "experts": routed, "mlp": dense + shared}
    sizes["attention"] = max(every - sum(sizes.values()), 0.0)
    behind, still = (model.layers - job.reached) / model.layers, (len(job.frozen_layers) - job.reached) / model.layers
    shares = {part: still if part not in method.frozen else behind for part in OF_LAYERS} if method.layers else {}
    return sum(size * shares.get(part, 1.0) for part, size in sizes.items() if not method.trains(part))


def causal_score_flops(model: Model, seq_len: float) -> float:
    """Operations of the attention scores that the mask leaves and of what they weigh, for one token [FLOP]."""
    share = (seq_len + 1) / (2 * seq_len)
    return sum(
        layers * (_scores(own, seq_len) * context_share(own, seq_len) + _index_scores(own, seq_len) * share)
        for own, layers in attending(model)
    )


def job_score_flops(job: Job) -> float:
    """Operations of the attention scores of a job's documents that masks leave, for one of their tokens [FLOP].

    The mean of causal_score_flops over the documents, each token of which counts alike.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=8, seq_len=8192, global_batch=64, lengths="1024", packing="on")
    >>> job_score_flops(job) == causal_score_flops(job.model, 1024)
    True
    """
    if job.documents is None:
        return causal_score_flops(job.model, job.seq_len)
    sizes: list[float] = job.documents.sizes.tolist()
    return sum(size * causal_score_flops(job.model, size) for size in sizes) / sum(sizes)


def score_flops(model: Model, seq_len: float) -> float:
    """Operations of all attention scores and of what they weigh for one token, masked ones counted [FLOP]."""
    return sum(layers * (_scores(own, seq_len) + _index_scores(own, seq_len)) for own, layers in attending(model))


def state_flops(model: Model) -> float:
    """Operations of recurrences on their states for one token, forward and backward [FLOP].

    3 x state_flops of each layer that has one.

    >>> from optimizer.catalog import load_model
    >>> state_flops(load_model("gpt3"))
    0.0
    """
    return sum((3.0 * kind.count * kind.model.state.state_flops for kind in model.kinds if kind.model.state), 0.0)


def attending(model: Model) -> list[tuple[Model, int]]:
    """Kinds of layers that attend, each with their number; prediction layers are like the last of them."""
    kinds = [(kind.model, kind.count) for kind in model.kinds if kind.model.has_attention]
    return [*kinds, (kinds[-1][0], model.mtp_layers)] if kinds and model.mtp_layers else kinds


def _scores(model: Model, seq_len: float) -> float:
    """Operations of one layer's scores and of what they weigh, both passes [FLOP]."""
    return 6.0 * seq_len * (model.q_dim + model.v_dim)


def _index_scores(model: Model, seq_len: float) -> float:
    """Operations of one layer's index scores, both passes [FLOP]."""
    own = model.indexer
    return 6.0 * seq_len * own.heads * own.head_dim / own.every if own else 0.0


def recomputed_flops(job: Job, plans: Plans, stages: Stages) -> FloatArray:
    """Operations that recomputation adds to a step: a third of the layers' under full, of the scores' under selective.

    Modules add two operations for each of their parameters and token (`module_flops`). Of plans that place their layers
    it is the layers that their stages recompute. Masked scores are not computed, and do not count.

    Args:
        job: what is trained.
        plans: the plans.
        stages: theirs, all of them where plans place their layers.

    Returns:
        An entry per plan [FLOP].

    Source: Korthikanti et al., arXiv 2205.05198, equations 7 to 9.
    """
    model, scores = job.model, job_score_flops(job)
    layers = _per_token(job) - 6.0 * (1 + model.mtp_layers) * model.vocab * model.hidden
    share = np.ones(len(plans))
    if plans.placements is not None:
        share = sum((n.sum(axis=0) for n in stages.recomputed.values()), 0 * share) / (model.layers + model.mtp_layers)
    recomputed = pick(modes(plans.recompute), (0.0, scores / 3, share * layers / 3))
    for module, operations in module_flops(model, scores / 3).items():
        recomputed = recomputed + np.where(recomputes(plans.recompute, module), operations, 0.0)
    return plans.global_batch * job.tokens / job.global_batch * recomputed
