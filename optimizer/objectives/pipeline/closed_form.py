"""The bubble of a pipeline schedule as a share of its time."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from optimizer.objectives.arrays import FloatArray


def bubble_fraction(pp: ArrayLike, vpp: ArrayLike, microbatches: ArrayLike, left: ArrayLike = 1.0) -> FloatArray:
    """Share of the pipeline's time that a stage idles: (pp - 1) l / (vpp m + (pp - 1) l) [1].

    `left` l is what the schedule leaves of the bubble of 1F1B (`bubble_left`).

    Source: Narayanan et al., arXiv 2104.04473, section 2.2, there as idle over ideal time (pp - 1) / (vpp m).

    >>> round(float(bubble_fraction(4, 1, 16)), 3), round(float(bubble_fraction(4, 1, 16, 1 / 3)), 3)
    (0.158, 0.059)
    """
    idle = (_float(pp) - 1) * _float(left)
    return idle / (_float(vpp) * _float(microbatches) + idle)


def _float(value: ArrayLike) -> FloatArray:
    return np.asarray(value, dtype=np.float64)
