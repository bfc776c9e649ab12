"""Plans of a visitor beside the best: both, and the difference term by term, or the rules in the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optimizer.base.units import seconds
from optimizer.constraints.pin_text import pins_of
from optimizer.page.plan.engine import answered
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.shown import fragment
from optimizer.reports.charts.chart import Chart, bars, figure
from optimizer.reports.palette import BLUE, ORANGE
from optimizer.reports.plan_words import show_gigabytes
from optimizer.reports.terms import label
from optimizer.reports.why_report import NOTICEABLE, plans, signed, verdict
from optimizer.search.why.comparison import Comparison, Difference, why_not

ROW = 30  # height of a bar [px]


def mine_view(asked: PlanQuestion) -> dict[str, Any]:
    """Every plan held against the best of the question, best first."""
    answer = answered(asked).answer
    if answer.plan is None:
        return {"html": "<p>There is no best plan to hold one against.</p>"}
    found = [why_not(answer.job, answer, pins_of(pins)) for pins in asked.mine]
    found.sort(key=lambda one: one.slower if one.verdict != "infeasible" else float("inf"))
    shown = [_values(index, one) for index, one in enumerate(found)]
    return {"html": fragment("mine.html", shown=shown)}


def _values(index: int, one: Comparison) -> Mapping[str, Any]:
    return {
        "pins": one.pins,
        "verdict": verdict(one),
        "broken": one.broken,
        "plans": [({"ours": "best", "yours": "mine"}[whose], *cells) for whose, *cells in plans(one)],
        "chart": difference_chart(f"mine-{index}", one) if any(item.more for item in one.time) else None,
    }


def difference_chart(name: str, one: Comparison) -> Chart:
    """Seconds that mine spends more or less than the best on each term."""
    ours = one.our_estimate.step_time
    terms = [item for item in one.time if abs(item.more) > NOTICEABLE * ours]
    values = [item.more for item in terms]
    room = 0.5 * (max([0.0, *values]) - min([0.0, *values]) or 1.0)
    whole = sum(item.more for item in one.time)
    return Chart(
        name=name,
        title=f"{one.pins}: seconds more (or less) than the best, by term",
        words=f"All terms together: {signed(whole, seconds)} per step.",
        figure=figure(
            80 + ROW * max(1, len(terms)),
            bars(
                [label(item.term) for item in terms],
                values,
                [ORANGE if value > 0 else BLUE for value in values],
                text=[signed(item.more, seconds) for item in terms],
            ),
            xaxis={"ticksuffix": " s", "range": [min([0.0, *values]) - room, max([0.0, *values]) + room]},
            yaxis={"autorange": "reversed"},
        ),
        columns=("term", "best", "mine", "difference"),
        rows=(*map(_row, one.time), *(("memory: " + r[0], *r[1:]) for r in map(_bytes, one.memory))),
    )


def _row(item: Difference) -> tuple[str, str, str, str]:
    return (label(item.term), seconds(item.ours), seconds(item.theirs), signed(item.more, seconds))


def _bytes(item: Difference) -> tuple[str, str, str, str]:
    return (
        label(item.term),
        show_gigabytes(item.ours),
        show_gigabytes(item.theirs),
        signed(item.more, show_gigabytes),
    )
