"""One number for every label, as bars: the chart that most comparisons need."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, isfinite, log10

from optimizer.reports.charts.chart import Chart, bars, figure
from optimizer.reports.charts.palette import GREY, PALETTE
from optimizer.reports.report import cell

ROW = 30  # height of a bar [px]
SPACE = 1.35  # of the longest bar, for the number beside it


def bar_chart(
    name: str,
    title: str,
    unit: str,
    labels: Sequence[str],
    values: Sequence[float | None],
    *,
    wide: bool = False,
    limit: float | None = None,
    colours: Sequence[str] = (),
) -> Chart:
    """A bar for every label; no label, or none with a value, is a chart too.

    Args:
        name: What tells the chart from others of its page.
        title: What the numbers are.
        unit: Their SI unit.
        labels: What each is of; behind a line break stands what explains it.
        values: The numbers; None where there is none.
        wide: Whether the axis is logarithmic where the numbers are far apart.
        limit: What is usable of it, a dashed line.
        colours: One for each label.
    """
    sizes = [value if value is not None and isfinite(value) else None for value in values]
    known = [(value, label) for value, label in zip(sizes, labels, strict=True) if value is not None and value > 0]
    most, least = max(known, default=(0.0, "")), min(known, default=(0.0, ""))
    log = wide and bool(known) and len(known) == len(labels) and most[0] > 100 * least[0]
    across = [0.0, max(SPACE * most[0], limit or 0.0) or 1.0]
    if log:
        across = [floor(log10(least[0])) - 0.3, ceil(log10(most[0])) + 1]
    words = f"Most: {most[1].partition(chr(10))[0]} with {cell(most[0], unit)}." if known else "Nothing."
    words += " The axis is logarithmic." * log + " The dashed line is what is usable." * (limit is not None)
    texts = [cell(value, unit) for value in sizes]
    return Chart(
        name=name,
        title=title,
        words=words,
        figure=figure(
            80 + ROW * len(labels),
            bars(labels, sizes, colours or [PALETTE[at % len(PALETTE)] for at in range(len(labels))], text=texts),
            shapes=[{"x0": limit, "line": {"color": GREY, "dash": "dash"}}] if limit is not None else [],
            xaxis={"range": across, "type": "log" if log else "linear", "exponentformat": "SI", "ticksuffix": unit},
            yaxis={"autorange": "reversed"},
        ),
        columns=("", title),
        rows=tuple((label.replace("\n", ": "), text) for label, text in zip(labels, texts, strict=True)),
    )
