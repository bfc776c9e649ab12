"""Rows of routed tokens: what it takes to sort them around the all-to-all, and what their products lose in groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.kernels.shapes import Shapes, by_dispatcher

# HBM traffic of rows gathered and scattered by index / that of the same rows in order: scanned over 1, 2 and 3.
# Mixtures of NVIDIA-NeMo/Megatron-Bridge err by 6.6, 5.4 and 6.9 % when its stack is refitted, by 15.8, 12.3 and 12.5 %
# with the default stack, whose element-wise rate is that of dense runs.
GATHERED = 2.0


@dataclass(frozen=True, kw_only=True)
class Permuting:
    """How often rows of routed tokens are read or written around the all-to-all, forward and backward, in how many
    kernels of a forward pass.
    """

    forward: float
    backward: float
    kernels: float


# All-to-all sorts rows by rank before it and by expert after it, and back: four times, read and written. Dispatchers
# with kernels of their own copy a token where it is sent: only the sort by expert and back are left, which HybridEP
# does with the padding and the copy out of its buffer. A backward pass also reads them for the gradient of the
# router's weights.
# Source: NVIDIA/Megatron-LM @3c1b98efdc^, DeepSeek-V3 GB200 guide, sections 2.1.1 and 2.5.
PERMUTING = {
    "alltoall": Permuting(forward=8.0, backward=10.0, kernels=40.0),
    "deepep": Permuting(forward=4.0, backward=6.0, kernels=20.0),
    "hybridep": Permuting(forward=4.0, backward=6.0, kernels=20.0),
}
FUSED = Permuting(forward=2.0, backward=3.0, kernels=4.0)
# Rows that an expert's start and end are worth in a grouped product: DeepGEMM on H800 reaches 0.84 of one product of
# the shape with thousands of rows for each of 4 to 8 experts, 0.78 with 512 and 0.74 with 256.
# Source: deepseek-ai/DeepGEMM @a6d97a1, README.md, grouped products.
GROUP_ROWS = 36.0


def permuting(shapes: Shapes) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Passes over the routed rows, forward and backward, as long as those in order, and the kernels forward [1].

    >>> one = np.ones(1)
    >>> shapes = Shapes(tp=one, cp=one, ep=one, etp=one, micro_batch=one, sequence_parallel=one > 2, seq_len=1)
    >>> [passes.tolist() for passes in permuting(shapes)]
    [[16.0], [20.0], [40.0]]
    """
    return (
        by_dispatcher(shapes, lambda which: GATHERED * PERMUTING[which].forward),
        by_dispatcher(shapes, lambda which: GATHERED * PERMUTING[which].backward),
        by_dispatcher(shapes, lambda which: PERMUTING[which].kernels),
    )


def grouped_rate(rows: FloatArray) -> FloatArray:
    """Rate of a grouped product / that of experts with any number of rows [1]: rows / (rows + GROUP_ROWS).

    rows: of one expert [1]. Source: see GROUP_ROWS; the form is assumed.

    >>> grouped_rate(np.array([36.0, 324.0])).tolist()
    [0.5, 0.9]
    """
    return np.asarray(rows / (rows + GROUP_ROWS))
