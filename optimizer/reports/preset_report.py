"""The list of presets, and one preset with the parents of its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optimizer.catalog import KINDS
from optimizer.reports.preset_numbers import Number, Preset
from optimizer.reports.report import Report, Table, Text, columns, section

GRADES = "Grades: A primary source, B secondary naming its primary, C derived or unconfirmed (marked with !)."
HINT = "`optimize presets show NAME` prints each number with its unit, scope, source and date."


def names_report(names: Mapping[str, Sequence[str]], own: Mapping[str, Mapping[str, str]] | None = None) -> Report:
    """Every kind and its names, wrapped, and the files of the user's own by kind and name."""
    shipped = {kind: KINDS[kind.removesuffix("s")][0]() for kind in own or {}}
    lines = {
        f"your own {kind}": [
            f"{name}  {path}{'  (before the shipped one)' if name in shipped[kind] else ''}"
            for name, path in places.items()
        ]
        for kind, places in (own or {}).items()
    }
    known = [section(f"{kind} ({len(known)})", "  ".join(known)) for kind, known in names.items()]
    mine = [section(heading, Text("\n".join(files), block=True)) for heading, files in lines.items()]
    return Report(title="Presets", subject=(HINT,), sections=(*known, *mine))


def preset_report(preset: Preset) -> Report:
    """One preset: value, unit and grade of each number; scope, source and date on the line below."""
    rows = []
    for number in preset.numbers:
        mark = f"{number.grade}{' !' if number.grade == 'C' else ''}"
        rows.append((number.quantity, mark, f"{number.value} {unit_text(number.unit)}".strip()))
        rows.append(("", "", origin(number)))
    table = Table(columns(" |  | ~"), rows)
    return Report(title=f"{preset.kind} {preset.name}", subject=(GRADES,), sections=(section("", table),))


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
