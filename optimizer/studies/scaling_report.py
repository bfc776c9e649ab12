"""How a job scales: MFU, throughput and efficiency over GPU counts, for data parallelism and for the best plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from optimizer.base.content import content
from optimizer.base.units import show
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.reports.charts.chart import Chart, figure, points
from optimizer.reports.charts.palette import BLUE, GREEN, GREY, ORANGE
from optimizer.reports.known_values import NOT_KNOWN, mfu_words, step_words
from optimizer.reports.listed import record
from optimizer.reports.report import Record, Report, Table, Value, columns, section
from optimizer.studies.scaling import SERIES, ScalingPoint, ScalingStudy

POINTS = columns("GPUs [1] | batch [1] | step [s] | MFU [%] | speedup [x] | efficiency [%] | plan ~")
READING = {"strong": "one batch for all: the same step, faster", "weak": "the batch grows with the GPUs"}
LOOKS = {SERIES[1]: (BLUE, "circle"), SERIES[0]: (ORANGE, "square")}
HEIGHT = 340  # [px]


def scaling_report(
    study: ScalingStudy, assumed: Sequence[str] = (), measured: Mapping[int, float] | None = None
) -> Report:
    """MFU against GPUs for both series, the measured points of a person, and the throughput with ideal scaling."""
    job = study.job
    series = dict.fromkeys(point.series for point in study.points)
    tables = [
        section(name.capitalize(), Table(POINTS, [_row(study, point) for point in study.series(name)]))
        for name in series
    ]
    return Report(
        title=f"{job.model.title or job.model.name} on {job.cluster.device.name}: {study.mode} scaling",
        subject=(f"{job.dtype}, sequences of {job.seq_len:,} tokens, {job.cluster.name}, {job.stack.name}",),
        conclusion=(
            _grown(study),
            f"{study.mode.capitalize()} scaling: {READING[study.mode]}.",
            "Speedup and efficiency are against the first row with a plan.",
        ),
        sections=(
            section("MFU and throughput", scaling_chart(study, measured), throughput_chart(study), on="page"),
            *tables,
        ),
        assumed=tuple(assumed),
    )


def scaling_chart(study: ScalingStudy, measured: Mapping[int, float] | None = None) -> Chart:
    """MFU of both series against the GPUs; hollow where memory does not suffice."""
    measured = measured or {}
    shares = [100 * share for share in measured.values()]
    marks = points(list(measured), shares, GREEN, name="measured", marker={"symbol": "x", "size": 11})
    best = _planned(study, SERIES[1])
    words = "No plan at any of these numbers."
    if best:
        batch = "With one batch of" if study.mode == "strong" else "With a batch from"
        (first, low), (last, high) = best[0], best[-1]
        words = (
            f"{batch} {study.job.global_batch:,} sequences, the best plan's MFU goes from {low:.1%} on "
            f"{first.gpus:,} GPUs to {high:.1%} on {last.gpus:,}."
        )
    if any(point.estimate and not point.fits for point in study.points):
        words += " Hollow marks do not fit in memory."
    return Chart(
        name="scaling",
        title="MFU against GPUs, one batch for all" if study.mode == "strong" else "MFU against GPUs",
        words=words,
        figure=figure(
            HEIGHT,
            *(_series(study, name, [100 * mfu for _, mfu in _planned(study, name)]) for name in LOOKS),
            *([marks] if measured else []),
            xaxis=_gpus(study, measured),
            yaxis={"ticksuffix": "%", "rangemode": "tozero", "title": {"text": "MFU"}},
        ),
        columns=("GPUs", "series", "MFU", "step", "plan"),
        rows=(
            *(
                (
                    f"{point.gpus:,}",
                    point.series,
                    *_known_words(study.job, point),
                    "; ".join(filter(None, (point.plan.summary() if point.plan else "", point.note))),
                )
                for point in study.points
            ),
            *((f"{gpus:,}", "measured", f"{share:.1%}", "", "") for gpus, share in measured.items()),
        ),
    )


def throughput_chart(study: ScalingStudy) -> Chart:
    """Tokens per second of both series, and what the best first point would give if it scaled without loss."""
    planned = [point for point in study.points if point.estimate]
    counts = sorted({point.gpus for point in planned})
    first = max((point.tokens_per_second for point in planned if point.gpus == counts[0]), default=0.0)
    ideal = {count: first * count / counts[0] for count in counts}
    line = {"color": GREY, "dash": "dot", "width": 1.5}
    return Chart(
        name="throughput",
        title="Tokens per second",
        words="Dotted: throughput that grows with the GPUs from the best first point on. Both axes are logarithmic.",
        figure=figure(
            HEIGHT,
            *(_series(study, name, [p.tokens_per_second for p, _ in _planned(study, name)]) for name in LOOKS),
            points(counts, list(ideal.values()), GREY, "lines", name="ideal", line=line),
            xaxis=_gpus(study, {}),
            yaxis={"type": "log", "title": {"text": "tokens per second"}},
        ),
        columns=("GPUs", "series", "tokens per second", "ideal"),
        rows=tuple(
            (f"{point.gpus:,}", point.series, f"{point.tokens_per_second:,.0f}", f"{ideal[point.gpus]:,.0f}")
            for point in planned
        ),
    )


def scaling_record(study: ScalingStudy, point: ScalingPoint) -> Record:
    """One point, SI units."""
    tables = content("optimizer.studies", "tables.toml")["records"]
    values = record(tables["scaling"], study=study, point=point)
    if point.plan and point.estimate:
        rates = {"speedup": study.speedup(point), "efficiency": study.efficiency(point)}
        values |= record(tables["scaling_plan"], point=point, plan=point.plan.summary(), **rates)
    return values | {"note": point.note}


def _known_words(job: Job, point: ScalingPoint) -> tuple[str, str]:
    """MFU and step time of a point, "" without a plan."""
    if point.plan is None or point.estimate is None:
        return "", ""
    there, plan = _there(job, point)
    return mfu_words(there, plan, point.estimate), step_words(there, plan, point.estimate.step_time)


def _there(job: Job, point: ScalingPoint) -> tuple[Job, Plan]:
    """The job and the plan of a point that has one."""
    assert point.plan is not None
    return replace(job, gpus=point.gpus, global_batch=point.global_batch), point.plan


def _row(study: ScalingStudy, point: ScalingPoint) -> Sequence[Value]:
    if point.plan is None or point.estimate is None:
        return (point.gpus, point.global_batch, None, None, None, None, point.note)
    # Degrees of one go without saying in a series of data parallelism.
    plan = ", ".join(part for part in point.plan.summary().split(", ") if part not in ("TP 1", "PP 1"))
    estimate, note = point.estimate, f" ({point.note})" if point.note else ""
    rates = (study.speedup(point), study.efficiency(point))
    known = step_words(*_there(study.job, point), estimate.step_time) != NOT_KNOWN
    step, mfu = (estimate.step_time, estimate.mfu) if known else (None, None)
    note = note if known else f"{note} (step time {NOT_KNOWN})"
    return (point.gpus, point.global_batch, step, mfu, *rates, plan + note)


def _planned(study: ScalingStudy, name: str) -> list[tuple[ScalingPoint, float]]:
    """The points of a series that have a plan, each with its MFU."""
    return [(point, point.estimate.mfu) for point in study.series(name) if point.estimate and point.plan]


def _series(study: ScalingStudy, name: str, values: Sequence[float]) -> Mapping[str, Any]:
    planned, (colour, symbol) = [point for point, _ in _planned(study, name)], LOOKS[name]
    return points(
        [point.gpus for point in planned],
        values,
        colour,
        "lines+markers",
        name=name,
        text=[f"{point.gpus:,} GPUs, {point.plan.summary()}" for point in planned if point.plan],
        marker={"size": 10, "symbol": [symbol + ("" if point.fits else "-open") for point in planned]},
    )


def _gpus(study: ScalingStudy, measured: Mapping[int, float]) -> dict[str, Any]:
    counts = sorted({point.gpus for point in study.points} | set(measured))
    return {
        "type": "log",
        "title": {"text": "GPUs"},
        "tickvals": counts,
        "ticktext": [f"{count:,}" for count in counts],
    }


def _grown(study: ScalingStudy) -> str:
    """What more GPUs bring, in a sentence."""
    best = [point for point, _ in _planned(study, SERIES[1])]
    if not best:
        return "No plan fits at any of these numbers of GPUs."
    last = best[-1]
    if len(best) == 1:
        return f"The best plan on {last.gpus:,} GPUs does {last.tokens_per_second:,.0f} tokens per second."
    growth = last.gpus / best[0].gpus
    return (
        f"{growth:,.4g} times the GPUs do {study.speedup(last):.3g} times the tokens per second with the best plans: "
        f"{study.efficiency(last):.0%} efficiency, {show(last.tokens_per_second, 'tokens/s')} on {last.gpus:,}."
    )
