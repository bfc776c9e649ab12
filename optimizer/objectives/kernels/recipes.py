"""How narrow operands get their scales, and what that costs: in products and in quantising."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.job.job import Job
from optimizer.job.stack import FP8_RECIPES
from optimizer.objectives.kernels.operators import Gemm


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """rate: of products / with one scale an operand; traffic: of quantising / 2 B read and 1 + 1 B written [1]."""

    rate: float = 1.0
    traffic: float = 1.0


# One scale for each row: the largest value of every row, and of every column for the gradients' products, is looked for
# before either copy is written, 2 + 2 + 1 B twice instead of 4 B; and products scale their results row by row. The rate
# is what the source leaves of its runs beside that traffic.
# Source: pytorch/ao, torchao/float8/README.md of 2025, Llama 3 8B on 8 H100: 6,150 tokens/s and GPU in bf16, 7,690 with
# one scale for each operand, 6,768 with one for each row.
ROWWISE = Recipe(rate=0.8, traffic=2.5)
RECIPES: Mapping[str, Recipe] = {name: ROWWISE if name == "rowwise" else Recipe() for name in FP8_RECIPES}


def quantised(job: Job, product: Gemm) -> bool:
    """Whether a product of a layer has narrow operands, which are quantised before it."""
    return job.quantised and product.low_precision and narrow_product(job.stack.features.narrow_products, product.name)


def narrow_product(which: str, name: str) -> bool:
    """Whether a product is one of those `which` a run quantises, of optimizer.job.stack.NARROW_PRODUCTS.

    >>> [narrow_product("experts", name) for name in ("experts_up", "qkv")]
    [True, False]
    """
    return which == "all" or (which == "experts") == name.startswith("experts_")
