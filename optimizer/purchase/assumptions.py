"""The uncertain inputs of a campaign, from the presets and from what the buyer says instead."""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.base.errors import InputError, nearest
from optimizer.base.units import DAY, HUGE, YEAR, parse
from optimizer.catalog.economics import default_price, find_price
from optimizer.purchase.campaign import Assumption
from optimizer.purchase.ranges import Range

# name in a scenario: (quantity of presets/prices.csv, title)
TITLES: Mapping[str, tuple[str, str]] = {
    "mfu": ("mfu_spread", "MFU reached / planned"),
    "rent": ("rent_spread", "rent / quoted rent"),
    "capex": ("capex_spread", "price of machines / quoted price"),
    "failure_rate": ("failure_rate", "interruptions of an 8-GPU node"),
    "restart": ("restart", "detection and restart"),
    "checkpoint_stall": ("checkpoint_stall", "stall of a checkpoint"),
    "checkpoint_size": ("checkpoint_size", "bytes of a parameter in a checkpoint"),
    "storage": ("storage", "writing to storage, of one GPU"),
    "replaced_share": ("replaced_share", "interruptions that take a node out"),
    "repair": ("repair", "time until a node is repaired"),
    "host_share": ("host_share", "host power / GPU limit"),
    "gpu_power": ("power_spread", "GPU power / power curve"),
    "critical_batch": ("critical_batch_spread", "critical batch / model"),
    "pue": ("pue", "PUE"),
    "electricity": ("electricity", "electricity price"),
    "carbon_intensity": ("carbon_intensity", "carbon intensity of the grid"),
    "colocation": ("colocation", "colocation"),
    "lifetime": ("lifetime", "life of the machines"),
    "residual": ("residual", "value left at its end / price"),
    "support": ("support", "support, a year"),
    "staff": ("staff", "staff, a year"),
    "software": ("software", "software"),
    "network": ("network_spread", "network / its switches and links"),
}
# What a bare number is in, as a factor to SI: an interruption a day, USD a kWh, a kW-month or a year, minutes, GB/s,
# hours, years.
BARE: Mapping[str, float] = {
    "failure_rate": 1.0 / DAY,
    "electricity": 1.0 / 3.6e6,
    "colocation": 12.0 / (1e3 * YEAR),
    "software": 1.0 / YEAR,
    "support": 1.0 / YEAR,
    "staff": 1.0 / YEAR,
    "restart": 60.0,
    "storage": 1e9,
    "repair": 3600.0,
    "lifetime": YEAR,
}
# What no input may be, in SI: no amount is negative, and some divide.
ABOVE_ZERO = frozenset(
    ["mfu", "rent", "capex", "failure_rate", "checkpoint_stall", "storage", "gpu_power", "critical_batch", "lifetime"]
)
LEAST: Mapping[str, float] = {"pue": 1.0}
MOST: Mapping[str, float] = {"residual": 1.0, "replaced_share": 1.0}
ONLY_RENT, ONLY_BUY = (
    ("rent",),
    ("capex", "electricity", "colocation", "lifetime", "residual", "support", "staff", "software", "network"),
)


def assumptions(buy: bool, given: Mapping[str, str] | None = None) -> tuple[Assumption, ...]:
    """Every input that matters, at the preset's range or at what was given: "0.09", "0.08:0.09:0.15", "12 min".

    Bare numbers are in the units of BARE.

    Raises InputError for an unknown name or a value that is no such quantity.
    """
    given = given or {}
    unknown = [name for name in given if name not in TITLES]
    if unknown:
        near = " or ".join(nearest(unknown[0], TITLES)) or ", ".join(TITLES)
        raise InputError(f"unknown assumption {unknown[0]!r}; did you mean {near}?")
    unused = ONLY_RENT if buy else ONLY_BUY
    return tuple(_assumption(name, given.get(name)) for name in TITLES if name not in unused or name in given)


def _assumption(name: str, text: str | None) -> Assumption:
    quantity, title = TITLES[name]
    price = find_price("pue", "other") if name == "pue" else default_price(quantity)
    if price is None:
        raise InputError("presets/prices.csv has no row other,pue; add one with its source and date")
    value, source, date, grade = (
        Range(low=price.low, mid=price.mid, high=price.high),
        price.source,
        price.date,
        price.grade,
    )
    if text is not None:
        value, source, date, grade = _range(name, text, price.unit), "given by the user", "", "user"
    return Assumption(name=name, title=title, value=value, unit=price.unit, source=source, date=date, grade=grade)


def _range(name: str, text: str, unit: str) -> Range:
    *leading, last = (part.strip() for part in text.split(":"))
    # A unit after the last number holds for all: "0.08:0.09:0.15 USD/kWh".
    suffix = last.lstrip("+-.0123456789eE_,")
    parts = [part if not suffix or part.endswith(suffix) else f"{part}{suffix}" for part in (*leading, last)]
    values = [_possible(name, part, unit) for part in parts]
    if len(values) == 1:
        return Range.exact(values[0])
    if len(values) != 3 or sorted(values) != values:
        raise InputError(f"--assume {name}={text} must be one value or LOW:MIDDLE:HIGH in rising order")
    return Range(low=values[0], mid=values[1], high=values[2])


def _possible(name: str, text: str, unit: str) -> float:
    """The value in SI; a bare number is in the unit of BARE. Raises InputError where this input cannot have it."""
    try:
        value = float(text) * BARE.get(name, 1.0)
    except ValueError:
        value = parse(text, unit)
    least, most = LEAST.get(name, 0.0), MOST.get(name, HUGE)
    if not least <= value <= most or (name in ABOVE_ZERO and value == 0):
        wanted = "above 0" if name in ABOVE_ZERO else f"at least {least:g}"
        wanted += f" and at most {most:g}" if name in MOST else ""
        raise InputError(f"--assume {name}={text}: {TITLES[name][1]} must be a finite number {wanted}")
    return value
