"""A chart of a page: figure, conclusion in words, and the table of its numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optimizer.reports.palette import FONT, GRID

INK = "#1f2933"
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
