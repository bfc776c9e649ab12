"""The parallel degrees multiply to the number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job import Job
from optimizer.plan import Plans

FINE_STEPS = 8
COARSE_STEPS = 28
NEAR_BATCH = 0.1  # share by which the batch may move with the number of GPUs


@dataclass(frozen=True, kw_only=True)
class GpuProduct:
    """tp x cp x pp x dp = gpus."""

    name: str = "gpu-product"
    variables: tuple[str, ...] = ("tp", "cp", "pp", "dp")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the degrees multiply to the GPUs."""
        return np.asarray(plans.gpus == job.gpus)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of the factorisations within the domains."""
        degrees, replicas = [program.domains[name] for name in ("tp", "cp", "pp")], set(program.domains["dp"])
        rows = [
            (tp, cp, pp, job.gpus // (tp * cp * pp))
            for tp, cp, pp in product(*degrees)
            if job.gpus % (tp * cp * pp) == 0 and job.gpus // (tp * cp * pp) in replicas
        ]
        program.allow(self.variables, rows, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        factors = prime_factors(job.gpus)
        powers = [f"{prime}^{factors.count(prime)}".removesuffix("^1") for prime in dict.fromkeys(factors)]
        shape = f"{job.gpus:,} is prime" if len(factors) == 1 else f"{job.gpus:,} = {' x '.join(powers)}"
        gpus = "1 GPU" if job.gpus == 1 else f"{job.gpus:,} GPUs ({shape})"
        return f"tp x cp x pp x dp must be exactly {gpus}"

    def steps(self, job: Job) -> Iterator[tuple[Job, str]]:
        """Other counts of whole nodes, nearest by ratio first: every one close by, then coarser.

        Each with the job's batch, then with one close by that more of its replicas can share.
        """
        node = job.cluster.gpus_per_node
        base = max(node, job.gpus // node * node)
        counts = {base + node * step for step in range(-FINE_STEPS, FINE_STEPS + 1)}
        for power in range(COARSE_STEPS):
            counts |= {int(base * ratio**power) // node * node for ratio in (1.25, 2.0, 0.5)}
        counts = {count for count in counts if 1 <= count <= job.cluster.max_gpus} - {job.gpus}
        for count in sorted(counts, key=lambda count: (max(count / job.gpus, job.gpus / count), count)):
            yield replace(job, gpus=count), f"{job.gpus:,} -> {count:,} GPUs"
            batch = shared_batch(job.global_batch, count)
            if batch != job.global_batch:
                words = f"{job.gpus:,} -> {count:,} GPUs with a global batch of {batch:,}"
                yield replace(job, gpus=count, global_batch=batch), words


def shared_batch(batch: int, gpus: int) -> int:
    """The batch, within a tenth of this one, that the largest divisor of the GPUs divides.

    >>> shared_batch(508, 2048), shared_batch(1536, 1024), shared_batch(48, 1009)
    (512, 1536, 48)
    """
    parts = [part for part in range(1, int(gpus**0.5) + 1) if gpus % part == 0]
    for divisor in sorted({*parts, *(gpus // part for part in parts)}, reverse=True):
        near = divisor * round(batch / divisor)
        if near and abs(near - batch) <= NEAR_BATCH * batch:
            return near
    return batch


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
