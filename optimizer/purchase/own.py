"""Inputs that are published for one machine: its own figure in place of the usual one."""

from __future__ import annotations

from optimizer.catalog.economics import Price, default_price, find_price
from optimizer.purchase.ranges import Range

OWN = ("failure_rate", "storage")  # quantities of presets/prices.csv with rows of devices or clusters


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
