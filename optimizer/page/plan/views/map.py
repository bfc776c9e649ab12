"""The map of TP x PP as a table: the bluer a cell, the better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optimizer.answer.answer import Answer
from optimizer.base.units import GB
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.page.plan.engine import answered
from optimizer.page.plan.question import PlanQuestion
from optimizer.page.plan.views.shown import fragment
from optimizer.search.plan.alternatives import value_of
from optimizer.studies.cells import FITS, Cell, cells

# From the fastest to twice as slow; dark words can be read on all of them.
FAST, SLOW = (94, 174, 222), (237, 245, 250)


def map_view(asked: PlanQuestion) -> dict[str, Any]:
    """The map with its table."""
    answer = answered(asked).answer
    return {"html": fragment("map.html", **map_values(answer.job, cells(answer.job, valued(answer))))}


def valued(answer: Answer) -> tuple[Plan, float] | None:
    """The plan of an answer with the value by which it is the best, if there is one."""
    if answer.plan is None or answer.estimate is None:
        return None
    return answer.plan, value_of(answer.job, answer.plan, answer.knobs, answer.estimate)


def map_values(job: Job, every: Sequence[Cell]) -> dict[str, Any]:
    """What map.html shows: the bluer a cell, the better; hatched where nothing fits, grey where a rule forbids."""
    fitting = [cell for cell in every if cell.kind == FITS]
    fastest = min(fitting, key=lambda cell: cell.value, default=None)
    tps, words = sorted({cell.tp for cell in every}), objective_of(job)
    return {
        "better": words.better,
        "title": f"The best {words.label} of each TP and PP within {safe_memory(job) / GB:.1f} GB",
        "fastest": fastest,
        "words": f"{words.best.capitalize()} with TP {fastest.tp} and PP {fastest.pp}: {fastest.text}."
        if fastest
        else "No cell holds a plan that fits.",
        "pps": sorted({cell.pp for cell in every}),
        "lines": [(tp, [(cell, _colour(cell, fastest)) for cell in every if cell.tp == tp]) for tp in tps],
        "rows": [(f"{cell.tp} × {cell.pp}", cell.text, cell.words) for cell in every],
    }


def _colour(cell: Cell, fastest: Cell | None) -> str:
    """From FAST to SLOW, of a cell that fits."""
    if cell.kind != FITS or fastest is None:
        return ""
    slower = min(1.0, cell.value / fastest.value - 1.0)
    return "#" + "".join(f"{round(a + (b - a) * slower):02x}" for a, b in zip(FAST, SLOW, strict=True))
