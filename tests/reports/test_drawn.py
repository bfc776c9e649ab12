"""Drawings to the last sign: `drawn/` holds what is drawn. A wanted change: `python -m tests.reports.test_drawn`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from optimizer.reports.charts import drawing as drawings
from optimizer.reports.charts.bar_chart import bar_chart
from optimizer.reports.charts.chart import bars, figure, points
from optimizer.reports.charts.drawing import drawing

FOLDER = Path(__file__).parent / "drawn"
DASHED = {"color": "#888888", "dash": "dash"}


def grouped() -> str:
    """Bars beside each other with texts on each side of them, points with intervals, named lines on each half."""
    one = bars(["a\nmore", "b"], [3.0, -1.0], ["#111111", "#222222"], text=["three", "less"], name="one")
    hatched = {"pattern": {"shape": "/"}}
    texts = ["it fits", "eleven more"]
    two = bars(["a\nmore", "b"], [2.0, 0.5], "#333333", marker=hatched, text=texts, name="two", hovertext="more")
    error = {"array": [0.5, 0.0], "arrayminus": [0.25, 0.0], "color": "#444444"}
    mode = "markers+text"
    some = points([1.0, 2.5], ["a\nmore", "b"], "#555555", mode, error_x=error, text=["p", "q"], name="three")
    lines = [{"x0": at, "line": line, "label": {"text": f"at <{at}>"}} for at, line in ((1.5, DASHED), (1.4, DASHED))]
    beyond = {"x0": 99.0, "line": {"color": "#666666"}}
    across = {"title": {"text": "time [s]"}, "range": [-1, 4], "ticksuffix": " s"}
    traces = one, {**two, "textposition": "inside"}, some
    return drawing(figure(300, *traces, shapes=[*lines, beyond], xaxis=across), "grouped")


def stacked() -> str:
    """Bars after each other, of which some have no number, on rows in the order of their names."""
    first = bars(["a", "b", "c"], [1.0, None, 2.0], "#111111", textposition="none", text="x")
    more = bars(
        ["a", "b", "c"], [1.0, 1.5, float("nan")], "#222222", base=[0.0, 0.0, 0.0], showlegend=False, name="more"
    )
    places = {-0.01: "out", -0.002: "low", 1.0: "one", 2.002: "high", 2.01: "out"}
    across = {"range": [0.0, 2.0], "tickvals": list(places), "ticktext": list(places.values())}
    down = {"autorange": "reversed", "tickvals": ["c", "a", "b"], "ticktext": ["C", "A", "B"]}
    return drawing(figure(100, first, more, barmode="stack", yaxis=down, xaxis=across), "stacked")


def plane() -> str:
    """Points and lines between two axes, one logarithmic, with lines across both ways."""
    errors = {"error_y": {"array": [5.0, 0.0], "arrayminus": [0.0, 0.0], "color": "#111111"}}
    marker = {"symbol": ["square", "star-open"], "size": [8, 12], "opacity": 0.5}
    some = points(
        [0.02, 30.0], [10.0, 20.0], "#222222", "markers+text", marker=marker, text=["l", "r"], name="p", **errors
    )
    line = points([0.1, 1.0, 10.0], [12.0, None, 18.0], "#333333", "lines", line={"dash": "dot", "width": 3}, name="l")
    both = points([1.0], [11.0], "#444444", "lines+markers", textposition="bottom left", name="both")
    level = {"y0": 25.0, "line": {"color": "#555555"}, "label": {"text": "ideal"}}
    upright = {"x0": 1.0, "line": DASHED, "label": {"text": "now"}}
    across = {"type": "log", "exponentformat": "SI", "ticksuffix": "s"}
    return drawing(figure(260, some, line, both, shapes=[level, upright], xaxis=across), "plane")


def charts() -> str:
    """Bars of numbers far apart and of numbers beside what is usable; of none."""
    log = bar_chart("a", "Energy", "J", ["x\nwhy", "y"], [5.0, 600.0], wide=True)
    plain = bar_chart("b", "Memory", "B", ["x", "y", "z"], [5e9, float("inf"), None], limit=8e9, wide=True)
    none = bar_chart("c", "None", "s", ["x"], [None])
    found = [
        f"<!-- {chart.words} {chart.rows} {chart.figure['layout']} -->{chart.drawn}" for chart in (log, plain, none)
    ]
    near = bar_chart("d", "Near", "s", ["x", "y"], [1.0, 100.0], wide=True, colours=["#111111", "#222222"])
    return "".join([*found, near.drawn])


def many() -> str:
    """Bars that are drawn at once, and can be widened."""
    dense = bars(
        ["a", "a", "b", "a"],
        [1.0, 2.0, 1.0, 1.0],
        ["#111111", "#222222", "#111111", "#111111"],
        base=[0.0, 1.0, 0.5, 3.0],
    )
    with pytest.MonkeyPatch.context() as few:
        few.setattr(drawings, "MANY", 3)
        few.setattr(drawings, "DENSE", 3)
        return drawing(figure(200, dense), "many & more")


DRAWN: Mapping[str, Callable[[], str]] = {each.__name__: each for each in (grouped, stacked, plane, charts, many)}


def lines_of(markup: str) -> str:
    return markup.replace("><", ">\n<") + "\n"


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_is_drawn_as_it_was(name: str) -> None:
    assert lines_of(DRAWN[name]()) == (FOLDER / f"{name}.html").read_text(encoding="utf-8")


if __name__ == "__main__":
    for name, drawn in DRAWN.items():
        (FOLDER / f"{name}.html").write_text(lines_of(drawn()), encoding="utf-8")
