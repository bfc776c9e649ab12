"""How the views that are opened on demand are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optimizer.reports.charts.chart import Figure, bars, figure
from optimizer.reports.charts.palette import BLUE, ORANGE
from optimizer.reports.render.html import filled


def fragment(template: str, tab: str = "plan", **values: Any) -> str:
    """A template of a tab that uses the parts of pages."""
    return filled(f"optimizer.page.{tab}", template, **values)


def linked(place: str, text: str) -> str:
    """A cell that leads somewhere.

    >>> str(linked("a.html?b&c", "<x>"))
    '<a href="a.html?b&amp;c">&lt;x&gt;</a>'
    """
    from markupsafe import Markup

    return Markup('<a href="{}">{}</a>').format(place, text)


def signed_bars(
    rows: Sequence[tuple[str, float, str]], unit: str, *, fewer: bool = False, height: int, **others: Any
) -> Figure:
    """Bars that lie to both sides of zero, the first on top; blue is better.

    Args:
        rows: name, value and text of each bar.
        unit: stands behind the ticks.
        fewer: negative values are better.
        height: of a bar [px].
        **others: of the bars, as in plotly.

    Returns:
        The figure.

    >>> signed_bars([("MLP", -0.5, "-0.5 s")], " s", fewer=True, height=30)["layout"]["xaxis"]["range"]
    [-0.75, 0.25]
    """
    values = [value for _, value, _ in rows]
    low, high = min([0.0, *values]), max([0.0, *values])
    margin = 0.5 * ((high - low) or 1.0)
    return figure(
        80 + height * max(1, len(rows)),
        bars(
            [name for name, _, _ in rows],
            values,
            [BLUE if (-value if fewer else value) >= 0 else ORANGE for value in values],
            text=[text for _, _, text in rows],
            **others,
        ),
        xaxis={"ticksuffix": unit, "range": [low - margin * (low < 0), high + margin]},
        yaxis={"autorange": "reversed"},
    )
