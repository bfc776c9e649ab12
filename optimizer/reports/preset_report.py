"""The list of presets, and one preset with the parents of its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from optimizer.catalog import KINDS
from optimizer.reports.preset_numbers import Number, Preset

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

GRADES = "Grades: A primary source, B secondary naming its primary, C derived or unconfirmed (marked with !)."


def names_report(names: Mapping[str, Sequence[str]], own: Mapping[str, Mapping[str, str]] | None = None) -> Group:
    """Every kind and its names, wrapped, and the files of the user's own by kind and name."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = []
    for kind, known in names.items():
        parts.append(Text(f"{kind} ({len(known)})", style="bold"))
        parts.append(Padding(Text("  ".join(known)), (0, 0, 1, 2)))
    for kind, places in (own or {}).items():
        shipped = KINDS[kind.removesuffix("s")][0]()
        parts.append(Text(f"your own {kind}", style="bold"))
        lines = (
            f"{name}  {path}{'  (before the shipped one)' if name in shipped else ''}" for name, path in places.items()
        )
        parts.append(Padding(Text("\n".join(lines)), (0, 0, 1, 2)))
    parts.append(Text("`optimize presets show NAME` prints each number with its unit, scope, source and date."))
    return Group(*parts)


def preset_report(preset: Preset) -> Group:
    """One preset: value, unit and grade of each number; scope, source and date on the line below."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 1, 0, 1))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True)
    table.add_column()
    for number in preset.numbers:
        doubtful = number.grade == "C"
        mark = f"{number.grade}{' !' if doubtful else ''}"
        table.add_row(number.quantity, mark, f"{number.value} {unit_text(number.unit)}".strip())
        table.add_row("", "", Text(origin(number), style="yellow" if doubtful else "dim"))
    return Group(Text(f"{preset.kind} {preset.name}", style="bold"), table, Text(GRADES))


def unit_text(unit: str) -> str:
    """A unit as people read it: nothing for a pure number.

    >>> unit_text("TB/s"), unit_text("1")
    ('TB/s', '')
    """
    return "" if unit == "1" else unit


def origin(number: Number) -> str:
    """Scope, source, date and note of a number in one line.

    >>> origin(Number(quantity="memory", value="80", scope="per GPU", source="datasheet", date="2023"))
    'per GPU; datasheet; 2023'
    """
    return "; ".join(part for part in (number.scope, number.source, number.date, number.note) if part)
