"""A chart, its conclusion in words, and its numbers as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.reports.palette import FONT, GRID


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What is drawn (a plotly Figure), what it says, and the same numbers in `rows` under `columns`."""

    name: str
    title: str
    figure: Any
    words: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def drawn(title: str, across: str, up: str, *, height: int = 430) -> Any:
    """An empty chart in the house's look, with titles on both axes.

    Its margins stay: the room below holds a legend of five lines, as a phone has it.
    """
    from plotly.graph_objects import Figure

    figure = Figure()
    figure.update_layout(
        title={"text": title, "x": 0.0, "xanchor": "left", "y": 0.97, "yanchor": "top", "font": {"size": 15}},
        template="plotly_white",
        font={"family": FONT, "size": 13, "color": "#1c2024"},
        legend={"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"},
        margin={"l": 55, "r": 20, "t": 50, "b": 150, "autoexpand": False},
        height=height,
        dragmode=False,
        xaxis={"title": across, "gridcolor": GRID},
        yaxis={"title": up, "gridcolor": GRID},
    )
    return figure
