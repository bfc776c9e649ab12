"""Values that no layout of the plans of a lattice beats, which say of which plans layouts are worth a search."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Knobs
from optimizer.objectives.arrays import BoolArray, FloatArray
from optimizer.objectives.expected import risk_classes
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.search.lattice.knobs import at_most_offload, at_risk
from optimizer.search.lattice.oracle import FASTEST, PROVEN_WHOLE, Tuning
from optimizer.search.layouts.bounds.step_floor import StepFloor, fitting_slowest, joined, step_floor
from optimizer.search.layouts.costs import StageCosts, stage_costs


@dataclass(frozen=True, kw_only=True)
class LatticeBounds:
    """Plans of a lattice, with a value for each that no layout of it beats whatever fits: at any knobs, or at the fixed
    ones [unit of the objective].
    """

    tuning: Tuning  # how knobs are chosen
    layer_costs: LayerCosts  # of the plans, in the order of the lattice
    floor: StepFloor  # of the plans
    bounds: FloatArray
    space: int  # plans of the whole lattice

    @staticmethod
    def of(job: Job, cost_batches: Iterable[LayerCosts], tuning: Tuning, even: float, size: int = 0) -> LatticeBounds:
        """Of the plans with a bound below the best even split and the lowest ones anyhow, or of all of a lattice that
        CP-SAT is given whole; `size` is how many that has, where it is known.
        """
        proof_costs: list[LayerCosts] = []
        floors: list[StepFloor] = []
        space = seen = 0
        for layer_costs in cost_batches:
            floor = step_floor(layer_costs, tuning.fixed or Knobs())
            bounds = floor.bound(any_knobs=tuning.fixed is None)
            low = bounds < even
            seen += len(layer_costs)
            space = max(seen, size)
            low[np.argsort(bounds, kind="stable")[: FASTEST if space > PROVEN_WHOLE else None]] = True
            if not low.all():
                layer_costs, floor = layer_costs.take(low).copied(), floor.take(low).copied()
            proof_costs.append(layer_costs)
            floors.append(floor)
        every = LayerCosts.joined(proof_costs)
        floor = joined(floors, every.plans)
        bounds = floor.bound(any_knobs=tuning.fixed is None)
        return LatticeBounds(tuning=tuning, layer_costs=every, floor=floor, bounds=bounds, space=space)

    def by(self, job: Job) -> LatticeBounds | None:
        """The same by what another job minimises, of a lattice that is here as a whole and at no fixed settings."""
        if len(self.layer_costs) < self.space or self.tuning.fixed is not None:
            return None
        layer_costs = self.layer_costs.changed(job=job)
        floor = self.floor.by(layer_costs)
        return replace(self, layer_costs=layer_costs, floor=floor, bounds=floor.bound(any_knobs=True))

    def at(self, numbers: IntArray, risk: float | None) -> tuple[LayerCosts, StepFloor]:
        """The plans with these numbers and their floors in a class of risk [1]; as they are for None."""
        layer_costs, floor = self.layer_costs.take(numbers), self.floor.take(numbers)
        if risk is None or not len(layer_costs):
            return layer_costs, floor
        some = at_risk(layer_costs, risk)
        return some, floor.of(some)

    def most_hosted(self, low: BoolArray) -> MostHosted:
        """What layers cost of the `low` ones of all plans."""
        place, costs = np.where(low, np.cumsum(low) - 1, -1), _hosted(self.layer_costs.take(low), self.tuning)
        return MostHosted(place=place, costs=costs, tuning=self.tuning)

    def knob_bound(self, hosted: MostHosted, best: float) -> float:
        """A value up to `best` that no layout of any plan beats at any knobs [unit of objective]."""
        in_class, least = self.bounds.copy(), best
        for number, each in enumerate(risk_classes(self.layer_costs.job)):
            limit = best / each.factor
            low = np.flatnonzero(in_class < limit)
            if len(low):
                some, floor = self.at(low, each.risk if number else None)
                fitting = hosted.fitting(low, some, floor, limit)
                in_class[low] = np.maximum(in_class[low], fitting)
            least = min(least, float(np.min(in_class, initial=np.inf)) * each.factor)
        return least


@dataclass(frozen=True, kw_only=True)
class MostHosted:
    """What layers cost, of plans that may be better than the best so far, with as much of the optimizer state on the
    host as may be, or at the fixed settings; neither the risk of a class nor what fits moves it.
    """

    place: IntArray  # of each plan of the lattice in `costs`, -1 where it is not among them
    costs: StageCosts[FloatArray]  # of these plans
    tuning: Tuning  # how settings are chosen

    def fitting(self, numbers: IntArray, layer_costs: LayerCosts, floor: StepFloor, limit: float) -> FloatArray:
        """Bounds of plans with these numbers in the lattice over all layouts that fit, at any knobs unless they are
        fixed; infinite where none fits. Where none is below `limit` it is not found out how far it is above.
        """
        places, any_knobs = self.place[numbers], self.tuning.fixed is None
        costs = self.costs.take(places) if -1 not in places else _hosted(layer_costs, self.tuning)
        slowest = fitting_slowest(layer_costs.job, floor, costs, layer_costs.plans, limit, any_knobs=any_knobs)
        return floor.value(slowest, any_knobs=any_knobs)


def _hosted(layer_costs: LayerCosts, tuning: Tuning) -> StageCosts[FloatArray]:
    return stage_costs(layer_costs, tuning.fixed or at_most_offload(layer_costs))
