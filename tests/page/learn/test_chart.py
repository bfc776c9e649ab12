"""The figure of a chart, from a look and numbers made up here."""

from __future__ import annotations

from typing import Any

from optimizer.page.learn.chart import HEIGHT, ChartNumbers, Series, chart_of
from optimizer.reports.charts.palette import BLUE, GREEN

LOOK = {"name": "c", "title": "{of}", "across": "GPUs", "words": "of {rest}", "columns": [["GPUs", "{gpus}"], ["", ""]]}


def test_lines_and_markers_have_the_colours_of_the_palette_and_levels_a_line_across() -> None:
    line = {"key": "run", "name": "run", "mode": "lines", "line": {"color": "BLUE", "dash": "BLUE"}}
    marks = {"key": "all", "name": "{of}", "mode": "markers", "marker": {"color": "GREEN", "size": 9}}
    look: dict[str, Any] = {
        **LOOK,
        "series": [line, marks, {"key": "absent", "name": "", "mode": "lines"}],
        **{"up": "MFU", "yaxis": {"rangemode": "tozero"}, "xaxis": {"type": "log", "range": [0, 1]}},
        "levels": [
            {"at": "{floor}", "text": "floor"},
            {"at": "", "text": "none"},
            {"at": "9", "text": "", "dash": "dash"},
        ],
    }
    series = {"run": Series(x=[8], y=[50.0], look={"size": 3}), "all": Series(x=[1], y=[2], text=["here"])}
    numbers = ChartNumbers(series=series, rows=[{"gpus": 8}], values={"rest": "7B"}, xaxis={"range": [0, 4]})
    chart = chart_of(look, numbers, {"of": "8B", "floor": 40})
    first = {"type": "scatter", "mode": "lines", "name": "run", "line": {"color": BLUE, "dash": "BLUE"}}
    second = {"type": "scatter", "mode": "markers", "name": "8B", "marker": {"color": GREEN, "size": 9}}
    assert chart.figure["data"] == [
        first | {"x": [8], "y": [50.0], "marker": {"color": BLUE, "size": 3}},
        second | {"x": [1], "y": [2], "text": ["here"]},
    ]
    across = {"type": "line", "line": {"color": "#6b7280", "dash": "dot"}}
    layout = {"height": HEIGHT, "barmode": "overlay", "yaxis": {"title": {"text": "MFU"}, "rangemode": "tozero"}}
    assert chart.figure["layout"] == layout | {
        "xaxis": {"title": {"text": "GPUs"}, "type": "log", "range": [0, 4]},
        "shapes": [
            across | {"y0": 40.0, "y1": 40.0, "label": {"text": "floor"}},
            {"type": "line", "y0": 9.0, "y1": 9.0, "label": {"text": ""}, "line": {"color": "#6b7280", "dash": "dash"}},
        ],
    }
    assert (chart.title, chart.words, chart.columns, chart.rows) == ("8B", "of 7B", ("GPUs",), (("8",),))


def test_lying_bars_are_read_from_the_top() -> None:
    numbers = ChartNumbers(series={"bars": Series(x=[3, 1], look={"color": "red"})}, rows=[{"gpus": 8}, {"gpus": 1}])
    look = {**LOOK, "height": 90, "bars": ["{gpus} GPUs", "{gpus}"], "columns": [["GPUs", "{gpus}"], ["more", "", "-"]]}
    chart = chart_of(look, numbers, {"of": "", "rest": ""})
    (trace,) = chart.figure["data"]
    assert (trace["x"], trace["y"], trace["text"], trace["marker"]) == (
        [3, 1],
        ["8 GPUs", "1 GPUs"],
        ["8", "1"],
        {"color": "red"},
    )
    assert chart.figure["layout"]["height"] == 90
    assert chart.figure["layout"]["yaxis"] == {"title": {"text": ""}, "autorange": "reversed"}
    assert (chart.columns, chart.rows) == (("GPUs", "more"), (("8", "-"), ("1", "-")))
