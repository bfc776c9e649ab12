"""The parallel degrees multiply to the number of GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, nearest_first
from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plans


@dataclass(frozen=True, kw_only=True)
class GpuProduct:
    """tp x cp x pp x dp = gpus."""

    name: str = "gpu-product"
    variables: tuple[str, ...] = ("tp", "cp", "pp", "dp")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the degrees multiply to the GPUs."""
        return np.asarray(plans.gpus == job.gpus)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of the factorisations."""
        rows = [(*row, job.gpus // prod(row)) for row in program.combinations(self.variables[:-1])]
        program.allow(self.variables, [row for row in rows if prod(row) == job.gpus], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        factors = prime_factors(job.gpus)
        powers = [f"{prime}^{factors.count(prime)}".removesuffix("^1") for prime in dict.fromkeys(factors)]
        shape = f"{job.gpus:,} is prime" if len(factors) == 1 else f"{job.gpus:,} = {' x '.join(powers)}"
        gpus = "1 GPU" if job.gpus == 1 else f"{job.gpus:,} GPUs ({shape})"
        return f"tp x cp x pp x dp must be exactly {gpus}"

    def others(self, job: Job) -> IntArray:
        """Every number of whole nodes on the cluster, and of GPUs inside one node, nearest first.

        Where the job itself takes a part of a node beside whole ones, every number within a node of its own as well.

        >>> from optimizer.catalog import load_cluster, load_model, load_stack
        >>> job = Job(model=load_model("gpt3-13b"), cluster=load_cluster("dgx-h100"), gpus=12, seq_len=2048,
        ...     stack=load_stack("megatron-core"), global_batch=64)
        >>> GpuProduct().others(job)[:6].tolist()
        [11, 13, 10, 14, 9, 15]
        """
        return _others(job.cluster.gpus_per_node, job.cluster.max_gpus, job.gpus)

    def moved(self, job: Job, other: Job) -> str:
        """The change from one job to another."""
        batch = f" with a global batch of {other.global_batch:,}" if other.global_batch != job.global_batch else ""
        return f"{job.gpus:,} -> {other.gpus:,} GPUs{batch}"

    def none(self, job: Job) -> str:
        """That none of those numbers is enough."""
        node = job.cluster.gpus_per_node
        near = ", nor within a node of it" if job.gpus > node and job.gpus % node else ""
        counts = f"no number of GPUs inside a node, nor of whole nodes up to {job.cluster.max_gpus:,} GPUs{near}"
        return f"{counts}, is enough, even with a batch a tenth off"


@lru_cache(maxsize=32)
def _others(node: int, most: int, gpus: int) -> IntArray:
    """As GpuProduct.others, by GPUs of a node and of the cluster."""
    inside, whole = np.arange(1, min(node, most + 1)), np.arange(node, most + 1, node)
    near = np.arange(gpus - node + 1, min(gpus + node, most + 1)) if gpus > node and gpus % node else inside
    numbers = nearest_first(np.unique(np.concatenate([inside, whole, near])).astype(np.int64), gpus)
    numbers.flags.writeable = False
    return numbers


def prime_factors(number: int) -> list[int]:
    """Prime factors in rising order.

    >>> prime_factors(1000)
    [2, 2, 2, 5, 5, 5]
    """
    factors, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return factors + [number] * (number > 1)
