"""How a job scales, as a page and as the chart of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optimizer.base.units import seconds, show
from optimizer.reports.charts.chart import Chart, layout
from optimizer.reports.palette import BLUE, GREEN, GREY, ORANGE
from optimizer.reports.report import Report, Section, report_page
from optimizer.studies.report.scaling import READING, scaling_tables
from optimizer.studies.scaling import SERIES

if TYPE_CHECKING:
    from optimizer.studies.scaling import Point, ScalingStudy

COLOURS = {SERIES[1]: (BLUE, "circle"), SERIES[0]: (ORANGE, "square")}
HEIGHT = 340  # [px]


def scaling_page(study: ScalingStudy, measured: Mapping[int, float], assumed: Sequence[str] = ()) -> str:
    """MFU against GPUs for both series, the measured points of a person, and the throughput beside ideal scaling."""
    job = study.job
    charts = (scaling_chart(study, measured), throughput_chart(study))
    return report_page(
        Report(
            title=f"{job.model.title or job.model.name} on {job.cluster.device.name}: {study.mode} scaling",
            subject=f"{job.dtype}, sequences of {job.seq_len:,} tokens, {job.cluster.name}, {job.stack.name}",
            conclusion=(_grown(study), f"{study.mode.capitalize()} scaling: {READING[study.mode]}."),
            sections=(
                Section(heading="MFU and throughput", charts=charts),
                Section(
                    heading="In figures",
                    words=("Speedup and efficiency are against the first row of each table.",),
                    tables=scaling_tables(study),
                ),
            ),
            assumed=tuple(assumed),
        )
    )


def scaling_chart(study: ScalingStudy, measured: Mapping[int, float] | None = None) -> Chart:
    """MFU of both series against the GPUs; hollow where memory does not suffice."""
    data = [
        _series(study, name, [100 * point.estimate.mfu for point in _planned(study, name) if point.estimate])
        for name in COLOURS
    ]
    if measured:
        shares = [100 * share for share in measured.values()]
        marker = {"symbol": "x", "size": 11, "color": GREEN}
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "measured",
                "x": list(measured),
                "y": shares,
                "marker": marker,
            }
        )
    best = _planned(study, SERIES[1])
    ends = [point.estimate.mfu for point in best if point.estimate]
    words = "No plan at any of these numbers."
    if best and ends:
        batch = "With one batch of" if study.mode == "strong" else "With a batch from"
        words = (
            f"{batch} {study.job.global_batch:,} sequences, the best plan's MFU goes from {ends[0]:.1%} on "
            f"{best[0].gpus:,} GPUs to {ends[-1]:.1%} on {best[-1].gpus:,}."
        )
    if any(point.estimate and not point.fits for point in study.points):
        words += " Hollow marks do not fit in memory."
    return Chart(
        name="scaling",
        title="MFU against GPUs, one batch for all" if study.mode == "strong" else "MFU against GPUs",
        words=words,
        figure={
            "data": data,
            "layout": layout(
                HEIGHT,
                xaxis=_gpus(study, measured or {}),
                yaxis={"ticksuffix": "%", "rangemode": "tozero", "title": {"text": "MFU"}},
            ),
        },
        columns=("GPUs", "series", "MFU", "step", "plan"),
        rows=(
            *(
                (
                    f"{point.gpus:,}",
                    point.series,
                    f"{point.estimate.mfu:.1%}" if point.estimate else "",
                    seconds(point.estimate.step_time) if point.estimate else "",
                    "; ".join(filter(None, (point.plan.summary() if point.plan else "", point.note))),
                )
                for point in study.points
            ),
            *((f"{gpus:,}", "measured", f"{share:.1%}", "", "") for gpus, share in (measured or {}).items()),
        ),
    )


def throughput_chart(study: ScalingStudy) -> Chart:
    """Tokens per second of both series, beside what the best first point would give if it scaled without loss."""
    data = [_series(study, name, [point.tokens_per_second for point in _planned(study, name)]) for name in COLOURS]
    points = [point for point in study.points if point.estimate]
    counts = sorted({point.gpus for point in points})
    first = max((point.tokens_per_second for point in points if point.gpus == counts[0]), default=0.0)
    ideal = [first * count / counts[0] for count in counts]
    data.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "ideal",
            "x": counts,
            "y": ideal,
            "line": {"color": GREY, "dash": "dot", "width": 1.5},
            "marker": {"color": GREY},
        }
    )
    return Chart(
        name="throughput",
        title="Tokens per second",
        words="Dotted: throughput that grows with the GPUs from the best first point on. Both axes are logarithmic.",
        figure={
            "data": data,
            "layout": layout(
                HEIGHT, xaxis=_gpus(study, {}), yaxis={"type": "log", "title": {"text": "tokens per second"}}
            ),
        },
        columns=("GPUs", "series", "tokens per second", "ideal"),
        rows=tuple(
            (
                f"{point.gpus:,}",
                point.series,
                f"{point.tokens_per_second:,.0f}",
                f"{first * point.gpus / counts[0]:,.0f}",
            )
            for point in points
        ),
    )


def _planned(study: ScalingStudy, name: str) -> list[Point]:
    return [point for point in study.series(name) if point.estimate and point.plan]


def _series(study: ScalingStudy, name: str, values: Sequence[float]) -> dict[str, Any]:
    points, (colour, symbol) = _planned(study, name), COLOURS[name]
    symbols = [symbol + ("" if point.fits else "-open") for point in points]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [point.gpus for point in points],
        "y": list(values),
        "text": [f"{point.gpus:,} GPUs, {point.plan.summary()}" for point in points if point.plan],
        "line": {"color": colour, "width": 2},
        "marker": {"size": 10, "color": colour, "symbol": symbols},
    }


def _gpus(study: ScalingStudy, measured: Mapping[int, float]) -> dict[str, Any]:
    counts = sorted({point.gpus for point in study.points} | set(measured))
    ticks = {"tickvals": counts, "ticktext": [f"{count:,}" for count in counts]}
    return {"type": "log", "title": {"text": "GPUs"}, **ticks}


def _grown(study: ScalingStudy) -> str:
    """What more GPUs bring, in a sentence."""
    best = _planned(study, SERIES[1])
    if not best:
        return "No plan fits at any of these numbers of GPUs."
    last = best[-1]
    if len(best) == 1 or not last.estimate:
        return f"The best plan on {last.gpus:,} GPUs does {last.tokens_per_second:,.0f} tokens per second."
    growth = last.gpus / best[0].gpus
    return (
        f"{growth:,.4g} times the GPUs do {study.speedup(last):.3g} times the tokens per second with the best plans: "
        f"{study.efficiency(last):.0%} efficiency, {show(last.tokens_per_second, 'tokens/s')} on {last.gpus:,}."
    )
