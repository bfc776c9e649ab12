"""Act V: strong and weak scaling of a context's job, by the studies of the command line."""

from __future__ import annotations

from dataclasses import replace

from optimizer.base.content import Values
from optimizer.page.learn.act import Shown
from optimizer.page.learn.chart import ChartNumbers, Series
from optimizer.page.learn.priced import LARGE, SMALL, job_of, once
from optimizer.studies.scaling import SERIES, ScalingPoint, ScalingStudy, scaling

COUNTS = {SMALL: (8, 32, 128, 512), LARGE: (128, 256, 512, 1024)}
BATCH = {SMALL: 512, LARGE: 1024}  # of strong scaling at every count; of weak scaling at the last
SYMBOLS = dict(zip(SERIES, ("circle", "square"), strict=True))


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


class Facts(dict[str, float]):
    """What the question names; both studies are worked out when what they say is shown."""

    def __missing__(self, mode: str) -> float:
        """Efficiency of the best plan at the last count, by scaling mode [1]."""
        study = study_of(SMALL, mode)
        return study.efficiency(study.series(SERIES[1])[-1])


def facts() -> Values:
    """The small job at both ends of its counts."""
    few, many, batch = COUNTS[SMALL][0], COUNTS[SMALL][-1], BATCH[SMALL]
    return Facts(few=few, many=many, batch=batch, share=batch // few, last_share=batch // many)


def controls(context: str, _pasted: str) -> dict[str, Values]:
    """The counts of the context's studies."""
    return {"count": {"steps": COUNTS[context], "value": COUNTS[context][-1]}}


def shown(chosen: Values) -> Shown:
    """Speedup and efficiency of the best plan at the reader's number of GPUs."""
    study = study_of(chosen["context"], chosen["mode"])
    point = at(study, chosen["count"])
    values = {
        **{"study": study, "point": point, "gpus": chosen["count"], "first": study.series(SERIES[1])[0]},
        "speedup": study.speedup(point),
        "efficiency": study.efficiency(point),
        "mfu": point.estimate.mfu if point.estimate else 0.0,
        "step": point.estimate.step_time if point.estimate else float("inf"),
        "share": point.global_batch / point.gpus,
    }
    return Shown(values=values, charts={"act5-chart": lambda: efficiency_numbers(study, chosen["count"])})


def efficiency_numbers(study: ScalingStudy, gpus: int) -> ChartNumbers:
    """Efficiency against GPUs of both series [%]; points that do not fit are hollow."""
    series = {}
    for name, symbol in SYMBOLS.items():
        known = [point for point in study.series(name) if point.estimate]
        series[name] = Series(
            x=[point.gpus for point in known],
            y=[100 * study.efficiency(point) for point in known],
            look={"symbol": [symbol if point.fits else f"{symbol}-open" for point in known]},
        )
    series["here"] = Series(x=[gpus], y=[100 * study.efficiency(at(study, gpus))])
    counts = [point.gpus for point in study.series(SERIES[0])]
    last = study.series(SERIES[1])[-1]
    return ChartNumbers(
        series=series,
        rows=[_row(study, point) for name in SERIES for point in study.series(name)],
        values={"last": last, "left": study.efficiency(last)},
        xaxis={"tickvals": counts, "ticktext": [f"{count:,}" for count in counts]},
    )


def at(study: ScalingStudy, gpus: int) -> ScalingPoint:
    """The best plan's point at this number of GPUs, or at the nearest below."""
    points = study.series(SERIES[1])
    return [points[0], *(point for point in points if point.gpus <= gpus)][-1]


def _row(study: ScalingStudy, point: ScalingPoint) -> Values:
    return {
        "point": point,
        "plan": "; ".join(filter(None, (point.plan.summary() if point.plan else "", point.note))),
        "mfu": point.estimate.mfu if point.estimate else None,
        "speedup": study.speedup(point) if point.estimate else None,
        "efficiency": study.efficiency(point) if point.estimate else None,
    }
