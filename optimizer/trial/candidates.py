"""The plans that a trial may be spent on: several hundred of the lattice that could be the fastest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import exp

import numpy as np

from optimizer.base.errors import Infeasible
from optimizer.constraints.given_layout import with_assigned_layers
from optimizer.constraints.rules.every import structural
from optimizer.job.job import EVEN_RISK, Job
from optimizer.job.known import MEMORY
from optimizer.job.plan import FIELDS, Knobs, Plan, Plans
from optimizer.objectives.arrays import ascending
from optimizer.objectives.belief.belief import error_of
from optimizer.objectives.belief.order import order_factor
from optimizer.objectives.step.estimate import Costs, Estimate
from optimizer.objectives.step.interval import mfu
from optimizer.objectives.step.price import price
from optimizer.search.lattice.knobs import columns, joined_knobs, knobs_at, tuned
from optimizer.search.lattice.oracle import Points, firsts, sweep
from optimizer.search.plan.alternatives import estimate_of
from optimizer.search.plan.planner import plan as plan_of
from optimizer.trial.belief import Belief

RUNNERS_UP = 12  # runners-up of another structure, the first of them as best laid out
MOST = 400  # candidates
LEAST_CHANCE = 1.2815515655446004  # standard deviations of memory by which a plan may exceed what is usable: 10 %
FARTHEST = 3.0  # standard deviations by which a candidate may be slower than the fastest that should fit


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Plans of one job, each with its knobs; the first is the one that the planner answers with."""

    job: Job
    plans: tuple[Plan, ...]
    knobs: tuple[Knobs, ...]

    def __len__(self) -> int:
        return len(self.plans)

    @cached_property
    def costs(self) -> Costs:
        """What the model says of them."""
        knobs = joined_knobs([columns(item, 1) for item in self.knobs])
        return price(self.job, Plans.of(self.plans), knobs)

    def estimate(self, index: int) -> Estimate:
        """The breakdown of one."""
        return estimate_of(self.job, self.costs, index)

    def belief(self) -> Belief:
        """Before any trial: as the model predicts and sweeps order them, with what is believed of its errors."""
        costs, plans = self.costs, Plans.of(self.plans)
        seconds = costs.step_time * order_factor(self.job, plans)
        return Belief.predicted(self.job, plans, seconds, costs.reserved / self.job.usable_memory)


def candidates(job: Job, *, seed: int = 0) -> Candidates:
    """The plan that is ranked first, runners-up as they are best laid out, and the leading plans of the lattice.

    Among them are plans that should not fit, but by less than memory is known. Raises Infeasible where nothing fits.
    """
    job = job.with_limits(oom_risk=EVEN_RISK)  # a trial finds out whether a plan fits: its chance is weighed there
    answer = plan_of(job, top=RUNNERS_UP, seed=seed, priced_risk=False)
    if answer.plan is None or answer.estimate is None:
        raise Infeasible("no plan satisfies every rule; `optimize` with the same options says which conflict")
    by_key = {_key(answer.plan): (answer.plan, answer.knobs)}
    for other in answer.alternatives:
        by_key.setdefault(_key(other.plan), (other.plan, other.knobs))
    mean, spread = error_of(job, answer.plan, 1.0, MEMORY)
    roomier = job.usable_memory * exp(LEAST_CHANCE * spread - mean) + job.stack["context_memory"]
    _, spread = error_of(job, answer.plan, mfu(job, answer.estimate.step_time))
    farthest = exp(FARTHEST * spread)
    for roomy in (job, replace(job, limits=replace(job.limits, hbm=roomier))):
        points = sweep(roomy, structural(roomy)).points
        if points is not None:
            leading = points.take(_leading(points, answer.estimate.step_time * farthest))
            knobs = tuned(leading.layer_costs).knobs
            for place, even in enumerate(leading.plans.plans()):
                by_key.setdefault(_key(even), (with_assigned_layers(job, even), knobs_at(knobs, place)))
    return Candidates(
        job=job, plans=tuple(plan for plan, _ in by_key.values()), knobs=tuple(knobs for _, knobs in by_key.values())
    )


def _leading(points: Points, limit: float) -> list[int]:
    """Positions of the fastest plan of every structure, and of the fastest of all, none slower than the limit [s]."""
    order = ascending(points.values)
    order = order[points.fits[order] & (points.values[order] <= limit)]
    structures = order[np.sort(firsts(points.plans.take(order)))]
    return list(dict.fromkeys([*structures[: MOST // 4].tolist(), *order.tolist()]))[: MOST // 2]


def _key(plan: Plan) -> tuple[object, ...]:
    """What makes two plans one, wherever their layers lie."""
    return tuple(getattr(plan, name) for name in FIELDS)
