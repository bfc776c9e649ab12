"""The best plan whose layers are split evenly, which layouts are then held against."""

from __future__ import annotations

import numpy as np

from optimizer.constraints.given_layout import with_assigned_layers
from optimizer.job.job import Job
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.pipeline.stages import stages_of
from optimizer.objectives.step.host_memory import fits_host
from optimizer.objectives.step.linear_stage import stage_memory
from optimizer.objectives.step.price import Step
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice.knobs import knobs_at
from optimizer.search.lattice.oracle import Points
from optimizer.search.layouts.assigned import Candidate

LEADING = 20  # even splits whose stages are looked at one by one


def best_even(job: Job, points: Points) -> Candidate | None:
    """The best even split that fits when every stage is looked at, among the best ones of a sweep."""
    order = np.argsort(points.values, kind="stable")
    fitting = order[points.fits[order]]
    # The stages of a dense model are those that represent them, but for what interleaved ones wait.
    exact = not job.model.experts and bool(np.all(points.plans.vpp[fitting[:1]] == 1))
    chosen = fitting[: 1 if exact else LEADING]
    if not len(chosen):
        return None
    some = points.take(chosen)
    plans = [with_assigned_layers(job, plan) for plan in some.plans.plans()]
    placed = some.layer_costs.placed([plan.placement for plan in plans])
    step = Step(layer_costs=placed, stages=stages_of(job.model, placed.plans), knobs=some.knobs)
    reserved = stage_memory(placed, step.stages, some.knobs).reserved.max(axis=0)
    fits = (reserved <= safe_memory(job)) & fits_host(placed, some.knobs)
    values = np.where(fits, objective_of(job).value(placed, some.knobs, step.seconds, reserved), np.inf)
    first = int(np.argmin(values))
    if not np.isfinite(values[first]):
        return None
    knobs = knobs_at(some.knobs, first)
    return Candidate(plan=plans[first], value=float(values[first]), knobs=knobs, solved=True)
