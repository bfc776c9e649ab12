"""The best plan where each has one layout: evenly split, which others are held against, or as the user places it."""

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
from optimizer.search.lattice.oracle import FASTEST, Points, Sweep
from optimizer.search.layouts.assigned import AssignedLayouts, Candidate, ProofPlans

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


def as_given(swept: Sweep) -> AssignedLayouts:
    """The best plan of a sweep in which every plan says where its layers lie, with the plans for CP-SAT to check."""
    points = swept.points
    best: Candidate | None = None
    proof: ProofPlans | None = None
    if points is not None and swept.best >= 0:
        chosen = np.arange(len(points.plans))
        if len(chosen) < swept.space:
            chosen = np.union1d(np.argsort(points.values, kind="stable")[:FASTEST], swept.best)
        some = points.take(chosen)
        proof = ProofPlans(layer_costs=some.layer_costs, values=some.values, fits=some.fits)
        best = Candidate(
            plan=points.plans.plan(swept.best),
            value=float(points.values[swept.best]),
            knobs=knobs_at(points.knobs, swept.best),
            solved=True,
        )
    return AssignedLayouts(
        best=best,
        candidates=(),
        proof=proof,
        bound=best.value if best else np.inf,
        knob_bound=swept.knob_bound,
        space=swept.space,
        band=0,
        solved=0,
        complete=swept.complete,
    )
