"""How option values are read: shares, sizes in bytes, pinned variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from optimizer.errors import InputError, nearest
from optimizer.units import parse
from optimizer.variables import UNLIMITED, VARIABLES

# What people type besides the names of optimizer.plan.Plan.
SHORT_NAMES = {short: name for name, variable in VARIABLES.items() for short in variable.typed} | {
    "layers": "layers_per_stage",
    "recomputed": "recompute_layers",
}
ON, OFF = ("on", "yes", "true", "1"), ("off", "no", "false", "0")

Value = int | str | bool
# A value, the two ends of a range, or several values.
Pinned = Value | tuple[int, int] | frozenset[Value]


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


class Counts(click.ParamType[tuple[int, ...]]):
    """Whole numbers above zero in one word: "8,64,512"."""

    name = "n,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers as they were written."""
        if not isinstance(value, str):
            return tuple(value)
        words = [word.strip() for word in value.split(",")]
        if not all(word.isdecimal() and int(word) > 0 for word in words):
            self.fail(f"{value!r} is no list of whole numbers above zero; write for example 8,64", param, ctx)
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
    """The URL of an Optuna storage: a URL as it is, a file as an SQLite database.

    Raises InputError when the file's folder does not exist.

    >>> storage_url("postgresql://team@host/plans")
    'postgresql://team@host/plans'
    """
    if "://" in text:
        return text
    path = Path(text).expanduser().resolve()
    if not path.parent.is_dir():
        raise InputError(f"--study {text}: the folder {path.parent} does not exist")
    return f"sqlite:///{path}"


def pinned(name: str, text: str) -> tuple[str, Pinned]:
    """Name and value of a plan variable written by a person.

    Raises InputError for an unknown variable or a value that it cannot take.

    >>> pinned("micro-batch", "2"), pinned("sp", "off"), pinned("pp", "2..8")
    (('micro_batch', 2), ('sequence_parallel', False), ('pp', (2, 8)))
    >>> pinned("schedule", "1f1b, zero-bubble")[1] == {"1f1b", "zero-bubble"}
    True
    >>> pinned("recompute", "moe_act+layernorm")
    ('recompute', 'layernorm+moe_act')
    >>> pinned("layout", "even"), pinned("layers", "19, 20,21,20")
    (('layout', 'even'), ('layers_per_stage', '19,20,21,20'))
    """
    from optimizer.constraints.given_layout import counts
    from optimizer.job import EVEN, LAYOUT, PLACING
    from optimizer.recomputation import written

    key = name.lower().replace("-", "_")
    key = SHORT_NAMES.get(key, key)
    known = (*VARIABLES, *PLACING)
    if key not in known:
        close = nearest(key, known)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise InputError(f"unknown plan variable {name!r}.{hint} Known: {', '.join(known)}.")
    if key == LAYOUT and text != EVEN:
        raise InputError(f"{key} must be {EVEN}, which switches the search over layouts off, but got {text!r}")
    if key in PLACING:
        return key, text if key == LAYOUT else ",".join(map(str, counts(key, text)))
    text = ",".join(written(part.strip()) for part in text.split(",")) if key == "recompute" else text
    choices = ON + OFF if VARIABLES[key].switch else VARIABLES[key].names
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1 and ".." in text and not choices:
        low, _, high = text.partition("..")
        return key, (_integer(key, low.strip()), _integer(key, high.strip()))
    values = frozenset(_value(key, part, choices) for part in parts)
    return key, values if len(values) > 1 else next(iter(values))


def _value(key: str, text: str, choices: Sequence[str]) -> Value:
    from optimizer.recomputation import MODES, MODULES, SIGN

    if ".." in text:
        kind = "has no ranges" if choices else "takes a range or a list, not both"
        raise InputError(f"{key} {kind}; write its values as {key}={','.join(choices[:2]) if choices else '2,4,8'}")
    if not choices:
        return _integer(key, text)
    if text not in choices:
        whole = MODES if key == "recompute" else choices
        hint = f"; modules are joined by {SIGN}: {', '.join(MODULES)}" if key == "recompute" else ""
        raise InputError(f"{key} must be one of {', '.join(whole)}, but got {text!r}{hint}")
    return text in ON if VARIABLES[key].switch else text


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
                f"--fix {name}={_written(values[name])} contradicts --fix {name}={_written(value)}; keep one"
            )
        values[name] = value
    return as_limits(values)


def _integer(key: str, text: str) -> int:
    smallest, largest = VARIABLES[key].least, VARIABLES[key].most
    if not text.isdecimal() or not smallest <= int(text) <= largest:
        allowed = f"an integer from {smallest} to {largest}" if largest < UNLIMITED else f"an integer >= {smallest}"
        raise InputError(f"{key} must be {allowed}, but got {text!r}")
    return int(text)


def _written(value: Pinned) -> str:
    if isinstance(value, frozenset):
        return ",".join(sorted(str(item) for item in value))
    return f"{value[0]}..{value[1]}" if isinstance(value, tuple) else str(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
