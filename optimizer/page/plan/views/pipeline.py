"""The pipeline of the best plan: the first and the last micro-batches, pass by pass."""

from __future__ import annotations

from typing import Any

from optimizer.objectives.pipeline.schedule import BACKWARD, FORWARD, WEIGHT
from optimizer.page.plan.engine import answered
from optimizer.page.plan.question import Asked
from optimizer.page.plan.views.shown import html_of
from optimizer.reports.answer_page.chart import Chart, layout
from optimizer.reports.palette import BLUE, GREEN, ORANGE
from optimizer.studies.timeline import PipelineStudy, timeline_of
from optimizer.units import seconds

NAMES = {FORWARD: "forward", BACKWARD: "backward", WEIGHT: "weights' gradient"}
# of even and of odd micro-batches
COLOURS = {FORWARD: (BLUE, "#5aa9d6"), BACKWARD: (ORANGE, "#eb9a66"), WEIGHT: (GREEN, "#66c5ab")}
SHOWN = 20  # micro-batches at the start, and at the end
MOST = 6000  # passes that are drawn


def pipeline_view(asked: Asked) -> dict[str, Any]:
    """The timeline as a chart with a table of the stages."""
    answer = answered(asked).answer
    if answer.plan is None:
        return {"html": "<p>There is no plan, and so no pipeline.</p>"}
    return {"html": html_of(pipeline_chart(timeline_of(answer.job, answer.plan, answer.knobs)))}


def ends(count: int, passes: int) -> int:
    """Micro-batches to draw at each end, so that no more than MOST passes are drawn of so many.

    >>> ends(48, 4608), ends(8, 100), ends(1000, 200_000)
    (20, 8, 15)
    """
    each = passes / count
    return max(1, min(SHOWN, count, int(MOST / each / 2)))


def pipeline_chart(study: PipelineStudy) -> Chart:
    """One row per stage, one bar per pass of the micro-batches at both ends."""
    timeline, plan = study.timeline, study.plan
    passes = sum(len(stage.passes) for stage in timeline.stages)
    count = plan.num_microbatches
    near = ends(count, passes)
    traces: dict[str, dict[str, list[Any]]] = {
        kind: {"x": [], "base": [], "y": [], "text": [], "colour": []} for kind in NAMES
    }
    for row, stage in enumerate(timeline.stages):
        for step, start, end in zip(stage.passes, stage.start.tolist(), stage.end.tolist(), strict=True):
            if near <= step.microbatch < count - near:
                continue
            trace = traces[step.kind]
            trace["base"].append(round(start, 6))
            trace["x"].append(round(end - start, 6))
            trace["y"].append(row)
            trace["colour"].append(COLOURS[step.kind][step.microbatch % 2])
            trace["text"].append(f"micro-batch {step.microbatch + 1}, virtual stage {step.virtual + 1}")
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": NAMES[kind],
            "x": trace["x"],
            "base": trace["base"],
            "y": trace["y"],
            "hovertext": trace["text"],
            "textposition": "none",
            "hovertemplate": f"%{{hovertext}}<br>{NAMES[kind]}, %{{x:.4f}} s from %{{base:.4f}} s<extra></extra>",
            "marker": {"color": trace["colour"], "line": {"width": 0}},
        }
        for kind, trace in traces.items()
        if trace["x"]
    ]
    stages = list(range(plan.pp))
    idle, peak = timeline.bubble, timeline.peak_in_flight
    all_drawn = 2 * near >= count
    drawn = f"{count} micro-batches" if all_drawn else f"drawn are the first and last {near} of {count} micro-batches"
    words = (
        f"{seconds(timeline.makespan)} for the passes; {drawn}. Stages wait {float(idle.mean()):.1%} of the time on "
        f"average and hold at most {float(peak.max()):.4g} micro-batches. Drag over the chart to look closer, "
        "double-click for the whole."
    )
    return Chart(
        name="pipeline",
        title=f"The pipeline of {plan.summary()}",
        words=words,
        figure={
            "data": data,
            "layout": layout(
                140 + (34 if plan.pp <= 16 else 18) * plan.pp,
                barmode="overlay",
                bargap=0.1,
                plot_bgcolor="#f1f2f4",
                xaxis={"title": {"text": "time"}, "ticksuffix": " s", "range": [0, round(1.01 * timeline.makespan, 6)]},
                yaxis={
                    "tickvals": stages,
                    "ticktext": [f"stage {stage + 1}" for stage in stages],
                    "autorange": "reversed",
                    "showgrid": False,
                },
            ),
        },
        columns=("stage", "layers", "busy", "idle", "micro-batches held"),
        rows=tuple(
            (
                f"stage {stage + 1}",
                str(study.layout.layers_per_stage[stage]),
                seconds(timeline.stages[stage].busy),
                f"{float(idle[stage]):.1%}",
                f"{float(peak[stage]):.4g}",
            )
            for stage in stages
        ),
    )
