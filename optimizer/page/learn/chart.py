"""A chart, its conclusion in words, and its numbers as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HEIGHT = 380  # [px]


@dataclass(kw_only=True)
class Figure:
    """What is drawn, built up trace by trace in plotly's own words; reports.charts.drawing draws it.

    >>> figure = Figure(across="GPUs")
    >>> figure.points([8, 64], [50.0, 40.0], "measured", mode="markers")
    >>> figure.level(40.0, "floor")
    >>> figure.data["data"][0]["name"], figure.data["layout"]["shapes"][0]["y0"]
    ('measured', 40.0)
    """

    across: str
    up: str = ""
    height: int = HEIGHT
    xaxis: dict[str, Any] = field(default_factory=dict)
    yaxis: dict[str, Any] = field(default_factory=dict)
    traces: list[dict[str, Any]] = field(default_factory=list)
    shapes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def data(self) -> Mapping[str, Any]:
        """The figure as data and layout."""
        return {
            "data": self.traces,
            "layout": {
                "height": self.height,
                "shapes": self.shapes,
                "barmode": "overlay",
                "xaxis": {"title": {"text": self.across}, **self.xaxis},
                "yaxis": {"title": {"text": self.up}, **self.yaxis},
            },
        }

    def points(self, x: Sequence[float], y: Sequence[float], name: str, *, mode: str, **look: Any) -> None:
        """Points, lines or both; look: line, marker, text."""
        line = look.get("line", {})
        marker = {**({"color": line["color"]} if "color" in line else {}), **look.pop("marker", {})}
        trace = {"type": "scatter", "mode": mode, "name": name, "x": list(x), "y": list(y), "marker": marker, **look}
        self.traces.append(trace)

    def bars(self, names: Sequence[str], values: Sequence[float], texts: Sequence[str], colours: Sequence[str]) -> None:
        """Bars that lie, the first on top, each with its text."""
        bars = {"type": "bar", "orientation": "h", "textposition": "outside", "marker": {"color": list(colours)}}
        self.traces.append({**bars, "y": list(names), "x": list(values), "text": list(texts)})
        self.yaxis["autorange"] = "reversed"

    def level(self, value: float, text: str, dash: str = "dot") -> None:
        """A level line with its name."""
        line = {"color": "#6b7280", "dash": dash}
        self.shapes.append({"type": "line", "y0": value, "y1": value, "line": line, "label": {"text": text}})


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What is drawn, what it says, and the same numbers in `rows` under `columns`."""

    name: str
    title: str
    figure: Figure
    words: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
