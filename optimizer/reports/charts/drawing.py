"""A figure drawn as HTML and SVG: no program runs, labels stay readable at any width, nothing is cut on paper.

Drawn is the part of plotly's language in which our charts are written: bars that lie, points and lines, their error
bars, lines across. Places across are shares of the width, so that a page reflows while its texts keep their size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import isfinite
from typing import Any

from optimizer.reports.charts.axis import Axis, axis_of
from optimizer.reports.charts.marks import bar, cross_line, dense_bars, legend, line, of, point, sparse
from optimizer.reports.charts.palette import PALETTE

Trace = Mapping[str, Any]
MARGINS = 60  # of a layout's height, for what is below the axis [px]
LEAST_ROW, MOST_ROW = 24, 60  # height of a row [px]
ZOOMS = (1, 4, 16)
NARROW = 24  # characters of labels below that stand beside each other on a narrow screen
HALF = 50.0  # of the width, from which on a line has its name at its left [%]
DENSE = 4000  # bars from which on they are drawn at once, and a pointer is told nothing
MANY = 300  # bars from which on a drawing can be widened


def drawing(figure: Mapping[str, Any], name: str) -> str:
    """The figure as markup; `name` tells its controls from those of other drawings.

    Raises ValueError for what cannot be drawn here.
    """
    unknown = {trace["type"] for trace in figure["data"]} - {"bar", "scatter"}
    if unknown or any(trace["type"] == "bar" and trace.get("orientation") != "h" for trace in figure["data"]):
        raise ValueError(f"only bars that lie and points can be drawn here, not {sorted(unknown) or 'upright bars'}")
    traces = [_coloured(_known(trace), index) for index, trace in enumerate(figure["data"])]
    layout = figure["layout"]
    if not any(trace["x"] for trace in traces):
        return '<div class="drawn"><p>There is no value to draw.</p></div>'
    rows = any(trace["type"] == "bar" for trace in traces)
    body = (
        _rows(traces, layout, [name for trace in figure["data"] for name in trace["y"]])
        if rows
        else _plane(traces, layout)
    )
    many = sum(len(trace["x"]) for trace in traces if trace["type"] == "bar") > MANY
    zoom = _zoom(name) if many else ""
    return f'<div class="drawn">{legend(traces)}{zoom}<div class="pane">{body}</div></div>'


def _coloured(trace: Trace, index: int) -> dict[str, Any]:
    """The trace with a colour of its own where it names none."""
    marker = {"color": PALETTE[index % len(PALETTE)], **trace.get("marker", {})}
    return {**trace, "marker": marker}


def _known(trace: Trace) -> dict[str, Any]:
    """The trace without the places of no value: None, or a number that is not finite, on either axis.

    >>> _known({"type": "bar", "y": ["a", "b"], "x": [None, 3.0], "text": ["", "three"], "marker": {"color": "red"}})
    {'type': 'bar', 'y': ['b'], 'x': [3.0], 'text': ['three'], 'marker': {'color': 'red'}}
    """
    count = len(trace["x"])
    axes = [trace[name] for name in ("x", "y", "base") if name in trace]
    known = [
        at
        for at in range(count)
        if all(isinstance(axis[at], str) or (axis[at] is not None and isfinite(axis[at])) for axis in axes)
    ]

    def only(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: only(inner) for name, inner in value.items()}
        return [value[at] for at in known] if isinstance(value, list | tuple) and len(value) == count else value

    return dict(trace) if len(known) == count else {name: only(value) for name, value in trace.items()}


def _zoom(name: str) -> str:
    """Widths to choose from: the style sheet widens what follows the chosen one."""
    radios = "".join(
        f'<label><input type="radio" name="zoom-{escape(name)}" value="{size}"{" checked" * (size == 1)}>'
        f"{'whole' if size == 1 else f'{size} times as wide'}</label> "
        for size in ZOOMS
    )
    return f'<fieldset class="zoom"><legend>Width</legend>{radios}</fieldset>'


def _values(traces: Sequence[Trace], axis: str) -> list[float]:
    ends = [value for trace in traces for value in trace[axis] if isinstance(value, int | float)]
    for trace in traces:
        if axis == "x" and "base" in trace:
            ends += [base + size for base, size in zip(trace["base"], trace["x"], strict=True)]
    return ends


def _rows(traces: Sequence[Trace], layout: Mapping[str, Any], named: Sequence[Any]) -> str:
    """One row of the page for each name, its label beside it, so that long labels wrap."""
    across, down = axis_of(layout["xaxis"], _values(traces, "x")), layout["yaxis"]
    names = list(dict.fromkeys(named))
    if "tickvals" in down:
        names = list(down["tickvals"])
    labels = dict(zip(names, down.get("ticktext", names), strict=True))
    if down.get("autorange") != "reversed":  # plotly's first row is the lowest
        names.reverse()
    marks = _bars_of(traces, layout.get("barmode", "group"), across, labels)
    for trace in traces:
        if trace["type"] == "scatter":
            for place, name in enumerate(trace["y"]):
                marks[name].append(point(trace, place, across.at(trace["x"][place]), 50.0, across))
    shapes = "".join(_shape(shape, across) for shape in layout.get("shapes", ()))
    grid = "".join(cross_line(across.at(value), "grid") for value, _ in across.ticks)
    hidden = down.get("showticklabels") is False
    lines = "".join(
        f'<div class="label">{"" if hidden else _lines(str(labels[name]))}</div>'
        f'<div class="track"><svg aria-hidden="true">{grid}{_under_texts(marks[name], shapes)}</svg></div>'
        for name in names
    )
    height = min(max(layout["height"] // (len(names) + 2), LEAST_ROW), MOST_ROW)
    return f'<div class="rows" style="--row:{height}px">{lines}<div class="label"></div>{_scale(across)}</div>'


def _bars_of(traces: Sequence[Trace], mode: str, across: Axis, labels: Mapping[Any, Any]) -> dict[Any, list[str]]:
    """The marks of every row: stacked, beside each other, or over each other."""
    marks: dict[Any, list[str]] = {name: [] for name in labels}
    bars = [trace for trace in traces if trace["type"] == "bar"]
    dense = sum(len(trace["x"]) for trace in bars) > DENSE
    ends = dict.fromkeys(labels, 0.0)
    grouped = mode == "group" and len(bars) > 1
    for index, trace in enumerate(bars):
        down = (12 + 76 * index / len(bars), 76 / len(bars)) if grouped else (12.0, 76.0)
        many: dict[Any, dict[str, list[tuple[float, float]]]] = {}
        for place, (name, size) in enumerate(zip(trace["y"], trace["x"], strict=True)):
            start = ends[name] if mode == "stack" else trace["base"][place] if "base" in trace else 0.0
            ends[name] = start + size
            left, right = sorted((across.at(start), across.at(start + size)))
            if dense:
                many.setdefault(name, {}).setdefault(of(trace["marker"]["color"], place), []).append((left, right))
            else:
                left = 0.0 if across.log and not start else left
                marks[name].append(bar(trace, place, (left, right), down, str(labels[name])))
        for name, colours in many.items():
            marks[name] += [dense_bars(ends_of, down, colour) for colour, ends_of in colours.items()]
    return {name: sparse(drawn) for name, drawn in marks.items()}


def _plane(traces: Sequence[Trace], layout: Mapping[str, Any]) -> str:
    """Points and lines between two axes."""
    across = axis_of(layout["xaxis"], _values(traces, "x"))
    levels = [shape["y0"] for shape in layout.get("shapes", ()) if "x0" not in shape]
    down = axis_of(layout["yaxis"], [*_values(traces, "y"), *levels])
    marks = [cross_line(across.at(value), "grid") for value, _ in across.ticks]
    marks += [cross_line(100.0 - down.at(value), "grid", level=True) for value, _ in down.ticks]
    for trace in traces:
        places = [(across.at(x), 100.0 - down.at(y)) for x, y in zip(trace["x"], trace["y"], strict=True)]
        if "lines" in trace["mode"]:
            marks += line(trace, places)
        if "markers" in trace["mode"]:
            marks += [point(trace, index, x, y, across, down) for index, (x, y) in enumerate(places)]
    marks += [_shape(shape, across, down) for shape in layout.get("shapes", ())]
    widest = max((label for _, label in down.ticks), key=len, default="")
    ticks = "".join(
        f'<span style="top:{100 - down.at(value):.2f}%">{escape(label)}</span>' for value, label in down.ticks
    )
    height = layout["height"] - MARGINS
    return (
        f'<p class="axis">{escape(down.title)}</p><div class="plane"><div class="levels" style="height:{height}px">'
        f'<span class="widest">{escape(widest)}</span>{ticks}</div><div class="track" style="height:{height}px">'
        f'<svg aria-hidden="true">{"".join(marks)}</svg></div><div></div>{_scale(across)}</div>'
    )


def _under_texts(marks: Sequence[str], shapes: str) -> str:
    """The marks of a row, and lines over its bars but below its numbers.

    >>> _under_texts(["<rect/>", "<text>71 GB</text>"], "<line/>")
    '<rect/><line/><text>71 GB</text>'
    """
    texts = [mark for mark in marks if mark.startswith("<text")]
    return "".join([*(mark for mark in marks if mark not in texts), shapes, *texts])


def _scale(across: Axis) -> str:
    """The labels below, and what they count."""
    ticks = "".join(
        f'<span style="left:{across.at(value):.2f}%">{escape(label)}</span>'
        for value, label in across.ticks
        if -0.1 <= across.at(value) <= 100.1
    )
    title = f'<p class="axis">{escape(across.title)}</p>' if across.title else ""
    many = " many" if sum(len(label) for _, label in across.ticks) > NARROW else ""
    return f'<div class="scale"><div class="ticks{many}">{ticks}</div>{title}</div>'


def _shape(shape: Mapping[str, Any], across: Axis, down: Axis | None = None) -> str:
    """An upright line over the whole height or a level one over the whole width, on a plane with its name."""
    dashed = "dashed" if shape["line"].get("dash", "solid") != "solid" else "solid"
    colour, text = shape["line"]["color"], shape.get("label", {}).get("text", "")
    if down is None or "x0" in shape:
        at = across.at(shape["x0"])
        side = 'dx="-5"' if at > HALF else 'dx="5" style="text-anchor:start"'
        name = f'<text class="named" x="{at:.3f}%" y="97%" {side}>{escape(text)}</text>' if text else ""
        return cross_line(at, f"limit {dashed}", colour=colour) + name
    at = 100.0 - down.at(shape["y0"])
    name = f'<text class="named" x="100%" y="{at:.3f}%" dy="-8">{escape(text)}</text>' if text else ""
    return cross_line(at, f"limit {dashed}", level=True, colour=colour) + name


def _lines(label: str) -> str:
    r"""A label; its first line is its name.

    >>> _lines("stage 0\n12 layers <b>")
    'stage 0<small>12 layers &lt;b&gt;</small>'
    """
    first, _, rest = label.partition("\n")
    return escape(first) + (f"<small>{escape(rest)}</small>" if rest else "")
