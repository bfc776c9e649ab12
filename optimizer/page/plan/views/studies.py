"""Studies around the best plan as charts: its pipeline, MFU against GPUs, what more of each input buys."""

from __future__ import annotations

from typing import Any

from optimizer.base.errors import InputError
from optimizer.job.job import Job
from optimizer.objectives.minimised.registry import objective_of
from optimizer.page.plan.engine import answered
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.shown import fragment, signed_bars
from optimizer.reports.charts.chart import Chart
from optimizer.reports.sensitivity_report import gain
from optimizer.search.why.what_binds import Sensitivity, sensitivity
from optimizer.studies.scaling import scaling
from optimizer.studies.scaling_report import scaling_chart
from optimizer.studies.timeline import timeline_of
from optimizer.studies.timeline_report import pipeline_chart

SHOWN = 20  # micro-batches at the start, and at the end
MOST_PASSES = 4000  # that are drawn, each with a text for the pointer
FACTORS = (0.25, 0.5, 1, 2, 4)  # of the number of GPUs


def pipeline_view(asked: PlanQuestion) -> dict[str, Any]:
    """The pipeline of the best plan, its first and last micro-batches pass by pass, with a table of the stages."""
    answer = answered(asked).answer
    if answer.plan is None:
        return {"html": "<p>There is no plan, and so no pipeline.</p>"}
    study = timeline_of(answer.job, answer.plan, answer.knobs)
    passes = sum(len(stage.passes) for stage in study.timeline.stages)
    chart = pipeline_chart(study, ends(study.plan.num_microbatches, passes))
    return {"html": fragment("chart.html", chart=chart)}


def ends(count: int, passes: int) -> int:
    """Micro-batches to draw at each end, so that no more than MOST_PASSES are drawn of so many.

    >>> ends(48, 4608), ends(8, 100), ends(1000, 200_000)
    (20, 8, 10)
    """
    each = passes / count
    return max(1, min(SHOWN, count, int(MOST_PASSES / each / 2)))


def scaling_view(asked: PlanQuestion) -> dict[str, Any]:
    """MFU against GPUs, around the number asked for, at one batch."""
    job = answered(asked).answer.job
    if "dp" in job.limits.fixed:
        raise InputError("DP is pinned, and with it the number of GPUs: free it to see others")
    return {"html": fragment("chart.html", chart=scaling_chart(scaling(job, counts(job))))}


def counts(job: Job) -> list[int]:
    """Numbers of GPUs around the job's, of those that the cluster can have.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=6, seq_len=2048, global_batch=96)
    >>> counts(job)
    [3, 6, 12, 24]
    """
    sizes = (job.gpus * factor for factor in FACTORS)
    return sorted({int(size) for size in sizes if size == int(size) and 1 <= size <= job.cluster.max_gpus})


def sensitivity_view(asked: PlanQuestion) -> dict[str, Any]:
    """What more of one input at a time buys, planned again each time, as a chart with its table."""
    study = sensitivity(answered(asked).answer.job)
    if study is None:
        return {"html": "<p>There is no plan, and so nothing that binds it.</p>"}
    return {"html": fragment("chart.html", chart=sensitivity_chart(study))}


def sensitivity_chart(study: Sensitivity) -> Chart:
    """One bar per input, largest effect first."""
    effects, per = study.effects, objective_of(study.base.job).per
    moving = [effect for effect in effects if abs(effect.gain) >= 1e-4]
    words = "None of these changes anything."
    if moving:
        first = moving[0]
        words = (
            f"{first.variation.name} ({first.variation.change}) moves them most, by {gain(first)}; "
            f"{len(effects) - len(moving)} of {len(effects)} change nothing."
        )
    return Chart(
        name="sensitivity",
        title=f"Tokens per {per} with one input changed, planned again",
        words=words,
        figure=signed_bars(
            [(effect.variation.name, 100 * effect.gain, gain(effect)) for effect in effects],
            "%",
            height=34,
            hovertext=[effect.variation.change for effect in effects],
        ),
        columns=("input", "change", f"tokens per {per}", "how the plan moves"),
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
