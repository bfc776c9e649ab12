"""Quantities as people write and read them, at the ends of what they are."""

from __future__ import annotations

from math import inf

import pytest

from optimizer.base.errors import InputError
from optimizer.base.units import (
    BEYOND,
    DAY,
    GiB,
    KiB,
    TiB,
    amount,
    count_in,
    factor,
    is_count,
    parse,
    seconds,
    show,
    whole,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0 B"), (999.4, "999 B"), (999.5, "1 kB"), (-2e3, "-2 kB"), (1e18, "1e+03 PB"), (0.9995, "1 B")),
        *((0.9994, "999 mB"), (2e-12, "2 pB"), (9.996e-13, "1 pB"), (9e-13, "9e-13 B"), (1234567.0, "1.23 MB")),
    ],
)
def test_a_quantity_has_the_prefix_that_fits(value: float, text: str) -> None:
    assert show(value, "B") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((999.4, "999 s"), (999.5, "1,000 s"), (3599.0, "3,599 s"), (3600.0, "1 h"), (-7200.0, "-2 h")),
        *((3 * DAY - 1, "72 h"), (3 * DAY, "3 days"), (999 * DAY, "999 days"), (1000 * DAY, "1,000 days")),
        (12345 * DAY, "12,345 days"),
    ],
)
def test_a_duration_is_told_in_hours_and_days_where_it_is_long(value: float, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("unit", "dimension", "size"),
    [
        *(("B", "B", 1.0), ("kb", "B", 125.0), ("Kibit", "B", KiB / 8), ("GiB", "B", GiB), ("TiB/s", "B/s", TiB)),
        *(("PFLOPS", "FLOP/s", 1e15), ("kWh", "J", 3.6e6), ("min", "s", 60.0), ("weeks", "s", 604800.0)),
        *(("pJ/bit", "J/bit", 1e-12), ("USD/kWh", "USD/J", 1 / 3.6e6), ("%", "1", 0.01), ("1/d", "1/s", 1 / DAY)),
        *(("USD/kW-month", "USD/J", 12 / (1000 * 365.25 * DAY)), ("kUSD/h", "USD/s", 1000 / 3600)),
    ],
)
def test_a_unit_has_a_dimension_and_a_size(unit: str, dimension: str, size: float) -> None:
    assert factor(unit) == (dimension, pytest.approx(size, rel=1e-15))


@pytest.mark.parametrize("unit", ["", "kmin", "m%", "GGB", "B/h", "k1"])
def test_what_is_no_unit_is_told_with_examples(unit: str) -> None:
    with pytest.raises(InputError, match="use for example W, kW, MW"):
        factor(unit, "W")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("2", 2.0), (2, 2.0), ("1_000 W", 1000.0), ("1,024 W", 1024.0), ("-.5e1W", None), ("-5e-1W", -0.5)),
        *(("2,10 W", None), ("1e60", BEYOND), ("1.1e60", None), (1e60, BEYOND), (-1.1e60, None), (inf, None)),
        *(("3 B", None), ("W", None), ("1e12345 W", None)),
    ],
)
def test_a_quantity_is_read_or_refused(text: str | float, value: float | None) -> None:
    if value is not None:
        assert parse(text, "W") == value
        return
    with pytest.raises(InputError):
        parse(text, "W")


@pytest.mark.parametrize(
    ("text", "number", "count"),
    [
        *(("8k", 8000.0, 8192), ("8Ki", 8192.0, 8192), ("2M", 2e6, 2 * 1024**2), ("2b", 2e9, None), ("1", 1.0, 1)),
        *(("1G", 1e9, 1024**3), ("1T", 1e12, None), ("0", 0.0, None), ("1.5", 1.5, None), ("1.5k", 1500.0, 1536)),
        *(("2147483647", 2147483647.0, 2147483647), ("2147483648", 2147483648.0, None), ("2,5", None, None)),
    ],
)
def test_numbers_as_people_write_them(text: str, number: float | None, count: int | None) -> None:
    for read, value in ((amount, number), (whole, count)):
        if value is not None:
            assert read(text) == value
            continue
        with pytest.raises(InputError):
            read(text)


def test_counts_in_texts() -> None:
    counts = {"0": 0, "7.9": 7, "2147483647": 2147483647, "2147483648": 0, "-1": 0, "nan": 0, "1e3": 1000}
    assert {text: count_in(text) for text in counts} == counts
    texts = {"0" * 20 + "9" * 15: True, "9" * 16: False, "": False, "1.0": False}
    assert {text: is_count(text) for text in texts} == texts
