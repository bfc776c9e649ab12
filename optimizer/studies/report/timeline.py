"""The timeline of a pipeline: a Gantt chart as one HTML page, tables for the screen and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optimizer.errors import InputError
from optimizer.objectives.pipeline.schedule import BACKWARD, FORWARD, WEIGHT
from optimizer.reports.figure import figure_page
from optimizer.reports.palette import BLUE, FONT, GREEN, ORANGE
from optimizer.reports.table import Column, Record, Value, table
from optimizer.units import show

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from rich.console import Group

    from optimizer.studies.timeline import PipelineStudy

NAMES = {FORWARD: "forward", BACKWARD: "backward", WEIGHT: "weights' gradient"}
COLOURS = {FORWARD: BLUE, BACKWARD: ORANGE, WEIGHT: GREEN}
PALEST = 0.55  # share of white in the colour of the last virtual stage
MOST_PASSES = 60_000
MOST_LABELS = 700  # passes up to which each carries its micro-batch's number
COLUMNS = (
    Column(label="stage", unit="1"),
    Column(label="layers", unit="1"),
    Column(label="recomputed", unit="1"),
    Column(label="per micro-batch", unit="s"),
    Column(label="busy", unit="s"),
    Column(label="idle", unit="%"),
    Column(label="in flight", unit="1"),
    Column(label="memory", unit="B"),
)


def timeline_page(study: PipelineStudy) -> str:
    """The Gantt chart with the library inside, so that it opens without a network.

    Raises InputError for more passes than a browser draws.
    """
    passes = sum(len(stage.passes) for stage in study.timeline.stages)
    if passes > MOST_PASSES:
        raise InputError(
            f"{passes:,} passes are more than the {MOST_PASSES:,} that a page can show; take a smaller --global-batch, "
            "larger micro-batches (--fix micro-batch=...), or --csv"
        )
    return figure_page(gantt(study), f"{study.job.model.name}: timeline of {study.plan.summary()}")


def gantt(study: PipelineStudy) -> Figure:
    """One row per stage, the first on top; one bar per pass, later virtual stages paler."""
    from plotly.graph_objects import Figure

    figure = Figure()
    timeline, pp = study.timeline, study.plan.pp
    labelled = sum(len(stage.passes) for stage in timeline.stages) <= MOST_LABELS
    for kind, name in NAMES.items():
        for virtual in range(timeline.vpp):
            _bars(figure, study, kind, virtual, name, labelled)
    idle, peak = timeline.bubble, timeline.peak_in_flight
    rows = [f"stage {s}<br><span style='color:#666;font-size:10px'>{_row(study, s)}</span>" for s in range(pp)]
    figure.update_yaxes(tickvals=list(range(pp)), ticktext=rows, autorange="reversed", showgrid=False, zeroline=False)
    figure.update_xaxes(title="time", ticksuffix=" s", range=[0, 1.005 * timeline.makespan], zeroline=False)
    below = f"<span style='font-size:13px;color:#555'>{_subtitle(study, float(idle.mean()), float(peak.max()))}</span>"
    figure.update_layout(
        title={
            "text": f"{study.job.model.name}: {study.plan.summary()}, {study.plan.schedule}<br>{below}",
            "x": 0.01,
            "xanchor": "left",
            "font": {"size": 17},
        },
        template="plotly_white",
        font={"family": FONT, "size": 13, "color": "#222222"},
        plot_bgcolor="#f1f2f4",
        barmode="overlay",
        uniformtext={"minsize": 8, "mode": "hide"},
        bargap=0.12,
        margin={"l": 150, "r": 30, "t": 110, "b": 60},
        height=max(380, 190 + (44 if pp <= 16 else 30) * pp),
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 1.0, "xanchor": "right"},
        hoverlabel={"font": {"family": FONT}},
    )
    return figure


def _bars(figure: Figure, study: PipelineStudy, kind: str, virtual: int, name: str, labelled: bool) -> None:
    starts: list[float] = []
    widths: list[float] = []
    rows: list[int] = []
    numbers: list[str] = []
    for row, stage in enumerate(study.timeline.stages):
        for step, start, end in zip(stage.passes, stage.start.tolist(), stage.end.tolist(), strict=True):
            if step.kind == kind and step.virtual == virtual:
                starts.append(round(start, 9))
                widths.append(round(end - start, 9))
                rows.append(row)
                numbers.append(str(step.microbatch))
    if not starts:
        return
    vpp = study.timeline.vpp
    colour = _paler(COLOURS[kind], PALEST * virtual / max(1, vpp - 1))
    text: dict[str, Any] = {}
    if labelled:
        text = {"text": numbers, "textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
    line = {"width": 0.6 if labelled else 0, "color": "white"}
    of_virtual_stage = f", virtual stage {virtual}" if vpp > 1 else ""
    figure.add_bar(
        orientation="h",
        base=starts,
        x=widths,
        y=rows,
        name=f"{name}{of_virtual_stage}",
        legendgroup=kind,
        showlegend=virtual in (0, vpp - 1),
        marker={"color": colour, "line": line},
        customdata=numbers,
        hovertemplate=f"{name}{of_virtual_stage}, micro-batch %{{customdata}}<br>"
        "%{base:.4f} s, for %{x:.4f} s<extra>stage %{y}</extra>",
        textfont={"color": "white", "size": 10},
        **text,
    )


def timeline_report(study: PipelineStudy, assumed: Sequence[str] = ()) -> Group:
    """The study for the screen."""
    from rich.console import Group
    from rich.text import Text

    timeline = study.timeline
    notes = [
        f"One step's pipeline takes {show(timeline.makespan, 's')}; the closed form says "
        f"{show(study.closed_form, 's')} ({study.error:+.2%}).",
        f"A stage idles {timeline.bubble.mean():.1%} on average, from {timeline.bubble.min():.1%} to "
        f"{timeline.bubble.max():.1%}.",
        *([f"The plan {study.room.warning}."] if study.room.warning else []),
        "Layout proven best." if study.layout.proven else "Layout as given; --layout best searches one.",
        *(f"Assumed: {sentence}" for sentence in assumed),
    ]
    rows = [tuple(record[column.label] for column in COLUMNS) for record in timeline_records(study)]
    return Group(
        Text(f"{study.job.model.name}: {study.plan.summary()}, {study.plan.schedule}", style="bold"),
        Text(""),
        table(COLUMNS, rows),
        Text(""),
        *(Text(note) for note in notes),
    )


def timeline_records(study: PipelineStudy) -> list[Record]:
    """One row per stage; seconds, bytes and shares as numbers."""
    timeline, layout = study.timeline, study.layout
    records: list[Record] = []
    for index, stage in enumerate(timeline.stages):
        values: tuple[Value, ...] = (
            index,
            layout.layers_per_stage[index],
            layout.recomputed_per_stage[index],
            layout.stage_seconds[index],
            stage.busy,
            float(timeline.bubble[index]),
            float(timeline.peak_in_flight[index]),
            layout.memory[index],
        )
        records.append(dict(zip((column.label for column in COLUMNS), values, strict=True)))
    return records


def pass_records(study: PipelineStudy) -> list[Record]:
    """One row per pass: stage, kind, virtual stage, micro-batch, start and end [s]."""
    return [
        {
            "stage": index,
            "kind": NAMES[step.kind],
            "virtual_stage": step.virtual,
            "microbatch": step.microbatch,
            "start_s": start,
            "end_s": end,
        }
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


def _row(study: PipelineStudy, stage: int) -> str:
    layers, recomputed = study.layout.layers_per_stage[stage], study.layout.recomputed_per_stage[stage]
    again = f" ({recomputed} recomputed)" if recomputed else ""
    return f"{layers} layers{again}, idle {study.timeline.bubble[stage]:.0%}"


def _subtitle(study: PipelineStudy, idle: float, peak: float) -> str:
    return (
        f"{study.plan.num_microbatches} micro-batches in {show(study.timeline.makespan, 's')}; stages idle {idle:.1%} "
        f"on average; at most {peak:.4g} micro-batches in flight; closed form {show(study.closed_form, 's')} "
        f"({study.error:+.2%})"
        + (f"<br><b style='color:{ORANGE}'>The plan {study.room.warning}</b>" if study.room.warning else "")
    )
