"""Tables of the studies: the same rows for the screen, as CSV and as JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from math import isfinite
from typing import TYPE_CHECKING, Any

from optimizer.base.names import csv_cell
from optimizer.base.units import show

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA_VERSION = 1
Value = float | int | str | bool | None
Record = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column on the screen. `unit`: an SI unit, "%" for a share, "x" for a ratio, "1" for a count, "" for words."""

    label: str
    unit: str = ""
    wraps: bool = False


def cell(value: Value, unit: str) -> str:
    """A value as people read it; an em dash for none.

    >>> cell(16777216.0, "B"), cell(0.3912, "%"), cell(8192.0, "1"), cell(2.74, "1"), cell(None, "s")
    ('16.8 MB', '39.1%', '8,192', '2.7', '—')
    """
    if value is None:
        return "—"
    if isinstance(value, str | bool):
        return str(value)
    if not isfinite(value):
        return "none"
    if unit == "%":
        return f"{value:.1%}"
    if unit == "x":
        return f"{value:.2f}"
    if unit in ("", "1"):
        return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
    return show(value, unit)


def table(columns: Sequence[Column], rows: Sequence[Sequence[Value]]) -> Table:
    """A table without lines: words to the left, numbers to the right."""
    from rich.table import Table

    drawn = Table(box=None, pad_edge=True, padding=(0, 1, 0, 0), header_style="dim")
    for column in columns:
        justify = "right" if column.unit else "left"
        drawn.add_column(column.label, justify=justify, no_wrap=not column.wraps)  # type: ignore[arg-type]
    for row in rows:
        drawn.add_row(*(cell(value, column.unit) for value, column in zip(row, columns, strict=True)))
    return drawn


def csv_text(records: Sequence[Record]) -> str:
    r"""Records as CSV; the columns are those of all records, in order of appearance.

    >>> csv_text([{"gpus": 8, "mfu": 0.5}, {"gpus": 16, "note": "no plan"}])
    'gpus,mfu,note\n8,0.5,\n16,,no plan\n'
    """
    columns = list(dict.fromkeys(name for record in records for name in record))
    if not columns:
        return ""
    target = StringIO()
    writer = csv.DictWriter(target, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_cell(_finite(value)) for name, value in record.items()} for record in records)
    return target.getvalue()


def json_text(content: Mapping[str, Any]) -> str:
    """A study as strict JSON: numbers that are not finite become null."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **_plain(content)}, indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return _finite(value)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value
