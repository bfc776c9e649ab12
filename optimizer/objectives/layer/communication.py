"""Seconds of a layer's communication: tensor, context and expert parallelism, and what hides under compute."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from optimizer.job import Job
from optimizer.objectives.kernels.operators import FloatArray, Shapes, padded_vocab
from optimizer.objectives.network.in_training import collective
from optimizer.objectives.network.topology import span


def _silence(shapes: Shapes) -> dict[str, FloatArray]:
    zero = np.zeros_like(shapes.tp)
    return {"tp_communication": zero, "cp_communication": zero, "ep_communication": zero}


def head_communication(job: Job, shapes: Shapes) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Exposed seconds of the head, forward and backward: its logits where every TP rank wants them all."""
    silent = _silence(shapes)
    if not job.stack.features.gathered_logits:
        return silent, silent
    message = 2.0 * shapes.tokens * padded_vocab(job.model.vocab, shapes.tp)
    return silent | {"tp_communication": collective(job, "all_gather", message, shapes.tp, 1)}, silent


def layer_communication(
    job: Job, shapes: Shapes, moe: bool, compute: dict[str, FloatArray]
) -> tuple[tuple[dict[str, FloatArray], ...], tuple[FloatArray, ...]]:
    """Exposed seconds of tensor, context and expert parallelism, forward and backward, and the hidden ones."""
    tensor = tensor_seconds(job, shapes)
    gather, scatter = context_seconds(job, shapes)
    dispatch = expert_seconds(job, shapes) if moe else np.zeros_like(tensor)
    terms, hidden = [], []
    for context, core in ((gather, compute["attention"]), (gather + scatter, 2.5 * compute["attention"])):
        shown = {
            "tp_communication": exposed(tensor, compute["gemm"], job.stack["tp_overlap"]),
            "cp_communication": exposed(context, core, job.stack["cp_overlap"]),
            "ep_communication": exposed(dispatch, compute["gemm"], job.stack["ep_overlap"]),
        }
        terms.append(shown)
        hidden.append(tensor + context + dispatch - sum(shown.values()))
    return tuple(terms), tuple(hidden)


def exposed(communication: FloatArray, compute: FloatArray, overlap: float) -> FloatArray:
    """Communication left over when `overlap` of what fits under the compute is hidden [s].

    exposed = communication - overlap x min(communication, compute).

    >>> float(exposed(np.array(3.0), np.array(2.0), 0.5))
    2.0
    """
    return communication - overlap * np.minimum(communication, compute)


def tensor_seconds(job: Job, shapes: Shapes) -> FloatArray:
    """Tensor-parallel collectives of one pass over one layer [s].

    Two all-reduces of tokens x hidden x 2 B; with sequence parallelism two all-gathers and two reduce-scatters.
    A parallel block needs half of them.

    Source: Shoeybi et al., arXiv 1909.08053, section 3; Korthikanti et al., arXiv 2205.05198, section 4.2.
    """
    message = 2.0 * shapes.tokens * job.model.hidden
    times = 1 if job.model.parallel_block else 2
    reduce, split = np.zeros_like(message), np.zeros_like(message)
    if not np.all(shapes.sequence_parallel):
        reduce = collective(job, "all_reduce", message, shapes.tp, 1)
    if np.any(shapes.sequence_parallel):
        gather = collective(job, "all_gather", message, shapes.tp, 1)
        split = gather + collective(job, "reduce_scatter", message, shapes.tp, 1)
    return times * np.where(shapes.sequence_parallel, split, reduce)


def context_seconds(job: Job, shapes: Shapes) -> tuple[FloatArray, FloatArray]:
    """Context-parallel exchange of keys and values, and of their gradients in the backward pass [s].

    Every rank ends up having seen the whole sequence's keys and values: 2 x kv_dim / tp x S x micro_batch x 2 B.

    Source: Liu et al., arXiv 2310.01889 (ring attention); Llama 3, arXiv 2407.21783, section 3.3.2 (all-gather).
    """
    model = job.model
    width = model.q_dim / shapes.tp if model.mla else np.maximum(model.kv_dim / shapes.tp, model.head_dim)
    message = 2.0 * 2.0 * width * shapes.seq_len * shapes.micro_batch
    gather = collective(job, "all_gather", message, shapes.cp, shapes.tp)
    return gather, collective(job, "reduce_scatter", message, shapes.cp, shapes.tp)


def expert_seconds(job: Job, shapes: Shapes) -> FloatArray:
    """Dispatch and combine of routed tokens among the ep ranks, with those of etp inside [s].

    Each rank sends tokens / tp x copies rows of hidden x 2 B twice; expert-tensor ranks gather and scatter them.
    copies: those of `copies_per_token`: one for each expert, or for each destination where duplicates are removed.

    Source: Rajbhandari et al., arXiv 2201.05596; Liu et al., arXiv 2504.14960 (folding).
    """
    experts = job.model.experts
    if experts is None:
        return np.zeros_like(shapes.tp)
    copies = copies_per_token(job, shapes.ep, shapes.etp)
    message = 2.0 * shapes.tokens / shapes.tp * copies * job.model.hidden * job.stack.imbalance
    exchange = 2 * collective(job, "all_to_all", message, shapes.ep, shapes.etp)
    return exchange + 2 * collective(job, "all_gather", message * shapes.etp, shapes.etp, 1)


def copies_per_token(job: Job, ep: ArrayLike, etp: ArrayLike) -> FloatArray:
    """Copies of a routed token that its rank sends under the stack's dispatcher [1]."""
    ranks = np.asarray(ep, dtype=np.float64)
    top_k = job.model.experts.top_k if job.model.experts else 0
    if job.stack.features.dispatcher != "deduplicated":
        return np.full_like(ranks, top_k)
    domains = span(job.cluster, ranks.astype(np.int64), np.asarray(etp).astype(np.int64)).domains(0)
    return copies_sent(np.where(domains > 1, domains, ranks), top_k)


def copies_sent(destinations: FloatArray, top_k: int) -> FloatArray:
    """Copies of a token that leave when each destination gets one, however many of its experts it serves [1].

    Expected number of distinct destinations of top_k independent choices: n (1 - (1 - 1/n)^top_k). Destinations are
    the scale-up domains where the group spans several, since the copy is then spread inside; else the ranks.

    Source: DeepSeek-V3, arXiv 2412.19437, section 3.2.2 (tokens cross the network once per node).

    >>> copies_sent(np.array([1.0, 8.0]), 8).round(2).tolist()
    [1.0, 5.25]
    """
    return np.asarray(destinations * (1.0 - (1.0 - 1.0 / destinations) ** top_k))


def collectives_per_pass(job: Job, shapes: Shapes, moe: bool) -> FloatArray:
    """Collectives that the host launches in one pass over one layer [1].

    Two for tensor parallelism (one in a parallel block), twice as many under sequence parallelism; one for context
    parallelism; dispatch and combine for expert parallelism.

    Source: Shoeybi et al., arXiv 1909.08053, section 3; Korthikanti et al., arXiv 2205.05198, section 4.2.
    """
    tensor = (1.0 if job.model.parallel_block else 2.0) * np.where(shapes.sequence_parallel, 2.0, 1.0)
    expert = 2.0 * (shapes.ep > 1) if moe else 0.0
    return np.asarray(tensor * (shapes.tp > 1) + (shapes.cp > 1) + expert)
