"""Half-widths of few runs: a quantile of the errors of their own groups and, as one more group, of those of others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.interval import LEVEL

QUANTILES = np.arange(0.025, 1.0, 0.05)  # how the errors of others are kept: twenty of equal weight


def shared_quantile(
    scores: FloatArray, groups: NDArray[np.intp], others: Sequence[float], level: float = LEVEL
) -> float:
    """The width that covers `level` of one's own scores and those of others together [1].

    Every group of like runs weighs 1, whatever its number of runs, and so do all `others` together: of many groups it
    is their own quantile, of few it is nearly that of the others; 0 where there are none at all.

    Source: Lei et al., JASA 113 (2018), algorithm 2, for widths from runs left out; Tibshirani et al., Conformal
    prediction under covariate shift (2019), section 2, for scores of unequal weight.

    >>> others = [0.1, 0.2, 0.3, 0.4]
    >>> shared_quantile(np.zeros(0), np.zeros(0, dtype=np.intp), others)
    0.4
    >>> own = np.full(40, 0.05)
    >>> [shared_quantile(own, np.arange(40) // runs, others) for runs in (1, 40)]
    [0.05, 0.4]
    """
    values, weights = np.asarray(others, dtype=np.float64), np.full(len(others), 1.0 / max(len(others), 1))
    if len(scores):
        _, place, count = np.unique(groups, return_inverse=True, return_counts=True)
        values, weights = np.concatenate([scores, values]), np.concatenate([1.0 / count[place], weights])
    return weighted_quantile(values, weights, level) if len(values) else 0.0


def weighted_quantile(values: FloatArray, weights: FloatArray, level: float) -> float:
    """The smallest value below or at which lies `level` of the weight.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 8.0]), 0.9)
    2.0
    """
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    place = int(np.searchsorted(reached, (level - 1e-12) * reached[-1]))
    return float(values[order[min(place, len(values) - 1)]])
