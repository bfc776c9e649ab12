"""A bar of parts as an inline SVG, for notebooks: no script, no font and no file from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

WIDTH, BAR, LINE, COLUMNS = 720, 26, 18, 3
# Told apart by people who do not see red and green alike.
# Source: Paul Tol, "Colour Schemes", muted, SRON/EPS/TN/09-002 issue 3.2.
COLOURS = ("#332288", "#88ccee", "#44aa99", "#117733", "#999933", "#ddcc77", "#cc6677", "#882255", "#aa4499")
REST = "#bbbbbb"
SMALL = 0.004  # share of the whole below which parts are put together


def bar(title: str, parts: Mapping[str, float], whole: float) -> str:
    """A bar whose segments are shares of the whole, largest first, with a legend that tells each.

    What is left of the whole stays empty.

    >>> "matrix products 75.0%" in bar("6 s", {"matrix products": 4.5, "bubble": 1.5}, 6.0)
    True
    """
    shown = sorted(((name, value / whole) for name, value in parts.items() if value > 0), key=lambda part: -part[1])
    large = [part for part in shown if part[1] >= SMALL][: len(COLOURS)]
    rest = sum(share for _, share in shown[len(large) :])
    segments = [(*part, colour) for part, colour in zip(large, COLOURS, strict=False)]
    segments += [("the rest", rest, REST)] * (rest > 0)
    height = LINE + BAR + LINE * (1 + (len(segments) - 1) // COLUMNS) + 10
    label = ", ".join(f"{name} {share:.1%}" for name, share, _ in segments)
    body, left = [_text(0, 13, title, bold=True), _box(0, LINE, WIDTH, BAR, "none")], 0.0
    for place, (name, share, colour) in enumerate(segments):
        body.append(_box(left, LINE, share * WIDTH, BAR, colour, f"{name} {share:.1%}"))
        left += share * WIDTH
        x, y = (place % COLUMNS) * WIDTH / COLUMNS, LINE + BAR + LINE * (1 + place // COLUMNS)
        body += [_box(x, y - 10, 10, 10, colour), _text(x + 15, y, f"{name} {share:.1%}")]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" '
        f'aria-label="{escape(f"{title}: {label}")}" style="max-width:100%;font:12px sans-serif;fill:currentColor">'
        f"{''.join(body)}</svg>"
    )


def _box(x: float, y: float, width: float, height: float, colour: str, tip: str = "") -> str:
    border = ' stroke="currentColor" stroke-opacity="0.3"' if colour == "none" else ""
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"{border}>{title}</rect>'


def _text(x: float, y: float, words: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y}"{weight}>{escape(words)}</text>'
