"""A chart of a page: figure, conclusion in words, and the table of its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

INK = "#1f2933"
NUMBERS = "0123456789−+->—$"  # what a cell of numbers starts with
Figure = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What is drawn, `data` and `layout` in plotly's words; `words` say what to see in it, `rows` its numbers."""

    kind: ClassVar[str] = "chart"
    name: str
    title: str
    words: str
    figure: Figure
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def drawn(self) -> str:
        """The figure as markup; every text in it is escaped."""
        from optimizer.reports.charts.drawing import drawing  # a screen draws nothing

        return drawing(self.figure, self.name)


def layout(height: int, **others: Any) -> dict[str, Any]:
    """A layout of a height [px], with whatever else it has."""
    return {"height": height, "xaxis": {}, "yaxis": {}, **others}


def figure(height: int, *data: Mapping[str, Any], **others: Any) -> Figure:
    """Traces on a layout of a height [px], with whatever else that has."""
    return {"data": list(data), "layout": layout(height, **others)}


def bars(names: Sequence[str], sizes: Sequence[float | None], colour: str | Sequence[str], **others: Any) -> Figure:
    """Bars that lie, one for each name, in one colour or in one each; `others` as in plotly.

    A size of None, or none that is finite, has no bar.
    """
    marker = {"color": colour, **others.pop("marker", {})}
    shape = {"type": "bar", "orientation": "h", "textposition": "outside"}
    return {**shape, "y": list(names), "x": list(sizes), "marker": marker, **others}


def points(
    x: Sequence[float], y: Sequence[float | str | None], colour: str, mode: str = "markers", **others: Any
) -> Figure:
    """Points or lines, as the mode says, in one colour; `others` as in plotly. A value of None has no point."""
    marker = {"color": colour, **others.pop("marker", {})}
    return {"type": "scatter", "mode": mode, "x": list(x), "y": list(y), "marker": marker, **others}


def numeric(rows: Sequence[Sequence[str]]) -> set[int]:
    """The columns of a table in which every cell that is not empty is a number with its unit.

    >>> numeric([("a", "1.5 s", "why"), ("b", "", "2 kernels wait")])
    {1}
    """
    width = min((len(row) for row in rows), default=0)
    return {
        at
        for at in range(1, width)
        if all(not row[at] or (row[at][0] in NUMBERS and len(row[at].split()) <= 2) for row in rows)
    }
