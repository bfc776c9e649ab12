"""Act IX: a pipeline pass by pass, and how its bubble goes with the micro-batches."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from math import ceil

from optimizer.base.content import Values
from optimizer.job.plan import Plan
from optimizer.objectives.pipeline.schedules import bubble_fraction
from optimizer.page.learn.act import Shown
from optimizer.page.learn.chart import ChartNumbers, Series
from optimizer.page.learn.priced import LARGE, job_of
from optimizer.studies.textbook import CEILING
from optimizer.studies.timeline import PipelineStudy, timeline_of
from optimizer.studies.timeline_report import pipeline_chart

TP = 8
COUNTS = (1, 2, 4, 8, 16, 32, 64)
STAGES = (2, 4, 8, 16)
NEAR = 8  # micro-batches drawn at each end
VPP = {"interleaved": 2}  # virtual stages of a schedule that has several


@lru_cache(maxsize=256)
def study_of(stages: int, microbatches: int, schedule: str) -> PipelineStudy:
    """GPT-3 with tensor parallelism of a node in so many stages, micro-batches of one sequence.

    Raises InputError for micro-batches that the schedule cannot run.

    >>> study = study_of(8, 8, "1f1b")
    >>> study.timeline.bubble.mean() > bubble(8, 8) > 0.46
    True
    """
    job = replace(job_of(LARGE), gpus=TP * stages, global_batch=microbatches)
    plan = Plan(tp=TP, pp=stages, vpp=VPP.get(schedule, 1), num_microbatches=microbatches, sequence_parallel=True)
    return timeline_of(job, replace(plan, schedule=schedule))


def bubble(stages: int, microbatches: int) -> float:
    """Share of its time that a stage of 1F1B waits [1]."""
    return float(bubble_fraction(stages, 1, microbatches))


@cache
def facts() -> Values:
    """The pipeline of the question: eight stages, eight micro-batches."""
    return {"exact": bubble(8, 8), "ratio": 7 / 8, "mixed": 7 / 64, "enough": enough(8)}


def enough(stages: int) -> int:
    """The least micro-batches with a bubble of at most CEILING: (1 - c) / c x (pp - 1).

    >>> enough(8), bubble(8, 63)
    (63, 0.1)
    """
    return ceil(round((1 - CEILING) / CEILING * (stages - 1), 9))


def shown(chosen: Values) -> Shown:
    """The reader's pipeline as it was simulated, and the bubble by micro-batches."""
    stages, count = chosen["stages"], chosen["microbatches"]
    study = study_of(stages, count, chosen["schedule"])
    timeline = study.timeline
    values = {
        **{"stages": stages, "count": count, "others": stages - 1, "exact": bubble(stages, count)},
        **{"waits": float(timeline.bubble.mean()), "makespan": timeline.makespan, "enough": enough(stages)},
        "flight": float(timeline.peak_in_flight.max()),
    }
    return Shown(
        values=values,
        charts={
            "act9-chart": lambda: bubble_numbers(stages, count, values["waits"]),
            "pipeline": lambda: pipeline_chart(study, NEAR),
        },
    )


def bubble_numbers(stages: int, count: int, waits: float) -> ChartNumbers:
    """The bubble of 1F1B against micro-batches for some numbers of stages, and that of the reader's pipeline [%]."""
    series = {f"{pp}": Series(x=COUNTS, y=[100 * bubble(pp, m) for m in COUNTS]) for pp in STAGES}
    series["here"] = Series(x=[count], y=[100 * waits])
    return ChartNumbers(
        series=series,
        rows=[{"m": m, "drawn": {pp: bubble(pp, m) for pp in STAGES}} for m in COUNTS],
        xaxis={"tickvals": COUNTS, "ticktext": [f"{m}" for m in COUNTS]},
    )
