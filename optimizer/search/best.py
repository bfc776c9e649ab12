"""The fastest plan of a job by the sweep alone: every plan priced, neither solver nor tuning of the knobs."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.constraints.rules import structural
from optimizer.job import Job
from optimizer.objectives.estimate import Estimate
from optimizer.objectives.step import price
from optimizer.plan import Knobs, Plan, Plans
from optimizer.search.alternatives import estimate_of
from optimizer.search.layout import laid_out
from optimizer.search.oracle import Sweep, sweep


@dataclass(frozen=True, kw_only=True)
class Best:
    """The fastest plan of a job that fits, and the sweep that found it."""

    job: Job
    plan: Plan
    estimate: Estimate
    swept: Sweep

    @property
    def throughput(self) -> float:
        """Tokens trained on per second by the whole job [1/s]."""
        return self.job.tokens / self.estimate.step_time


def best_plan(job: Job, knobs: Knobs = Knobs()) -> Best | None:
    """The fastest plan that satisfies every rule at these knobs, or None when there is none.

    Raises InputError for a pin on an unknown variable.
    """
    swept = sweep(job, structural(job), knobs)
    return best_of(job, swept, swept.best, knobs) if swept.best >= 0 else None


def best_of(job: Job, swept: Sweep, position: int, knobs: Knobs) -> Best | None:
    """One plan of a sweep, priced again term by term; None for a sweep without plans."""
    if swept.points is None:
        return None
    chosen = laid_out(job, swept.points.plans.plan(position))
    return Best(
        job=job,
        plan=chosen,
        estimate=estimate_of(job, price(job, Plans.of([chosen]), knobs), 0),
        swept=swept,
    )
