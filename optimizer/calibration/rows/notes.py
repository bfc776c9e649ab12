"""Clean columns of measured rows: what notes, tables and launch scripts say, told once in presets/run_notes.toml."""

from __future__ import annotations

import re
import tomllib
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from optimizer.catalog.files import presets_folder

Row = Mapping[str, str]
FILE = "run_notes.toml"
CLEAN = "clean"  # the column of rows whose other columns say all: "yes"
ASSUMED = "assumed"  # the column of what was assumed of such a row
SEPARATOR = "; "


@dataclass(frozen=True, kw_only=True)
class NoteRule:
    """One rule of the table."""

    where: Mapping[str, re.Pattern[str]]  # patterns that cells have, by column
    unless: Mapping[str, re.Pattern[str]]  # patterns that they do not have
    set: Mapping[str, str]  # columns that it writes
    fill: Mapping[str, str]  # columns that it writes where they are blank
    why: str  # what is reported with a row that it changes, "" for nothing
    first_of: str  # of the rules that share it only the first that matches applies, "" for a rule of its own

    def changes(self, row: Row) -> tuple[dict[str, str], str] | None:
        """The cells that it writes in this row, and why; None where it does not match."""
        matches = []
        for column, pattern in self.where.items():
            match = pattern.search(row.get(column, ""))
            if match is None:
                return None
            matches.append(match)
        if any(pattern.search(row.get(column, "")) for column, pattern in self.unless.items()):
            return None
        named = ChainMap({}, *(match.groupdict("") for match in matches), dict(row))
        cells = {**{column: text for column, text in self.fill.items() if not row.get(column)}, **self.set}
        return {column: text.format_map(named) for column, text in cells.items()}, self.why.format_map(named)


def clean_columns(row: Row, assumed: list[str]) -> dict[str, str]:
    """The row with what the rules read from it in columns; what is assumed of it is added to `assumed`.

    A row that is clean stays as it is.

    >>> assumed: list[str] = []
    >>> row = {"source": "vTrain: data", "table": "MICRO24 ground truth single", "recompute": "full"}
    >>> clean_columns(row, assumed)["recompute"], assumed
    ('none', ['no fused kernels, no recomputation: with it the matrix products would run beyond the peak'])
    """
    if row.get(CLEAN):
        assumed += filter(None, row.get(ASSUMED, "").split(SEPARATOR))
        return dict(row)
    derived = {
        "place": row.get("table") or row.get("source_ref", ""),
        "said": f"{row.get('model', '')} {row.get('notes', '')}",
        "stages": _stages(row),
    }
    cleaned, applied = {**row, **derived}, {""}
    for rule in _rules():
        changes = None if rule.first_of in applied - {""} else rule.changes(cleaned)
        if changes is not None:
            cells, why = changes
            applied.add(rule.first_of)
            cleaned |= cells
            assumed += [why] * bool(cells and why)
    return {column: cell for column, cell in cleaned.items() if column not in derived}


def _stages(row: Row) -> str:
    """Virtual stages of a row, "" where its cells are no numbers."""
    try:
        return f"{round(float(row.get('pp') or 1) * float(row.get('vpp') or 1))}"
    except (ValueError, OverflowError):
        return ""


@cache
def _rules() -> tuple[NoteRule, ...]:
    rules: list[dict[str, Any]] = tomllib.loads((presets_folder() / FILE).read_text(encoding="utf-8"))["rule"]
    return tuple(
        NoteRule(
            where=_patterns(rule["where"]),
            unless=_patterns(rule.get("unless", {})),
            set=rule.get("set", {}),
            fill=rule.get("fill", {}),
            why=rule.get("why", ""),
            first_of=rule.get("first_of", ""),
        )
        for rule in rules
    )


def _patterns(patterns: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    return {column: re.compile(pattern, re.IGNORECASE) for column, pattern in patterns.items()}
