"""Seconds of one layer (or the head) for one micro-batch: forward, backward and recomputed, term by term.

Compute terms come from the roofline of each operator, communication terms from the collectives around them; `launch`
is the time the GPU waits for a host that cannot issue kernels fast enough.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from optimizer.job.job import Job
from optimizer.job.recomputation import MODULES
from optimizer.job.stack import Features
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.kernels import attention
from optimizer.objectives.kernels.adapters import launched_products
from optimizer.objectives.kernels.gemm import gemm_time
from optimizer.objectives.kernels.gemm_curve import GemmCurve, curve_for
from optimizer.objectives.kernels.modules import module_operators
from optimizer.objectives.kernels.operators import Elementwise, Gemm, Layer, Scan
from optimizer.objectives.kernels.recipes import quantised, recipe_of
from optimizer.objectives.kernels.shapes import Shapes
from optimizer.objectives.layer.drained_host import call_seconds, recomputed_launches, shown_launches
from optimizer.objectives.layer.messages import (
    head_messages,
    launched,
    layer_messages,
    module_messages,
    proxied_calls,
    without_return,
)
from optimizer.objectives.layer.overlapped import CALLS, NODES, Terms, overlapped
from optimizer.objectives.layer.phases import TERMS, LayerTime, Phase
from optimizer.objectives.network.messages import BACKWARD, CP, EP, FORWARD, TP, Message, beyond, exposed

# Kernels of a backward pass / those of its forward pass. By count, two products and the accumulation of a gradient for
# each matrix, two products for each of an unfused core, three kernels for a flash core and one for each of the rest:
# 1.4 with separate softmax kernels, 1.6 with flash attention.
BACKWARD_KERNELS = 1.6
# Of the last cache, for a multiprocessor. Assumed, 5.9 TB/s of an H200: no vendor says it, and no run here measured it.
L2_RATE = 45e9  # [B/s]


def gemm_seconds(gemm: Gemm, curve: GemmCurve, efficiency: float, backward: bool) -> FloatArray:
    """Time of one product forward, or of its data and weight gradients [s].

    forward m x k x n; data gradient m x n x k; weight gradient k x m x n. `efficiency` is the training rate over
    that of the isolated kernel.

    Source: Rumelhart et al. 1986 for the shapes; every one is priced at its own m, n, k.
    """
    (seconds,) = kernel_seconds((gemm,), curve, backward)
    return seconds / (efficiency * gemm.rate)


def kernel_seconds(gemms: Sequence[Gemm], curve: GemmCurve, backward: bool) -> list[FloatArray]:
    """Time of each product forward, or of its data and weight gradients, as isolated kernels [s].

    All in one call: for few plans a call of numpy takes longer than what it works out.
    """
    if not gemms:
        return []
    kernels = [(each.m, each.k, each.n, each.batch) for each in gemms if backward]
    kernels += [(each.k, each.n, each.m, each.batch) for each in gemms if backward and each.weight]
    kernels = kernels or [(each.m, each.n, each.k, each.batch) for each in gemms]
    shape = np.broadcast_shapes(*{np.broadcast(each.m, each.n, each.k, each.batch).shape for each in gemms})
    table = np.empty((4, len(kernels), *shape))
    for row, kernel in enumerate(kernels):
        for column, size in enumerate(kernel):
            table[column, row] = size
    rows, columns, depth, count = table
    times = gemm_time(rows, columns, depth, curve, batch=count)
    weights = iter(times[len(gemms) :])
    ahead = zip(gemms, times, strict=False)
    return [time + next(weights) if backward and each.weight else time for each, time in ahead]


def cast_bytes(gemm: Gemm, backward: bool) -> FloatArray:
    """Traffic of quantising a product's operands, with the transposed copy that the backward pass needs [B].

    Reads 2 bytes and writes 1 + 1 per element: forward the inputs and weights, backward the output's gradient. What
    another recipe moves is a multiple of it (optimizer.objectives.kernels.recipes).

    Source: Transformer Engine's fused cast-transpose, Micikevicius et al., arXiv 2209.05433 for the recipe.
    """
    if backward:
        return 4.0 * gemm.m * gemm.n * gemm.batch
    return 4.0 * (gemm.m * gemm.k + gemm.k * gemm.n) * gemm.batch


def accumulation_bytes(layer: Layer, features: Features) -> FloatArray:
    """Traffic of adding a micro-batch's weight gradients to those of the step, in kernels of its own [B].

    Reads the fresh gradient, 2 bytes, and reads and writes the sum, grad_bytes each, for every weight of the rank's
    products, however few tokens the micro-batch has. 0 where the product of the gradient adds to the sum itself.

    Source: NVIDIA/Megatron-LM, megatron/core/distributed/param_and_grad_buffer.py and the hook that adds param.grad to
    param.main_grad; --no-gradient-accumulation-fusion in megatron/training/arguments.py.

    >>> one = np.ones(1)
    >>> layer = Layer(gemms=(Gemm(name="up", m=4 * one, n=3 * one, k=2 * one),), attention=None, elementwise=())
    >>> accumulation_bytes(layer, Features(fused_accumulation=False)).tolist()
    [60.0]
    """
    if features.fused_accumulation:
        return np.zeros(1)
    weights = sum((product.n * product.k * product.batch for product in layer.gemms if product.weight), np.zeros(1))
    return np.asarray((2.0 + 2.0 * features.grad_bytes) * weights)


def elementwise_seconds(traffic: FloatArray | float, job: Job) -> FloatArray:
    """Time of kernels limited by HBM: bytes / (bandwidth x hbm_efficiency) [s]."""
    return np.asarray(traffic / (job.cluster.device.memory_bandwidth * job.stack["hbm_efficiency"]))


def _moved(job: Job, op: Elementwise, backward: bool) -> FloatArray | float:
    """Traffic of an element-wise operation, in bytes of the HBM: of separate kernels what the last one left in the last
    cache counts at the cache's rate [B].
    """
    traffic = op.backward_bytes if backward else op.forward_bytes
    if not job.stack.features.eager or op.name == "dequantise":
        return traffic
    device = job.cluster.device
    each = traffic / np.maximum(op.kernels * (BACKWARD_KERNELS if backward else 1.0), 1.0)
    cached = np.clip(1.0 - each / max(device.l2_cache, 1.0), 0.0, 1.0)
    faster = min(1.0, device.memory_bandwidth * job.stack["hbm_efficiency"] / (L2_RATE * device.sms))
    return np.asarray(traffic * (1.0 - cached * (1.0 - faster)))


def layer_time(job: Job, layer: Layer, shapes: Shapes, moe: bool, *, modules: Collection[str] = MODULES) -> LayerTime:
    """Price all operators and messages of one layer, and what recomputing all of it or each of these modules adds.

    Software that stops recomputing where all that the backward pass needs is there leaves out what has an output that
    no gradient needs: a dense layer's last product, and the way back of routed tokens that were weighed before it,
    unless a projection out of a latent width follows.

    Source: PyTorch, torch/utils/checkpoint.py, set_checkpoint_early_stop (since 2.1, for non-reentrant checkpoints).
    """
    curves = _curves(job)
    messages = layer_messages(job, shapes, moe)
    nothing = np.zeros_like(shapes.tp)
    collectives = launched(messages, FORWARD) + nothing
    host = (_kernels(job, layer) + collectives) * _launch(job) + (moe_host(job, shapes) if moe else 0.0)
    forward = _compute(job, layer, curves, backward=False)
    selective = dict.fromkeys(TERMS, nothing)
    selective |= {name: term + nothing for name, term in recomputed_terms(job, layer, curves, forward).items()}
    alone = None if shapes.overlap is None else ~shapes.overlap
    shown = shown_launches(job, layer, shapes, BACKWARD_KERNELS) if moe else nothing
    ahead = _phase(job, forward, messages, FORWARD, host, shown, alone)
    full = ahead
    if job.stack.features.stops_early and not moe:
        needed = _compute(job, replace(layer, gemms=layer.gemms[:-1]), curves, backward=False)
        full = _phase(job, needed, messages, FORWARD, host, shown, alone)
    elif (
        job.stack.features.stops_early
        and job.stack.features.weighed_early
        and job.model.routed_width == job.model.hidden
    ):
        full = _phase(job, forward, without_return(messages), FORWARD, host, shown, alone)
    backward = _compute(job, layer, curves, backward=True)
    back = _phase(job, backward, messages, BACKWARD, host * BACKWARD_KERNELS, shown * BACKWARD_KERNELS, alone)
    return LayerTime(
        forward=ahead,
        backward=back,
        selective=Phase(terms=selective, hidden=nothing, outlasting=nothing),
        full=full,
        host=host * (1 + BACKWARD_KERNELS),
        collectives=collectives * (1 + BACKWARD_KERNELS),
        modules=recomputed_modules(job, layer, shapes, moe, modules),
        overlapped=_overlapped(job, layer, shapes, messages, (ahead, back), host) if moe else ({}, {}),
    )


def _overlapped(
    job: Job, layer: Layer, shapes: Shapes, messages: Sequence[Message], passes: tuple[Phase, Phase], host: FloatArray
) -> tuple[Terms, Terms]:
    """What the passes of an MoE layer gain or lose overlapped with another micro-batch, where a plan asks for it.

    The host waits and marks for each part of the layer, and launches experts and permutation kernel by kernel even
    where it replays the rest.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py, __post_init__: with
    overlap_moe_expert_parallel_comm neither moe nor mlp can be in the scope of CUDA graphs.
    """
    overlap = shapes.overlap
    if overlap is None:
        return {}, {}
    more: FloatArray | float = NODES * CALLS * call_seconds(job)
    waits = job.stack.features.synchronised and not job.stack.features.cuda_graphs
    marks = more * (1.0 + BACKWARD_KERNELS) if waits else 0.0
    if job.stack.features.cuda_graphs:
        experts = tuple(product for product in layer.gemms if product.name.startswith("experts"))
        moved = tuple(kernel for kernel in layer.elementwise if kernel.name in ("permute", "activation"))
        apart = replace(layer, gemms=experts, attention=None, elementwise=moved)
        all_to_alls = [message for message in messages if message.parallelism == EP]
        more = more + (_kernels(job, apart) + launched(all_to_alls, FORWARD)) * call_seconds(job)
    hosts = host + more, (host + more) * BACKWARD_KERNELS
    taken = next((message.taken for message in messages if message.parallelism == EP), 0.0)
    taken = taken + np.zeros(np.shape(host))
    gains = overlapped(passes[0].terms, passes[1].terms, hosts, job.stack["pair_overlap"], taken, marks)
    first, second = ({name: np.where(overlap, s, 0.0) for name, s in terms.items()} for terms in gains)
    return first, second


def head_time(job: Job, layer: Layer, shapes: Shapes) -> LayerTime:
    """Price the output head and the loss."""
    curves, messages, nothing = _curves(job), head_messages(job, shapes), np.zeros_like(shapes.tp)
    host = _kernels(job, layer) * _launch(job) + nothing
    forward, backward = (
        _phase(job, _compute(job, layer, curves, backward=phase == BACKWARD), messages, phase, host * launches)
        for phase, launches in ((FORWARD, 1.0), (BACKWARD, BACKWARD_KERNELS))
    )
    none = Phase(terms=dict.fromkeys(TERMS, nothing), hidden=nothing, outlasting=nothing)
    return LayerTime(forward=forward, backward=backward, selective=none, full=none, host=nothing, collectives=nothing)


def recomputed_modules(job: Job, layer: Layer, shapes: Shapes, moe: bool, modules: Collection[str]) -> dict[str, Phase]:
    """Seconds that recomputing each module adds to the backward pass of one layer and micro-batch [s].

    The forward pass of what `module_operators` lists, with the module's own messages and the kernels that the host
    must launch for it.

    Source: NVIDIA/Megatron-LM, megatron/core/tensor_parallel/random.py (a checkpoint runs the module's forward pass).
    """
    if not set(modules).intersection(job.stack.features.recompute_modules):
        return {}
    curves = _curves(job)
    by_module = {}
    for module, operators in module_operators(job.model, shapes, job.software, layer, moe).items():
        if module not in modules:
            continue
        forward = _compute(job, operators, curves, backward=False)
        messages = module_messages(job, shapes, module, moe)
        host = (_kernels(job, operators) + launched(messages, FORWARD)) * _launch(job) + np.zeros_like(shapes.tp)
        host = host + (moe_host(job, shapes) if module == "moe" and moe else 0.0)
        drained = recomputed_launches(job, operators, "attention") if module == "mla_up_proj" and moe else 0.0
        by_module[module] = _phase(job, forward, messages, FORWARD, host, drained)
    return by_module


def recomputed_terms(
    job: Job, layer: Layer, curves: tuple[GemmCurve, GemmCurve], forward: dict[str, FloatArray]
) -> dict[str, FloatArray]:
    """Seconds that selective recomputation adds to one layer, by what the stack recomputes.

    "core": the attention core. "ops": half of the products and every other kernel but the core. "qkv": all but the
    projections into attention and the last product, whose output no gradient needs.

    Source: Korthikanti et al., arXiv 2205.05198, section 5 (core); AI-Hypercomputer/maxtext, remat_policy
    save_qkv_proj of its scripts for Llama 2 70B on H100 (qkv).
    """
    what = job.stack.features.selective
    if isinstance(layer.attention, Scan):
        forward = {**forward, "attention": forward["attention"] * (what != "core")}
    if what == "core":
        return {"attention": forward["attention"]}
    if what == "ops":
        return {"gemm": forward["gemm"] / 2, "elementwise": forward["elementwise"]}
    recomputed = tuple(product for product in layer.gemms[:-1] if not product.name.startswith(("q", "kv")))
    products = _compute(job, replace(layer, gemms=recomputed, attention=None, elementwise=()), curves, backward=False)
    return {"attention": forward["attention"], "gemm": products["gemm"], "elementwise": forward["elementwise"]}


def _curves(job: Job) -> tuple[GemmCurve, GemmCurve]:
    """The curves of products with quantised operands, and of all others."""
    low = curve_for(job.cluster.device, job.dtype)
    return low, low if job.wide_dtype == job.dtype else curve_for(job.cluster.device, job.wide_dtype)


def _compute(job: Job, layer: Layer, curves: tuple[GemmCurve, GemmCurve], *, backward: bool) -> dict[str, FloatArray]:
    """GPU seconds of the compute terms in one direction."""
    stack = job.stack
    low, high = curves
    scale, recipe = stack["gemm_efficiency"], recipe_of(job)
    gemm: FloatArray = np.zeros(1)
    casts: FloatArray = np.zeros(1)
    wide = [product for product in layer.gemms if not quantised(job, product)]
    narrow = [product for product in layer.gemms if quantised(job, product)]
    isolated = {False: iter(kernel_seconds(wide, high, backward)), True: iter(kernel_seconds(narrow, low, backward))}
    for product in layer.gemms:
        is_narrow = quantised(job, product)
        seconds = next(isolated[is_narrow])
        gemm = gemm + seconds / (scale * (recipe.rate if is_narrow else 1.0) * product.rate)
        if is_narrow:
            casts = casts + recipe.traffic * cast_bytes(product, backward)
    moved = sum((_moved(job, op, backward) for op in layer.elementwise), np.zeros(1))
    added = accumulation_bytes(layer, stack.features) if backward else 0.0
    core = attention.seconds(job, layer.attention, backward) if layer.attention else np.zeros_like(gemm)
    return {
        "gemm": gemm,
        "attention": core,
        "elementwise": elementwise_seconds(moved * stack["elementwise_passes"] + casts + added, job),
    }


def _kernels(job: Job, layer: Layer) -> FloatArray | float:
    """Kernels of one forward pass."""
    core = attention.launches(job, layer)
    casts = 2 * len(layer.gemms) if job.quantised else 0
    return launched_products(job, layer) + core + casts + sum(op.kernels for op in layer.elementwise)


def _launch(job: Job) -> float:
    """Time between two kernels that the host launches; graphs are replayed without it [s]."""
    return 0.0 if job.stack.features.cuda_graphs else call_seconds(job)


def _phase(
    job: Job,
    compute: dict[str, FloatArray],
    messages: Sequence[Message],
    phase: str,
    host: FloatArray,
    drained: FloatArray | float = 0.0,
    alone: BoolArray | None = None,
) -> Phase:
    """Compute, what its messages show, and the wait for the host, of which `drained` always shows.

    Only where it is `alone` (None: everywhere) does the all-to-all of tokens hide under the products of its own pass.
    """
    nothing = np.zeros(np.shape(host))
    terms, hidden = {name: np.broadcast_to(each, nothing.shape) for name, each in compute.items()}, nothing
    outlasting: dict[str, FloatArray] = {}  # by the term that is too short
    for parallelism in (TP, CP, EP):
        mine = [message for message in messages if (message.parallelism, message.phase) == (parallelism, phase)]
        sent = sum((message.seconds(job) for message in mine), nothing)
        under = mine[0].under if mine else ""
        overlap: FloatArray | float = job.stack[f"{parallelism}_overlap"]
        if parallelism == EP:
            overlap = job.stack.expert_overlap if alone is None else np.where(alone, job.stack.expert_overlap, 0.0)
        cover = compute.get(under, nothing) + outlasting.get(under, nothing)
        shown = exposed(sent, cover, overlap)
        outlasting[under] = outlasting.get(under, nothing) + beyond(sent, cover, overlap)
        taken = mine[0].taken if mine else 0.0
        terms[f"{parallelism}_communication"] = shown + taken * (sent - shown)
        hidden = hidden + sent - shown
    busy = sum(terms.values(), nothing)
    terms |= {"launch": np.maximum(launch_seconds(host, busy), drained)}
    return Phase(terms=terms, hidden=hidden, outlasting=sum(outlasting.values(), nothing))


def moe_host(job: Job, shapes: Shapes) -> FloatArray:
    """Host time of an MoE layer's forward pass besides the launches of its kernels [s].

    expert_host where the software launches experts eagerly, and two calls of a dispatcher whose messages the host
    sends. Small micro-batches wait for it, whatever the dispatcher: the same 14 to 18 ms a layer and micro-batch of
    Qwen3-30B over EFA and of DeepSeek-V2-Lite inside a node of MI355X.

    Source: fitted to awslabs/awsome-distributed-ai @95b939c at 512 tokens a rank; AMD-AGI/Primus @fd1eeab.
    """
    waits = job.stack["expert_host"] if job.stack.features.eager_experts else 0.0
    return np.asarray(waits + 2.0 * proxied_calls(job, shapes))


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
