"""Plans of a visitor and the best: both, and the difference term by term, or the rules in the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from optimizer.base.units import seconds
from optimizer.constraints.pin_text import pins_of
from optimizer.page.plan.engine import answered
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.shown import fragment, signed_bars
from optimizer.reports.charts.chart import Chart
from optimizer.reports.comparison_report import NOTICEABLE, plans, signed, verdict
from optimizer.reports.plan_words import show_gigabytes
from optimizer.reports.terms import label
from optimizer.search.why.comparison import Comparison, Difference, why_not


def mine_view(asked: PlanQuestion) -> dict[str, Any]:
    """Every plan of the visitor compared with the best of the question, best first."""
    answer = answered(asked).answer
    if answer.plan is None:
        return {"html": "<p>There is no best plan to hold one against.</p>"}
    compared = [why_not(answer.job, answer, pins_of(pins)) for pins in asked.mine]
    compared.sort(key=lambda one: one.slower if one.verdict != "infeasible" else float("inf"))
    shown = [
        {
            "pins": one.pins,
            "verdict": verdict(one),
            "broken": one.broken,
            "plans": [({"ours": "best", "yours": "mine"}[whose], *cells) for whose, *cells in plans(one)],
            "chart": difference_chart(f"mine-{index}", one) if any(item.more for item in one.time) else None,
        }
        for index, one in enumerate(compared)
    ]
    return {"html": fragment("mine.html", shown=shown)}


def difference_chart(name: str, one: Comparison) -> Chart:
    """Seconds that mine spends more or less than the best on each term."""
    terms = [item for item in one.time if abs(item.more) > NOTICEABLE * one.our_estimate.step_time]
    return Chart(
        name=name,
        title=f"{one.pins}: seconds more (or less) than the best, by term",
        words=f"All terms together: {signed(sum(item.more for item in one.time), seconds)} per step.",
        figure=signed_bars(
            [(label(item.term), item.more, signed(item.more, seconds)) for item in terms], " s", better=-1, height=30
        ),
        columns=("term", "best", "mine", "difference"),
        rows=(
            *(_row("", item, seconds) for item in one.time),
            *(_row("memory: ", item, show_gigabytes) for item in one.memory),
        ),
    )


def _row(kind: str, item: Difference, show: Callable[[float], str]) -> tuple[str, str, str, str]:
    return kind + label(item.term), show(item.ours), show(item.theirs), signed(item.more, show)
