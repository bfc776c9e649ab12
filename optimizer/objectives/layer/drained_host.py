"""Launches that show in an MoE layer whose host waits for the sizes of each all-to-all: after the wait it has no lead.

A host that runs ahead hides what it launches. One that has waited for the GPU issues the small kernels of the router,
of quantising and of permuting one by one while the GPU idles, unless they are replayed as a graph. Counts are of calls,
each as long as a launch.

Source: NVIDIA/Megatron-LM @3c1b98efdc^, DeepSeek-V3 GB200 guide, sections 2.1 to 2.4: kernels of router and preprocess
(72, fused 31, with the dispatcher's own kernel 17), what quantising an expert's tensor in MXFP8 allocates and swizzles,
what graphs capture, "each PyTorch API call introduces several microseconds".
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from optimizer.catalog.hardware import device_names, preset_device
from optimizer.job.job import Job
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.kernels import attention
from optimizer.objectives.kernels.operators import Gemm, Layer
from optimizer.objectives.kernels.recipes import quantised
from optimizer.objectives.kernels.shapes import Shapes, by_dispatcher

CALLS = 3.0  # of a kernel: the framework's operation, the tensor that it writes and the launch
ROUTER = {"alltoall": 31.0, "deepep": 17.0, "hybridep": 17.0}  # kernels of router and preprocess in both passes
UNFUSED_ROUTER = 41.0  # what fusing saves of them: 72 - 31
# Calls of a quantised product: for each operand the conversion, its launch, four tensors (rows and columns, each with
# its scales), and the swizzle of the scales for either order.
QUANTISED = 2.0 * (2.0 + 4.0 + 2.0)
# Calls of a module that is recomputed apart: random states saved and restored, its graph built once more; fitted to the
# step of the guide that leaves the up-projections' recomputation out, "serious CPU overhead" as it says.
CHECKPOINTED = 80.0
SCALES = 6.0  # calls of an expert's operand without a common buffer: four tensors, of which two are set to zero
SWIZZLES = 4.0  # calls of an expert's product without a common swizzle: two operands
UNBOUND = 1.6  # time of a call where processes are not bound to the cores beside their GPU, fitted to the guide's step


def call_seconds(job: Job) -> float:
    """Host time of one call [s]: the stack's launch, UNBOUND times as long where nothing binds the process.

    Arm hosts beside the GPU are slower: PyTorch's Linear takes that of GH200 33.2 us, of GB200 37.1 us, of a DGX H100
    13.5 us. A launch fitted to runs of such devices knows their hosts.

    Source: NVIDIA/TransformerEngine, issue 2053 (bf16, 8192 tokens, hidden size 2048).
    """
    slower = max(1.0, job.cluster.device.host_slowness / _known_slowness(job.stack.devices))
    return job.stack["launch"] * slower * (1.0 if job.stack.features.bound_host else UNBOUND)


@lru_cache(maxsize=64)
def _known_slowness(devices: tuple[str, ...]) -> float:
    """Of the slowest host of these devices, over that of an x86 server [1]."""
    return max((preset_device(name).host_slowness for name in devices if name in device_names()), default=1.0)


def shown_launches(job: Job, layer: Layer, shapes: Shapes, backward_kernels: float) -> FloatArray:
    """Launches of an MoE layer's forward pass that nothing hides [s].

    launch x calls of attention, router, routed and shared experts that no graph replays, as none does for plans that
    recompute whole layers; 0 in software whose host does not wait, or replays whole layers. `backward_kernels`: kernels
    of a backward pass / those of a forward pass; the router's count is that of both.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.objectives.kernels.operators import layer_operators
    >>> job = Job(model=load_model("deepseek-v3"), cluster=load_cluster("gb200-nvl72"), dtype="fp8", gpus=256,
    ...     stack=load_stack("megatron-core-2025"), seq_len=4096, global_batch=2048)
    >>> one = np.ones(1)
    >>> shapes = Shapes(tp=one, cp=one, ep=32 * one, etp=one, micro_batch=one, sequence_parallel=one > 2, seq_len=4096)
    >>> layer = layer_operators(job.model, shapes, job.stack, moe=True)
    >>> shown_launches(job, layer, shapes, 1.6).round(6).tolist()
    [0.002257]
    """
    features = job.stack.features
    if not features.synchronised or features.cuda_graphs:
        return np.zeros_like(shapes.tp)
    calls: dict[str, FloatArray | float] = {
        "attention": _attention_calls(job, layer),
        "router": _router_calls(job, shapes, backward_kernels) / (1.0 + backward_kernels),
        "shared_experts": _shared_calls(job, layer),
        "experts": expert_calls(job, layer, shapes),
    }
    shown = sum((count for part, count in calls.items() if part not in features.graphed), np.zeros_like(shapes.tp))
    if shapes.eager is not None:
        shown = np.where(shapes.eager, sum(calls.values(), np.zeros_like(shapes.tp)), shown)
    return np.asarray(shown * call_seconds(job))


def recomputed_launches(job: Job, module: Layer, part: str) -> float:
    """Launches of a module recomputed in such an MoE layer, 0 where graphs replay the `part` that it is of [s]."""
    features = job.stack.features
    if not features.synchronised or features.cuda_graphs or part in features.graphed:
        return 0.0
    kernels = sum(float(np.max(op.kernels)) for op in module.elementwise)
    return (CHECKPOINTED + _product_calls(job, list(module.gemms)) + CALLS * kernels) * call_seconds(job)


def expert_calls(job: Job, layer: Layer, shapes: Shapes) -> FloatArray:
    """Calls for the routed experts of a rank: permutation, activation and, for each expert, its products [1].

    Products of wide operands are one grouped kernel for each matrix, and so are those that apply the gate. Others
    convert and multiply expert by expert, and each matrix has its buffer and its scales swizzled once, or for each
    expert in software that does not fuse this.
    """
    unfused = job.stack.features.unfused
    permute = next(kernel.kernels for kernel in layer.elementwise if kernel.name == "permute")
    calls = CALLS * (np.asarray(permute) + 2.0 + np.zeros_like(shapes.tp))
    for product in layer.gemms:
        if not product.name.startswith("experts_"):
            continue
        if not quantised(job, product) or job.software.features.fused_experts:
            calls = calls + CALLS
            continue
        each = CALLS + SCALES * ("scales" in unfused) + SWIZZLES * ("swizzle" in unfused)
        calls = calls + each * product.batch + CALLS * 2.0
    return np.asarray(calls)


def _attention_calls(job: Job, layer: Layer) -> float:
    """Calls for the projections, the core and the norms [1]."""
    projections = [g for g in layer.gemms if not g.name.startswith(("router", "experts_", "shared_", "mlp_"))]
    core = attention.launches(job, layer)
    kernels = core + sum(float(op.kernels) for op in layer.elementwise if op.name in ("norm_residual", "rotary"))
    return _product_calls(job, projections) + CALLS * kernels


def _shared_calls(job: Job, layer: Layer) -> float:
    """Calls for shared experts and their activation, none where there are none [1]."""
    products = [g for g in layer.gemms if g.name.startswith("shared_")]
    return _product_calls(job, products) + (CALLS * 2.0 if products else 0.0)


def _router_calls(job: Job, shapes: Shapes, backward_kernels: float) -> FloatArray:
    """Calls for router and preprocess in both passes [1]: backward the engine issues them, without an operation."""
    more = UNFUSED_ROUTER * ("router" in job.stack.features.unfused)
    each = (CALLS + (CALLS - 1.0) * backward_kernels) / (1.0 + backward_kernels)
    return each * (by_dispatcher(shapes, lambda which: ROUTER[which]) + more)


def _product_calls(job: Job, products: list[Gemm]) -> float:
    return sum(CALLS + QUANTISED * quantised(job, product) for product in products)
