"""Act V: strong and weak scaling of a context's job, by the studies of the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from optimizer.page.learn.chart import Chart
from optimizer.page.learn.chart import Figure as Drawn
from optimizer.page.learn.contexts import LARGE, SMALL, job_of
from optimizer.page.learn.markup import FAILED, FINE, WARNED, Figure, Line, worked
from optimizer.page.learn.markup import figures as figures_html
from optimizer.page.learn.once import once
from optimizer.page.learn.question import PREDICTION, Choice, Question
from optimizer.reports.palette import BLUE, GREEN
from optimizer.studies.scaling import SERIES, Point, ScalingStudy, scaling

COUNTS = {SMALL: (8, 32, 128, 512), LARGE: (128, 256, 512, 1024)}
BATCH = {SMALL: 512, LARGE: 1024}  # of strong scaling at every count; of weak scaling at the last


@once
def study_of(context: str, mode: str) -> ScalingStudy:
    """Plain data parallelism and the best plan at each count; weak scaling ends at the batch that strong scaling has.

    >>> study = study_of(SMALL, "strong")
    >>> [point.gpus for point in study.series("best plan")][-1], study.job.global_batch
    (512, 512)
    """
    counts = COUNTS[context]
    first = BATCH[context] if mode == "strong" else BATCH[context] * counts[0] // counts[-1]
    return scaling(replace(job_of(context), gpus=counts[0], global_batch=first), counts, mode)


def prediction() -> Question:
    """What becomes of efficiency under strong scaling."""
    counts = COUNTS[SMALL]
    return Question(
        name="act-5",
        act="V",
        kind=PREDICTION,
        text=(
            f"A 7B job keeps its batch of {BATCH[SMALL]} sequences while its GPUs grow from {counts[0]} to "
            f"{counts[-1]}. What happens to its efficiency?"
        ),
        right="B",
        choices=(
            Choice(key="A", text="Nothing: 64 times the GPUs, 64 times the speed.", reveal=_ideal),
            Choice(
                key="B",
                text="It falls: each GPU computes less in a step, while there is as much to add up as before.",
                reveal=_less_to_do,
            ),
            Choice(key="C", text="It falls, since the all-reduce grows in proportion to the GPUs.", reveal=_growing),
        ),
    )


def _left(mode: str) -> str:
    """Efficiency of the best plan at the last count."""
    study = study_of(SMALL, mode)
    return f"{100 * study.efficiency(study.series(SERIES[1])[-1]):.0f} %"


def _ideal() -> str:
    return (
        f"Only if nothing but the computation mattered. By the cost model {_left('strong')} of the efficiency on "
        f"{COUNTS[SMALL][0]} GPUs is left on {COUNTS[SMALL][-1]}."
    )


def _less_to_do() -> str:
    first, last = COUNTS[SMALL][0], COUNTS[SMALL][-1]
    return (
        f"On {first} GPUs each has {BATCH[SMALL] // first} sequences a step, on {last} GPUs {BATCH[SMALL] // last}. "
        f"Its computation shrank to {first}/{last}, the gradients to add up did not: {_left('strong')} of the "
        f"efficiency is left. Growing the batch with the GPUs (weak scaling) keeps {_left('weak')}, as long as so "
        "large a batch still trains as well."
    )


def _growing() -> str:
    return (
        "It falls, but not for that: what a GPU sends goes towards twice the gradients and stays there (Act I). It is "
        f"the computation beside it that shrinks: {_left('strong')} of the efficiency is left."
    )


def figures(study: ScalingStudy, gpus: int) -> tuple[Figure, ...]:
    """Speedup and efficiency of the best plan at this number of GPUs."""
    point = at(study, gpus)
    efficiency = study.efficiency(point)
    mfu = point.estimate.mfu if point.estimate else 0.0
    return (
        Figure(name="act5-speedup", label="Speedup", value=f"{study.speedup(point):.2f}", remark="of the best plan"),
        Figure(
            name="act5-efficiency",
            label="Efficiency",
            value=f"{100 * efficiency:.1f} %",
            remark="good" if efficiency >= 0.9 else "middling" if efficiency >= 0.6 else "poor",
            state=FINE if efficiency >= 0.9 else WARNED if efficiency >= 0.6 else FAILED,
        ),
        Figure(name="act5-mfu", label="MFU", value=f"{100 * mfu:.1f} %", remark=point.note),
        Figure(
            name="act5-batch",
            label="Sequences of a GPU",
            value=f"{point.global_batch / point.gpus:g}",
            remark=f"{point.global_batch:,} in all",
        ),
    )


def equations(study: ScalingStudy, gpus: int) -> tuple[Line, ...]:
    """Speedup and efficiency with the reader's number of GPUs."""
    point, first = at(study, gpus), study.series(SERIES[1])[0]
    here, there = point.tokens_per_second, first.tokens_per_second
    speedup = study.speedup(point)
    return (
        Line(
            name="act5-t-speed",
            what="Throughput",
            formula="batch x tokens / step",
            values=f"{point.global_batch:,} x {study.job.seq_len:,} / {_step(point):.4f} s",
            result=f"{here:,.0f} tokens/s",
        ),
        Line(
            name="act5-t-speedup",
            what="Speedup",
            formula=f"throughput / throughput on {first.gpus}",
            values=f"{here:,.0f} / {there:,.0f}",
            result=f"{speedup:.3f}",
        ),
        Line(
            name="act5-t-efficiency",
            what="Efficiency",
            formula=f"speedup x {first.gpus} / GPUs",
            values=f"{speedup:.3f} x {first.gpus} / {gpus:,}",
            result=f"{100 * study.efficiency(point):.1f} %",
        ),
    )


def chart(study: ScalingStudy, gpus: int) -> Chart:
    """Efficiency against GPUs of both series."""
    figure = Drawn(across="GPUs", up="efficiency [%]")
    counts = [point.gpus for point in study.series(SERIES[0])]
    for name, colour, symbol in zip(SERIES, (BLUE, GREEN), ("circle", "square"), strict=True):
        known = [point for point in study.series(name) if point.estimate]
        marker = {"color": colour, "size": 9, "symbol": [symbol if p.fits else f"{symbol}-open" for p in known]}
        figure.points(
            [point.gpus for point in known],
            [100 * study.efficiency(point) for point in known],
            name,
            mode="lines+markers",
            line={"color": colour, "dash": "dash" if name == SERIES[0] else "solid"},
            marker=marker,
        )
    here = {"symbol": "diamond", "size": 14, "color": "#1c2024"}
    chosen = 100 * study.efficiency(at(study, gpus))
    figure.points([gpus], [chosen], "your choice", mode="markers", marker=here)
    figure.level(100, "ideal")
    figure.xaxis |= {"type": "log", "tickvals": counts, "ticktext": [f"{count:,}" for count in counts]}
    figure.yaxis |= {"rangemode": "tozero"}
    rows = [_row(study, point) for name in SERIES for point in study.series(name)]
    last = study.series(SERIES[1])[-1]
    words = (
        f"{study.job.model.name}, {study.mode} scaling: from {counts[0]} to {last.gpus:,} GPUs the best plan at each "
        f"count keeps {100 * study.efficiency(last):.0f} % of its efficiency (hollow points do not fit into memory)."
    )
    columns = ["series, GPUs", "batch", "plan", "MFU", "speedup", "efficiency"]
    return Chart(
        name="act5-chart", title=f"{study.mode} scaling", figure=figure, words=words, columns=columns, rows=rows
    )


def panel(
    context: str, mode: str, gpus: int, html: Callable[[str], Any], shown: Callable[[Chart], Sequence[Any]]
) -> Sequence[Any]:
    """Figures, chart and equations of a study, which is worked out only here."""
    study = study_of(context, mode)
    return (
        html(figures_html(figures(study, gpus))),
        *shown(chart(study, gpus)),
        html(worked(equations(study, gpus), "Act V worked out")),
    )


def at(study: ScalingStudy, gpus: int) -> Point:
    """The best plan's point at this number of GPUs, or at the nearest below."""
    points = study.series(SERIES[1])
    return [points[0], *(point for point in points if point.gpus <= gpus)][-1]


def _row(study: ScalingStudy, point: Point) -> list[str]:
    plan = point.plan.summary() if point.plan else ""
    mfu = f"{100 * point.estimate.mfu:.1f} %" if point.estimate else "-"
    return [
        f"{point.series}, {point.gpus:,}",
        f"{point.global_batch:,}",
        "; ".join(filter(None, (plan, point.note))),
        mfu,
        f"{study.speedup(point):.2f}" if point.estimate else "-",
        f"{100 * study.efficiency(point):.1f} %" if point.estimate else "-",
    ]


def _step(point: Point) -> float:
    return point.estimate.step_time if point.estimate else float("inf")
