"""A report: what a study says, once. The screen, a page, CSV and JSON render it.

Report     title, subject, conclusion, sections, what was assumed
Section    a heading with its blocks, on the screen, on the page or on both
Block      Text, Points, Pairs, Table, Chart or Tiles; a plain string is a paragraph
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Literal

from optimizer.base.units import show
from optimizer.reports.charts.chart import Chart

NOTE = "Predicted by mfu-optimizer, not measured."
BAR = "bar"
Value = float | int | str | bool | None
Cell = Value | tuple[float, ...]  # a value, or the shares that a bar is made of
Record = Mapping[str, Value]
Place = Literal["", "screen", "page"]
Tone = Literal["", "good", "open", "bad"]
_HEADING = re.compile(r"(?P<label>.*?) ?(?:\[(?P<unit>[^]]*)\])?(?P<wraps> ?~)?", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table."""

    label: str  # Its heading; a line break may stand in it
    # An SI unit, "%" for a share, "x" for a ratio, "1" for a count, "bar" for a bar filled to a share or made of
    # several, "text" for words to the right, "" for words
    unit: str = ""
    wraps: bool = False  # Whether its words may be broken into lines


def columns(headings: str) -> tuple[Column, ...]:
    """Columns from their headings, between bars: a unit stands in brackets, and a tilde where words may wrap.

    >>> columns("step [s] | plan ~")
    (Column(label='step', unit='s', wraps=False), Column(label='plan', unit='', wraps=True))
    """
    parts = [part for text in headings.split("|") if (part := _HEADING.fullmatch(text.strip(" ")))]
    return tuple(Column(label=part["label"], unit=part["unit"] or "", wraps=bool(part["wraps"])) for part in parts)


def cell(value: Cell, unit: str) -> str:
    """A value as people read it; an em dash for none.

    >>> cell(16777216.0, "B"), cell(0.3912, "%"), cell(8192.0, "1"), cell(2.74, "1"), cell(None, "s")
    ('16.8 MB', '39.1%', '8,192', '2.7', '—')
    """
    if value is None:
        return "" if unit == BAR else "—"
    if isinstance(value, str | bool):
        return str(value)
    if isinstance(value, tuple):
        return " + ".join(cell(share, unit) for share in value)
    if not isfinite(value):
        return "" if unit == BAR else "none"
    if unit == "%":
        return f"{value:.1%}"
    if unit in ("x", BAR):
        return f"{value:.2f}"
    if unit in ("", "1"):
        return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
    return show(value, unit)


@dataclass(frozen=True)
class Text:
    """A paragraph; the lines of a `block` stand as they are written."""

    kind: ClassVar[str] = "text"
    text: str
    block: bool = False

    def __bool__(self) -> bool:
        return bool(self.text)


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class BulletPoints:
    """Sentences of a list; empty ones are left out."""

    kind: ClassVar[str] = "points"
    lines: Sequence[str]

    def __bool__(self) -> bool:
        return any(self.lines)


@dataclass(frozen=True)
class Pairs:
    """Names, each with what is said of it."""

    kind: ClassVar[str] = "pairs"
    rows: Sequence[tuple[str, str]]

    def __bool__(self) -> bool:
        return bool(self.rows)


@dataclass(frozen=True)
class Table:
    """Rows of values under typed columns; the rows numbered in `strong` stand out."""

    kind: ClassVar[str] = "table"
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    strong: Sequence[int] = ()

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def labels(self) -> list[str]:
        """The headings, each on one line."""
        return [column.label.replace("\n", " ") for column in self.columns]

    @property
    def texts(self) -> list[tuple[str, ...]]:
        r"""The rows as people read them.

        >>> Table(columns("per\nstep [s]"), [[0.5], [None]]).texts
        [('500 ms',), ('—',)]
        """
        units = [column.unit for column in self.columns]
        return [tuple(cell(value, unit) for value, unit in zip(row, units, strict=True)) for row in self.rows]

    @property
    def right(self) -> list[int]:
        """The columns of numbers, which stand to the right."""
        return [place for place, column in enumerate(self.columns) if column.unit not in ("", BAR)]

    @property
    def bars(self) -> list[int]:
        """The columns of bars."""
        return [place for place, column in enumerate(self.columns) if column.unit == BAR]


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A number in a frame: what it is, its value, and a few words on how sure it is."""

    name: str
    value: str
    about: str = ""


@dataclass(frozen=True)
class Tiles:
    """Numbers in frames, side by side."""

    kind: ClassVar[str] = "tiles"
    tiles: Sequence[Tile]

    def __bool__(self) -> bool:
        return bool(self.tiles)


Block = Text | Heading | BulletPoints | Pairs | Table | Tiles | Chart


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with what belongs under it. `on`: "screen" or "page" where only that shows it."""

    heading: str
    blocks: tuple[Block, ...]
    on: Place = ""


def section(heading: str, *blocks: Block | str, on: Place = "") -> Section:
    """A section of the blocks that are not empty; strings are paragraphs."""
    typed = (Text(block) if isinstance(block, str) else block for block in blocks)
    return Section(heading=heading, blocks=tuple(block for block in typed if block), on=on)


def notes(heading: str, lines: Iterable[str], on: Place = "") -> Section:
    """A section of one list; it is empty, and so not shown, without lines."""
    return section(heading, BulletPoints([line for line in lines if line]), on=on)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a study says."""

    title: str  # The answer in one line
    subject: tuple[str, ...] = ()  # What was asked, a line each
    warning: str = ""  # Why the plan cannot run, if so
    conclusion: tuple[str, ...] = ()  # Sentences; the first one answers the question
    sections: tuple[Section, ...] = ()  # What it rests on; sections without blocks are not shown
    assumed: tuple[str, ...] = ()  # What nobody said and was assumed
    command: str = ""  # What makes the report again
    note: str = NOTE  # What a page says of all its numbers
    tone: Tone = ""  # Whether the answer is good, open or bad, which colours the title on a terminal

    def shown(self, on: Place) -> list[Section]:
        """The sections that the screen or the page shows, what was assumed last."""
        all_of_them = (*self.sections, notes("Assumed", self.assumed))
        return [each for each in all_of_them if each.blocks and each.on in ("", on)]
