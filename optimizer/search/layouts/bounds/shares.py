"""Shares of the optimizer state on the host at which plans are laid out, and what no layout beats there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import IntArray, KnobColumns, Knobs
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.pipeline.stages import kinds_of, stages_of
from optimizer.objectives.step.host_memory import OFFLOAD_STEP, fits_host, most_offload
from optimizer.objectives.step.linear_stage import linear_stage, states_of_model
from optimizer.objectives.step.per_step import update_time
from optimizer.objectives.step.price import Step
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice.knobs import columns, least_offload, taken
from optimizer.search.layouts.bounds.even_splits import even_memory, only_even
from optimizer.search.layouts.bounds.stage_needs import SLACK
from optimizer.search.layouts.bounds.step_floor import StepFloor, fitting_slowest, host_share, step_floor
from optimizer.search.layouts.costs import StageCosts, stage_costs

WHOLE = 10_000  # multiples of OFFLOAD_STEP in all of the state
GRID = 625  # multiples of OFFLOAD_STEP between the shares that bounds are asked about, of any job
TRIED = 1  # of these a plan is laid out at


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Plans of a batch by their position, each with a range of shares in multiples of OFFLOAD_STEP, both ends in it."""

    plan: IntArray
    low: IntArray
    high: IntArray

    def __len__(self) -> int:
        return len(self.plan)

    def take(self, index: IntArray) -> Shares:
        """Some of them."""
        return Shares(plan=self.plan[index], low=self.low[index], high=self.high[index])


def at(plan: IntArray, share: IntArray) -> Shares:
    """Plans at one share each."""
    return Shares(plan=plan, low=share, high=share)


def none_on_host(layer_costs: LayerCosts) -> Shares:
    """Every plan with nothing on the host."""
    return at(np.arange(len(layer_costs)), np.zeros(len(layer_costs), dtype=np.int64))


def some_on_host(layer_costs: LayerCosts, own: KnobColumns, limit: float) -> Prospects:
    """Plans that may have a value below `limit` with something on the host: at the share that an even split needs, at
    the most, and at the TRIED ones with the lowest bounds of those of GRID, which are the same for every job.
    """
    most = np.round(most_offload(layer_costs) / OFFLOAD_STEP).astype(np.int64)
    least = np.maximum(np.floor(least_share(layer_costs) / OFFLOAD_STEP).astype(np.int64), 1)
    plan = np.flatnonzero(least <= most)
    if len(plan):
        spans = Shares(plan=plan, low=least[plan], high=most[plan])
        plan = plan[prospects_of(layer_costs, own, spans, limit).bounds < limit]
    low, high, split = least[plan], most[plan], np.round(own.offload[plan] * WHOLE).astype(np.int64)
    tried = [split, high, *(np.full(len(plan), share) for share in range(GRID, WHOLE, GRID))]
    pairs = np.stack([np.tile(plan, len(tried)), np.concatenate(tried)])
    asked = (pairs[1] >= np.tile(low, len(tried))) & (pairs[1] <= np.tile(high, len(tried)))
    prospects = prospects_of(layer_costs, own, at(*np.unique(pairs[:, asked], axis=1)), limit)
    asks = np.zeros(len(prospects.shares), dtype=np.bool_)
    for share in (np.round(own.offload * WHOLE).astype(np.int64), most):
        asks |= share[prospects.shares.plan] == prospects.shares.high
    order = np.lexsort((prospects.bounds, prospects.shares.plan))
    first = np.searchsorted(prospects.shares.plan[order], prospects.shares.plan[order])
    leads = np.empty(len(order), dtype=np.bool_)
    leads[order] = np.arange(len(order)) - first < TRIED
    return prospects.take(np.flatnonzero(leads | asks))


@dataclass(frozen=True, kw_only=True)
class Prospects:
    """Plans with a range of shares each: what no layout changes and what layers cost, their time at the cheapest share
    of the range and their memory at the highest; a value that no layout beats, infinite where none fits [unit of the
    objective].
    """

    job: Job
    shares: Shares
    knobs: KnobColumns
    floor: StepFloor
    costs: StageCosts[FloatArray]
    bounds: FloatArray

    @cached_property
    def uneven(self) -> FloatArray:
        """Least value of a step whose stages do not all hold as many layers [unit of the objective]."""
        return self.floor.uneven()

    def take(self, index: IntArray) -> Prospects:
        """Those of some of the plans."""
        return Prospects(
            job=self.job,
            shares=self.shares.take(index),
            knobs=taken(self.knobs, index),
            floor=self.floor.take(index),
            costs=self.costs.take(index),
            bounds=self.bounds[index],
        )


def fixed_prospects(layer_costs: LayerCosts, knobs: Knobs, limit: float) -> Prospects:
    """Every plan at one setting of the knobs."""
    return _prospects(layer_costs, none_on_host(layer_costs), columns(knobs, len(layer_costs)), None, limit)


def prospects_of(layer_costs: LayerCosts, own: KnobColumns, shares: Shares, limit: float) -> Prospects:
    """What bounds say of layouts that need a share of these ranges, at each plan's own settings; where no
    value is below `limit` they do not say how far it is above.
    """
    some, knobs = layer_costs.take(shares.plan), taken(own, shares.plan)
    low, high = (np.asarray(end * OFFLOAD_STEP, dtype=np.float64) for end in (shares.low, shares.high))
    cheapest, most = (replace(knobs, offload=each) for each in (low if slower_on_host(layer_costs.job) else high, high))
    return _prospects(some, shares, cheapest, most, limit)


def _prospects(
    layer_costs: LayerCosts, shares: Shares, knobs: KnobColumns, most: KnobColumns | None, limit: float
) -> Prospects:
    job, plans = layer_costs.job, layer_costs.plans
    least = knobs.offload if most is None else least_share(layer_costs)
    floor, costs = step_floor(layer_costs, knobs), stage_costs(layer_costs, knobs, least)
    if most is not None and np.any(most.offload > knobs.offload):
        costs = replace(costs, memory=linear_stage(layer_costs, most))
    bounds = floor.value(fitting_slowest(job, floor, costs, plans, limit))
    few = np.flatnonzero(only_even(job, plans) & np.isfinite(bounds))
    if len(few):
        fits = even_memory(layer_costs.take(few), taken(most or knobs, few)) <= safe_memory(job)
        bounds[few[~fits]] = np.inf
    return Prospects(job=job, shares=shares, knobs=knobs, floor=floor, costs=costs, bounds=bounds)


def least_share(layer_costs: LayerCosts) -> FloatArray:
    """Share of the optimizer state that is on the host in every layout that fits, or less [1].

    As host_share, where every layer keeps the activations of a micro-batch at least, recomputed if it may be.
    """
    memory, state = linear_stage(layer_costs), states_of_model(layer_costs, offloadable=True)
    need = layer_costs.plans.pp * (memory.fixed - safe_memory(layer_costs.job))
    for kind, count in kinds_of(layer_costs.job.model).items():
        need = need + count * memory.least(kind, 1.0)
    return np.maximum(host_share(layer_costs), np.clip(need * (1 - SLACK) / np.maximum(state, 1.0), 0.0, 1.0))


def slower_on_host(job: Job) -> bool:
    """Whether an update takes longer on the host than on the device."""
    device, host = (update_time(job, np.asarray(share)) for share in (0.0, 1.0))
    return bool(host[0] >= device[0])


@dataclass(frozen=True, kw_only=True)
class AtNeed:
    """A plan, its layers assigned, with the least share on the host that it needs.

    Attributes:
        knobs: with that share.
        value: of the plan with it [unit of the objective].
        need: that share, in multiples of OFFLOAD_STEP.
        held: whether the host has room for it.
    """

    knobs: Knobs
    value: float
    need: int
    fits_there: bool


def at_need(layer_costs: LayerCosts, knobs: Knobs, high: int) -> AtNeed:
    """The one plan, its layers as assigned with so much on the host at most, all of it where updates are faster."""
    stages = stages_of(layer_costs.job.model, layer_costs.plans)
    share, _ = least_offload(layer_costs, stages)
    need = min(round(float(share[0]) / OFFLOAD_STEP), high) if slower_on_host(layer_costs.job) else high
    own = replace(knobs, offload=need * OFFLOAD_STEP)
    value = objective_of(layer_costs.job).value(
        layer_costs, own, Step(layer_costs=layer_costs, stages=stages, knobs=own).seconds
    )
    return AtNeed(knobs=own, value=float(value[0]), need=need, fits_there=bool(fits_host(layer_costs, own)[0]))
