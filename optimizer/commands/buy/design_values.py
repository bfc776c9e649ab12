"""How the options of `optimize pareto` are read: money, times, power, and lists or ranges of a design variable."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from optimizer.base.errors import InputError
from optimizer.base.units import parse, whole

if TYPE_CHECKING:
    from optimizer.purchase.staged import Delivery

# 2,10 is 2.10 to some and 210 to others: commas stand between thousands alone.
_NUMBER = r"(?:\d{1,3}(?:[,_]\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_MONEY = re.compile(rf"\s*\$?\s*({_NUMBER})\s*([kKmMbBgG]?)\s*(?:USD)?\s*$")
LARGEST = 1e15  # USD, above all that the world makes in a year
_SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9}


def money(text: str) -> float:
    """An amount of money [USD]. Raises InputError for anything else, other currencies and commas that are no thousands.

    >>> money("200M"), money("$1.5B"), money("2.50"), money("1,250,000")
    (200000000.0, 1500000000.0, 2.5, 1250000.0)
    """
    match = _MONEY.match(text)
    value = float(match[1].replace("_", "").replace(",", "")) * _SIZES[match[2].lower()] if match else 0.0
    if not 0 < value < LARGEST:
        raise InputError(
            f"{text!r} is no amount of money; write dollars as 200M, 1.5B or 2.50, above 0 and below {LARGEST:.0e}"
        )
    return value


class Money(click.ParamType[float]):
    """An amount of money: "200M", "$1.5B"."""

    name = "usd"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The amount [USD]."""
        if isinstance(value, float | int):
            return float(value)
        try:
            return money(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


class Positive(click.ParamType[float]):
    """A positive quantity of one dimension, with its unit: "90d", "20MW"."""

    def __init__(self, dimension: str, example: str) -> None:
        self.dimension, self.example, self.name = dimension, example, dimension

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The quantity in SI."""
        if isinstance(value, float | int):
            return float(value)
        try:
            found = parse(value, self.dimension)
        except InputError as error:
            self.fail(f"{error}; write it as {self.example}", param, ctx)
        if found <= 0 or value.strip()[-1].isdigit():
            self.fail(f"{value!r} must be positive and carry its unit, as in {self.example}", param, ctx)
        return found


class Named(click.ParamType[tuple[str, str]]):
    """One "name=value" pair."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Name and value as text."""
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals or not name.strip() or not text.strip():
            self.fail(f"{value!r} is not of the form name=value", param, ctx)
        return name.strip(), text.strip()


Axis = tuple[tuple[float, ...], tuple[float, float] | None]


def axis(option: str, text: str, read: Callable[[str], float], usual: float) -> Axis:
    """Values of a design variable, and its bounds when they were written as a range for the continuous search.

    Raises InputError for a value that cannot be read, or bounds that do not rise.

    >>> axis("--nic", "200,400", float, 0.0), axis("--nic", "200:800", float, 0.0), axis("--nic", "", float, 0.0)
    (((200.0, 400.0), None), ((0.0,), (200.0, 800.0)), ((0.0,), None))
    """
    if not text:
        return (usual,), None
    try:
        if ":" in text:
            low, high = (read(part.strip()) for part in text.split(":"))
            if not 0 < low < high:
                raise ValueError
            return (usual,), (low, high)
        values = tuple(read(part.strip()) for part in text.split(","))
        if min(values) <= 0:
            raise ValueError
    except ValueError:
        raise InputError(f"{option} {text!r} is neither a list such as 1,2 nor a rising range such as 1:2") from None
    return values, None


def stages(text: str) -> tuple[Delivery, ...]:
    """Deliveries that a buyer wrote, the first of them now. Raises InputError for anything else.

    >>> [(item.gpus, item.at / 86400) for item in stages("2048,2k@180d")]
    [(2048, 0.0), (2048, 180.0)]
    """
    from optimizer.purchase.staged import Delivery

    found = []
    try:
        for part in text.split(","):
            count, at, date = part.strip().partition("@")
            if at and date.strip()[-1:].isdigit():
                raise ValueError
            found.append(Delivery(gpus=whole(count), at=parse(date, "s") if at else 0.0))
        dates = [item.at for item in found]
        if min(item.gpus for item in found) < 1 or dates[0] != 0 or sorted(set(dates)) != dates:
            raise ValueError
    except (ValueError, InputError):
        raise InputError(
            f"--stages {text!r} is no list of deliveries; write 2048,2048@180d: so many GPUs now, so many more after "
            "180 days"
        ) from None
    return tuple(found)


def gigabits(text: str) -> float:
    """A bandwidth [B/s], plain numbers in Gb/s.

    >>> gigabits("400"), gigabits("50 GB/s")
    (50000000000.0, 50000000000.0)
    """
    plain = text.replace(".", "", 1).isdigit()
    return parse(f"{text} Gb/s" if plain else text, "B/s")


def share(text: str) -> float:
    """A share of one.

    >>> share("80%"), share("0.8")
    (0.8, 0.8)
    """
    return parse(text, "1")


def size(text: str) -> float:
    """A size in memory [B], plain numbers in GB.

    >>> size("141"), size("80GiB")
    (141000000000.0, 85899345920.0)
    """
    return parse(f"{text} GB" if text.replace(".", "", 1).isdigit() else text, "B")
