"""Plans with ranges of shares of the optimizer state on the host, and what no layout beats there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import IntArray, KnobColumns, Knobs, Plan
from optimizer.job.rows import Rows
from optimizer.objectives.arrays import FloatArray, lowered, nothing
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.pipeline.stages import kinds_of
from optimizer.objectives.step.host_memory import OFFLOAD_STEP, most_offload
from optimizer.objectives.step.per_step import slower_on_host
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice.knobs import columns, knobs_at
from optimizer.search.layouts.bounds.even_splits import even_memory, only_even
from optimizer.search.layouts.bounds.step_floor import StepFloor, fitting_slowest, step_floor
from optimizer.search.layouts.costs import StageCosts, stage_costs
from optimizer.search.layouts.problem import LayoutProblem, problem_of

PARTS, ROUNDS = 8, 3  # a range of shares is cut into so many parts so often: bounds are of one part each


@dataclass(frozen=True, kw_only=True)
class PlanFloors(Rows):
    """Plans at settings of their own with no optimizer state on the host: what no layout changes, and what layers cost.

    From both follows what they are with any share there.
    """

    layer_costs: LayerCosts
    knobs: KnobColumns
    floor: StepFloor
    costs: StageCosts[FloatArray]

    @property
    def job(self) -> Job:
        """What was asked."""
        return self.layer_costs.job

    @cached_property
    def uneven(self) -> FloatArray:
        """Least value of a step whose stages do not all hold as many layers [unit of the objective]."""
        return self.floor.uneven()

    @cached_property
    def least(self) -> FloatArray:
        """Values that no layout of a plan beats with any share on the host, whatever fits [unit of the objective]."""
        ends = (self.floor, self.floor.offloaded(np.ones(len(self.layer_costs))))
        return np.minimum(*(floor.bound() for floor in ends))

    def of(self, layer_costs: LayerCosts) -> PlanFloors:
        """The floors of the same plans where memory has other room."""
        return self.changed(layer_costs=layer_costs, floor=self.floor.of(layer_costs))

    def floor_at(self, plan: int, share: float) -> StepFloor:
        """The floor of one plan with this share of the optimizer state on the host [1]."""
        return self.floor.take(np.array([plan])).offloaded(np.array([share]))

    def bounds(self, plan: IntArray, low: FloatArray, high: FloatArray, limit: float) -> FloatArray:
        """Values that no layout of some of the plans beats with these shares on the host [unit of the objective].

        Time is that of the lowest share and memory that of the highest. Infinite where nothing fits; where no value is
        below `limit` it is not found out how far it is above.
        """
        some = self.layer_costs.take(plan)
        floor = self.floor.take(plan).offloaded(low)
        costs = self.costs.take(plan).offloaded(high)
        bounds = floor.value(fitting_slowest(self.job, floor, costs, some.plans, limit))
        few = np.flatnonzero(only_even(self.job, some.plans) & np.isfinite(bounds))
        if len(few):
            fits = even_memory(some.take(few), high[few]) <= safe_memory(self.job)
            bounds[few[~fits]] = np.inf
        return bounds


def plan_floors(layer_costs: LayerCosts, knobs: Knobs | KnobColumns, unhosted: StepFloor | None = None) -> PlanFloors:
    """The floors of plans, each at its own settings or all at the same; `unhosted` at others where they are known."""
    own = columns(knobs, len(layer_costs)) if isinstance(knobs, Knobs) else knobs
    own = replace(own, offload=np.zeros(len(layer_costs)))
    floor = unhosted.at(layer_costs, own) if unhosted else step_floor(layer_costs, own)
    return PlanFloors(layer_costs=layer_costs, knobs=own, floor=floor, costs=stage_costs(layer_costs, own))


@dataclass(frozen=True, kw_only=True)
class Prospects(Rows):
    """Plans, by their position in the floors, each with a lowest and a highest share of the optimizer state on the
    host, and a value that no layout of theirs beats in between [unit of the objective].
    """

    WHOLE = ("floors",)
    floors: PlanFloors
    plan: IntArray
    low: FloatArray
    high: FloatArray
    bounds: FloatArray

    def knobs(self, position: int, more: int) -> Knobs:
        """Settings of a plan with so many OFFLOAD_STEPs more than the lowest share on the host."""
        own, low = knobs_at(self.floors.knobs, int(self.plan[position])), float(self.low[position])
        return replace(own, offload=(round(low / OFFLOAD_STEP) + more) * OFFLOAD_STEP if more else low)

    def problem(self, position: int, plan: Plan) -> LayoutProblem:
        """The layers of a plan, to be laid out with a share in its range."""
        low = float(self.low[position])
        costs = self.floors.costs.row(int(self.plan[position])).offloaded(low)
        return problem_of(self.floors.job, plan, costs, round((float(self.high[position]) - low) / OFFLOAD_STEP))


def prospects_at(floors: PlanFloors, share: FloatArray, limit: float) -> Prospects:
    """Every plan at one share."""
    plan = np.arange(len(floors.layer_costs))
    return Prospects(floors=floors, plan=plan, low=share, high=share, bounds=floors.bounds(plan, share, share, limit))


def some_on_host(floors: PlanFloors, limit: float) -> Prospects:
    """The plans that may have a value below `limit` with something on the host, with the shares where they may."""
    plan = np.flatnonzero((floors.least < limit) & slower_on_host(floors.job))
    if not len(plan):
        return Prospects(floors=floors, plan=plan, low=nothing(0), high=nothing(0), bounds=nothing(0))
    some = floors.take(plan)
    high = np.round(most_offload(some.layer_costs) / OFFLOAD_STEP).astype(np.int64)
    low = np.maximum(np.floor(least_share(some) / OFFLOAD_STEP).astype(np.int64), 1)
    open_, bounds = low <= high, nothing(len(plan))
    for _ in range(ROUNDS - 1):
        plan, low, high = _cut(plan[open_], low[open_], high[open_])
        bounds = _between(floors, plan, low, high, limit)
        open_ = bounds < limit
    plans, row = np.unique(plan[open_], return_inverse=True)
    ends = _ends(floors, plans, _Parts(row=row, low=low[open_], high=high[open_], bounds=bounds[open_]), limit)
    open_plans = np.flatnonzero(ends.bounds < limit)
    return Prospects(
        floors=floors,
        plan=plans[open_plans],
        low=_shares(ends.low[open_plans]),
        high=_shares(ends.high[open_plans]),
        bounds=ends.bounds[open_plans],
    )


class _Parts(NamedTuple):
    """Ranges of shares on the host, each of a plan's, both ends in them [OFFLOAD_STEP], and their bounds [unit of the
    objective].
    """

    row: IntArray
    low: IntArray
    high: IntArray
    bounds: FloatArray


def _ends(floors: PlanFloors, plans: IntArray, parts: _Parts, limit: float) -> _Parts:
    """The lowest bound of each plan's parts, once more cut, and the lowest and the highest share that is open there.

    Only those are cut of which a plan's result may be: the lowest and the highest, and that of the lowest bound.
    """
    count = len(plans)
    least, first, last = np.full(count, np.inf), np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    whole = np.ones(len(parts.row), dtype=np.bool_)
    while True:
        chosen = np.zeros_like(whole)
        for rank, better in (
            (parts.low, parts.low < first[parts.row]),
            (-parts.high, parts.high > last[parts.row]),
            (parts.bounds, parts.bounds < least[parts.row]),
        ):
            able = np.flatnonzero(whole & better)
            able = able[np.lexsort((rank[able], parts.row[able]))]
            chosen[able[np.unique(parts.row[able], return_index=True)[1]]] = True
        if not chosen.any():
            return _Parts(row=np.arange(count), low=first, high=last, bounds=least)
        whole &= ~chosen
        row, low, high = _cut(parts.row[chosen], parts.low[chosen], parts.high[chosen])
        bounds = _between(floors, plans[row], low, high, limit)
        open_ = bounds < limit
        np.minimum.at(least, row, bounds)
        np.minimum.at(first, row[open_], low[open_])
        np.maximum.at(last, row[open_], high[open_])


def _between(floors: PlanFloors, plan: IntArray, low: IntArray, high: IntArray, limit: float) -> FloatArray:
    if not len(plan):
        return np.zeros(0)
    return floors.bounds(plan, _shares(low), _shares(high), limit)


def _shares(steps: IntArray) -> FloatArray:
    return np.asarray(steps * OFFLOAD_STEP, dtype=np.float64)


def _cut(plan: IntArray, low: IntArray, high: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Ranges of whole numbers, both ends in them, each as up to PARTS of them.

    >>> _cut(np.array([5]), np.array([1]), np.array([10]))[1:]
    (array([1, 3, 5, 7, 9]), array([ 2,  4,  6,  8, 10]))
    """
    width = -(-(high - low + 1) // PARTS)
    start = low[:, None] + width[:, None] * np.arange(PARTS)
    inside = start <= high[:, None]
    end = np.minimum(start + width[:, None] - 1, high[:, None])
    return np.repeat(plan, inside.sum(axis=1)), start[inside], end[inside]


def least_share(floors: PlanFloors) -> FloatArray:
    """Share of the optimizer state that is on the host in every layout that fits, or less [1].

    As host_share, where every layer keeps the activations of a micro-batch at least, recomputed if it may be.
    """
    layer_costs, memory = floors.layer_costs, floors.costs.memory
    need = layer_costs.plans.pp * (memory.fixed - safe_memory(floors.job))
    for kind, count in kinds_of(floors.job.model).items():
        need = need + count * memory.least(kind, 1.0)
    state = floors.floor.offloadable
    share = floors.floor.host_share(floors.job)
    return np.maximum(share, np.clip(lowered(need) / np.maximum(state, 1.0), 0.0, 1.0))
