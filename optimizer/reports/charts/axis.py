"""Axes of charts that are drawn here: where a value lies between both ends, and which values are labelled.

An axis is described in plotly's words.
Source: https://plotly.com/javascript/reference/layout/xaxis/ (range, type, tickvals, ticktext, ticksuffix, rangemode).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from optimizer.base.units import show

TICKS = 5  # about so many labels
STEPS = (1, 2, 2.5, 5, 10)
MARGIN = 0.04  # of the span, beside the outermost values


@dataclass(frozen=True, kw_only=True)
class Axis:
    """From `low` to `high`, in powers of ten where it is logarithmic; `ticks` are values with their labels."""

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]
    title: str = ""

    def at(self, value: float) -> float:
        """Where a value lies [%]; a logarithm of nothing lies at the low end.

        >>> Axis(low=0.0, high=50.0, log=False, ticks=()).at(10), Axis(low=0.0, high=4.0, log=True, ticks=()).at(100)
        (20.0, 50.0)
        """
        if self.log:
            value = log10(value) if value > 0 else self.low
        return 100.0 * (value - self.low) / (self.high - self.low)


def axis_of(spec: Mapping[str, Any], values: Sequence[float]) -> Axis:
    """The axis of a specification; without a range, around the values.

    >>> axis_of({"ticksuffix": "%", "rangemode": "tozero"}, [12.0, 43.0]).ticks
    ((0, '0%'), (10, '10%'), (20, '20%'), (30, '30%'), (40, '40%'))
    >>> axis_of({"type": "log", "exponentformat": "SI", "ticksuffix": "s"}, [0.02, 30.0]).ticks
    ((0.1, '100 ms'), (1.0, '1 s'), (10.0, '10 s'))
    """
    log = spec.get("type") == "log"
    low, high = spec["range"] if "range" in spec else _around(values, log, spec.get("rangemode") == "tozero")
    low, high = (low, high) if high > low else (low - 0.5, low + 0.5)
    if "tickvals" in spec:
        ticks = list(zip(spec["tickvals"], spec.get("ticktext", map(str, spec["tickvals"])), strict=True))
    else:
        ticks = [(value, _label(value, spec)) for value in (_powers if log else _round)(low, high)]
    title = spec.get("title", {}).get("text", "")
    return Axis(low=low, high=high, log=log, ticks=tuple(ticks), title=title)


def _around(values: Sequence[float], log: bool, from_zero: bool) -> tuple[float, float]:
    known = [log10(value) if log else value for value in values if value > 0 or not log] or [0.0, 1.0]
    low, high = min(known), max(known)
    if from_zero and not log:
        return min(0.0, low), high * (1 + MARGIN) or 1.0
    span = high - low if high - low > 1e-6 * abs(high) else abs(high)  # of one value, or of values all alike
    margin = MARGIN * span or 0.1
    return low - margin, high + margin


def _powers(low: float, high: float) -> list[float]:
    """Powers of ten within; where there are few, their halves and fifths too."""
    powers = range(floor(low), ceil(high) + 1)
    digits = (1,) if high - low > 2 else (1, 2, 5)
    values = [digit * 10.0**power for power in powers for digit in digits]
    within = [value for value in values if low <= log10(value) <= high]
    return within[:: ceil(len(within) / (TICKS + 2)) or 1]


def _round(low: float, high: float) -> list[float]:
    """Multiples of a round number."""
    size = 10.0 ** floor(log10((high - low) / TICKS))
    step = next(digit * size for digit in STEPS if (high - low) / (digit * size) <= TICKS + 1)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [number if (number := round(count * step, 12)) % 1 else int(number) for count in range(first, last + 1)]


def _label(value: float, spec: Mapping[str, Any]) -> str:
    suffix = str(spec.get("ticksuffix", ""))
    if spec.get("exponentformat") == "SI" and suffix.strip():
        return show(value, suffix.strip())
    return f"{value:,.10g}{suffix}"
