"""How the views that are opened on demand are written."""

from __future__ import annotations

from typing import Any

from optimizer.reports.charts.chart import Chart
from optimizer.reports.render.html import filled

PACKAGE = "optimizer.page.plan"


def html_of(chart: Chart) -> str:
    """A chart with its words and its table."""
    return fragment("chart.html", chart=chart)


def fragment(template: str, **values: Any) -> str:
    """A template of the room that uses the parts of pages."""
    return filled(PACKAGE, template, **values)
