"""Charts of the studies as HTML pages that need nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optimizer.reports.figure import figure_page
from optimizer.reports.palette import BLUE, FONT, GREEN, GREY, GRID, ORANGE, PALETTE
from optimizer.reports.table import cell
from optimizer.studies.report.communication import name_of
from optimizer.studies.report.strategies import per_step

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from optimizer.job import Job
    from optimizer.studies.communication import CommunicationStudy
    from optimizer.studies.networks import Verdict
    from optimizer.studies.room import Room
    from optimizer.studies.scaling import ScalingStudy
    from optimizer.studies.strategies import Strategy


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One bar chart: a number for every label, in SI `unit`; logarithmic where sizes differ by orders of magnitude."""

    title: str
    unit: str
    values: Sequence[float]
    logarithmic: bool = False


def strategies_page(job: Job, strategies: Sequence[Strategy]) -> str:
    """DP, FSDP, TP and PP of one job: volume, messages, time, energy, step and memory."""
    studied = [(each.name.upper(), each.study) for each in strategies if each.study]
    names, steps = [name for name, _ in studied], [per_step(study) for _, study in studied]
    panels = [
        Panel(title=title, unit=unit, values=[step[name] for step in steps], logarithmic=wide)
        for title, name, unit, wide in (
            ("Sent by a GPU per step", "bytes_per_gpu", "B", True),
            ("Messages of a GPU per step", "messages", "", True),
            ("Communication per step, not hidden", "communication_s", "s", False),
            ("Energy on all links per step", "energy_j", "J", True),
            ("Whole step", "time_s", "s", False),
            ("Memory of the fullest GPU", "memory_bytes", "B", False),
        )
    ]
    figure = _panels(names, panels)
    usable = job.usable_memory
    figure.add_hline(y=usable, line={"dash": "dash", "color": GREY, "width": 1}, annotation_text="usable", row=2, col=3)
    where = f"{job.model.name}, {job.global_batch:,} sequences of {job.seq_len:,} tokens"
    return _page(figure, f"{where} on {job.gpus:,} × {job.cluster.device.name}: each strategy alone")


def plan_page(study: CommunicationStudy) -> str:
    """The collectives of one plan: volume, time and energy per step."""
    from plotly.subplots import make_subplots

    rows = study.rows[::-1]  # plotly draws from the bottom
    names = [f"{name_of(row)}<br><span style='color:#666'>{row.traffic.purpose}</span>" for row in rows]
    panels = (
        Panel(title="Sent by a GPU per step", unit="B", values=[row.volume_per_step for row in rows]),
        Panel(title="Time per step, not hidden", unit="s", values=[row.time_per_step for row in rows]),
        Panel(title="Energy on all links per step", unit="J", values=[row.total_energy for row in rows]),
    )
    titles = [panel.title for panel in panels]
    figure = make_subplots(rows=1, cols=3, shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.04)
    parallelisms = list(study.parallelisms)
    colours = [PALETTE[parallelisms.index(row.traffic.parallelism)] for row in rows]
    for col, panel in enumerate(panels, start=1):
        texts = [cell(value, panel.unit) for value in panel.values]
        shared = {"orientation": "h", "textposition": "outside", "cliponaxis": False, "hoverinfo": "y+text"}
        figure.add_bar(x=list(panel.values), y=names, text=texts, marker_color=colours, row=1, col=col, **shared)
        limits = [0, 1.3 * max(panel.values, default=1.0)]
        axis = {"gridcolor": GRID, "exponentformat": "SI", "ticksuffix": panel.unit, "range": limits, "nticks": 5}
        figure.update_xaxes(row=1, col=col, **axis)
    figure.update_layout(showlegend=False, height=160 + 70 * max(2, len(rows)))
    return _page(figure, f"{study.job.model.name}: {study.plan.summary()}", study.room)


def networks_page(job: Job, verdicts: Sequence[Verdict], plan: str, room: Room) -> str:
    """What crosses each network beside the compute of the step, and the MFU on it."""
    from plotly.graph_objects import Figure

    labels = [f"{v.network.name}<br>{cell(v.network.link.bandwidth, 'B/s')} per GPU" for v in verdicts]
    crossing, compute = [v.communication for v in verdicts], [v.compute for v in verdicts]
    texts = [f"{cell(v.communication, 's')}<br>{v.mfu:.1%} MFU" for v in verdicts]
    outside = {"textposition": "outside", "cliponaxis": False}
    figure = Figure()
    figure.add_bar(x=labels, y=crossing, text=texts, name="crosses the network", marker_color=ORANGE, **outside)
    words = [cell(value, "s") for value in compute]
    figure.add_bar(x=labels, y=compute, text=words, name="compute of the step", marker_color=BLUE, **outside)
    top = 1.2 * max([*crossing, *compute], default=1.0)
    figure.update_yaxes(title="per step", ticksuffix="s", exponentformat="SI", gridcolor=GRID, range=[0, top])
    figure.update_layout(legend={"orientation": "h", "y": 1.08, "x": 0}, height=560)
    heading = f"{job.model.name} on {job.gpus:,} GPUs, {plan}: is the network the bottleneck?"
    return _page(figure, heading, room)


def scaling_page(study: ScalingStudy, measured: Mapping[int, float]) -> str:
    """MFU against GPUs for both series, the measured points of a person, and the throughput beside ideal scaling."""
    from plotly.subplots import make_subplots

    hollow = any(point.estimate and not point.fits for point in study.points)
    titles = ("MFU" + " (hollow: does not fit in memory)" * hollow, "Throughput [tokens/s]")
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles, horizontal_spacing=0.1)
    _ideal(figure, study)
    for name, colour in zip(dict.fromkeys(point.series for point in study.points), (BLUE, GREEN), strict=False):
        _series(figure, study, name, colour)
    if measured:
        marks = {"symbol": "x", "size": 11, "color": ORANGE}
        shares = [100 * share for share in measured.values()]
        figure.add_scatter(x=list(measured), y=shares, mode="markers", name="measured", marker=marks, row=1, col=1)
    counts = sorted({point.gpus for point in study.points} | set(measured))
    ticks = {"tickvals": counts, "ticktext": [f"{count:,}" for count in counts]}
    figure.update_xaxes(title={"text": "GPUs", "standoff": 6}, type="log", gridcolor=GRID, **ticks)
    figure.update_yaxes(gridcolor=GRID, rangemode="tozero", ticksuffix=" %", row=1, col=1)
    figure.update_yaxes(gridcolor=GRID, type="log", dtick=1, exponentformat="SI", row=1, col=2)
    figure.update_layout(legend={"orientation": "h", "y": -0.18, "x": 0}, height=560)
    job = study.job
    return _page(figure, f"{job.model.name} on {job.cluster.device.name}: {study.mode} scaling")


def _series(figure: Figure, study: ScalingStudy, name: str, colour: str) -> None:
    """One series in both plots; where memory does not suffice, its markers are hollow."""
    points = [point for point in study.series(name) if point.estimate]
    if not points:
        return
    counts = [point.gpus for point in points]
    marker = {"size": 9, "symbol": ["circle" if point.fits else "circle-open" for point in points], "color": colour}
    shared = {"x": counts, "mode": "lines+markers", "line": {"color": colour, "width": 2}, "marker": marker}
    plans = [point.plan.summary() + (f"<br>{point.note}" if point.note else "") for point in points if point.plan]
    mfu = [100 * point.estimate.mfu for point in points if point.estimate]
    figure.add_scatter(y=mfu, name=name, text=plans, hovertemplate="%{y:.1f} %<br>%{text}", row=1, col=1, **shared)
    speed = [point.tokens_per_second for point in points]
    figure.add_scatter(y=speed, name=name, showlegend=False, row=1, col=2, **shared)


def _ideal(figure: Figure, study: ScalingStudy) -> None:
    """Throughput that grows with the GPUs from the best first point on, drawn first and so behind the others."""
    points = [point for point in study.points if point.estimate]
    if not points:
        return
    counts = sorted({point.gpus for point in points})
    first = max((point for point in points if point.gpus == counts[0]), key=lambda point: point.tokens_per_second)
    ideal = [first.tokens_per_second * count / first.gpus for count in counts]
    dotted = {"color": GREY, "width": 1.5, "dash": "dot"}
    figure.add_scatter(x=counts, y=ideal, mode="lines", line=dotted, name="ideal throughput", row=1, col=2)


def _panels(labels: Sequence[str], panels: Sequence[Panel]) -> Figure:
    """Bar charts in rows of three, one colour per label."""
    from plotly.subplots import make_subplots

    rows = -(-len(panels) // 3)
    titles = [panel.title for panel in panels]
    figure = make_subplots(rows=rows, cols=3, subplot_titles=titles, horizontal_spacing=0.08, vertical_spacing=0.16)
    colours = [PALETTE[index % len(PALETTE)] for index in range(len(labels))]
    for index, panel in enumerate(panels):
        row, col = index // 3 + 1, index % 3 + 1
        figure.add_bar(
            x=list(labels),
            y=list(panel.values),
            marker_color=colours,
            text=[cell(value, panel.unit) for value in panel.values],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{x}: %{text}<extra></extra>",
            row=row,
            col=col,
        )
        figure.update_yaxes(
            type="log" if panel.logarithmic else "linear",
            gridcolor=GRID,
            exponentformat="SI",
            ticksuffix=panel.unit,
            range=_range(panel),
            dtick=1 if panel.logarithmic else None,
            row=row,
            col=col,
        )
    figure.update_layout(showlegend=False, height=120 + 330 * rows)
    return figure


def _range(panel: Panel) -> list[float] | None:
    """Room above the tallest bar for its number; logarithms of ten on a logarithmic axis."""
    from math import ceil, floor, log10

    positive = [value for value in panel.values if value > 0]
    if not positive:
        return None
    if panel.logarithmic:
        return [floor(log10(min(positive))) - 0.5, ceil(log10(max(positive))) + 0.5]
    return [0, 1.15 * max(positive)]


def _page(figure: Any, heading: str, room: Room | None = None) -> str:
    """A whole page with the library inside, so that it opens without a network; it says that a plan does not fit."""
    if room and room.warning:
        heading += f"<br><b style='font-size:13px;color:{ORANGE}'>The plan {room.warning}</b>"
    figure.update_layout(
        title={"text": heading, "x": 0.01, "xanchor": "left", "font": {"size": 17}},
        template="plotly_white",
        font={"family": FONT, "size": 13, "color": "#222222"},
        margin={"l": 70, "r": 40, "t": 100, "b": 60},
    )
    figure.update_annotations(font_size=13)
    return figure_page(figure, heading.partition("<br>")[0])
