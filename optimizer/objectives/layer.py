"""Seconds of one layer (or the head) for one micro-batch: forward, backward and recomputed, term by term.

Compute terms come from the roofline of each operator, communication terms from the collectives around them; `launch`
is the time the GPU waits for a host that cannot issue kernels fast enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.job import Job
from optimizer.objectives import attention
from optimizer.objectives.communication import collective
from optimizer.objectives.gemm import GemmCurve, curve_for, gemm_time
from optimizer.objectives.operators import FloatArray, Gemm, Layer, Shapes, padded_vocab
from optimizer.objectives.topology import span

TERMS = ("gemm", "attention", "elementwise", "launch", "tp_communication", "cp_communication", "ep_communication")
BACKWARD_KERNELS = 1.8  # kernels of a backward pass / those of its forward pass: two products per matrix, fused rest


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Seconds by term of one pass over one layer, and those of communication hidden under compute; per shape."""

    terms: dict[str, FloatArray]
    hidden: FloatArray

    @property
    def total(self) -> FloatArray:
        """All terms together [s]."""
        return sum(self.terms.values(), np.zeros(1))

    @property
    def compute(self) -> FloatArray:
        """The terms that keep the GPU's units busy, under which communication can hide [s]."""
        return self.terms["gemm"] + self.terms["attention"] + self.terms["elementwise"]


@dataclass(frozen=True, kw_only=True)
class LayerTime:
    """One layer and micro-batch: forward and backward passes, and what recomputation adds to the backward pass."""

    forward: Phase
    backward: Phase
    selective: Phase
    full: Phase


def gemm_seconds(gemm: Gemm, curve: GemmCurve, efficiency: float, backward: bool) -> FloatArray:
    """Time of one product forward, or of its data and weight gradients [s].

    forward m x k x n; data gradient m x n x k; weight gradient k x m x n. `efficiency` is the training rate over
    that of the isolated kernel.

    Source: Rumelhart et al. 1986 for the shapes; every one is priced at its own m, n, k.
    """
    if not backward:
        return gemm_time(gemm.m, gemm.n, gemm.k, curve, batch=gemm.batch) / (efficiency * gemm.rate)
    data = gemm_time(gemm.m, gemm.k, gemm.n, curve, batch=gemm.batch)
    weight = gemm_time(gemm.k, gemm.n, gemm.m, curve, batch=gemm.batch) if gemm.weight else 0.0
    return (data + weight) / (efficiency * gemm.rate)


def cast_bytes(gemm: Gemm, backward: bool) -> FloatArray:
    """Traffic of quantising a product's operands, with the transposed copy that the backward pass needs [B].

    Reads 2 bytes and writes 1 + 1 per element: forward the inputs and weights, backward the output's gradient. Formats
    of four bits write less but look for the scale of every block and rotate: taken as the same.

    Source: Transformer Engine's fused cast-transpose, Micikevicius et al., arXiv 2209.05433 for the recipe.
    """
    if backward:
        return 4.0 * gemm.m * gemm.n * gemm.batch
    return 4.0 * (gemm.m * gemm.k + gemm.k * gemm.n) * gemm.batch


def elementwise_seconds(traffic: FloatArray | float, job: Job) -> FloatArray:
    """Time of kernels limited by HBM: bytes / (bandwidth x hbm_efficiency) [s]."""
    return np.asarray(traffic / (job.cluster.device.memory_bandwidth * job.stack["hbm_efficiency"]))


def layer_time(job: Job, layer: Layer, shapes: Shapes, moe: bool, communicates: bool = True) -> LayerTime:
    """Price all operators and collectives of one layer."""
    curves = _curves(job)
    forward, backward = (_compute(job, layer, curves, backward=direction) for direction in (False, True))
    comm, hidden = (
        _communication(job, shapes, moe, forward) if communicates else (_head_communication(job, shapes), (0.0, 0.0))
    )
    collectives = collectives_per_pass(job, shapes, moe) if communicates else np.zeros_like(shapes.tp)
    launches = 0.0 if job.stack.features.cuda_graphs else job.stack["launch"]
    host = (_kernels(job, layer) + collectives) * launches
    again = {term: np.zeros_like(shapes.tp) for term in TERMS} | {"attention": forward["attention"]}
    if job.stack.features.selective == "ops":
        again |= {"attention": again["gemm"], "gemm": forward["gemm"] / 2, "elementwise": forward["elementwise"]}
    return LayerTime(
        forward=_phase(forward | comm[0], host, hidden[0]),
        backward=_phase(backward | comm[1], host * BACKWARD_KERNELS, hidden[1]),
        selective=Phase(terms=again, hidden=np.zeros_like(shapes.tp)),
        full=_phase(forward | comm[0], host, hidden[0]),
    )


def _curves(job: Job) -> tuple[GemmCurve, GemmCurve]:
    """The curves of products with quantised operands, and of all others."""
    low = curve_for(job.cluster.device, job.dtype)
    return low, low if job.wide_dtype == job.dtype else curve_for(job.cluster.device, job.wide_dtype)


def _compute(job: Job, layer: Layer, curves: tuple[GemmCurve, GemmCurve], *, backward: bool) -> dict[str, FloatArray]:
    """GPU seconds of the compute terms in one direction."""
    stack = job.stack
    low, high = curves
    scale = stack["gemm_efficiency"]
    gemm: FloatArray = np.zeros(1)
    casts: FloatArray = np.zeros(1)
    for product in layer.gemms:
        quantised = job.quantised and product.low_precision
        gemm = gemm + gemm_seconds(product, low if quantised else high, scale, backward)
        if quantised:
            casts = casts + cast_bytes(product, backward)
    moved = sum((op.backward_bytes if backward else op.forward_bytes for op in layer.elementwise), np.zeros(1))
    core = attention.seconds(job, layer.attention, backward) if layer.attention else np.zeros_like(gemm)
    return {
        "gemm": gemm,
        "attention": core,
        "elementwise": elementwise_seconds(moved * stack["elementwise_passes"] + casts, job),
    }


def _kernels(job: Job, layer: Layer) -> float:
    """Kernels of one forward pass."""
    core = attention.KERNELS[job.stack.features.attention] if layer.attention else 0
    casts = 2 * len(layer.gemms) if job.quantised else 0
    return len(layer.gemms) + core + casts + sum(op.kernels for op in layer.elementwise)


def collectives_per_pass(job: Job, shapes: Shapes, moe: bool) -> FloatArray:
    """Collectives that the host launches in one pass over one layer [1].

    Two for tensor parallelism (one in a parallel block), twice as many under sequence parallelism; one for context
    parallelism; dispatch and combine for expert parallelism.

    Source: Shoeybi et al., arXiv 1909.08053, section 3; Korthikanti et al., arXiv 2205.05198, section 4.2.
    """
    tensor = (1.0 if job.model.parallel_block else 2.0) * np.where(shapes.sequence_parallel, 2.0, 1.0)
    expert = 2.0 * (shapes.ep > 1) if moe else 0.0
    return np.asarray(tensor * (shapes.tp > 1) + (shapes.cp > 1) + expert)


def _phase(terms: dict[str, FloatArray], host: FloatArray, hidden: FloatArray | float) -> Phase:
    busy = sum(terms.values(), np.zeros(1))
    return Phase(terms=terms | {"launch": launch_seconds(host, busy)}, hidden=hidden + np.zeros_like(busy))


def launch_seconds(host: FloatArray, busy: FloatArray) -> FloatArray:
    """Time by which the host falls behind the GPU in one pass over a layer: max(0, host - busy) [s].

    `host` is (kernels + collectives) x launch [s], `busy` the GPU's own time [s]. A small layer is launch-bound: its
    GPU time does not matter, only how fast Python and the driver issue its kernels. A step also pays
    microbatch_overhead per micro-batch and virtual stage.

    Source: measured single-node iterations of small GPT models flatten at one time per layer, whatever their width
    (vTrain ground truth, arXiv 2312.12391).

    >>> launch_seconds(np.array(3e-3), np.array([1e-3, 5e-3])).tolist()
    [0.002, 0.0]
    """
    return np.maximum(0.0, host - busy)


def _silence(shapes: Shapes) -> dict[str, FloatArray]:
    zero = np.zeros_like(shapes.tp)
    return {"tp_communication": zero, "cp_communication": zero, "ep_communication": zero}


def _head_communication(job: Job, shapes: Shapes) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Exposed seconds of the head, forward and backward: its logits where every TP rank wants them all."""
    silent = _silence(shapes)
    if not job.stack.features.gathered_logits:
        return silent, silent
    message = 2.0 * shapes.tokens * padded_vocab(job.model.vocab, shapes.tp)
    return silent | {"tp_communication": collective(job, "all_gather", message, shapes.tp, 1)}, silent


def _communication(
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
    copies: top_k, one for each expert; those of `copies_sent` where the dispatcher removes duplicates.

    Source: Rajbhandari et al., arXiv 2201.05596; Liu et al., arXiv 2504.14960 (folding).
    """
    experts = job.model.experts
    if experts is None:
        return np.zeros_like(shapes.tp)
    copies: FloatArray | float = float(experts.top_k)
    if job.stack.features.dispatcher == "deduplicated":
        group = span(job.cluster, shapes.ep.astype(np.int64), shapes.etp.astype(np.int64))
        domains = group.domains(0)
        copies = copies_sent(np.where(domains > 1, domains, shapes.ep), experts.top_k)
    message = 2.0 * shapes.tokens / shapes.tp * copies * job.model.hidden * job.stack.imbalance
    exchange = 2 * collective(job, "all_to_all", message, shapes.ep, shapes.etp)
    return exchange + 2 * collective(job, "all_gather", message * shapes.etp, shapes.etp, 1)


def copies_sent(destinations: FloatArray, top_k: int) -> FloatArray:
    """Copies of a token that leave when each destination gets one, however many of its experts it serves [1].

    Expected number of distinct destinations of top_k independent choices: n (1 - (1 - 1/n)^top_k). Destinations are
    the scale-up domains where the group spans several, since the copy is then spread inside; else the ranks.

    Source: DeepSeek-V3, arXiv 2412.19437, section 3.2.2 (tokens cross the network once per node).

    >>> copies_sent(np.array([1.0, 8.0]), 8).round(2).tolist()
    [1.0, 5.25]
    """
    return np.asarray(destinations * (1.0 - (1.0 - 1.0 / destinations) ** top_k))
