"""A chart of a page: figure, conclusion in words, and the table of its numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.reports.pages.drawing import drawing
from optimizer.reports.palette import FONT, GRID

INK = "#1f2933"
NUMBERS = "0123456789−+->—"  # what a cell of numbers starts with
Figure = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What is drawn, by plotly's own `data` and `layout`; `words` say what to see in it, `rows` its numbers."""

    name: str
    title: str
    words: str
    figure: Figure
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def json(self) -> str:
        r"""The figure as JSON that may stand inside a page.

        >>> print(Chart(name="a", title="", words="", figure={"data": ["</script>"]}, columns=(), rows=()).json)
        {"data":["<\/script>"]}
        """
        return json.dumps(self.figure, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")

    @property
    def drawn(self) -> str:
        """The figure as markup that needs no program; every text in it is escaped."""
        return drawing(self.figure, self.name)


def layout(height: int, **others: Any) -> dict[str, Any]:
    """The look of every chart: no title of its own, room for labels, nothing cut on a narrow screen [px]."""
    axis = {"gridcolor": GRID, "zeroline": False, "automargin": True}
    return {
        "height": height,
        "font": {"family": FONT, "size": 13, "color": INK},
        "margin": {"l": 10, "r": 16, "t": 16, "b": 40},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "hoverlabel": {"font": {"family": FONT}},
        **others,
        "xaxis": {**axis, **others.get("xaxis", {})},
        "yaxis": {**axis, **others.get("yaxis", {})},
    }


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
