"""What more of one input at a time buys, planned again each time."""

from __future__ import annotations

from typing import Any

from optimizer.page.plan.engine import answered
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.shown import html_of
from optimizer.reports.charts.chart import Chart, bars, figure
from optimizer.reports.palette import BLUE, ORANGE
from optimizer.reports.sensitivity_report import gain
from optimizer.search.why.what_binds import Sensitivity, sensitivity

ROW = 34  # height of a bar [px]


def sensitivity_view(asked: PlanQuestion) -> dict[str, Any]:
    """The effects as a chart with its table."""
    found = sensitivity(answered(asked).answer.job)
    if found is None:
        return {"html": "<p>There is no plan, and so nothing that binds it.</p>"}
    return {"html": html_of(sensitivity_chart(found))}


def sensitivity_chart(found: Sensitivity) -> Chart:
    """One bar per input, largest effect first."""
    effects = found.effects
    names = [effect.variation.name for effect in effects]
    values = [100 * effect.gain for effect in effects]
    low, high = min([0.0, *values]), max([0.0, *values])
    room = 0.5 * ((high - low) or 1.0)
    moving = [effect for effect in effects if abs(effect.gain) >= 1e-4]
    if moving:
        first = moving[0]
        words = (
            f"{first.variation.name} ({first.variation.change}) moves the throughput most, by {gain(first)}; "
            f"{len(effects) - len(moving)} of {len(effects)} change nothing."
        )
    else:
        words = "None of these changes anything."
    return Chart(
        name="sensitivity",
        title="Tokens per second with one input changed, planned again",
        words=words,
        figure=figure(
            80 + ROW * len(effects),
            bars(
                names,
                values,
                [BLUE if value >= 0 else ORANGE for value in values],
                text=[gain(effect) for effect in effects],
                hovertext=[effect.variation.change for effect in effects],
            ),
            xaxis={"ticksuffix": "%", "range": [low - room * (low < 0), high + room]},
            yaxis={"autorange": "reversed"},
        ),
        columns=("input", "change", "tokens per second", "how the plan moves"),
        rows=tuple(
            (
                effect.variation.name,
                effect.variation.change,
                gain(effect),
                ", ".join(effect.changed) if effect.best else "no plan fits",
            )
            for effect in effects
        ),
    )
