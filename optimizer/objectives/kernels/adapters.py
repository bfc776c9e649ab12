"""What a layer runs where linear layers are frozen: no gradients of their weights, adapters beside them, dequantising.

Source: Hu et al., arXiv 2106.09685, section 4.1; Liu et al., arXiv 2402.09353, section 4; Dettmers et al., arXiv
2305.14314, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from optimizer.job.job import Job
from optimizer.job.method import DEQUANTISED, DORA, Method
from optimizer.job.model import NOTHING, Model
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.kernels.operators import Elementwise, Gemm, Layer
from optimizer.objectives.kernels.shapes import Shapes

ELEMENT = 2.0  # bytes of an activation, and of a weight as products read it [B]
ROUTER, SCORES, HEAD = "router", "indexer_scores", "head"
# Words of job.method.GROUPS for the matrices that one product holds, side by side.
MATRICES: Mapping[str, tuple[str, ...]] = {
    **{"qkv": ("q", "k", "v"), "q": ("q",), "q_down": ("q",), "q_up": ("q",), "kv_down": ("k",), "kv_up": ("v",)},
    **{"attention_out": ("o",), "state_in": ("q",), "state_inner": ("k",), "state_out": ("o",), "gate": ("v",)},
    **{f"{mlp}_up": ("gate", "up") for mlp in ("mlp", "experts", "shared")},
    **{f"{mlp}_down": ("down",) for mlp in ("mlp", "experts", "shared")},
    **{"latent_down": ("up",), "latent_up": ("down",)},
}
KERNELS = {False: 5, True: 12}  # around an adapter: casts, scale, dropout and sum; DoRA's norms and scales besides
CASTS = 4  # kernels of an adapter in fp32: its inputs to fp32 and, under autocast, back, and its two matrices
# Time of unpacking weights by operations on integers (GPTQ) / that of one kernel (bitsandbytes): 0.256 s of a
# micro-batch of Qwen-7B against 0.183 (modelscope/ms-swift @cdb169b78, docs/source_en/LLM/Benchmark.md).
UNPACKED = {"int4": 1.4, "int8": 1.4}
DEQUANTISING = 2  # kernels for each matrix: its scales, itself
# What bitsandbytes' Python takes the host for each matrix besides, in launches: 0.23 to 0.44 ms of 36 to 45 us, by
# steps of QLoRA and LoRA on an H200 (bitsandbytes 0.50.2, 2026-11-26).
CALLED = 8


def part_of(product: str) -> str:
    """The part of a model, of optimizer.job.method.PARTS, that a product's weights are of.

    >>> part_of("qkv"), part_of("experts_up"), part_of("shared_down"), part_of("head")
    ('attention', 'experts', 'mlp', 'head')
    """
    if product == HEAD or product.startswith(("mlp", "shared")):
        return HEAD if product == HEAD else "mlp"
    return "experts" if product.startswith(("experts", "latent", ROUTER)) else "attention"


def matrices(model: Model, product: str) -> tuple[str, ...]:
    """The words for the matrices of a product.

    >>> from optimizer.catalog import load_model
    >>> matrices(load_model("gpt3"), "mlp_up"), matrices(load_model("llama3-8b"), "mlp_up")
    (('up',), ('gate', 'up'))
    """
    words = MATRICES.get(product, ())
    return ("up",) if words == ("gate", "up") and not model.gated_mlp else words


def adapted(model: Model, method: Method, product: str) -> tuple[str, ...]:
    """The words for those matrices of a product that have an adapter."""
    return tuple(word for word in matrices(model, product) if word in method.targets)


def launched_products(job: Job, layer: Layer) -> int:
    """Kernels of the products of a layer: one each, or in eager code one for every matrix and for every adapter's.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), stack=load_stack("hf-2026"), gpus=1,
    ...     seq_len=1, global_batch=1, train="lora:8:q+v")
    >>> one = np.ones(1)
    >>> products = tuple(Gemm(name=name, m=one, n=one, k=one) for name in ("qkv", "qkv_a", "qkv_b", "attention_out"))
    >>> launched_products(job, Layer(gemms=products, attention=None, elementwise=()))
    8
    """
    if not job.stack.features.eager:
        return len(layer.gemms)
    count = 0
    for product in layer.gemms:
        base = product.name.removesuffix("_a").removesuffix("_b")
        words = matrices(job.model, base) if base == product.name else adapted(job.model, job.method, base)
        count += max(len(words), 1)
    return count


def copied_bytes(job: Job, model: Model, shapes: Shapes, products: Sequence[Gemm]) -> FloatArray:
    """Copies of their inputs that adapters in fp32 keep, cast under autocast for each of them [B].

    Source: huggingface/peft v0.21.0, src/peft/tuners/lora/layer.py, _cast_input_dtype; PyTorch's autocast.
    """
    copied = np.zeros_like(shapes.tp)
    for product in products:
        words = adapted(model, job.method, product.name)
        copied = copied + ELEMENT * len(words) * product.m * product.k * product.batch
    return copied


def dropped_bytes(job: Job, model: Model, products: Sequence[Gemm]) -> FloatArray:
    """What dropout of adapters' inputs keeps: a mask of 1 B, and what is left, unless a copy is kept anyway [B].

    Source: PyTorch, aten/src/ATen/native/cuda/Dropout.cu (native_dropout keeps its mask); huggingface/peft v0.21.0,
    src/peft/tuners/lora/layer.py (Linear.forward: lora_A of the dropped inputs of each matrix).
    """
    resident, eager = np.zeros(1), job.eager_adapters
    if not job.stack.features.adapter_dropout:
        return resident
    for product in products:
        count = len(adapted(model, job.method, product.name))
        each = 1.0 + ELEMENT * (not (eager and job.wide_adapters))
        resident = resident + each * (count if eager else min(count, 1)) * product.m * product.k * product.batch
    return resident


def scaled_bytes(job: Job, model: Model, products: Sequence[Gemm]) -> tuple[FloatArray, FloatArray]:
    """What DoRA's scales keep of a layer besides, and what one of its matrices takes while it is scaled [B].

    Resident are the outputs of each frozen product and of its adapter in half precision, 2 x 2 m n, as the gradient of
    the magnitudes needs both. At once there are three copies of the outputs, the weight and what adapters add to it,
    all in the adapters' precision i: i (3 m n + 2 n k) of the largest matrix.

    Source: huggingface/peft v0.21.0, src/peft/tuners/lora/dora.py (DoraLinearLayer.forward).

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), stack=load_stack("hf-2026"), gpus=1,
    ...     seq_len=1, global_batch=1, train="dora:8:down")
    >>> down = Gemm(name="mlp_down", m=np.full(1, 1000.0), n=np.full(1, 4096.0), k=np.full(1, 14336.0))
    >>> [float(each[0]) / 4096 for each in scaled_bytes(job, job.model, [down])]
    [4000.0, 126688.0]
    """
    resident, passing = np.zeros(1), np.zeros(1)
    size = 4.0 if job.wide_adapters else ELEMENT
    for product in products:
        for word in adapted(model, job.method, product.name):
            width = width_of(model, product, (word,)) * product.batch
            resident = resident + 2.0 * ELEMENT * product.m * width
            passing = np.maximum(passing, size * width * (3.0 * product.m + 2.0 * product.k))
    return resident, passing


def width_of(model: Model, product: Gemm, words: Sequence[str]) -> FloatArray:
    """Outputs of those matrices of a product that these words name [elements].

    Of queries, keys and values by their widths, else in equal shares.

    >>> from optimizer.catalog import load_model
    >>> width = np.full(1, 6144.0)
    >>> width_of(load_model("llama3-8b"), Gemm(name="qkv", m=width, n=width, k=width), ("q", "v")).tolist()
    [5120.0]
    """
    whole = matrices(model, product.name)
    sizes = dict.fromkeys(whole, 1.0)
    if product.name == "qkv":
        sizes = {"q": float(model.q_dim), "k": float(model.kv_dim), "v": float(model.kv_dim)}
    share = sum(sizes[word] for word in whole if word in words) / max(sum(sizes.values()), 1.0)
    return np.asarray(product.n * share)


def adapters_of(model: Model, method: Method, product: Gemm) -> tuple[Gemm, ...]:
    """The two small products of the adapters beside a product: of its inputs to the rank, and on to its outputs.

    >>> from optimizer.catalog import load_model
    >>> from optimizer.job.method import method_of
    >>> width = np.full(1, 6144.0)
    >>> qkv = Gemm(name="qkv", m=width, n=width, k=np.full(1, 4096.0))
    >>> [float((each.n * each.k)[0]) for each in adapters_of(load_model("llama3-8b"), method_of("lora:8"), qkv)]
    [98304.0, 49152.0]
    """
    words = adapted(model, method, product.name)
    if not words or not product.weight or product.name in (ROUTER, SCORES):
        return ()
    rank = np.full_like(np.asarray(product.n, dtype=np.float64), float(method.rank))
    wide = replace(product, weight=True, low_precision=False)
    return (
        replace(wide, name=f"{product.name}_a", n=len(words) * rank),
        replace(wide, name=f"{product.name}_b", n=width_of(model, product, words), k=rank),
    )


def adapter_passes(job: Job, product: Gemm, small: Sequence[Gemm]) -> Elementwise:
    """What runs around the adapters of a product, each an operation of its own [B].

    Forward an adapter's outputs are scaled, 2 passes of half precision, and added to the product's, 3; backward the
    gradient of the inputs is added, 3, that of the outputs scaled, 2. In eager code each matrix of a product has an
    adapter that reads the inputs, and casts them to fp32 and back, 6 each way, where it is wide. Dropout reads and
    writes them and a mask of 1 B each way, in fp32 where they are cast: 2.5 or 4.5. DoRA reads the matrix
    for the norms of its columns and scales the outputs of both. Eager, it multiplies out its matrices by way of an
    identity in fp32, 5 passes of its square, adds them to the weight in fp32 and takes the norms, which have no
    gradient, 19 passes of the weight, and scales both outputs in fp32, 16 more each way.

    Source: huggingface/peft v0.21.0, src/peft/tuners/lora/layer.py (Linear.forward) and dora.py;
    NVIDIA-NeMo/Megatron-Bridge @067f987d, src/megatron/bridge/peft/lora_layers.py and utils.py.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=8, seq_len=2048, global_batch=64, train="lora")
    >>> m, n, k, rank = (np.asarray(size) for size in (2048, 4096, 14336, 16))
    >>> product, small = (Gemm(name="mlp_down", m=m, n=n, k=inner) for inner in (k, rank))
    >>> passes = adapter_passes(job, product, [small])
    >>> [float(moved) / (2048 * 4096 * ELEMENT) for moved in (passes.forward_bytes, passes.backward_bytes)]
    [5.0, 12.5]
    """
    eager, dora = job.eager_adapters, job.method.name == DORA
    wide = eager and job.wide_adapters
    count = len(adapted(job.model, job.method, product.name)) if eager else 1
    inputs = np.asarray(count * product.m * product.k * product.batch)
    outputs = np.asarray(product.m * small[-1].n * product.batch)
    drops = job.stack.features.adapter_dropout
    casts, kernels = (6.0 * wide + (2.5 + 2.0 * wide) * drops) * inputs, KERNELS[dora]
    forward, backward = casts + 5.0 * outputs, casts + 3.0 * inputs + 2.0 * outputs
    if dora:
        weight = np.asarray(product.n * product.k * product.batch)
        scales = (16.0 if eager else 4.0) * outputs
        norms = 19.0 * weight + 5.0 * count * product.k**2 * product.batch if eager else 3.0 * weight
        forward, backward = forward + scales + norms, backward + scales
    if eager:
        kernels = count * (2 + CASTS * wide + drops + (KERNELS[True] + 4) * dora)
    return Elementwise(
        name="adapter", forward_bytes=ELEMENT * forward, backward_bytes=ELEMENT * backward, kernels=kernels
    )


def idle_bytes(job: Job, model: Model, shapes: Shapes, moe: bool) -> dict[str, FloatArray]:
    """Inputs of frozen products without adapters, per micro-batch and rank, which no gradient needs, by part [B].

    Outputs of norms, t h i / sp, before queries, keys and values and before a dense MLP, and of its activation,
    t f i / tp; i: bytes of an operand. Attention keeps its output for its own backward pass. Fused adapters have the
    gate's activation and its product with the other half computed again.

    Source: PyTorch, torch/csrc/autograd, whose products keep an input where the weight has a gradient alone;
    bitsandbytes 0.42.0, autograd/_functions.py, MatMul4Bit, which keeps it anyway until 9e753741 of July 2024;
    axolotl-ai-cloud/axolotl v0.21.0, src/axolotl/kernels/lora.py, LoRA_MLP.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan, Plans
    >>> from optimizer.objectives.kernels.shapes import shapes_of
    >>> def width(train: str, stack: str = "hf-2026") -> float:
    ...     job = Job(model=load_model("llama3-8b"), cluster=load_cluster("dgx-h100"), stack=load_stack(stack),
    ...         gpus=1, seq_len=1, global_batch=1, train=train)
    ...     parts = idle_bytes(job, job.model, shapes_of(job, Plans.of([Plan()])), moe=False)
    ...     return sum(float(part[0]) for part in parts.values()) / 2
    >>> width("full"), width("lora:8:all"), width("lora:8:q") == width("qlora:8:q") == 4096 + 14336
    (0.0, 0.0, True)
    >>> width("qlora:8:q", "litgpt-2023")
    0.0
    """
    size, method = 1.0 if job.quantised else ELEMENT, job.method
    stream, nothing = size * shapes.tokens * model.hidden / shapes.sp, np.zeros_like(shapes.tp)
    idle = {"attention": nothing, "mlp": nothing}
    if not method.freezes or (job.stack.features.keeps_quantised_inputs and method.in_nf4):
        return idle

    def unused(part: str, words: Sequence[str]) -> bool:
        return not method.trains(part) and not set(words).intersection(method.targets)

    if model.has_attention and not model.mla and unused("attention", ("q", "k", "v")):
        idle["attention"] = stream
    if not moe and model.feed_forwards != NOTHING:
        if unused("mlp", ("gate", "up")) and not model.parallel_block:
            idle["mlp"] = stream
        recomputed = job.fused_adapters * (1 if job.stack.features.fused_norm else 2)
        inputs = unused("mlp", ("down",)) or recomputed
        idle["mlp"] = idle["mlp"] + inputs * size * shapes.tokens * model.ffn_hidden / shapes.tp
    return idle


def trained_layer(job: Job, layer: Layer) -> Layer:
    """The layer as the job's method trains it: the layer itself where everything is.

    Frozen products have no gradient of their weights. Dequantising reads an element as it is stored and writes it in 16
    bits, in each pass over the layer, and takes dequantise_passes times as long as that. Products in four bits read
    weights of four bits as they are.
    """
    method = job.method
    if not method.freezes:
        return layer
    gemms: list[Gemm] = []
    elementwise = list(layer.elementwise)
    for product in layer.gemms:
        frozen = product.name != SCORES and not method.trains(part_of(product.name))
        small = adapters_of(job.model, method, product) if method.adapts else ()
        gemms += [*small, replace(product, weight=False) if frozen else product]
        if small:
            elementwise.append(adapter_passes(job, product, small))
        dequantised = method.base in DEQUANTISED and not ("fp4" in job.dtype and "fp4" in method.base)
        if frozen and dequantised and product.name not in (ROUTER, HEAD):
            passes = job.stack["dequantise_passes"] * UNPACKED.get(method.base, 1.0) / job.stack["elementwise_passes"]
            moved = passes * (method.base_bytes + ELEMENT) * product.n * product.k * product.batch
            count = (DEQUANTISING + CALLED * job.stack.features.eager) * max(len(matrices(job.model, product.name)), 1)
            elementwise.append(Elementwise(name="dequantise", forward_bytes=moved, backward_bytes=moved, kernels=count))
    return replace(layer, gemms=tuple(gemms), elementwise=tuple(elementwise))
