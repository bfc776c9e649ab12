"""The pipeline of the best plan: the first and the last micro-batches, pass by pass."""

from __future__ import annotations

from typing import Any

from optimizer.page.plan.engine import answered
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.shown import html_of
from optimizer.studies.timeline import timeline_of
from optimizer.studies.timeline_report import pipeline_chart

SHOWN = 20  # micro-batches at the start, and at the end
MOST = 4000  # passes that are drawn, each with what a pointer over it is told


def pipeline_view(asked: PlanQuestion) -> dict[str, Any]:
    """The timeline as a chart with a table of the stages."""
    answer = answered(asked).answer
    if answer.plan is None:
        return {"html": "<p>There is no plan, and so no pipeline.</p>"}
    study = timeline_of(answer.job, answer.plan, answer.knobs)
    passes = sum(len(stage.passes) for stage in study.timeline.stages)
    chart = pipeline_chart(study, ends(study.plan.num_microbatches, passes))
    return {"html": html_of(chart)}


def ends(count: int, passes: int) -> int:
    """Micro-batches to draw at each end, so that no more than MOST passes are drawn of so many.

    >>> ends(48, 4608), ends(8, 100), ends(1000, 200_000)
    (20, 8, 10)
    """
    each = passes / count
    return max(1, min(SHOWN, count, int(MOST / each / 2)))
