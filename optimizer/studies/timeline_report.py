"""The report on the timeline of a pipeline: a Gantt chart, and what every stage does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from optimizer.base.errors import InputError
from optimizer.base.units import seconds, show
from optimizer.job.plan import Plan
from optimizer.objectives.pipeline.schedule import BACKWARD, FORWARD, WEIGHT
from optimizer.objectives.pipeline.schedules import BY_NAME
from optimizer.reports.charts.chart import Chart, bars, figure
from optimizer.reports.charts.palette import BLUE, GREEN, ORANGE
from optimizer.reports.plan_words import subject
from optimizer.reports.report import Record, Report, Table, columns, section
from optimizer.studies.timeline import PipelineStudy

NAMES = {FORWARD: "forward", BACKWARD: "backward", WEIGHT: "weights' gradient"}
COLOURS = {FORWARD: BLUE, BACKWARD: ORANGE, WEIGHT: GREEN}
PALEST = 0.55  # share of white in the colour of the last virtual stage
NEAR = 20  # micro-batches at each end that are drawn once more where there are many
MOST_PASSES = 60_000
MOST_LABELS = 700  # passes up to which each carries its micro-batch's number
COLUMNS = columns(
    "stage [1] | layers [1] | recomputed [1] | per micro-batch [s] | busy [s] | idle [%] | in flight [1] | memory [B]"
)


def timeline_report(study: PipelineStudy, assumed: Sequence[str] = (), *, drawn: bool = True) -> Report:
    """What every stage does, and unless it is not to be `drawn`, the chart of every pass.

    Raises InputError for more passes than a browser draws.
    """
    if drawn:
        check_drawn(study.plan)
    long = study.plan.num_microbatches > 2 * NEAR
    return Report(
        title=f"{study.job.model.title or study.job.model.name}: timeline of {study.plan.summary()}",
        subject=(f"{subject(study.job)}; {study.plan.schedule} schedule",),
        warning=f"The plan {study.memory.warning}." if study.memory.warning else "",
        conclusion=reading(study),
        sections=(
            section("When every stage works", *([pipeline_chart(study)] if drawn else []), on="page"),
            section("How it begins and ends", *(end_charts(study) if drawn and long else ()), on="page"),
            section("Stages", stage_table(study), on="screen"),
        ),
        assumed=tuple(assumed),
    )


def check_drawn(plan: Plan) -> None:
    """Raise InputError for a plan of more passes, forward and backward, than a browser draws."""
    passes = (3 if BY_NAME[plan.schedule].splits else 2) * plan.pp * plan.vpp * plan.num_microbatches
    if passes > MOST_PASSES:
        raise InputError(
            f"{passes:,} passes are more than the {MOST_PASSES:,} that a page can show; take a smaller --global-batch, "
            "larger micro-batches (--fix micro-batch=...), or --csv"
        )


def reading(study: PipelineStudy) -> tuple[str, ...]:
    """What a timeline shows, in words."""
    timeline = study.timeline
    return (
        f"One step's pipeline takes {show(timeline.makespan, 's')}; the closed form says "
        f"{show(study.closed_form, 's')} ({study.error:+z.2%}).",
        f"A stage idles {timeline.bubble.mean():.1%} on average, from {timeline.bubble.min():.1%} to "
        f"{timeline.bubble.max():.1%}.",
        "Layout proven best." if study.layout.proven else "Layout as given; --layout best searches one.",
    )


def pipeline_chart(study: PipelineStudy, near: int = 0) -> Chart:
    """One row per stage, the first on top, one bar per pass; `near`: only so many micro-batches at both ends."""
    timeline, plan = study.timeline, study.plan
    count, stages = plan.num_microbatches, list(range(plan.pp))
    few = near > 0 and 2 * near < count
    drawn = f"drawn are the first and last {near} of {count:,} micro-batches" if few else f"{count:,} micro-batches"
    numbers = stage_table(study)
    shades = (
        "The paler, the later the virtual stage." if timeline.vpp > 1 else "Micro-batches are dark and pale in turn."
    )
    words = (
        f"{seconds(timeline.makespan)} for the passes; {drawn}. Stages wait {float(timeline.bubble.mean()):.1%} of the "
        f"time on average and hold at most {float(timeline.peak_in_flight.max()):.4g} micro-batches. {shades}"
    )
    return Chart(
        name="pipeline",
        title=f"The pipeline of {plan.summary()}",
        words=words,
        figure=figure(
            140 + (34 if plan.pp <= 16 else 18) * plan.pp,
            *_traces(study, near if few else count),
            barmode="overlay",
            xaxis={"title": {"text": "time"}, "ticksuffix": " s", "range": [0, round(1.01 * timeline.makespan, 6)]},
            yaxis={"tickvals": stages, "ticktext": [f"stage {stage}" for stage in stages], "autorange": "reversed"},
        ),
        columns=tuple(numbers.labels),
        rows=tuple(numbers.texts),
    )


def end_charts(study: PipelineStudy) -> tuple[Chart, Chart]:
    """The time of about NEAR micro-batches at the beginning and at the end."""
    timeline, plan = study.timeline, study.plan
    span = timeline.makespan * (NEAR + plan.pp) / (plan.num_microbatches + plan.pp)
    first = [float(stage.start[0]) for stage in timeline.stages]
    after = [timeline.makespan - float(stage.end[-1]) for stage in timeline.stages]
    return (
        _end_chart(study, "beginning", (0.0, span), "waits before its first pass", first),
        _end_chart(study, "end", (timeline.makespan - span, timeline.makespan), "waits after its last pass", after),
    )


def _end_chart(study: PipelineStudy, name: str, span: tuple[float, float], what: str, waits: Sequence[float]) -> Chart:
    """The passes within a span of time [s]; what each stage waits there [s]."""
    whole, pp = pipeline_chart(study).figure["layout"], study.plan.pp
    longest = max(range(pp), key=lambda stage: waits[stage])
    return Chart(
        name=name,
        title=f"The {name}: {seconds(span[1] - span[0])} of {seconds(study.timeline.makespan)}",
        words=f"Stage {longest} {what} longest, {seconds(waits[longest])}.",
        figure={
            "data": _traces(study, study.plan.num_microbatches, span),
            "layout": {**whole, "xaxis": {**whole["xaxis"], "range": list(span)}},
        },
        columns=("stage", what),
        rows=tuple((str(stage), seconds(waits[stage])) for stage in range(pp)),
    )


def _traces(study: PipelineStudy, near: int, span: tuple[float, float] = (0.0, inf)) -> list[Mapping[str, Any]]:
    """The passes of each kind within a span of time [s]; their micro-batch's number where there are few."""
    count, vpp = study.plan.num_microbatches, study.timeline.vpp
    passes: dict[str, dict[str, list[Any]]] = {
        kind: {"x": [], "base": [], "y": [], "text": [], "hovertext": [], "colour": []} for kind in NAMES
    }
    for row, stage in enumerate(study.timeline.stages):
        for step, start, end in zip(stage.passes, stage.start.tolist(), stage.end.tolist(), strict=True):
            if near <= step.microbatch < count - near or start < span[0] or end > span[1]:
                continue
            trace = passes[step.kind]
            trace["base"].append(round(start, 6))
            trace["x"].append(round(end - start, 6))
            trace["y"].append(row)
            trace["text"].append(str(step.microbatch))
            shade = step.virtual / (vpp - 1) if vpp > 1 else step.microbatch % 2
            trace["colour"].append(_paler(COLOURS[step.kind], PALEST * shade))
            virtual = f", virtual stage {step.virtual}" if vpp > 1 else ""
            trace["hovertext"].append(
                f"micro-batch {step.microbatch}{virtual}: {seconds(end - start)} from {seconds(start)}"
            )
    labelled = sum(len(trace["x"]) for trace in passes.values()) <= MOST_LABELS
    return [
        bars(
            trace["y"],
            trace["x"],
            trace["colour"],
            base=trace["base"],
            name=NAMES[kind],
            text=trace["text"] if labelled else "",
            textposition="inside",
            hovertext=trace["hovertext"],
        )
        for kind, trace in passes.items()
        if trace["x"]
    ]


def stage_table(study: PipelineStudy) -> Table:
    """One row per stage."""
    timeline, layout = study.timeline, study.layout
    return Table(
        COLUMNS,
        list(
            zip(
                range(study.plan.pp),
                *(layout.layers_per_stage, layout.recomputed_per_stage, layout.stage_seconds),
                [stage.busy for stage in timeline.stages],
                *(timeline.bubble.tolist(), timeline.peak_in_flight.tolist(), layout.memory),
                strict=True,
            )
        ),
    )


def timeline_records(study: PipelineStudy) -> list[Record]:
    """One row per stage; seconds, bytes and shares as numbers."""
    table = stage_table(study)
    named = (zip(table.labels, row, strict=True) for row in table.rows)
    return [{label: value for label, value in row if not isinstance(value, tuple)} for row in named]


def pass_records(study: PipelineStudy) -> list[Record]:
    """One row per pass: stage, kind, virtual stage, micro-batch, start and end [s]."""
    keys = ("stage", "kind", "virtual_stage", "microbatch", "start_s", "end_s")
    return [
        dict(zip(keys, (index, NAMES[step.kind], step.virtual, step.microbatch, start, end), strict=True))
        for index, stage in enumerate(study.timeline.stages)
        for step, start, end in zip(stage.passes, stage.start.tolist(), stage.end.tolist(), strict=True)
    ]


def _paler(colour: str, white: float) -> str:
    """A colour mixed with a share of white.

    >>> _paler("#0072B2", 0.5)
    '#80b8d8'
    """
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * white):02x}" for part in parts)
