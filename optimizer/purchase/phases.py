"""What the step of a point goes into, in the groups that a buyer can act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optimizer.purchase.designs.points import Point

PRODUCTS, REST = "matrix products and attention", "launches, stragglers, overhead"
GROUPS: Mapping[str, tuple[str, ...]] = {  # the terms of an estimate that a buyer sees as one
    PRODUCTS: ("gemm", "attention", "head"),
    "memory-bound kernels": ("elementwise", "optimizer"),
    "communication": ("communication", "contention"),
    "pipeline bubble": ("bubble",),
}


def phases(point: Point) -> dict[str, float]:
    """Seconds of the first run's step in the groups that a buyer can act on."""
    estimate = point.answers[0].estimate
    time = estimate.time if estimate else {}
    seconds = dict.fromkeys((*GROUPS, REST), 0.0)
    for term, value in time.items():
        name = "communication" if term.endswith("_communication") else term
        group = next((group for group, terms in GROUPS.items() if name in terms), REST)
        seconds[group] += value
    return seconds


def bottleneck(point: Point) -> str:
    """What takes most of a step besides the matrix products, with its share."""
    parts = phases(point)
    total = sum(parts.values())
    losses = {name: seconds for name, seconds in parts.items() if name != PRODUCTS}
    name, seconds = max(losses.items(), key=lambda item: item[1])
    return f"{name} ({seconds / total:.0%} of the step)" if total else ""
