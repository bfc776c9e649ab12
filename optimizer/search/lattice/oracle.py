"""The oracle: every plan of the lattice priced with numpy, the best of them at their own knobs, and what came close."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from optimizer.base.errors import TimeLimit
from optimizer.constraints.rule import Rule
from optimizer.job.job import Job
from optimizer.job.plan import IntArray, KnobColumns, Knobs, Plans
from optimizer.job.rows import Rows
from optimizer.objectives.arrays import BoolArray, FloatArray, raised
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.pipeline.stages import mean_stage, stages_of
from optimizer.objectives.step.flops import useful_flops
from optimizer.objectives.step.host_memory import fits_host, most_offload
from optimizer.objectives.step.linear_stage import stage_memory
from optimizer.objectives.step.per_step import least_per_step, work_of
from optimizer.objectives.step.price import Step, with_stragglers
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice.deadline import Deadline
from optimizer.search.lattice.enumerate import Space
from optimizer.search.lattice.knobs import (
    NAMES,
    HostNeed,
    OwnSettings,
    at_most_offload,
    columns,
    joined_knobs,
    tuned,
    valued,
)

NEAR_BEST = 0.05
FASTEST = 100  # best plans that are left whatever their bounds
PROVEN_WHOLE = 20_000  # most plans of a lattice that CP-SAT is given whole: it then takes some 0.2 s
SLICE = 256  # plans that are tuned together
MOST_TUNED = 1024  # plans within NEAR_BEST of the best that get settings of their own, besides all that could be it
STRUCTURE = ("tp", "cp", "ep", "etp", "pp")


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How settings are chosen: `fixed` ones for all plans, or each plan's best with so many trials of Optuna."""

    fixed: Knobs | None = None
    trials: int = 0
    seed: int = 0
    study: str | None = None

    def own(self) -> OwnSettings:
        """Where the settings of the plans of a job are found, each once."""
        return OwnSettings(trials=self.trials, seed=self.seed, study=self.study)


@dataclass(frozen=True, kw_only=True)
class Points(Rows):
    """Priced plans in lattice order, evenly split."""

    layer_costs: LayerCosts  # of the plans
    values: FloatArray  # of the objective, at each plan's own knobs [unit of the objective]
    least: FloatArray  # values that no setting of the knobs beats [unit of the objective]
    fits: BoolArray  # whether each fits in memory
    knobs: KnobColumns  # of each plan

    @property
    def plans(self) -> Plans:
        """The plans."""
        return self.layer_costs.plans


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What the oracle saw. `points` keeps every plan that could be the best at some setting of the knobs, the best
    plans, and the best of every structure, or where layouts are given every plan for CP-SAT to hold.
    """

    points: Points | None  # the plans that are left, None where there are none
    best: int  # position of the optimum in them, or -1
    space: int  # plans that were priced [1]
    fitting: int  # those that fit, with as much of the optimizer state on the host as it takes [1]
    complete: bool  # whether none was left out
    ideal: float  # a value that no step stays below, by its time at an MFU of 1 [unit of the objective]
    knob_bound: float  # a value that no setting of the knobs beats on any plan priced [unit of the objective]
    own: OwnSettings = field(default_factory=OwnSettings, compare=False)  # settings of the plans that were tuned


def sweep(job: Job, rules: Sequence[Rule], tuning: Tuning = Tuning(), *, time_limit: float | None = None) -> Sweep:
    """Price every plan that satisfies the structural rules; ties go to the plan that comes first in the lattice."""
    return fold(job, Space(job, rules), tuning, time_limit)


def fold(
    job: Job,
    cost_batches: Iterable[LayerCosts],
    tuning: Tuning = Tuning(),
    time_limit: float | None = None,
    seen: Callable[[LayerCosts, float], None] | None = None,
) -> Sweep:
    """Price batches of plans one after the other, keeping what matters, and tune what is left.

    `seen` is told of each batch and of the value of the best plan so far that fits, infinite without one.
    """
    deadline, own = Deadline.after(time_limit), tuning.own()
    points_left: Points | None = None
    space, fitting, complete = 0, 0, True
    try:
        for layer_costs in cost_batches.until(deadline) if isinstance(cost_batches, Space) else cost_batches:
            deadline.go_on()
            points = _points(layer_costs, tuning.fixed)
            space, fitting = space + len(layer_costs), fitting + int(points.fits.sum())
            points_left = points if points_left is None else _both(points_left, points)
            if space > PROVEN_WHOLE or not job.layout_given:
                points_left = _trimmed(points_left)
            if seen:
                seen(layer_costs, float(np.min(points_left.values[points_left.fits], initial=np.inf)))
    except TimeLimit:
        complete = False
    best = -1
    if points_left is not None and fitting:
        points_left = _tuned(points_left, own, deadline) if tuning.fixed is None else points_left
        values = np.where(points_left.fits, points_left.values, np.inf)
        best = int(np.argmax(values <= raised(values.min())))
    least = (
        np.inf
        if points_left is None
        else float(np.min(np.where(points_left.fits, points_left.least, np.inf), initial=np.inf))
    )
    useful = useful_flops(job)
    return Sweep(
        points=points_left,
        best=best,
        space=space,
        fitting=fitting,
        complete=complete,
        ideal=objective_of(job).rate(job) * useful / (job.gpus * job.peak_flops) if space else 0.0,
        knob_bound=least,
        own=own,
    )


def _points(layer_costs: LayerCosts, fixed: Knobs | None) -> Points:
    """Every plan at the fixed settings or of a given layout; of others those that fit, at the defaults, with all
    optimizer state on the host where it must be.
    """
    job, knobs, objective = layer_costs.job, fixed or Knobs(), objective_of(layer_costs.job)
    stages = stages_of(job.model, layer_costs.plans)
    memory, there = stage_memory(layer_costs, stages, knobs), fits_host(layer_costs, knobs)
    reserved = memory.reserved.max(axis=0)
    fits, rescued = (reserved <= safe_memory(job)) & there, np.zeros(len(layer_costs), dtype=np.bool_)
    if fixed is None:
        without = memory.reserved - most_offload(layer_costs) * memory.offloadable
        rescued = ~fits & there & (without.max(axis=0) <= safe_memory(job))
        fits = fits | rescued
        if not job.layout_given:
            layer_costs, reserved, rescued = layer_costs.take(fits), reserved[fits], rescued[fits]
            stages, fits = stages_of(job.model, layer_costs.plans), fits[fits]
    step = Step(layer_costs=layer_costs, stages=stages, knobs=knobs)
    values, chosen = objective.value(layer_costs, knobs, step.seconds, reserved), columns(knobs, len(layer_costs))
    if fixed is not None:
        return Points(layer_costs=layer_costs, values=values, least=values, fits=fits, knobs=chosen)
    needed = np.zeros(len(layer_costs))
    if np.any(rescued):
        some = layer_costs.take(rescued)
        values[rescued] = offloaded_value(some)
        needed[rescued] = HostNeed.of(some, stages_of(job.model, some.plans)).needed(job)
        chosen = replace(chosen, offload=np.where(rescued, most_offload(layer_costs), chosen.offload))
    lowest = least_per_step(work_of(layer_costs, mean_stage(job.model, layer_costs.plans)), needed)
    fastest = with_stragglers(layer_costs, step.rest - step.per_step.total.max(axis=0) + lowest)
    least = objective.bound(layer_costs, fastest, needed, np.ones(1))
    least = least * objective.layout(job, layer_costs.plans, needed)
    return Points(layer_costs=layer_costs, values=values, least=least, fits=fits, knobs=chosen)


def offloaded_value(layer_costs: LayerCosts) -> FloatArray:
    """Value of each plan with as much optimizer state on the host as may be [unit of the objective]."""
    stages = stages_of(layer_costs.job.model, layer_costs.plans)
    return valued(layer_costs, stages, at_most_offload(layer_costs))


def _tuned(points: Points, settings: OwnSettings, deadline: Deadline) -> Points:
    """The points, those that matter at their own settings: in the order of their bounds until none can be the best, and
    the first of them at least while there is time.
    """
    order = np.argsort(np.where(points.fits, points.least, np.inf), kind="stable")[: int(points.fits.sum())]
    values, fits, chosen = points.values.copy(), points.fits.copy(), points.knobs
    best, done = np.inf, 0
    while done < len(order) and points.least[order[done]] < best * (1.0 if done >= MOST_TUNED else 1.0 + NEAR_BEST):
        part = order[done : done + SLICE]
        some = points.layer_costs.take(part)
        own = tuned(some, settings.of(some))
        values[part], fits[part] = own.values, own.fits
        chosen = _put(chosen, part, own.knobs)
        best = min(best, float(np.min(np.where(own.fits, own.values, np.inf))))
        done += len(part)
        if deadline.left == 0.0:
            break
    return replace(points, values=values, fits=fits, knobs=chosen)


def _put(knobs: KnobColumns, places: IntArray, values: KnobColumns) -> KnobColumns:
    """The settings with others at these places."""
    changed = {}
    for name in NAMES:
        column = getattr(knobs, name).copy()
        column[places] = getattr(values, name)
        changed[name] = column
    return KnobColumns(**changed)


def _both(first: Points, second: Points) -> Points:
    return Points(
        layer_costs=LayerCosts.joined([first.layer_costs, second.layer_costs]),
        values=np.concatenate([first.values, second.values]),
        least=np.concatenate([first.least, second.least]),
        fits=np.concatenate([first.fits, second.fits]),
        knobs=joined_knobs([first.knobs, second.knobs]),
    )


def _trimmed(points: Points) -> Points:
    """Without the points that neither the proof nor the runners-up can need, in the same order."""
    keep = np.zeros(len(points.plans), dtype=bool)
    order = np.argsort(points.values, kind="stable")
    fitting = order[points.fits[order]]
    if len(fitting):
        limit = points.values[fitting[0]]
        keep |= points.fits & (points.least <= limit * (1 + NEAR_BEST))
        keep[fitting[:FASTEST]] = True
        keep[fitting[firsts(points.plans.take(fitting))]] = True
    return points if keep.all() else points.take(keep).copied()


def firsts(plans: Plans) -> NDArray[np.intp]:
    """Position of the first plan of every structure."""
    code = np.zeros(len(plans), dtype=np.int64)
    for name in STRUCTURE:
        values, rank = np.unique(getattr(plans, name), return_inverse=True)
        code = code * len(values) + rank
    return np.unique(code, return_index=True)[1]
