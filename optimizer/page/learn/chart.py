"""A chart, its conclusion in words, and its numbers as a table: looks from the content, numbers from an act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optimizer.base.content import Values, filled_in
from optimizer.reports.charts import palette
from optimizer.reports.charts.chart import Chart, bars

HEIGHT = 380  # [px]


@dataclass(frozen=True, kw_only=True)
class Series:
    """What is drawn under one name."""

    x: Sequence[float]  # places across; of bars their lengths
    y: Sequence[float] = ()  # heights; of bars unused
    text: Sequence[str] = ()  # what a point says
    # what this series' markers have beyond the content's: symbols or colours by point
    look: Values = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ChartNumbers:
    """The numbers of one chart."""

    series: Mapping[str, Series]  # what is drawn, by the key that the content gives a look to; "bars" for lying bars
    rows: Sequence[Values]  # the values of each row of the table
    values: Values = field(default_factory=dict)  # what the words name beyond the values of the act
    xaxis: Values = field(default_factory=dict)  # what the numbers say of the axis: its range or ticks


def chart_of(content: Values, numbers: ChartNumbers, values: Values) -> Chart:
    """The chart that the content describes with these numbers; a column without any value is left out.

    Args:
        content: an entry of an act's [[chart]].
        numbers: of this chart.
        values: of the act.

    >>> look = {"name": "c", "title": "MFU of {of}", "across": "GPUs", "words": "", "columns": [["GPUs", "{gpus}"]],
    ...     "series": [{"key": "run", "name": "run", "mode": "markers"}], "levels": [{"at": "40", "text": "floor"}]}
    >>> chart = chart_of(look, ChartNumbers(series={"run": Series(x=[8], y=[50.0])}, rows=[{"gpus": 8}]), {"of": "7B"})
    >>> chart.title, chart.figure["data"][0]["name"], chart.figure["layout"]["shapes"][0]["y0"], chart.rows
    ('MFU of 7B', 'run', 40.0, (('8',),))
    """
    values = {**values, **numbers.values}
    columns = [
        (filled_in(head, values), [filled_in(cell, {**values, **row}) or "".join(missing) for row in numbers.rows])
        for head, cell, *missing in content["columns"]
    ]
    heads, cells = zip(*((head, cells) for head, cells in columns if any(cells)), strict=True)
    yaxis = {"title": {"text": content.get("up", "")}, **content.get("yaxis", {})}
    if "bars" in content:
        names, texts = ([filled_in(each, {**values, **row}) for row in numbers.rows] for each in content["bars"])
        series = numbers.series["bars"]
        traces = [bars(names, series.x, "", text=texts, marker=dict(series.look))]
        yaxis["autorange"] = "reversed"
    else:
        looks = [look for look in content["series"] if look["key"] in numbers.series]
        traces = [_points(look, numbers.series[look["key"]], values) for look in looks]
    levels = [(filled_in(level["at"], values), level) for level in content.get("levels", ())]
    layout = {
        "height": content.get("height", HEIGHT),
        "shapes": [
            {
                **{"type": "line", "y0": float(at), "y1": float(at), "label": {"text": level["text"]}},
                "line": {"color": "#6b7280", "dash": level.get("dash", "dot")},
            }
            for at, level in levels
            if at
        ],
        "barmode": "overlay",
        "xaxis": {"title": {"text": content["across"]}, **content.get("xaxis", {}), **numbers.xaxis},
        "yaxis": yaxis,
    }
    return Chart(
        name=content["name"],
        title=filled_in(content["title"], values),
        figure={"data": traces, "layout": layout},
        words=filled_in(content["words"], values),
        columns=heads,
        rows=tuple(zip(*cells, strict=True)),
    )


def _points(look: Values, series: Series, values: Values) -> dict[str, Any]:
    """Points, lines or both; markers have the colour of their line."""
    line, marker = _coloured(look.get("line", {})), _coloured(look.get("marker", {}))
    colour = {"color": line["color"]} if line else {}
    return {
        **{"type": "scatter", "mode": look["mode"], "name": filled_in(look["name"], values)},
        **({"line": line} if line else {}),
        **{"x": list(series.x), "y": list(series.y), "marker": {**colour, **marker, **series.look}},
        **({"text": list(series.text)} if series.text else {}),
    }


def _coloured(look: Values) -> dict[str, Any]:
    """A look with the palette's colours for their names."""
    return {key: getattr(palette, str(value), value) if key == "color" else value for key, value in look.items()}
