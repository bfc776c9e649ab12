"""Units: everything inside is SI (s, B, B/s, FLOP/s, W, J); this file reads and writes the rest.

GB is 1e9 bytes, GiB is 2**30; "b" is a bit, "B" a byte.
"""

from __future__ import annotations

import re

from optimizer.base.errors import InputError

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
KiB, MiB, GiB, TiB = 2.0**10, 2.0**20, 2.0**30, 2.0**40
US, MS = 1e-6, 1e-3
DAY = 86400.0
# Beyond these no count and no number of a user's file means anything, and products of a few of them overflow.
LARGEST, HUGE, BEYOND = 2**31 - 1, 1e24, 1e60
YEAR = 365.25 * DAY

_PREFIX = {
    **{"": 1.0, "p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3},
    **{"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Ki": KiB, "Mi": MiB, "Gi": GiB, "Ti": TiB},
}
# Factors to SI of the symbols of each dimension.
_SIZES = {
    "B": {"B": 1.0, "b": 0.125, "bit": 0.125},
    "B/s": {"B/s": 1.0, "b/s": 0.125, "bit/s": 0.125},
    "FLOP": {"FLOP": 1.0},
    "FLOP/s": {"FLOP/s": 1.0, "FLOPS": 1.0},
    "s": {"s": 1.0, "min": 60.0, "h": 3600.0, "hours": 3600.0, "d": DAY, "days": DAY, "weeks": 7 * DAY, "yr": YEAR},
    "W": {"W": 1.0},
    "J": {"J": 1.0, "Wh": 3600.0},
    "J/bit": {"J/bit": 1.0},
    "USD": {"USD": 1.0},
    "USD/s": {"USD/h": 1.0 / 3600.0, "USD/yr": 1.0 / YEAR},
    "USD/J": {"USD/kWh": 1.0 / 3.6e6, "USD/kW-month": 12.0 / (1e3 * YEAR)},
    "1/s": {"1/yr": 1.0 / YEAR, "1/d": 1.0 / DAY},
    "1": {"1": 1.0, "%": 0.01},
}
_BASE = {symbol: (dimension, size) for dimension, sizes in _SIZES.items() for symbol, size in sizes.items()}
WHOLE = ("1", "%", "min", "h", "d", "hours", "days", "weeks", "yr", "1/yr", "1/d")  # units that take no prefix
_EXAMPLES = {"s": "us, ms, s, h, 90d or 2 weeks", "W": "W, kW, MW", "B": "GB, GiB", "B/s": "TB/s, GB/s, Gb/s"}
MOST_DIGITS = 15  # of a count in a text: more mean nothing, and thousands of them cannot be read at all
# Commas stand between thousands alone: 2,10 is 2.10 to some and 210 to others.
_NUMBER = re.compile(
    r"\s*([-+]?(?:\d{1,3}(?:,\d{3})+|\d[\d_]*)\.?\d*(?:[eE][-+]?\d{1,4})?)\s*((?!,\d)\S*)\s*$", re.ASCII
)


def is_count(text: str) -> bool:
    """Whether a text is a whole number in plain digits, none of which are too many to be meant.

    >>> is_count("64"), is_count("-1"), is_count("²"), is_count("9" * 5000)
    (True, False, False, False)
    """
    return text.isascii() and text.isdigit() and len(text.lstrip("0")) <= MOST_DIGITS


def count_in(text: str) -> int:
    """A count in a text that may be written with a point; 0 for what is none, or more than anybody counts.

    >>> count_in("8192.0"), count_in("1e400"), count_in("x")
    (8192, 0, 0)
    """
    try:
        number = float(text)
    except ValueError:
        return 0
    return int(number) if 0 <= number <= LARGEST else 0


def factor(unit: str, wanted: str = "") -> tuple[str, float]:
    """Dimension of a unit and its size in SI; of a wrong one the message names units of the dimension wanted.

    >>> factor("TB/s")
    ('B/s', 1000000000000.0)
    >>> factor("Gb/s")
    ('B/s', 125000000.0)
    """
    if unit in _BASE:
        return _BASE[unit]
    for length in (2, 1):
        prefix, base = unit[:length], unit[length:]
        if prefix in _PREFIX and base in _BASE and base not in WHOLE:
            dimension, size = _BASE[base]
            return dimension, _PREFIX[prefix] * size
    examples = _EXAMPLES.get(wanted, "GB, GiB, TB/s, Gb/s, TFLOP/s, us, W, pJ/bit")
    raise InputError(f"unknown unit {unit!r}; use for example {examples}")


def parse(text: str | float | int, dimension: str) -> float:
    """Value in SI of a quantity such as "3.35 TB/s"; a bare number is taken as SI already.

    Raises InputError when the text is no quantity or has another dimension.

    >>> parse("3.35 TB/s", "B/s")
    3350000000000.0
    >>> parse("400 Gb/s", "B/s")
    50000000000.0
    >>> parse("80GB", "B"), parse("1,024 GB", "B")
    (80000000000.0, 1024000000000.0)
    """
    if isinstance(text, int | float):
        if not abs(text) <= BEYOND:
            raise InputError("a number must be finite")
        return float(text)
    match = _NUMBER.match(text)
    if match is None:
        raise InputError(f"{text!r} is not a quantity; expected a number and a unit of [{dimension}]")
    number = float(match[1].replace("_", "").replace(",", ""))
    if not abs(number) <= BEYOND:
        raise InputError(f"{text[:40]!r} is too large a number")
    if not match[2]:
        return number
    measured, size = factor(match[2], dimension)
    if measured != dimension:
        raise InputError(f"{text!r} is in [{measured}]; expected a quantity in [{dimension}]")
    return number * size


# Commas only between groups of three: "2,5T" is two and a half for some and twenty-five for nobody.
_COUNT = re.compile(r"\s*((?:\d{1,3}(?:,\d{3})+|\d[\d_]*)\.?\d*(?:[eE][-+]?\d+)?)\s*([kKmMgGbBtT]i?|)\s*$")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "b": 3, "t": 4}


def amount(text: str, thousand: int = 1000) -> float:
    """A number as people write it: "15T", "1e13", "300B", "1.5M", "15_000", "8k".

    thousand: what k stands for, 1,024 where powers of two are counted; "8Ki" always is 8,192. Raises InputError.

    >>> amount("15T"), amount("1e13"), amount("8k", 1024), amount("8Ki"), amount("1,536")
    (15000000000000.0, 10000000000000.0, 8192.0, 8192.0, 1536.0)
    """
    match = _COUNT.match(text)
    if match is None:
        raise InputError(f"{text!r:.80} is no number; write for example 15T, 300B, 1e13, 8k or 8192")
    step = 1024 if match[2].endswith("i") else thousand
    return float(match[1].replace("_", "").replace(",", "")) * float(step ** _POWERS[match[2][:1].lower()])


def whole(text: str) -> int:
    """A whole number above zero as people write it, with k for 1,024: "8k", "1024", "1e3", "16Ki". Raises InputError.

    >>> whole("8k"), whole("1M"), whole("1_536")
    (8192, 1048576, 1536)
    """
    try:
        number = amount(text, 1024)
    except InputError:
        number = 0.0
    if not 1 <= number <= LARGEST or number != int(number):
        raise InputError(f"{text!r:.80} is no whole number from 1 to {LARGEST:,}; write for example 8192 or 8k")
    return int(number)


def show(value: float, unit: str, digits: int = 3) -> str:
    """A quantity for people, with the decimal prefix that fits.

    >>> show(3.35e12, "B/s")
    '3.35 TB/s'
    >>> show(0.00127, "s")
    '1.27 ms'
    """
    if value == 0:
        return f"0 {unit}"
    for prefix in ("P", "T", "G", "M", "k", "", "m", "u", "n", "p"):
        if abs(value) >= _PREFIX[prefix] * 0.9995:
            return f"{value / _PREFIX[prefix]:.{digits}g} {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"


def seconds(value: float) -> str:
    """A duration with three digits, hours and days for long ones.

    >>> seconds(5.3149), seconds(0.0123), seconds(1249.6), seconds(7450.0), seconds(110_000.0), seconds(5.55e6)
    ('5.31 s', '12.3 ms', '1,250 s', '2.07 h', '30.6 h', '64.2 days')
    """
    if not 999.5 <= abs(value) < float("inf"):
        return show(value, "s")
    for size, least, name in ((DAY, 3, "days"), (3600.0, 1, "h")):
        if abs(value) >= least * size:
            return f"{value / size:,.3g} {name}" if abs(value) < 1000 * size else f"{value / size:,.0f} {name}"
    return f"{value:,.0f} s"
