"""The fastest plan of a job at given knobs, with its best layout: every plan priced, no tuning and no certificate."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.constraints.rules import structural
from optimizer.job import Job
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.price import price
from optimizer.plan import Knobs, Plan, Plans
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.lattice.oracle import Sweep, sweep
from optimizer.search.layouts.band import best_even, lay_out
from optimizer.search.layouts.given import as_given
from optimizer.search.plan.alternatives import estimate_of


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
    rules = structural(job)
    swept = sweep(job, rules, knobs)
    if swept.points is None:
        return None
    if job.layout_given:
        found = as_given(swept).best
    else:
        even = best_even(job, swept.points, knobs)
        limit = even.seconds if even else float("inf")
        found = lay_out(job, lattice(job, rules), knobs, even=limit, any_knobs=False).best
    return best_of(job, swept, found.plan, knobs) if found else None


def best_of(job: Job, swept: Sweep, plan: Plan, knobs: Knobs) -> Best:
    """One plan of a sweep, priced again term by term."""
    return Best(job=job, plan=plan, estimate=estimate_of(job, price(job, Plans.of([plan]), knobs), 0), swept=swept)
