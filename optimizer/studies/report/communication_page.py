"""The communication of a job as pages: of each strategy alone, of one plan, on several networks."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

from optimizer.base.units import show
from optimizer.reports.charts.chart import Chart, layout
from optimizer.reports.palette import BLUE, GREY, ORANGE, PALETTE
from optimizer.reports.plan_report import subject
from optimizer.reports.report import Report, Section, Table, report_page
from optimizer.reports.table import cell
from optimizer.studies.report import communication as report
from optimizer.studies.report import strategies as compared

if TYPE_CHECKING:
    from optimizer.job.job import Job
    from optimizer.studies.communication import CommunicationStudy
    from optimizer.studies.networks import Verdict
    from optimizer.studies.room import Room
    from optimizer.studies.strategies import Strategy

ROW = 30  # height of a bar [px]
ROOM = 1.35  # of the longest bar, for the number beside it
# Of a strategy: record, title, unit, and whether sizes differ by orders of magnitude.
PANELS = (
    ("bytes_per_gpu", "Sent by a GPU per step", "B", True),
    ("messages", "Messages of a GPU per step", "", True),
    ("communication_s", "Communication per step, not hidden", "s", False),
    ("energy_j", "Energy on all links per step", "J", True),
    ("time_s", "Whole step", "s", False),
    ("memory_bytes", "Memory of the fullest GPU", "B", False),
)


def strategies_page(job: Job, strategies: Sequence[Strategy], assumed: Sequence[str] = ()) -> str:
    """DP, FSDP, TP and PP of one job: volume, messages, time, energy, step and memory."""
    studied = [(each.name.upper(), compared.per_step(each.study)) for each in strategies if each.study]
    names = [name for name, _ in studied]
    line = {"type": "line", "x0": job.usable_memory, "x1": job.usable_memory, "y0": 0, "y1": 1, "yref": "paper"}
    limit = {**line, "line": {"color": GREY, "dash": "dash", "width": 2}}
    charts = []
    for record, title, unit, wide in PANELS:
        shapes = (limit,) if record == "memory_bytes" else ()
        charts.append(_bars(record, title, unit, names, [step[record] for _, step in studied], wide, shapes))
    return report_page(
        Report(
            title=f"{_job(job)}: each strategy alone",
            subject=subject(job),
            conclusion=(_fastest(strategies), *compared.remarks(strategies)),
            sections=(
                Section(heading="Per step", words=("Communication is not hidden here.",), charts=tuple(charts)),
                Section(heading="In figures", tables=compared.strategies_tables(strategies)),
            ),
            assumed=tuple(assumed),
        )
    )


def _job(job: Job) -> str:
    """The model and its GPUs, as a title says them."""
    return f"{job.model.title or job.model.name} on {job.gpus:,} × {job.cluster.device.name}"


def plan_page(study: CommunicationStudy, assumed: Sequence[str] = ()) -> str:
    """The collectives of one plan: volume, time and energy per step."""
    job, rows = study.job, study.rows
    names = [f"{index} {report.name_of(row)}\n{row.traffic.purpose}" for index, row in enumerate(rows, start=1)]
    parallelisms = list(study.parallelisms)
    colours = [PALETTE[parallelisms.index(row.traffic.parallelism)] for row in rows]
    charts = (
        _bars("volume", "Sent by a GPU per step", "B", names, [row.volume_per_step for row in rows], colours=colours),
        _bars("time", "Time per step, not hidden", "s", names, [row.time_per_step for row in rows], colours=colours),
        _bars(
            "energy", "Energy on all links per step", "J", names, [row.total_energy for row in rows], colours=colours
        ),
    )
    energy = f"Its communication takes {show(study.energy, 'J')} on the links of the cluster."
    said = (report.step_line(study), energy, *report.roofline_lines(study.layer), report.tier_line(job.cluster))
    sections = (
        Section(heading="What the messages cost", charts=charts),
        Section(heading="In figures", tables=report.communication_tables(study)),
    )
    return report_page(
        Report(
            title=f"{_job(job)}: what {study.plan.summary()} sends",
            subject=subject(job),
            warning=f"The plan {study.room.warning}." if study.room.warning else "",
            conclusion=said if rows else ("No GPU sends anything.",),
            sections=sections if rows else (),
            assumed=tuple(assumed),
        )
    )


def networks_page(job: Job, verdicts: Sequence[Verdict], plan: str, room: Room, assumed: Sequence[str] = ()) -> str:
    """What crosses each network beside the compute of the step, and the MFU on it."""
    labels = [f"{v.network.name}\n{cell(v.network.link.bandwidth, 'B/s')} per GPU" for v in verdicts]
    series = (
        ("crosses the network", ORANGE, [v.communication for v in verdicts]),
        ("compute of the step", BLUE, [v.compute for v in verdicts]),
    )
    top = ROOM * max((value for _, _, values in series for value in values), default=1.0)
    narrow = [v.network.name for v in verdicts if v.bottleneck]
    chart = Chart(
        name="networks",
        title="What crosses the network, beside the compute of the step",
        words="The network is the bottleneck where what crosses it takes longer than the compute of the step.",
        figure={
            "data": [_trace(labels, values, "s", name=name, colours=colour) for name, colour, values in series],
            "layout": layout(
                90 + 2 * ROW * len(labels),
                barmode="group",
                xaxis={"range": [0, top], "ticksuffix": "s", "exponentformat": "SI", "title": {"text": "per step"}},
                yaxis={"autorange": "reversed"},
            ),
        },
        **_columns(compared.networks_table(verdicts)),
    )
    return report_page(
        Report(
            title=f"{job.model.title or job.model.name} on {job.gpus:,} GPUs: is the network the bottleneck?",
            subject=f"{plan}; {subject(job)}",
            warning=f"The plan {room.warning}." if room.warning else "",
            conclusion=(
                f"Yes with {' and '.join(narrow)}." if narrow else "No: compute takes longer on each of them.",
                *(f"With {v.network.name} the MFU is {v.mfu:.1%}." for v in verdicts),
            ),
            sections=(Section(heading="Time of a step", charts=(chart,)),),
            assumed=tuple(assumed),
        )
    )


def _fastest(strategies: Sequence[Strategy]) -> str:
    """The strategy that wins, in a sentence."""
    fitting = [(each.study.estimate, each) for each in strategies if each.study and each.fits]
    if not fitting:
        return "None of the strategies fits in memory alone."
    estimate, first = min(fitting, key=lambda pair: pair[0].step_time)
    return (
        f"{first.name.upper()} is the fastest that fits in memory alone: {show(estimate.step_time, 's')} a step at "
        f"{estimate.mfu:.1%} MFU."
    )


def _bars(
    name: str,
    title: str,
    unit: str,
    labels: Sequence[str],
    values: Sequence[float],
    wide: bool = False,
    shapes: tuple[Any, ...] = (),
    *,
    colours: Sequence[str] | str = "",
) -> Chart:
    """A number for every label; logarithmic where sizes are `wide` apart."""
    colours = colours or [PALETTE[index % len(PALETTE)] for index in range(len(labels))]
    known = [(value, label) for value, label in zip(values, labels, strict=True) if value > 0]
    log = wide and len(known) == len(labels) and max(values) > 100 * min(values)
    if log:
        across = [floor(log10(min(values))) - 0.3, ceil(log10(max(values))) + 1]
    else:
        across = [0, ROOM * max([*values, *(shape["x0"] / ROOM for shape in shapes)], default=1.0) or 1.0]
    axis = {"range": across, "type": "log" if log else "linear", "exponentformat": "SI", "ticksuffix": unit}
    most = max(known, default=None)
    said = f"Most: {most[1].partition(chr(10))[0]} with {cell(most[0], unit)}." if most else "Nothing."
    more = " The axis is logarithmic." * log + " The dashed line is what is usable." * bool(shapes)
    return Chart(
        name=name,
        title=title,
        words=said + more,
        figure={
            "data": [_trace(labels, values, unit, colours=colours)],
            "layout": layout(80 + ROW * len(labels), shapes=shapes, xaxis=axis, yaxis={"autorange": "reversed"}),
        },
        columns=("", title),
        rows=tuple((label.replace("\n", ": "), cell(value, unit)) for label, value in zip(labels, values, strict=True)),
    )


def _trace(
    labels: Sequence[str], values: Sequence[float], unit: str, *, name: str = "", colours: Sequence[str] | str
) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": list(labels),
        "x": list(values),
        "text": [cell(value, unit) for value in values],
        "textposition": "outside",
        "marker": {"color": colours},
    }


def _columns(table: Table) -> dict[str, Any]:
    return {"columns": table.columns, "rows": table.rows}
