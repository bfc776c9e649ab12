"""Numbers that options take, each within the range of what it counts: beyond, no answer means anything."""

from __future__ import annotations

from math import isfinite
from typing import Any

import click

from optimizer.base.errors import InputError
from optimizer.base.units import LARGEST, amount, is_count, parse, whole

MOST_TRIALS = 10_000
MOST_TOKENS, MOST_DOLLARS, LONGEST_SEARCH = 1e18, 1e15, 1e7


class Whole(click.ParamType[int]):
    """A whole number from `low` to `high`: in plain digits, or with k for 1,024 as in "8k"."""

    name = "integer"

    def __init__(self, low: int = 1, high: int = LARGEST) -> None:
        self.low, self.high = low, high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        text = str(value).strip() if not isinstance(value, str) else value.strip()
        sign, digits = ("-", text[1:]) if text[:1] == "-" else ("", text.removeprefix("+"))
        if not is_count(digits) and (found := _written(text)) is not None:
            sign, digits = "", str(found)
        if not is_count(digits):
            self.fail(f"{shortened(text)!r} is not a whole number from {self.low:,} to {self.high:,}", param, ctx)
        number = int(sign + digits)
        if not self.low <= number <= self.high:
            self.fail(f"{number} is not a whole number from {self.low:,} to {self.high:,}", param, ctx)
        return number


class Real(click.ParamType[float]):
    """A number above `low`, up to `high`: "1e13", or as people write it, "15T"."""

    name = "number"

    def __init__(self, low: float = 0.0, high: float = MOST_TOKENS) -> None:
        self.low, self.high = low, high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        try:
            number = float(value) if not isinstance(value, str) or _plain(value) else amount(value)
        except (ValueError, OverflowError, InputError):
            self.fail(f"{shortened(str(value))!r} is not a number", param, ctx)
        if not (isfinite(number) and self.low < number <= self.high):
            self.fail(f"{number:g} is not in the range {self.low:g}<x<={self.high:g}", param, ctx)
        return number


class Seconds(Real):
    """A time above zero, in seconds or with its unit: "90", "10s", "2min"."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The time [s]."""
        if isinstance(value, str) and not _plain(value):
            try:
                value = parse(value, "s")
            except InputError:
                self.fail(f"{shortened(value)!r} is no time; write seconds, or a time such as 10s or 2min", param, ctx)
        return super().convert(value, param, ctx)


def _plain(text: str) -> bool:
    """Whether a text is a number in itself."""
    try:
        float(text)
    except (ValueError, OverflowError):
        return False
    return True


def _written(text: str) -> int | None:
    """A whole number as people write it, None for what is none."""
    try:
        return whole(text)
    except InputError:
        return None


def shortened(text: str) -> str:
    """A value for a message."""
    return text if len(text) <= 40 else f"{text[:37]}..."


SEQUENCE, BATCH = Whole(1, 2**24), Whole(1, 2**24)  # tokens of a sequence, sequences of a step
COUNT, SEED, TRIALS = Whole(), Whole(0), Whole(0, MOST_TRIALS)
TOKENS, DOLLARS, SECONDS = Real(), Real(high=MOST_DOLLARS), Seconds(high=LONGEST_SEARCH)
