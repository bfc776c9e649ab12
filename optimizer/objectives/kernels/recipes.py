"""How narrow operands get their scales, and what that costs: in products and in quantising."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.job.job import Job
from optimizer.job.stack import MXFP8
from optimizer.objectives.kernels.operators import Gemm


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """rate: of products / with one scale an operand; traffic: of quantising / 2 B read and 1 + 1 B written [1]."""

    rate: float = 1.0
    traffic: float = 1.0


def traffic(reads: float, width: float, scales: float = 0.0) -> float:
    """Bytes of quantising an element / the 4 B of one read in 16 bits and two copies of 8 [1].

    (2 reads + 2 (width + scales)) / 4. reads: how often it is read; width: of a copy, scales: of its share of them [B].

    >>> traffic(1, 1.0), traffic(3, 0.5, 1 / 16)
    (1.0, 1.78125)
    """
    return (2.0 * reads + 2.0 * (width + scales)) / 4.0


# One scale for each row: the largest value of every row, and of every column for the gradients' products, is looked for
# before either copy is written, 2 + 2 + 1 B twice instead of 4 B; and products scale their results row by row. The rate
# is what the source leaves of its runs beside that traffic.
# Source: pytorch/ao, torchao/float8/README.md of 2025, Llama 3 8B on 8 H100: 6,150 tokens/s and GPU in bf16, 7,690 with
# one scale for each operand, 6,768 with one for each row.
ROWWISE = Recipe(rate=0.8, traffic=2.5)
# A scale of 4 B for 128 elements, or of 1 B for 32, is found where the block is read.
# Source: DeepSeek-V3, arXiv 2412.19437, section 3.3.2; OCP Microscaling Formats v1.0, section 5.3.
BLOCKWISE, MICROSCALED = Recipe(traffic=traffic(1, 1.0, 4 / 128)), Recipe(traffic=traffic(1, 1.0, 1 / 32))
# Four bits with a scale of 1 B for 16: one kernel looks for the largest values of the tensor and of its rotated copy,
# one writes the rows, one rotates, transposes and writes the columns; each reads the tensor.
# Source: NVIDIA/TransformerEngine v2.8, transformer_engine/pytorch/csrc/quantizer.cpp, NVFP4Quantizer::quantize_impl
# (nvte_hadamard_transform_amax, nvte_quantize_v2, nvte_hadamard_transform_cast_fusion_columnwise).
NVFP4 = Recipe(traffic=traffic(3, 0.5, 1 / 16))
RECIPES: Mapping[str, Recipe] = {"rowwise": ROWWISE, "blockwise": BLOCKWISE, MXFP8: MICROSCALED}


def recipe_of(job: Job) -> Recipe:
    """How the job's narrow operands are scaled: four bits as NVFP4, eight as its software has it."""
    return NVFP4 if "fp4" in job.dtype else RECIPES.get(job.stack.features.fp8_recipe, Recipe())


def quantised(job: Job, product: Gemm) -> bool:
    """Whether a product of a layer has narrow operands, which are quantised before it."""
    return job.quantised and product.low_precision and narrow_product(job.stack.features.narrow_products, product.name)


def narrow_product(which: str, name: str) -> bool:
    """Whether a product is one of those `which` a run quantises, of optimizer.job.stack.NARROW_PRODUCTS.

    >>> [narrow_product("experts", name) for name in ("experts_up", "qkv")]
    [True, False]
    """
    return which == "all" or (which == "experts") == name.startswith("experts_")
