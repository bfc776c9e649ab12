"""Presets in long form: one number a row, with its unit, scope, source, date and grade."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from optimizer.base.errors import InputError, UnknownName
from optimizer.base.units import factor
from optimizer.catalog.files import csv_rows, presets_folder
from optimizer.job.model import Provenance

TEXT = "text"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a preset file."""

    file: str
    line: int  # its number
    name: str  # of the preset
    quantity: str
    text: str  # the value as printed
    unit: str  # of the value; "text" for a word
    low: str = ""  # least value that the sources say
    high: str = ""  # largest value that they say
    scope: str = ""  # what the value is for
    provenance: Provenance

    @property
    def is_text(self) -> bool:
        """Whether the row holds a word, not a number."""
        return self.unit == TEXT

    def number(self, dimension: str = "") -> float:
        """The value in SI; raises InputError when it is no number, or of another dimension than the given one."""
        measured, size = factor(self.unit)
        where = f"{self.file} line {self.line}: {self.name}.{self.quantity}"
        if dimension and measured != dimension:
            raise InputError(f"{where} is in [{measured}]; expected [{dimension}]")
        try:
            return float(self.text) * size
        except ValueError as error:
            raise InputError(f"{where} must be a number, but got {self.text!r}") from error


@cache
def _table(file: str) -> Mapping[str, list[tuple[int, dict[str, str]]]]:
    """Raw rows of presets/`file` by name, in the order of the file."""
    table: dict[str, list[tuple[int, dict[str, str]]]] = {}
    for line, cells in csv_rows(presets_folder() / file):
        table.setdefault(cells.get("name", ""), []).append((line, cells))
    return table


@cache
def names(file: str, having: str = "") -> tuple[str, ...]:
    """Every name of a preset file, in the order of the file; only those `having` a row of some quantity, if given."""
    return tuple(
        name
        for name, lines in _table(file).items()
        if not having or any(cells.get("quantity") == having for _, cells in lines)
    )


@cache
def rows(file: str, name: str) -> tuple[Row, ...]:
    """The rows of one name, after those that it inherits with `like`."""
    every: list[Row] = []
    for line, cells in _table(file)[name]:
        row = _row(file, line, cells)
        if row.quantity == "like":
            every = [*rows(file, row.text), *every]
        else:
            every.append(row)
    return tuple(every)


def _row(file: str, line: int, cells: Mapping[str, str]) -> Row:
    get = cells.get
    scope, note = get("scope", ""), get("note", "")
    return Row(
        file=file,
        line=line,
        text=get("value", ""),
        **{column: get(column, "") for column in ("name", "quantity", "unit", "low", "high", "scope")},
        provenance=Provenance(
            **{column: get(column, "") for column in ("source", "date", "grade")},
            note=f"{scope}; {note}" if scope and note else scope or note,
        ),
    )


@cache
def index(file: str, quantity: str) -> Mapping[str, str]:
    """Name by the value of one of its text quantities, such as every alias of a device."""
    return {
        cells["value"]: name
        for name, lines in _table(file).items()
        for _, cells in lines
        if cells.get("quantity") == quantity
    }


def plain(name: str) -> str:
    """A name as presets write it.

    >>> plain(" H100_SXM ")
    'h100-sxm'
    """
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def canonical(kind: str, file: str, name: str, known: Iterable[str], *quantities: str) -> str:
    """The name of the preset meant by `name`, by itself or through one of the text quantities such as `alias`.

    Case, blanks and underscores do not matter. Raises UnknownName, with the nearest names.
    """
    wanted, known = plain(name), tuple(known)
    if wanted in known:
        return wanted
    for quantity in quantities:
        if wanted in index(file, quantity):
            return index(file, quantity)[wanted]
    raise UnknownName(kind, name, [*known, *(alias for quantity in quantities for alias in index(file, quantity))])
