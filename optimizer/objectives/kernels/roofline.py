"""The roofline: what a kernel can reach when either the units or what feeds them sets the pace."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from optimizer.objectives.arrays import FloatArray


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
