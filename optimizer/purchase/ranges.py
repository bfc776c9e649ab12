"""A figure with the range that its sources leave open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import hypot

from optimizer.catalog.economics import Price, default_price, find_price

OWN = ("failure_rate", "storage")  # quantities of presets/prices.csv with rows of devices or clusters


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
    pairs = list(swings)
    down = hypot(*(max(0.0, middle - min(pair)) for pair in pairs))
    up = hypot(*(max(0.0, max(pair) - middle) for pair in pairs))
    return Range(low=middle - down, mid=middle, high=middle + up)


def own_price(name: str, device: str, cluster: str) -> Price | None:
    """The row of this very cluster or device, None where the usual one holds.

    >>> found = own_price("failure_rate", "h100", "my-cluster")
    >>> round(found.value * 86400, 5) if found else None
    0.00379
    """
    return find_price(name, cluster, device) if name in OWN else None


def own_range(price: Price) -> Range:
    """The range of a row; where it has none, as wide a one as the usual figure has.

    >>> own_range(own_price("storage", "h100", "dgx-h100")).high / 0.242e9 > 3
    True
    """
    if price.low < price.high:
        return Range(low=price.low, mid=price.value, high=price.high)
    usual = default_price(price.quantity)
    scale = price.value / usual.value
    return Range(low=usual.low * scale, mid=price.value, high=usual.high * scale)
