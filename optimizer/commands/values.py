"""How the texts of options are read: numbers, shares, sizes, times, money, pairs, formats."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import click

from optimizer.base.errors import InputError
from optimizer.base.units import LARGEST, amount, is_count, parse, whole
from optimizer.job.fields import LONGEST_SEARCH

Value = TypeVar("Value")
MOST_TOKENS, MOST_DOLLARS = 1e18, 1e15  # beyond, no answer means anything; 1e15 USD is more than the world's product
MOST_COUNTS = 200
AT_MOST = "at-most:"
ANY = "any"  # every number format that the device has
LEAST_BYTES = 1e6  # less memory is a number that lost its unit
MOST_FLEX = 0.5
# 2,10 is 2.10 to some and 210 to others: commas stand between thousands alone.
_NUMBER = r"(?:\d{1,3}(?:[,_]\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_MONEY = re.compile(rf"\s*\$?\s*({_NUMBER})\s*([kKmMbBgG]?)\s*(?:USD)?\s*$")
_SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9}


class TextType(click.ParamType[Value]):
    """A type whose texts a function reads; the function raises InputError for what it refuses."""

    def __init__(self, name: str, read: Callable[[str], Value]) -> None:
        self.name, self.read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Value:
        """The value of a text; what is no text was read before."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        try:
            return self.read(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


def whole_number(low: int = 1, high: int = LARGEST) -> TextType[int]:
    """Whole numbers of a range: in plain digits, or with k for 1,024 as in "8k"."""

    def read(text: str) -> int:
        text = text.strip()
        sign, digits = ("-", text[1:]) if text[:1] == "-" else ("", text.removeprefix("+"))
        if not is_count(digits):
            try:
                sign, digits = "", str(whole(text))
            except InputError:
                raise InputError(f"{shortened(text)!r} is not a whole number from {low:,} to {high:,}") from None
        number = int(sign + digits)
        if not low <= number <= high:
            raise InputError(f"{number} is not a whole number from {low:,} to {high:,}")
        return number

    return TextType("integer", read)


def real_number(high: float) -> TextType[float]:
    """Numbers above 0: "1e13", or as people write it, "15T"."""
    return _positive("number", high, amount, "is not a number")


def seconds(high: float) -> TextType[float]:
    """Times above zero, in seconds or with a unit: "90", "10s", "2min" [s]."""
    words = "is no time; write seconds, or a time such as 10s or 2min"
    return _positive("time", high, lambda text: parse(text, "s"), words)


def _positive(name: str, high: float, read: Callable[[str], float], words: str) -> TextType[float]:
    """Numbers above 0 and at most `high`, plain or as `read` has them; `words` refuse others."""

    def number_of(text: str) -> float:
        try:
            number = float(text) if _is_plain(text) else read(text)
        except (ValueError, OverflowError, InputError):
            raise InputError(f"{shortened(text)!r} {words}") from None
        if not (isfinite(number) and 0 < number <= high):
            raise InputError(f"{number:g} is not in the range 0<x<={high:g}")
        return number

    return TextType(name, number_of)


def _is_plain(text: str) -> bool:
    """Whether a text is a number in itself."""
    try:
        float(text)
    except (ValueError, OverflowError):
        return False
    return True


def shortened(text: str) -> str:
    """A value for a message."""
    return text if len(text) <= 40 else f"{text[:37]}..."


def share(text: str) -> float:
    """A share in (0, 1]: "10%" or "0.1"."""
    try:
        value = parse(text, "1")
    except InputError:
        raise InputError(f"{text!r} is not a share; write 10% or 0.1") from None
    if not 0 < value <= 1:
        hint = f"; did you mean {value:g}%?" if 1 < value <= 100 else ""
        raise InputError(f"{text!r} is not in (0, 1]{hint}")
    return value


def size(text: str) -> float:
    """A size in memory with its unit [B]: "80 GB", "75GiB"."""
    if _is_plain(text):
        raise InputError(f"{text!r} has no unit; write {text.strip()}GB or {text.strip()}GiB")
    value = parse(text, "B")
    if value <= 0:
        raise InputError(f"{text!r} is not a positive size")
    if value < LEAST_BYTES:
        raise InputError(f"{text!r} is less than a megabyte; write 75GB, or in Python 75e9 or '75GB'")
    return value


def size_or_none(text: str) -> float:
    """A size in memory [B], 0 for no limit: "75GiB", "0"."""
    return 0.0 if text.strip() == "0" else size(text)


def formats(several: bool) -> TextType[str]:
    """A number format, or a list of `several` or "any", in small letters joined by commas; "" for none."""

    def read(text: str) -> str:
        from optimizer.job.job import DTYPES

        names = [part.strip().lower() for part in text.split(",") if part.strip()]
        wrong = [name for name in names if name not in DTYPES and not (several and names == [ANY])]
        nothing = bool(text.strip()) and not names
        if wrong or nothing or (len(names) > 1 and not several):
            more = f", several of them or {ANY}" if several else ""
            raise InputError(f"{text!r} cannot be planned; write {', '.join(DTYPES[:-1])} or {DTYPES[-1]}{more}")
        return ",".join(names)

    return TextType("type", read)


def shell_variable(text: str) -> tuple[str, str]:
    """A variable of the shell and its value: "NNODES=32"."""
    name, equals, value = text.partition("=")
    if not equals or not (name.isidentifier() and name.isascii()):
        raise InputError(f"{text!r} is not of the form NAME=VALUE, such as NNODES=32")
    return name, value


def named(text: str) -> tuple[str, str]:
    """One "name=value" pair."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise InputError(f"{text!r} is not of the form name=value")
    return name.strip(), value.strip()


def words(text: str) -> tuple[str, ...]:
    """What a shell would pass on as arguments; raises InputError for a quote that is left open.

    >>> words("dlc 'A37B' 8")
    ('dlc', 'A37B', '8')
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"--args {text!r}: {error}; write the arguments as after the script's name") from None


def gpus_or_fewer(text: str) -> tuple[int, bool]:
    """A number of GPUs, and whether fewer will do: "1000", "at-most:1000"."""
    text = text.strip().lower()
    return COUNT.read(text.removeprefix(AT_MOST)), text.startswith(AT_MOST)


def flex(text: str) -> float:
    """How far the global batch may move, a share of it up to a half: "batch=5%"."""
    name, _, value = text.partition("=")
    try:
        moved = parse(value, "1") if name.strip() == "batch" else 0.0
    except InputError:
        moved = 0.0
    if not 0 < moved <= MOST_FLEX:
        raise InputError(f"{text!r} does not say how far the batch may move; write for example batch=5%")
    return moved


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers above zero in one word: "8,64,512", "1..4" for all from the one to the other, "8:64" doubling."""
    try:
        spans = [_span(word) for word in text.split(",")]
    except InputError:
        raise InputError(f"{text!r} is no list of whole numbers above zero; write 8,64 or 8:64 or 1..4") from None
    count = sum(map(len, spans))
    if count > MOST_COUNTS:
        raise InputError(f"{count:,} numbers are more than the {MOST_COUNTS} that are studied at once")
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


def money(text: str) -> float:
    """An amount of money [USD]. Raises InputError for anything else, other currencies and commas that are no thousands.

    >>> money("200M"), money("$1.5B"), money("2.50"), money("1,250,000")
    (200000000.0, 1500000000.0, 2.5, 1250000.0)
    """
    match = _MONEY.match(text)
    value = float(match[1].replace("_", "").replace(",", "")) * _SIZES[match[2].lower()] if match else 0.0
    if not 0 < value < MOST_DOLLARS:
        raise InputError(
            f"{text!r} is no amount of money; write dollars as 200M, 1.5B or 2.50, above 0 and below {MOST_DOLLARS:.0e}"
        )
    return value


def quantity(dimension: str, example: str) -> TextType[float]:
    """Positive quantities of one dimension, with their unit, in SI: "90d", "20MW"."""

    def read(text: str) -> float:
        try:
            value = parse(text, dimension)
        except InputError as error:
            raise InputError(f"{error}; write it as {example}") from None
        if value <= 0 or text.strip()[-1].isdigit():
            raise InputError(f"{text!r} must be positive and carry its unit, as in {example}")
        return value

    return TextType(dimension, read)


def storage_url(text: str) -> str:
    """The URL of an Optuna storage given as a URL, or as a file for an SQLite database.

    Raises InputError when it cannot be opened.
    """
    from optimizer.sweep.connection import is_text
    from optimizer.sweep.dashboard import usable

    if "\0" in text or not is_text(text):
        raise InputError(f"--study {text!r}: a file or a URL is expected")
    if "://" not in text and not (folder := Path(text).expanduser().resolve().parent).is_dir():
        raise InputError(f"--study {text}: the folder {folder} does not exist")
    return usable(text)


COUNT, SHARE, SIZE, MONEY = whole_number(), TextType("share", share), TextType("size", size), TextType("usd", money)
TOKENS, DOLLARS, SECONDS = real_number(MOST_TOKENS), real_number(MOST_DOLLARS), seconds(LONGEST_SEARCH)
COUNTS, NAMED = TextType("n,...", counts), TextType("name=value", named)
FILE = click.Path(dir_okay=False, path_type=Path)
