"""How option values are read: shares, sizes in bytes, pinned variables."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from optimizer.base.errors import InputError
from optimizer.base.units import parse, whole
from optimizer.commands.numbers import COUNT
from optimizer.constraints.pin_text import Pinned, pin_texts, pinned, written

MOST_COUNTS = 200
AT_MOST = "at-most:"
ANY = "any"  # every number format that the device has
LEAST_BYTES = 1e6  # less memory is a number that lost its unit
MOST_FLEX = 0.5


class Share(click.ParamType[float]):
    """A share of one: "10%" or 0.1."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share as a number in (0, 1]."""
        try:
            share = parse(value, "1")
        except InputError:
            self.fail(f"{value!r} is not a share; write 10% or 0.1", param, ctx)
        if not 0 < share <= 1:
            hint = f"; did you mean {share:g}%?" if 1 < share <= 100 else ""
            self.fail(f"{value!r} is not in (0, 1]{hint}", param, ctx)
        return share


class Bytes(click.ParamType[float]):
    """A size in memory with its unit: "80 GB", "75GiB"."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The size [B]."""
        if isinstance(value, float | int):
            return float(value)
        if _is_number(value):
            self.fail(f"{value!r} has no unit; write {value.strip()}GB or {value.strip()}GiB", param, ctx)
        try:
            size = parse(value, "B")
        except InputError as error:
            self.fail(str(error), param, ctx)
        if size <= 0:
            self.fail(f"{value!r} is not a positive size", param, ctx)
        if size < LEAST_BYTES:
            self.fail(f"{value!r} is less than a megabyte; write 75GB, or in Python 75e9 or '75GB'", param, ctx)
        return size


class Formats(click.ParamType[str]):
    """A number format, "bf16", or where several can be asked for a list of them or "any"."""

    name = "type"

    def __init__(self, several: bool = False) -> None:
        self.several = several

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The names in small letters, joined by commas; "" for none."""
        from optimizer.job.job import DTYPES

        names = [part.strip().lower() for part in str(value).split(",") if part.strip()]
        wrong = [name for name in names if name not in DTYPES and not (self.several and names == [ANY])]
        if wrong or (len(names) > 1 and not self.several):
            more = f", several of them or {ANY}" if self.several else ""
            self.fail(f"{value!r} cannot be planned; write {', '.join(DTYPES[:-1])} or {DTYPES[-1]}{more}", param, ctx)
        return ",".join(names)


class Variable(click.ParamType[tuple[str, str]]):
    """A variable of the shell and its value: "NNODES=32"."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """The name and the value."""
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals or not (name.isidentifier() and name.isascii()):
            self.fail(f"{value!r} is not of the form NAME=VALUE, such as NNODES=32", param, ctx)
        return name, text


def words(text: str) -> tuple[str, ...]:
    """What a shell would pass on as arguments; raises InputError for a quote that is left open.

    >>> words("dlc 'A37B' 8")
    ('dlc', 'A37B', '8')
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"--args {text!r}: {error}; write the arguments as after the script's name") from None


class AtMost(click.ParamType[tuple[int, bool]]):
    """A number of GPUs, or the most that may be used: "1000", "at-most:1000"."""

    name = "n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, bool]:
        """The number, and whether fewer will do."""
        if isinstance(value, tuple):
            return value
        text = str(value).strip().lower()
        return COUNT.convert(text.removeprefix(AT_MOST), param, ctx), text.startswith(AT_MOST)


class Flex(click.ParamType[float]):
    """How far the global batch may move: "batch=5%"."""

    name = "batch=share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share of the batch, below a half."""
        if isinstance(value, float | int):
            return float(value)
        name, _, text = str(value).partition("=")
        try:
            share = parse(text, "1") if name.strip() == "batch" else 0.0
        except InputError:
            share = 0.0
        if not 0 < share <= MOST_FLEX:
            self.fail(f"{value!r} does not say how far the batch may move; write for example batch=5%", param, ctx)
        return share


class Counts(click.ParamType[tuple[int, ...]]):
    """Whole numbers above zero in one word: "8,64,512", "1..4" for all from the one to the other, "8:64" doubling."""

    name = "n,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers as they were written."""
        if not isinstance(value, str):
            return tuple(value)
        try:
            spans = [_span(word) for word in value.split(",")]
        except InputError:
            self.fail(f"{value!r} is no list of whole numbers above zero; write 8,64 or 8:64 or 1..4", param, ctx)
        count = sum(map(len, spans))
        if count > MOST_COUNTS:
            self.fail(f"{count:,} numbers are more than the {MOST_COUNTS} that are studied at once", param, ctx)
        return tuple(number for span in spans for number in span)


def _span(word: str) -> Sequence[int]:
    """The numbers of a word: one, all from the first to the last, or every doubling of the first.

    >>> list(_span("8")), list(_span("2..4")), list(_span("8:40"))
    ([8], [2, 3, 4], [8, 16, 32])
    """
    doubles = ":" in word
    first, dots, last = word.partition(":" if doubles else "..")
    low = whole(first)
    high = whole(last) if dots else low
    if high < low:
        raise InputError(f"{word}: the last number is below the first")
    if doubles:
        return tuple(low << power for power in range((high // low).bit_length()))
    return range(low, high + 1)


class Pin(click.ParamType[tuple[str, Pinned]]):
    """One pinned plan variable: "tp=8", "pp=2..8", "vpp=1,6", "recompute=none,full", "sequence-parallel=off"."""

    name = "variable=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Pinned]:
        """The variable's name in Plan and its value, the ends of its range or all values listed."""
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals or not text.strip():
            self.fail(f"{value!r} is not of the form variable=value, such as tp=8", param, ctx)
        try:
            return pinned(name.strip(), text.strip().lower())
        except InputError as error:
            self.fail(str(error), param, ctx)


class Fixed(click.ParamType[tuple[tuple[str, Pinned], ...]]):
    """Pinned plan variables as one value of --fix: "tp=8", "tp=1,pp=1", "vpp=1,6,pp=8"."""

    name = "variable=value,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[str, Pinned], ...]:
        """Each variable with its value."""
        if isinstance(value, tuple):
            return value
        return tuple(Pin().convert(part, param, ctx) for part in pin_texts(value) or [value])


def joined(
    ctx: click.Context, param: click.Parameter, values: Iterable[tuple[tuple[str, Pinned], ...]]
) -> tuple[tuple[str, Pinned], ...]:
    """The pins of every --fix as one list."""
    return tuple(pin for pins in values for pin in pins)


def storage_url(text: str) -> str:
    """The URL of an Optuna storage given as a URL, or as a file for an SQLite database.

    Raises InputError when it cannot be opened.
    """
    from optimizer.sweep.dashboard import usable

    if "://" not in text and not (folder := Path(text).expanduser().resolve().parent).is_dir():
        raise InputError(f"--study {text}: the folder {folder} does not exist")
    return usable(text)


def merged(pins: Iterable[tuple[str, Pinned]]) -> dict[str, Any]:
    """Pins as the fields of optimizer.job.job.Limits; raises InputError when one variable is pinned in two ways.

    >>> merged((("tp", 8), ("pp", (2, 8)), ("vpp", frozenset({6, 1}))))
    {'fixed': {'tp': 8}, 'ranges': {'pp': (2, 8)}, 'choices': {'vpp': (1, 6)}}
    """
    from optimizer.constraints.pins import as_limits

    values: dict[str, Pinned] = {}
    for name, value in pins:
        if values.get(name, value) != value:
            raise InputError(
                f"--fix {name}={written(name, values[name])} contradicts --fix {name}={written(name, value)}; keep one"
            )
        values[name] = value
    return as_limits(values)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
