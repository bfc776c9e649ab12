"""Power and other economic parameters, from presets/prices.csv; what machines cost is in the price book, offers.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from optimizer.base.errors import InputError
from optimizer.base.units import factor
from optimizer.catalog.rows import Row, names, rows

PRICES = "prices.csv"


@dataclass(frozen=True, kw_only=True)
class Price:
    """One figure of money or power, in SI."""

    name: str  # a cluster, a device, a provider's offer or "default"
    quantity: str  # what is measured
    value: float  # in `unit`
    low: float  # least that the sources say; `value` where they agree
    high: float  # most that they say
    unit: str  # "USD/s", "USD", "W", "USD/J", "1", ...
    scope: str  # what it is for: a node, a GPU, ...
    source: str  # where it is written
    date: str  # when it was written or read
    grade: str  # as of Provenance
    note: str = ""  # what else is to be known

    @property
    def mid(self) -> float:
        """Another name of `value`, beside low and high."""
        return self.value


@cache
def load_prices() -> tuple[Price, ...]:
    """Every row of presets/prices.csv.

    >>> node = next(price for price in load_prices() if price.quantity == "node_power_max")
    >>> node.name, node.value, node.unit, node.scope
    ('dgx-v100', 3500.0, 'W', 'per node')
    """
    return tuple(_price(row) for name in names(PRICES) for row in rows(PRICES, name))


def _price(row: Row) -> Price:
    unit, size = factor(row.unit)
    value = row.number()
    return Price(
        name=row.name,
        quantity=row.quantity,
        value=value,
        low=float(row.low) * size if row.low else value,
        high=float(row.high) * size if row.high else value,
        unit=unit,
        scope=row.scope,
        source=row.provenance.source,
        date=row.provenance.date,
        grade=row.provenance.grade,
        note=row.provenance.note.removeprefix(row.scope).removeprefix("; "),
    )


@cache
def find_price(quantity: str, *names: str) -> Price | None:
    """The row of this quantity for the first of the names that has one.

    >>> price = find_price("node_power_max", "my-cluster", "dgx-h100")
    >>> price.value if price else None
    10200.0
    """
    table = _table(quantity)
    return next((table[name] for name in names if name in table), None)


@cache
def _table(quantity: str) -> Mapping[str, Price]:
    """The rows of one quantity by name."""
    return {price.name: price for price in reversed(load_prices()) if price.quantity == quantity}


@cache
def default_price(quantity: str) -> Price:
    """The row that holds when a user names nothing else.

    Raises InputError when presets/prices.csv has none.
    """
    price = find_price(quantity, "default")
    if price is None:
        raise InputError(f"presets/{PRICES} has no row default,{quantity}; add one with its unit, source and date")
    return price
