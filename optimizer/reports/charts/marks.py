"""The marks of a drawing, each a piece of SVG whose places are shares of the width and of the height [%]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from optimizer.reports.charts.axis import Axis
from optimizer.reports.charts.palette import GREY

Trace = Mapping[str, Any]
INSIDE_WIDTH = 7.5  # of a character inside a bar [px], in a chart of so many [px]:
CHART_WIDTH = 800
# A point's outline, around its middle, in a square of twelve; half of it is five or six.
OUTLINES = {
    "circle": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "square": "M-4.5-4.5h9v9h-9z",
    "diamond": "M0-6L6 0L0 6L-6 0z",
    "triangle-up": "M0-6L6 5H-6z",
    "cross": "M-2-5h4v3h3v4h-3v3h-4v-3h-3v-4h3z",
    "star": "M0-6L1.5-2H6L2.4.7L3.7 5L0 2.4L-3.7 5L-2.4.7L-6-2H-1.5z",
    "pentagon": "M0-5.5L5.5-1.5L3.4 5H-3.4L-5.5-1.5z",
    "x": "M-5-3L-3-5L0-2L3-5L5-3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0z",
}


def bar(trace: Trace, place: int, across: tuple[float, float], down: tuple[float, float], label: str) -> str:
    """A bar from left to right, its top and height, with its text, and what a pointer is told."""
    (left, right), (top, height) = across, down
    colour, text = of(trace["marker"]["color"], place), str(of(trace.get("text", ""), place))
    shape = f'<rect x="{left:.3f}%" y="{top:.4g}%" width="{right - left:.3f}%" height="{height:.4g}%"'
    drawn = f'{shape} fill="{colour}"><title>{escape(_pointed_at(trace, place, label))}</title></rect>'
    if trace["marker"].get("pattern", {}).get("shape"):
        drawn += f'{shape} fill="url(#hatch)"/>'
    if not text:
        return drawn
    middle = f"{top + height / 2:.4g}%"
    if trace.get("textposition") == "inside":
        fits = (right - left) / 100 * CHART_WIDTH >= INSIDE_WIDTH * len(text)
        inner = f'<text class="inside" x="{(left + right) / 2:.3f}%" y="{middle}">{escape(text)}</text>'
        return drawn + (inner if fits else "")
    if trace.get("textposition") != "outside":
        return drawn
    behind = of(trace["x"], place) < 0
    where = f'x="{left:.3f}%" dx="-5" text-anchor="end"' if behind else f'x="{right:.3f}%" dx="5"'
    return f'{drawn}<text {where} y="{middle}">{escape(text)}</text>'


def dense_bars(across: Sequence[tuple[float, float]], down: tuple[float, float], colour: str) -> str:
    """Many bars of one row and colour as one path.

    >>> dense_bars([(0.0, 1.0), (2.0, 4.0)], (12.0, 76.0), "#000")
    '<svg viewBox="0 0 100 100" preserveAspectRatio="none"><path fill="#000" d="M0 12h1v76h-1zM2 12h2v76h-2z"/></svg>'
    """
    top, height = down
    path = "".join(f"M{x:.6g} {top:g}h{(w := f'{right - x:.4g}')}v{height:g}h-{w}z" for x, right in across)
    return f'<svg viewBox="0 0 100 100" preserveAspectRatio="none"><path fill="{colour}" d="{path}"/></svg>'


def sparse(marks: Sequence[str]) -> list[str]:
    """Bars below their texts, so that a bar never covers the number of its neighbour."""
    parts = [mark.partition("<text") for mark in marks]
    return [head for head, _, _ in parts] + [bar + rest for _, bar, rest in parts]


def point(trace: Trace, place: int, x: float, y: float, across: Axis, down: Axis | None = None) -> str:
    """A point with its error bars, what a pointer is told, and its text where the trace shows texts."""
    marker = trace["marker"]
    symbol, colour = str(of(marker.get("symbol", ""), place) or "circle"), of(marker["color"], place)
    hollow = symbol.endswith("-open")
    outline = OUTLINES[symbol.removesuffix("-open")]
    size = of(marker.get("size", 8), place) / 10
    look = f'fill="#fff" stroke="{colour}" stroke-width="{2 / size:.3g}"' if hollow else f'fill="{colour}"'
    drawn = _spread(trace, place, y, across) + (_spread(trace, place, x, down, upright=True) if down else "")
    text = str(of(trace.get("text", ""), place)) if "text" in trace["mode"] else ""
    side = (-9, 11, "end") if trace.get("textposition") == "bottom left" else (9, -11, "start")
    label = '<text x="{:.3f}%" y="{:.3f}%" dx="{}" dy="{}" text-anchor="{}" class="number">{}</text>'
    return (
        f'{drawn}<svg x="{x:.3f}%" y="{y:.3f}%" class="point"><path d="{outline}" {look} '
        f'opacity="{marker.get("opacity", 1)}" transform="scale({size:.3g})">'
        f"<title>{escape(_pointed_at(trace, place))}</title></path></svg>"
        + (label.format(x, y, *side, escape(text)) if text else "")
    )


def _spread(trace: Trace, place: int, at: float, axis: Axis, *, upright: bool = False) -> str:
    """The interval of a point, which lies at `at` on the other axis [%]."""
    ends = _interval(trace, "y" if upright else "x", place)
    if ends is None:
        return ""
    errors = trace["error_y" if upright else "error_x"]
    stroke = f'stroke="{errors["color"]}" stroke-width="2"'
    cap = f'class="point"><path d="M{"-7 0h14" if upright else "0-7v14"}" {stroke}/></svg>'
    if upright:
        low, high = (100.0 - axis.at(end) for end in ends)
        caps = "".join(f'<svg x="{at:.3f}%" y="{y:.3f}%" {cap}' for y in (low, high))
        return f'<line x1="{at:.3f}%" x2="{at:.3f}%" y1="{low:.3f}%" y2="{high:.3f}%" {stroke}/>{caps}'
    left, right = map(axis.at, ends)
    caps = "".join(f'<svg x="{x:.3f}%" y="{at:.3f}%" {cap}' for x in (left, right))
    return f'<line x1="{left:.3f}%" x2="{right:.3f}%" y1="{at:.3f}%" y2="{at:.3f}%" {stroke}/>{caps}'


def _interval(trace: Trace, axis: str, place: int) -> tuple[float, float] | None:
    """Both ends of a point's interval; None where it has none."""
    errors = trace.get(f"error_{axis}")
    if not errors or not (errors["array"][place] or errors["arrayminus"][place]):
        return None
    value = trace[axis][place]
    return value - errors["arrayminus"][place], value + errors["array"][place]


def line(trace: Trace, places: Sequence[tuple[float, float]]) -> list[str]:
    """Lines from each place to the next."""
    look = {"color": trace["marker"]["color"], "width": 2, **trace.get("line", {})}
    dash = ' stroke-dasharray="5 4"' if look.get("dash", "solid") != "solid" else ""
    return [
        f'<line x1="{x1:.3f}%" y1="{y1:.3f}%" x2="{x2:.3f}%" y2="{y2:.3f}%" stroke="{look["color"]}" '
        f'stroke-width="{look["width"]}"{dash}/>'
        for (x1, y1), (x2, y2) in pairwise(places)
    ]


def cross_line(at: float, kind: str, *, level: bool = False, colour: str = "") -> str:
    """A line through the whole drawing, upright or level; none where it would lie outside."""
    if not -0.1 <= at <= 100.1:
        return ""
    ends = (
        f'x1="0" x2="100%" y1="{at:.3f}%" y2="{at:.3f}%"'
        if level
        else f'x1="{at:.3f}%" x2="{at:.3f}%" y1="0" y2="100%"'
    )
    return f'<line class="{kind}" {ends}' + (f' stroke="{colour}"/>' if colour else "/>")


def legend(traces: Sequence[Trace]) -> str:
    """The names of the traces with their marks; none where there is one without a name."""
    named = [trace for trace in traces if trace.get("name") and trace.get("showlegend", True)]
    if not named or len(traces) == 1:
        return ""
    keys = "".join(f"<li>{_key(trace)}{escape(trace['name'])}</li>" for trace in named)
    return f'<ul class="legend">{keys}</ul>'


def _key(trace: Trace) -> str:
    """What a legend shows for a trace: its darkest colour where it has several."""
    colours = trace["marker"]["color"]
    colour = (
        colours
        if isinstance(colours, str)
        else min(colours, key=lambda each: sum(bytes.fromhex(each.removeprefix("#"))), default=GREY)
    )
    inner = f'<rect width="14" height="14" fill="{colour}"/>'
    if trace["marker"].get("pattern", {}).get("shape"):
        inner += '<rect width="14" height="14" fill="url(#hatch)"/>'
    if trace["type"] == "scatter":
        stroke = trace.get("line", {}).get("color", colour)
        dash = ' stroke-dasharray="4 3"' if trace.get("line", {}).get("dash", "solid") != "solid" else ""
        inner = f'<path d="M0 7h14" stroke="{stroke}" stroke-width="2"{dash}/>' if "lines" in trace["mode"] else ""
        if "markers" in trace["mode"]:
            symbol = str(of(trace["marker"].get("symbol", ""), 0) or "circle").removesuffix("-open")
            inner += f'<path d="{OUTLINES[symbol]}" fill="{colour}" transform="translate(7 7)"/>'
    return f'<svg width="14" height="14" aria-hidden="true">{inner}</svg>'


def _pointed_at(trace: Trace, place: int, label: str = "") -> str:
    """What a pointer over a mark is told: row, trace, text, more."""
    words = (
        label.partition("\n")[0],
        trace.get("name", ""),
        of(trace.get("text", ""), place),
        of(trace.get("hovertext", ""), place),
    )
    return ", ".join(dict.fromkeys(str(word) for word in words if word))


def of(value: Any, place: int) -> Any:
    """One of many, or the one for all."""
    if isinstance(value, list | tuple):
        return value[place] if place < len(value) else value[-1] if value else ""
    return value
