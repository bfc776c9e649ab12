"""A chart, its conclusion in words, and its numbers as a table: looks from the content, numbers from an act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optimizer.page.learn.content_files import Values, filled_in
from optimizer.reports import palette

HEIGHT = 380  # [px]


@dataclass(frozen=True, kw_only=True)
class Series:
    """What is drawn under one name.

    Attributes:
        x: places across; of bars their lengths.
        y: heights; of bars unused.
        text: what a point says.
        look: what this series' markers have beyond the content's: symbols or colours by point.
    """

    x: Sequence[float]
    y: Sequence[float] = ()
    text: Sequence[str] = ()
    look: Values = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """The numbers of one chart.

    Attributes:
        series: what is drawn, by the key that the content gives a look to; "bars" for lying bars.
        rows: the values of each row of the table.
        values: what the words name beyond the values of the act.
        xaxis: what the numbers say of the axis: its range or ticks.
    """

    series: Mapping[str, Series]
    rows: Sequence[Values]
    values: Values = field(default_factory=dict)
    xaxis: Values = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What is drawn (plotly's data and layout), what it says, and the same numbers in `rows` under `columns`."""

    name: str
    title: str
    figure: Mapping[str, Any]
    words: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def chart_of(content: Values, numbers: Numbers, values: Values) -> Chart:
    """The chart that the content describes with these numbers; a column without any value is left out.

    Args:
        content: an entry of an act's [[chart]].
        numbers: of this chart.
        values: of the act.

    >>> look = {"name": "c", "title": "MFU of {of}", "across": "GPUs", "words": "", "columns": [["GPUs", "{gpus}"]],
    ...     "series": [{"key": "run", "name": "run", "mode": "markers"}], "levels": [{"at": "40", "text": "floor"}]}
    >>> shown = chart_of(look, Numbers(series={"run": Series(x=[8], y=[50.0])}, rows=[{"gpus": 8}]), {"of": "7B"})
    >>> shown.title, shown.figure["data"][0]["name"], shown.figure["layout"]["shapes"][0]["y0"], shown.rows
    ('MFU of 7B', 'run', 40.0, [['8']])
    """
    values = {**values, **numbers.values}
    cells = [
        [filled_in(template, {**values, **row}) or "".join(missing) for row in numbers.rows]
        for _, template, *missing in content["columns"]
    ]
    shown = [(filled_in(head[0], values), column) for head, column in zip(content["columns"], cells, strict=True)]
    shown = [(head, column) for head, column in shown if any(column)]
    yaxis = {"title": {"text": content.get("up", "")}, **content.get("yaxis", {})}
    if "bars" in content:
        traces = [_bars(content["bars"], numbers, values)]
        yaxis["autorange"] = "reversed"
    else:
        looks = [look for look in content["series"] if look["key"] in numbers.series]
        traces = [_points(look, numbers.series[look["key"]], values) for look in looks]
    layout = {
        "height": content.get("height", HEIGHT),
        "shapes": [_level(filled_in(each["at"], values), each) for each in content.get("levels", ())],
        "barmode": "overlay",
        "xaxis": {"title": {"text": content["across"]}, **content.get("xaxis", {}), **numbers.xaxis},
        "yaxis": yaxis,
    }
    layout["shapes"] = [shape for shape in layout["shapes"] if shape]
    return Chart(
        name=content["name"],
        title=filled_in(content["title"], values),
        figure={"data": traces, "layout": layout},
        words=filled_in(content["words"], values),
        columns=[head for head, _ in shown],
        rows=[list(row) for row in zip(*(column for _, column in shown), strict=True)],
    )


def _points(look: Values, series: Series, values: Values) -> dict[str, Any]:
    """Points, lines or both; markers have the colour of their line."""
    lines = {"line": _coloured(look["line"])} if "line" in look else {}
    marker = {
        **_coloured({key: lines["line"][key] for key in ("color",) if lines}),
        **_coloured(look.get("marker", {})),
    }
    trace = {"type": "scatter", "mode": look["mode"], "name": filled_in(look["name"], values), **lines}
    text = {"text": list(series.text)} if series.text else {}
    return {**trace, "x": list(series.x), "y": list(series.y), "marker": {**marker, **series.look}, **text}


def _bars(templates: Sequence[str], numbers: Numbers, values: Values) -> dict[str, Any]:
    """Bars that lie, the first on top, each with its name and its text."""
    names, texts = ([filled_in(each, {**values, **row}) for row in numbers.rows] for each in templates)
    bars = numbers.series["bars"]
    trace = {"type": "bar", "orientation": "h", "textposition": "outside", "marker": dict(bars.look)}
    return {**trace, "y": names, "x": list(bars.x), "text": texts}


def _level(at: str, level: Values) -> dict[str, Any]:
    """A level line with its name, nothing where it has no height."""
    line = {"color": "#6b7280", "dash": level.get("dash", "dot")}
    shape = {"type": "line", "line": line, "label": {"text": level["text"]}}
    return {**shape, "y0": float(at), "y1": float(at)} if at else {}


def _coloured(look: Values) -> dict[str, Any]:
    """A look with the palette's colours for their names."""
    return {key: getattr(palette, str(value), value) if key == "color" else value for key, value in look.items()}
