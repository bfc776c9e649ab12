"""How option values are read: shares, sizes in bytes, pinned variables."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from optimizer.constraints.pin_text import Pinned, pinned, written
from optimizer.errors import InputError
from optimizer.units import is_count, parse

MOST_COUNTS = 200


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
        return size


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


class Counts(click.ParamType[tuple[int, ...]]):
    """Whole numbers above zero in one word: "8,64,512"."""

    name = "n,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers as they were written."""
        if not isinstance(value, str):
            return tuple(value)
        words = [word.strip() for word in value.split(",")]
        if not all(is_count(word) and int(word) > 0 for word in words):
            self.fail(f"{value!r} is no list of whole numbers above zero; write for example 8,64", param, ctx)
        if len(words) > MOST_COUNTS:
            self.fail(f"{len(words):,} numbers are more than the {MOST_COUNTS} that are studied at once", param, ctx)
        return tuple(map(int, words))


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


def storage_url(text: str) -> str:
    """The URL of an Optuna storage given as a URL, or as a file for an SQLite database.

    Raises InputError when it cannot be opened.
    """
    from optimizer.sweep.dashboard import usable

    if "://" not in text and not (folder := Path(text).expanduser().resolve().parent).is_dir():
        raise InputError(f"--study {text}: the folder {folder} does not exist")
    return usable(text)


def merged(pins: Iterable[tuple[str, Pinned]]) -> dict[str, Any]:
    """Pins as the fields of optimizer.job.Limits; raises InputError when one variable is pinned in two ways.

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
