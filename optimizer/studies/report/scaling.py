"""MFU, throughput and efficiency over GPU counts, for data parallelism and for the best plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optimizer.reports.plan_report import notes, title
from optimizer.reports.report import Table
from optimizer.reports.table import Column, Record, Value, table

if TYPE_CHECKING:
    from rich.console import Group

    from optimizer.studies.scaling import Point, ScalingStudy

POINTS = (
    Column(label="GPUs", unit="1"),
    Column(label="batch", unit="1"),
    Column(label="step", unit="s"),
    Column(label="MFU", unit="%"),
    Column(label="speedup", unit="x"),
    Column(label="efficiency", unit="%"),
    Column(label="plan", wraps=True),
)
READING = {"strong": "one batch for all: the same step, faster", "weak": "the batch grows with the GPUs"}


def scaling_report(study: ScalingStudy, assumed: Sequence[str] = ()) -> Group:
    """Both series for the screen."""
    from rich.console import Group
    from rich.text import Text

    job = study.job
    head = f"{job.model.name} on {job.cluster.device.name} — {study.mode} scaling"
    what = f"{job.dtype}, sequences of {job.seq_len:,} tokens, {job.cluster.name}, {job.stack.name}"
    parts = []
    for name in dict.fromkeys(point.series for point in study.points):
        rows = [_row(study, point) for point in study.series(name)]
        parts += [title(name.capitalize()), table(POINTS, rows)]
    return Group(
        Text(head, style="bold"),
        Text(what),
        *parts,
        *notes(
            "Reading",
            [
                f"{study.mode.capitalize()} scaling: {READING[study.mode]}.",
                "Speedup and efficiency are against the first row.",
            ],
        ),
        *notes("Assumed", assumed),
    )


def scaling_tables(study: ScalingStudy) -> tuple[Table, ...]:
    """The same tables for a page."""
    names = dict.fromkeys(point.series for point in study.points)
    return tuple(Table.of(n.capitalize(), POINTS, [_row(study, point) for point in study.series(n)]) for n in names)


def scaling_records(study: ScalingStudy) -> list[Record]:
    """One record per point, SI units."""
    return [_record(study, point) for point in study.points]


def _row(study: ScalingStudy, point: Point) -> tuple[Value, ...]:
    if point.plan is None or point.estimate is None:
        return (point.gpus, point.global_batch, None, None, None, None, point.note)
    plan = _short(point) + (f" ({point.note})" if point.note else "")
    estimate = point.estimate
    rates = (study.speedup(point), study.efficiency(point))
    return (point.gpus, point.global_batch, estimate.step_time, estimate.mfu, *rates, plan)


def _short(point: Point) -> str:
    """The plan without the degrees that are one, which the series makes obvious."""
    summary = point.plan.summary() if point.plan else ""
    return ", ".join(part for part in summary.split(", ") if part not in ("TP 1", "PP 1"))


def _record(study: ScalingStudy, point: Point) -> Record:
    record: dict[str, Value] = {
        "series": point.series,
        "mode": study.mode,
        "gpus": point.gpus,
        "global_batch": point.global_batch,
    }
    if point.plan and point.estimate:
        record |= {
            "step_time_s": point.estimate.step_time,
            "mfu": point.estimate.mfu,
            "tokens_per_s": point.tokens_per_second,
            "speedup": study.speedup(point),
            "efficiency": study.efficiency(point),
            "memory_bytes": point.estimate.reserved,
            "fits": point.fits,
            "plan": point.plan.summary(),
        }
    return record | {"note": point.note}
