"""Where a layer lies on the rooflines of memory and network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.objectives.kernels.operators import Layer, Scan, layer_operators
from optimizer.objectives.kernels.roofline import attainable_flops, ridge
from optimizer.objectives.kernels.shapes import Shapes

BACKWARD_PRODUCTS = 2  # of a weight matrix: gradients of its input and of itself


@dataclass(frozen=True, kw_only=True)
class LayerRoofline:
    """One layer, one micro-batch, one GPU, forward and backward."""

    flops: float  # operations [FLOP]
    memory: float  # traffic [B]
    network: float  # what a GPU sends in the tier that this takes longest in [B]
    peak: float  # [FLOP/s]
    memory_bandwidth: float  # [B/s]
    network_bandwidth: float  # that tier's, one way and per GPU [B/s]
    network_tier: str = ""  # its name, "" where nothing is sent

    @property
    def memory_intensity(self) -> float:
        """Operations per byte of memory traffic [FLOP/B]."""
        return self.flops / self.memory

    @property
    def network_intensity(self) -> float:
        """Operations per byte sent [FLOP/B]; infinite for a layer that sends nothing."""
        return self.flops / self.network if self.network else float("inf")

    @property
    def memory_ridge(self) -> float:
        """Intensity from which on memory is not the limit [FLOP/B]."""
        return ridge(self.peak, self.memory_bandwidth)

    @property
    def network_ridge(self) -> float:
        """Intensity from which on the network is not the limit [FLOP/B]."""
        return ridge(self.peak, self.network_bandwidth) if self.network else 0.0

    @property
    def attainable(self) -> float:
        """Rate under both roofs [FLOP/s]."""
        by_memory = float(attainable_flops(self.memory_intensity, self.peak, self.memory_bandwidth))
        if not self.network:
            return by_memory
        return min(by_memory, float(attainable_flops(self.network_intensity, self.peak, self.network_bandwidth)))

    @property
    def bound(self) -> str:
        """The limit: "compute", "memory" or "network"."""
        seconds = {
            "compute": self.flops / self.peak,
            "memory": self.memory / self.memory_bandwidth,
            "network": self.network / self.network_bandwidth if self.network else 0.0,
        }
        return max(seconds, key=lambda name: seconds[name])


def layer_roofline(job: Job, plan: Plan, sent: Sequence[float]) -> LayerRoofline:
    """The roofline of the kind of layer that the model has most of; `sent` is what it sends in each tier [B].

    FLOP: products and unmasked scores, three times the forward pass, 3.5 times for fused attention, whose backward
    pass computes the scores again. Memory: the operands and results of each product, queries, keys, values and outputs
    of fused attention, and the element-wise kernels.

    Source: Williams, Waterman, Patterson 2009; Dao, arXiv 2307.08691, section 3 (attention's traffic).
    """
    most = max(job.model.kinds, key=lambda kind: (kind.count, not kind.moe))
    columns: dict[str, Any] = {
        name: np.array([float(getattr(plan, name))]) for name in ("tp", "cp", "ep", "etp", "micro_batch")
    }
    shapes = Shapes(**columns, sequence_parallel=np.array([plan.sequence_parallel]), seq_len=job.seq_len)
    layer = layer_operators(most.model, shapes, job.software, most.moe, job.row_multiple)
    tiers = job.cluster.tiers
    level = max(range(len(tiers)), key=lambda number: sent[number] / tiers[number].bandwidth)
    products = sum(float(np.sum(gemm.flops)) for gemm in layer.gemms)
    scores = float(np.sum(layer.attention.flops)) if layer.attention else 0.0
    return LayerRoofline(
        flops=(1 + BACKWARD_PRODUCTS) * products + 3.5 * scores,
        memory=_memory(layer, 1.0 if job.quantised else 2.0),
        network=sent[level],
        peak=job.peak_flops,
        memory_bandwidth=job.cluster.device.memory_bandwidth,
        network_bandwidth=tiers[level].bandwidth,
        network_tier=tiers[level].name if sent[level] else "",
    )


def _memory(layer: Layer, width: float) -> float:
    """Bytes through memory, operands of products `width` bytes each, everything else two."""
    operands = (
        gemm.batch * ((gemm.m * gemm.k + gemm.k * gemm.n) * width + gemm.m * gemm.n * 2.0) for gemm in layer.gemms
    )
    products = sum((1 + BACKWARD_PRODUCTS) * float(np.sum(each)) for each in operands)
    kernels = sum(float(np.sum(op.forward_bytes + op.backward_bytes)) for op in layer.elementwise)
    if layer.attention is None:
        return products + kernels
    core = layer.attention
    if isinstance(core, Scan):
        return products + kernels + 3.0 * float(np.sum(core.moved))
    rows = float(np.sum(core.heads * (core.queries * (core.qk_dim + core.v_dim))))
    columns = float(np.sum(core.heads * core.keys * (core.qk_dim + core.v_dim)))
    return products + kernels + 3 * 2.0 * (rows + columns)
