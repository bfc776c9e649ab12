"""A report as a page: title, conclusion first, tiles, then sections of charts, tables and sentences.

Every report that is written by `--html` is one of these, or a template that extends the same `report.html`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.reports.charts.chart import Chart, numeric
from optimizer.reports.render.html import rendered
from optimizer.reports.table import Column, Value, cell

NOTE = "Predicted by mfu-optimizer, not measured."


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A number in a frame: what it is, its value, and a few words on how sure it is."""

    name: str
    value: str
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under headings, every cell a text; those of numbers stand to the right."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, name: str, columns: Sequence[Column], rows: Sequence[Sequence[Value]]) -> Table:
        r"""The table that the screen shows of the same rows.

        >>> Table.of("GPUs", [Column(label="per\nstep", unit="s")], [[0.5]])
        Table(name='GPUs', columns=('per step',), rows=(('500 ms',),))
        """
        texts = (tuple(cell(value, column.unit) for value, column in zip(row, columns, strict=True)) for row in rows)
        return cls(name=name, columns=tuple(column.label.replace("\n", " ") for column in columns), rows=tuple(texts))


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with what belongs under it: sentences, charts with their tables, tables, points of a list."""

    heading: str
    words: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    points: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """A page. `conclusion`: its first sentence answers the question; `warning`: why the plan cannot run, if so."""

    title: str
    subject: str
    conclusion: tuple[str, ...]
    sections: tuple[Section, ...]
    tiles: tuple[Tile, ...] = ()
    warning: str = ""
    note: str = NOTE
    assumed: tuple[str, ...] = ()
    command: str = ""


def report_page(report: Report) -> str:
    """The whole page; nothing in it is fetched or run."""
    return rendered("optimizer.reports", "sections.html", report=report, numeric=numeric)
