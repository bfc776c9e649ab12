"""A figure with the range that its sources leave open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Range:
    """Low, middle and high value of one figure, in the same unit; all three equal when nothing is uncertain."""

    low: float
    mid: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Range:
        """A figure without uncertainty."""
        return cls(low=value, mid=value, high=value)


def combined(middle: float, swings: Iterable[tuple[float, float]]) -> Range:
    """Range of a result whose inputs vary independently [unit of the result].

    low = middle - sqrt(sum of (middle - smallest)^2), high likewise, where each swing holds the two results for one
    input at its low and its high value, the others at their middle. A swing to one side only widens that side.

    Source: first-order propagation of independent errors (JCGM 100:2008, GUM, section 5.1.2), side by side.

    >>> combined(10.0, [(7.0, 13.0), (14.0, 6.0)])
    Range(low=5.0, mid=10.0, high=15.0)
    """
    pairs = np.array(list(swings), dtype=np.float64).reshape(-1, 2)
    down = np.maximum(0.0, middle - pairs.min(axis=1))
    up = np.maximum(0.0, pairs.max(axis=1) - middle)
    return Range(low=float(middle - np.sqrt((down**2).sum())), mid=middle, high=float(middle + np.sqrt((up**2).sum())))
