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


def drawn(title: str, across: str, up: str, *, height: int = 380) -> Any:
    """An empty chart in the house's look, with titles on both axes."""
    from plotly.graph_objects import Figure

    figure = Figure()
    figure.update_layout(
        title={"text": title, "x": 0.0, "xanchor": "left", "y": 0.97, "yanchor": "top", "font": {"size": 15}},
        template="plotly_white",
        font={"family": FONT, "size": 13, "color": "#1c2024"},
        legend={"orientation": "h", "y": -0.28, "x": 0, "yanchor": "top"},
        margin={"l": 55, "r": 20, "t": 50, "b": 90},
        height=height,
        xaxis={"title": across, "gridcolor": GRID},
        yaxis={"title": up, "gridcolor": GRID},
    )
    return figure
