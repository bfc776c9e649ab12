"""The roofline: what a kernel can reach when either the units or what feeds them sets the pace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optimizer.base.errors import InputError
from optimizer.objectives.arrays import FloatArray

WORDS = 3.0  # words sent and received per word of a direct reduce-scatter whose multicast is free to send


def attainable_flops(intensity: ArrayLike, peak: ArrayLike, bandwidth: ArrayLike) -> FloatArray:
    """Rate that a kernel can reach at most [FLOP/s].

    min(peak, bandwidth x intensity), with the peak [FLOP/s], the bandwidth of memory or network [B/s] and the
    arithmetic intensity, operations per byte moved over it [FLOP/B].

    Source: Williams, Waterman, Patterson 2009, Communications of the ACM 52(4).

    >>> attainable_flops([100.0, 1000.0], 1e15, 3e12).tolist()
    [300000000000000.0, 1000000000000000.0]
    """
    fed = np.asarray(bandwidth, dtype=np.float64) * np.asarray(intensity, dtype=np.float64)
    return np.minimum(np.asarray(peak, dtype=np.float64), fed)


def ridge(peak: float, bandwidth: float) -> float:
    """Arithmetic intensity from which on the units are the limit: peak / bandwidth [FLOP/B].

    >>> ridge(1e15, 2e12)
    500.0
    """
    return peak / bandwidth


@dataclass(frozen=True, kw_only=True)
class LinearLayer:
    """A matrix of `inputs` x `outputs` elements of `element_bytes`, cut into tp_in x tp_out tiles, on dp replicas."""

    inputs: int
    outputs: int
    tp_in: int = 1
    tp_out: int = 1
    dp: int = 1
    element_bytes: float = 2.0

    def __post_init__(self) -> None:
        degrees = {name: getattr(self, name) for name in ("inputs", "outputs", "tp_in", "tp_out", "dp")}
        if wrong := [f"{name} must be at least 1, but got {value}" for name, value in degrees.items() if value < 1]:
            raise InputError("; ".join(wrong))

    @property
    def local_inputs(self) -> float:
        """Input width of one tile [elements]."""
        return self.inputs / self.tp_in

    @property
    def local_outputs(self) -> float:
        """Output width of one tile [elements]."""
        return self.outputs / self.tp_out

    @property
    def local_parameters(self) -> float:
        """Elements of one tile."""
        return self.local_inputs * self.local_outputs


@dataclass(frozen=True, kw_only=True)
class RooflineRates:
    """What one GPU reaches: `flops` [FLOP/s] in the layer's dtype, `memory` and `network` [B/s]."""

    flops: float
    memory: float
    network: float


@dataclass(frozen=True, kw_only=True)
class LayerWork:
    """Operations [FLOP] and bytes moved over memory and network [B] by one GPU."""

    flops: float
    memory: float
    network: float

    def seconds(self, rates: RooflineRates) -> dict[str, float]:
        """Time that each resource alone would need [s]."""
        return {
            "compute": self.flops / rates.flops,
            "memory": self.memory / rates.memory,
            "network": self.network / rates.network,
        }

    def time(self, rates: RooflineRates) -> float:
        """The slowest resource's time [s]."""
        return max(self.seconds(rates).values())

    def bound(self, rates: RooflineRates) -> str:
        """The slowest resource: "compute", "memory" or "network"."""
        seconds = self.seconds(rates)
        return max(seconds, key=lambda name: seconds[name])


def all_reduce_words(words: float, ranks: int, passes: float = WORDS) -> float:
    """Words that a GPU sends or receives in an all-reduce: passes x (ranks - 1) / ranks x words [elements].

    passes = 3 counts one send and two receives of a direct reduce-scatter and multicast, over a link whose bandwidth
    counts both directions; 2 is the ring's traffic in each direction.

    >>> all_reduce_words(1000.0, 4), all_reduce_words(1000.0, 4, passes=2.0)
    (2250.0, 1500.0)
    """
    return passes * (ranks - 1) / ranks * words


def forward_backward_work(layer: LinearLayer, tokens: float, passes: float = WORDS) -> LayerWork:
    """Work of one GPU for the forward and backward pass over `tokens` of all replicas together.

    FLOP: 3 products of 2 x parameters x tokens / dp. Memory: weights read twice, gradient read and written, inputs
    reloaded once, and each all-reduce's words. Network: outputs reduced over tp_in, input gradients over tp_out.

    Source: the linear-layer roofline with 3 (p - 1) n / p words per all-reduce; FLOPs as in Kaplan et al.,
    arXiv 2001.08361, section 2.1.

    Without any parallelism a 1 x 1 layer does 6 FLOP a token and moves 4 + 1 elements:

    >>> forward_backward_work(LinearLayer(inputs=1, outputs=1), 1)
    LayerWork(flops=6.0, memory=10.0, network=0.0)
    """
    local = tokens / layer.dp
    reduced = all_reduce_words(layer.local_outputs * local, layer.tp_in, passes)
    reduced += all_reduce_words(layer.local_inputs * local, layer.tp_out, passes)
    moved = 4.0 * layer.local_parameters + layer.local_inputs * local + reduced
    return LayerWork(
        flops=6.0 * layer.local_parameters * local,
        memory=moved * layer.element_bytes,
        network=reduced * layer.element_bytes,
    )


def gradient_work(layer: LinearLayer, passes: float = WORDS) -> LayerWork:
    """Work of one GPU for the all-reduce of the layer's gradient over the replicas at the end of a batch.

    >>> gradient_work(LinearLayer(inputs=10, outputs=10, dp=4)).network
    450.0
    """
    moved = all_reduce_words(layer.local_parameters, layer.dp, passes) * layer.element_bytes
    return LayerWork(flops=0.0, memory=moved, network=moved)
