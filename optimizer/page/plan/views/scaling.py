"""MFU against GPUs: the best plan at each number, beside data parallelism alone."""

from __future__ import annotations

from typing import Any

from optimizer.errors import InputError
from optimizer.job import Job
from optimizer.page.plan.engine import answered
from optimizer.page.plan.question import Asked
from optimizer.page.plan.views.shown import html_of
from optimizer.reports.answer_page.chart import Chart, layout
from optimizer.reports.palette import BLUE, ORANGE
from optimizer.studies.scaling import SERIES, ScalingStudy, scaling
from optimizer.units import seconds

FACTORS = (0.25, 0.5, 1, 2, 4)


def scaling_view(asked: Asked) -> dict[str, Any]:
    """The study around the number of GPUs asked for, at one batch."""
    job = answered(asked).answer.job
    if "dp" in job.limits.fixed:
        raise InputError("DP is pinned, and with it the number of GPUs: free it to see others")
    study = scaling(job, counts(job))
    return {"html": html_of(scaling_chart(study))}


def counts(job: Job) -> list[int]:
    """Numbers of GPUs around the job's, of those that the cluster can have.

    >>> from optimizer.presets import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=6, seq_len=2048, global_batch=96)
    >>> counts(job)
    [3, 6, 12, 24]
    """
    sizes = (job.gpus * factor for factor in FACTORS)
    return sorted({int(size) for size in sizes if size == int(size) and 1 <= size <= job.cluster.max_gpus})


def scaling_chart(study: ScalingStudy) -> Chart:
    """Both series against the GPUs; hollow where memory does not suffice."""
    data = []
    for name, colour, symbol in zip(SERIES[::-1], (BLUE, ORANGE), ("circle", "square"), strict=True):
        points = [point for point in study.series(name) if point.estimate and point.plan]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": [point.gpus for point in points],
                "y": [100 * point.estimate.mfu for point in points if point.estimate],
                "text": [point.plan.summary() for point in points if point.plan],
                "hovertemplate": "%{x} GPUs: %{y:.1f}%<br>%{text}<extra></extra>",
                "line": {"color": colour, "width": 2},
                "marker": {"size": 10, "symbol": [symbol + ("" if point.fits else "-open") for point in points]},
            }
        )
    sizes = sorted({point.gpus for point in study.points})
    best = [point for point in study.series(SERIES[1]) if point.estimate]
    spread = [point.estimate.mfu for point in best if point.estimate]
    words = "No plan at any of these numbers."
    if best and spread:
        words = (
            f"With one batch of {study.job.global_batch:,} sequences, the best plan's MFU goes from {spread[0]:.1%} on "
            f"{best[0].gpus:,} GPUs to {spread[-1]:.1%} on {best[-1].gpus:,}. Hollow marks do not fit in memory."
        )
    return Chart(
        name="scaling",
        title="MFU against GPUs, one batch for all",
        words=words,
        figure={
            "data": data,
            "layout": layout(
                340,
                xaxis={
                    "type": "log",
                    "title": {"text": "GPUs"},
                    "tickvals": sizes,
                    "ticktext": [f"{size:,}" for size in sizes],
                },
                yaxis={"ticksuffix": "%", "rangemode": "tozero", "title": {"text": "MFU"}},
            ),
        },
        columns=("GPUs", "series", "MFU", "step", "plan"),
        rows=tuple(
            (
                f"{point.gpus:,}",
                point.series,
                f"{point.estimate.mfu:.1%}" if point.estimate else "",
                seconds(point.estimate.step_time) if point.estimate else "",
                "; ".join(filter(None, (point.plan.summary() if point.plan else "", point.note))),
            )
            for point in study.points
        ),
    )
