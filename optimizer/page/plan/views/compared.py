"""What the answer is compared with: plans of a visitor, term by term, and the measured runs that are most like it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from math import log2
from typing import Any

from optimizer.answer.answer import Answer
from optimizer.base.units import seconds
from optimizer.calibration.runs import Run, read_runs
from optimizer.calibration.validation import PricedRun, priced
from optimizer.catalog.files import presets_folder
from optimizer.constraints.pin_text import pins_of
from optimizer.constraints.rules.bubble import Bubble
from optimizer.job.job import Job
from optimizer.objectives.step.interval import mfu
from optimizer.page.plan.engine import answered
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.shown import fragment, signed_bars
from optimizer.reports.charts.chart import Chart
from optimizer.reports.plan_words import show_gigabytes, stack_words
from optimizer.reports.terms import label
from optimizer.reports.why_report import NOTICEABLE, plans, signed, verdict
from optimizer.search.why.comparison import Comparison, Difference, why_not

SHOWN = 6
OTHER_DEVICE = 4.0  # doublings of a size that another kind of GPU is worth


def mine_view(asked: PlanQuestion) -> dict[str, Any]:
    """Every plan of the visitor compared with the best of the question, best first."""
    answer = answered(asked).answer
    if answer.plan is None:
        return {"html": "<p>There is no best plan to hold one against.</p>"}
    compared = [_against_best(answer, pins) for pins in asked.mine]
    compared.sort(key=lambda one: one.slower if one.verdict != "infeasible" else float("inf"))
    shown = [
        {
            "pins": one.pins,
            "verdict": verdict(one),
            "broken": one.broken,
            "plans": [({"ours": "best", "yours": "mine"}[whose], *cells) for whose, *cells in plans(answer.job, one)],
            "chart": difference_chart(f"mine-{index}", one) if any(item.more for item in one.time) else None,
        }
        for index, one in enumerate(compared)
    ]
    return {"html": fragment("mine.html", shown=shown)}


def _against_best(answer: Answer, pins: str) -> Comparison:
    """The best plan with these pins beside the answer; where the ceiling of the bubble alone stops it, with that."""
    narrow = why_not(answer.job, answer, pins_of(pins))
    ceiling = tuple(clash for clash in narrow.broken if clash.rule == Bubble.name)
    wider = why_not(answer.job.with_limits(bubble=1.0), answer, pins_of(pins)) if ceiling else narrow
    return narrow if wider.verdict == "infeasible" else replace(wider, broken=ceiling)


def difference_chart(name: str, one: Comparison) -> Chart:
    """Seconds that mine spends more or less than the best on each term."""
    terms = [item for item in one.time if abs(item.more) > NOTICEABLE * one.our_estimate.step_time]
    return Chart(
        name=name,
        title=f"{one.pins}: seconds more (or less) than the best, by term",
        words=f"All terms together: {signed(sum(item.more for item in one.time), seconds)} per step.",
        figure=signed_bars(
            [(label(item.term), item.more, signed(item.more, seconds)) for item in terms], " s", fewer=True, height=30
        ),
        columns=("term", "best", "mine", "difference"),
        rows=(
            *(_row("", item, seconds) for item in one.time),
            *(_row("memory: ", item, show_gigabytes) for item in one.memory),
        ),
    )


def _row(kind: str, item: Difference, show: Callable[[float], str]) -> tuple[str, str, str, str]:
    return kind + label(item.term), show(item.ours), show(item.theirs), signed(item.more, show)


def runs_view(asked: PlanQuestion) -> dict[str, Any]:
    """The nearest runs as a table."""
    job = answered(asked).answer.job
    rows = [row_of(one) for one in priced(nearest(job, measured()))]
    return {"html": fragment("runs.html", rows=rows, stack=stack_words(job))}


@cache
def measured() -> tuple[Run, ...]:
    """The published runs that come with the program, but for those that are no clean measurement of a plan."""
    runs = read_runs(presets_folder() / "published.csv")
    return tuple(run for run in runs if run.job and run.step_time and not run.doubted)


def nearest(job: Job, runs: Sequence[Run], count: int = SHOWN) -> list[Run]:
    """The runs that differ least, in doublings of parameters, GPUs and sequence length; another device counts too."""
    return sorted(runs, key=lambda run: distance(job, run.job) if run.job else float("inf"))[:count]


def distance(job: Job, other: Job) -> float:
    """How unlike two jobs are, in doublings [1]."""
    sizes = ((job.model.active_params, other.model.active_params), (job.gpus, other.gpus), (job.seq_len, other.seq_len))
    doublings = sum(abs(log2(mine / theirs)) for mine, theirs in sizes)
    return doublings + OTHER_DEVICE * (job.cluster.device.name != other.cluster.device.name)


def row_of(one: PricedRun) -> tuple[str, ...]:
    """A run: what, where, measured and predicted, and its source."""
    run = one.run
    if run.job is None or run.step_time is None:
        return ()
    gap = f"{one.ratio - 1:+.1%}" if one.ratio else ""
    return (
        run.job.model.title or run.job.model.name,
        f"{run.job.gpus:,} × {run.job.cluster.device.name}",
        f"{run.job.seq_len:,}",
        run.plan.summary() if run.plan else "",
        seconds(run.step_time),
        f"{mfu(run.job, run.step_time):.1%}",
        gap,
        f"{run.row.get('source', '')}, {run.row.get('table', '')}".strip(", "),
    )
