"""How the texts of a purchase are filled in: templates of texts.toml, whose fields name a value and how to write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from string import Formatter
from typing import Any

from optimizer.base.content import content
from optimizer.purchase.units import (
    between,
    days,
    dollars,
    gigabytes,
    hourly,
    megawatt_hours,
    megawatts,
    quantity,
    tonnes,
)
from optimizer.reports.report import Table, columns

AMOUNTS: Mapping[str, Callable[[float], str]] = {
    "days": days,
    "dollars": dollars,
    "hourly": hourly,
    "megawatt_hours": megawatt_hours,
    "megawatts": megawatts,
    "gigabytes": gigabytes,
    "tonnes": tonnes,
    "duration": lambda seconds: quantity(seconds, "s"),
    "plural": lambda count: "s" * (count != 1),
    "singular": lambda count: "s" * (count == 1),
}
OBJECTS: Mapping[str, Callable[[Any], str]] = {
    "known": lambda model: model.title or model.name,
    "name": lambda point: point.design.label().replace(" ", " × ", 1),
    "low": lambda swing: quantity(swing.low, swing.unit, swing.name),
    "high": lambda swing: quantity(swing.high, swing.unit, swing.name),
    **{method: methodcaller(method) for method in ("label", "words", "title", "seller")},
}


class _Filler(Formatter):
    """Python's own formats; a way of AMOUNTS or OBJECTS; "between WAY" of a range; "/SIZE FORMAT" of a ratio."""

    def format_field(self, value: Any, format_spec: str) -> str:
        way, _, rest = format_spec.partition(" ")
        if way == "between":
            return between(value, AMOUNTS[rest])
        if way.startswith("/"):
            return format(value / float(way[1:]), rest)
        write = AMOUNTS.get(way) or OBJECTS.get(way)
        return write(value) if write else format(value, format_spec)


_FILLER = _Filler()


def filled(template: str, **values: Any) -> str:
    """A template with its fields filled in.

    >>> filled("{cost:dollars} for {tokens:/1e12 g} trillion tokens", cost=7.75e7, tokens=1.5e13)
    '$77.5 M for 15 trillion tokens'
    """
    return _FILLER.format(template, **values)


def texts(kind: str) -> Mapping[str, Any]:
    """The templates of one kind, by name: "sentences", "notes", "tiles", "pairs" or "tables"."""
    templates: Mapping[str, Any] = content("optimizer.purchase", "texts.toml")[kind]
    return templates


def say(name: str, **values: Any) -> str:
    """A sentence by its name."""
    return filled(texts("sentences")[name], **values)


def note(name: str, **values: Any) -> str:
    """What the page says around its tables and charts, by its name."""
    return filled(texts("notes")[name], **values)


def table(name: str, rows: Iterable[Mapping[str, Any]], strong: Sequence[int] = (), head: str = "") -> Table:
    """A table by its name.

    Args:
        name: Of the table in texts.toml, which has a template for each heading.
        rows: The values that fill the templates of each row.
        strong: The rows that stand out.
        head: What fills the heading that has a field.
    """
    cells = texts("tables")[name]
    heads = columns(" | ".join(cells).format(head))
    return Table(heads, [tuple(filled(cell, **row) for cell in cells.values()) for row in rows], strong)
