"""Money, energy and time as a board reads them."""

from __future__ import annotations

from collections.abc import Callable

from optimizer.base.units import DAY, YEAR
from optimizer.purchase.ranges import Range

J_PER_MWH = 3.6e9
NEGLIGIBLE = 0.005  # chance that is never told as none, nor as certain beside one [1]
# Factor and unit for people, by the name of an assumption or by a unit in SI.
FACTORS = {
    "failure_rate": (DAY, "a day"),
    "support": (YEAR, "of the price a year"),
    "staff": (YEAR, "of the price a year"),
    "colocation": (YEAR * 1e3 / 12, "USD/kW-month"),
    "carbon_intensity": (1.0, "kg/kWh"),
    "storage": (1e-9, "GB/s"),
    "USD/J": (3.6e6, "USD/kWh"),
    "USD/s": (YEAR, "USD a year"),
    "1/s": (DAY, "a day"),
    "B/s": (8e-9, "Gb/s"),
}


def dollars(value: float) -> str:
    """An amount of money with three digits.

    >>> dollars(77_460_000), dollars(1.234e9), dollars(999_500), dollars(999_499)
    ('$77.5 M', '$1.23 B', '$1.00 M', '$999 k')
    """
    for size, name in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size * 0.9995:
            count = value / size
            return (
                f"${count:.2f}{name}"
                if count < 10
                else f"${count:.1f}{name}"
                if count < 100
                else f"${count:,.0f}{name}"
            )
    return f"${value:,.0f}"


def percent(value: float) -> str:
    """A chance in percent, by draws: never none, never certain.

    >>> percent(0.005), percent(0.41), percent(0.995)
    ('<1%', '41%', '>99%')
    """
    return "<1%" if value <= NEGLIGIBLE else ">99%" if value >= 1 - NEGLIGIBLE else f"{value:.0%}"


def days(value: float) -> str:
    """A time in days, years beyond two of them.

    >>> days(32.94 * 86400), days(3.5 * 86400), days(900 * 86400)
    ('33 days', '3.5 days', '2.5 years')
    """
    count = value / DAY
    if count == float("inf"):
        return "never"
    if count >= 730:
        return f"{count / 365.25:.1f} years"
    return f"{count:.0f} days" if count >= 10 else f"{count:.1f} days"


def megawatt_hours(value: float) -> str:
    """Energy from joules.

    >>> megawatt_hours(7.2e13)
    '20,000 MWh'
    """
    count = value / J_PER_MWH
    return f"{count:,.0f} MWh" if count >= 10 else f"{count:.2f} MWh"


def megawatts(value: float) -> str:
    """Power of a site.

    >>> megawatts(18.43e6), megawatts(56000)
    ('18.4 MW', '56 kW')
    """
    return f"{value / 1e6:,.1f} MW" if value >= 1e6 else f"{value / 1e3:,.0f} kW"


def gigabytes(value: float) -> str:
    """An amount of memory.

    >>> gigabytes(2.5e11)
    '250 GB'
    """
    return f"{value / 1e9:,.0f} GB"


def tonnes(value: float) -> str:
    """A mass of carbon dioxide from kilograms.

    >>> tonnes(8.93e6), tonnes(12300)
    ('8,930 t', '12.3 t')
    """
    count = value / 1e3
    return f"{count:,.0f} t" if count >= 100 else f"{count:.1f} t"


def hourly(value: float) -> str:
    """A rent from USD/s.

    >>> hourly(2.5 / 3600)
    '$2.50/h'
    """
    return f"${value * 3600:,.2f}/h"


def between(value: Range, show: Callable[[float], str]) -> str:
    """The middle of a range with both ends.

    >>> between(Range(low=28 * 86400, mid=33 * 86400, high=41 * 86400), days)
    '33 days (28 days to 41 days)'
    """
    return f"{show(value.mid)} ({show(value.low)} to {show(value.high)})"


def quantity(value: float, unit: str, name: str = "") -> str:
    """An assumption's value in the unit that people use for it, by its name or its unit in SI.

    >>> quantity(600.0, "s"), quantity(2.2944e-08, "USD/J"), quantity(4.63e-8, "1/s", "failure_rate")
    ('10 min', '0.0826 USD/kWh', '0.004 a day')
    """
    if unit == "s":
        for size, name in ((YEAR, "years"), (DAY, "days"), (3600.0, "h"), (60.0, "min")):
            if value >= size * 0.9995:
                number = f"{value / size:.3g}"
                return f"{number} {name.removesuffix('s') if number == '1' else name}"
    factor, name = FACTORS.get(name) or FACTORS.get(unit, (1.0, "" if unit == "1" else unit))
    return f"{value * factor:.3g} {name}".strip()
