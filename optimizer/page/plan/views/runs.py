"""The measured runs that are most like the question, and what is predicted for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import log2
from typing import Any

from optimizer.base.units import seconds
from optimizer.calibration.runs import Run, read_runs
from optimizer.calibration.validation import PricedRun, priced
from optimizer.catalog.files import presets_folder
from optimizer.job.job import Job
from optimizer.objectives.step.interval import mfu
from optimizer.page.plan.engine import answered
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.shown import fragment
from optimizer.reports.plan_words import stack_words

SHOWN = 6
OTHER_DEVICE = 4.0  # doublings of a size that another kind of GPU is worth


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
    sizes = (
        (job.model.active_params, other.model.active_params),
        (job.gpus, other.gpus),
        (job.seq_len, other.seq_len),
    )
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
