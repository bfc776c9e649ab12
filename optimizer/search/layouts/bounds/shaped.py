"""What no layout of interleaved pipelines beats: all shapes of their virtual stages, of many plans at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from optimizer.job.plan import IntArray, Plan
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.pipeline.schedules import in_flight
from optimizer.objectives.pipeline.stall import stall
from optimizer.objectives.step.linear_stage import LayerBytes
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.objectives.step.time_terms import bubble
from optimizer.search.layouts.bounds.shares import PlanFloors, Prospects
from optimizer.search.layouts.bounds.stage_needs import SLACK
from optimizer.search.layouts.costs import StageCosts
from optimizer.search.layouts.problem import problem_of
from optimizer.search.layouts.solve.loads import passes_of
from optimizer.search.layouts.solve.shapes import StageShapes, shapes_of

ENTRIES = 1 << 21  # of the largest array: stages of shapes of plans
AT_ONCE = 32  # shapes of a plan whose schedules are run together
RUNS = 512  # schedules that are run together
SAME = 1e-9  # relative: times that are equal but for rounding


@dataclass
class ShapedPipelines:
    """Seconds that the pipeline of a plan takes at least, by its number; nothing that depends on memory, so that they
    hold in every class of risk.

    closed: by the closed form of the pipeline, as if no stage waited. run: as the schedules are run.
    """

    closed: dict[int, float] = field(default_factory=dict)
    run: dict[int, float] = field(default_factory=dict)

    def open(self, floors: PlanFloors, numbers: IntArray, limit: float) -> IntArray:
        """Plans, by their position in the floors, of which what is known does not say that no value is below `limit`,
        whatever share of the optimizer state is on the host.
        """
        least = self._known(numbers)
        ends = (floors.floor, floors.floor.offloaded(np.ones(len(numbers))))
        return np.flatnonzero(np.minimum(*(floor.values_of(least) for floor in ends)) < limit)

    def _known(self, numbers: IntArray) -> FloatArray:
        return np.array([self.run.get(number, self.closed.get(number, 0.0)) for number in numbers.tolist()])

    def bounds(self, prospects: Prospects, rows: IntArray, numbers: IntArray, limit: float) -> FloatArray:
        """Values that no layout of these prospects beats, their own bounds or higher [unit of the objective].

        numbers: of their plans. Where no value is below `limit` it is not found out how far it is above.
        """
        floors, plan = prospects.floors, prospects.plan[rows]
        floor = floors.floor.take(plan).offloaded(prospects.low[rows])
        at_most, least = floor.pipelines_within(limit), np.zeros(len(rows))
        plans = floors.layer_costs.plans.take(plan)
        interleaved = np.flatnonzero(plans.vpp > 1)
        pipelines = np.stack([plans.pp, plans.vpp, plans.num_microbatches, plans.schedule])[:, interleaved]
        _, kind = np.unique(pipelines, axis=1, return_inverse=True)
        for number in range(int(kind.max(initial=-1)) + 1):
            some = interleaved[kind.ravel() == number]
            least[some] = self._known(numbers[some])
            some = some[least[some] < at_most[some]]
            least[some] = np.maximum(least[some], _fitting(floors, plan[some], prospects.high[rows[some]]))
            some = some[least[some] < at_most[some]]
            least[some] = np.maximum(least[some], self._least(floors, plan[some], numbers[some], at_most[some]))
        possible = np.isfinite(least)
        bounds = np.maximum(prospects.bounds[rows], floor.values_of(np.where(possible, least, 0.0)))
        return np.where(possible, bounds, np.inf)

    def _least(self, floors: PlanFloors, plan: IntArray, numbers: IntArray, at_most: FloatArray) -> FloatArray:
        """Seconds of plans of one kind of pipeline, as far as it matters whether they are below `at_most` [s]."""
        least = self._known(numbers)
        left = [place for place, number in enumerate(numbers.tolist()) if number not in self.run]
        left = [place for place in left if least[place] < at_most[place]]
        if not left:
            return least
        of_first, shapes = _shapes(floors, int(plan[left[0]]))
        for part in _parts(np.array(left), shapes):
            known = floors.costs.take(plan[part]), floors.floor.filled[plan[part]]
            closed = _closed(of_first, *known, shapes)
            below = np.flatnonzero(closed.min(axis=1) < at_most[part])
            least[part] = closed.min(axis=1)
            if len(below):
                least[part[below]] = _run(of_first, known[0].take(below), shapes, closed[below])
            self.closed |= dict(zip(numbers[part].tolist(), least[part].tolist(), strict=True))
            self.run |= dict(zip(numbers[part[below]].tolist(), least[part[below]].tolist(), strict=True))
        return least


def _shapes(floors: PlanFloors, plan: int) -> tuple[Plan, StageShapes]:
    """A plan, and the shapes of its pipeline."""
    of_plan = floors.layer_costs.plans.plan(plan)
    return of_plan, shapes_of(problem_of(floors.job, of_plan, floors.costs.row(plan)))


def _parts(rows: IntArray, shapes: StageShapes) -> Iterator[IntArray]:
    """Some rows after the other, as many as have ENTRIES stages in all shapes; none where there is no shape."""
    size = max(1, ENTRIES // max(1, len(shapes) * shapes.pp))
    for start in range(0, len(rows) if len(shapes) else 0, size):
        yield rows[start : start + size]


def _fitting(floors: PlanFloors, plan: IntArray, on_host: FloatArray) -> FloatArray:
    """Least seconds of plans of one kind of pipeline by the closed form, of shapes that may fit with such shares of the
    optimizer state on the host; infinite where none does [s].
    """
    least = np.zeros(len(plan))
    if not len(plan):
        return least
    of_first, shapes = _shapes(floors, int(plan[0]))
    flying = in_flight(floors.layer_costs.plans.take(plan[:1]), np.arange(of_first.pp, dtype=np.float64))
    for part in _parts(np.arange(len(plan)), shapes):
        costs, memory = floors.costs.take(plan[part]), floors.costs.memory.take(plan[part]).offloaded(on_host[part])
        reserved = memory.fixed[:, None, None] + np.zeros((1, len(shapes), shapes.pp))
        for kind, number in shapes.stages.items():
            reserved += number * _layer_bytes(memory.layers[kind], flying)[:, None, :]
        fits = (reserved <= safe_memory(floors.job) * (1 + SLACK)).all(axis=2)
        closed = _closed(of_first, costs, floors.floor.filled[plan[part]], shapes)
        least[part] = np.where(fits, closed, np.inf).min(axis=1)
    return least


def _layer_bytes(layer: LayerBytes[FloatArray], in_flight: FloatArray) -> FloatArray:
    """Least bytes of a layer of plans (rows) on stages (columns) with so many micro-batches in flight [B]."""
    recomputed = np.where(layer.chosen > 0, np.minimum(layer.in_flight, layer.recomputed), layer.in_flight)
    return np.asarray(layer.static[:, None] + in_flight * recomputed[:, None])


def _closed(plan: Plan, costs: StageCosts[FloatArray], filled: FloatArray, shapes: StageShapes) -> FloatArray:
    """Seconds of pipelines by their closed form, of plans (rows) by shape [s]."""
    seconds = costs.seconds[:, None, None] + np.zeros((1, len(shapes), shapes.pp))
    for kind, number in shapes.stages.items():
        seconds += costs.kinds[kind].seconds[:, None, None] * number
    slowest, whole = seconds.max(axis=2), seconds.sum(axis=2)
    waits = bubble(slowest, whole, np.asarray(float(plan.vpp)), filled[:, None], np.zeros(1))
    return np.asarray(plan.num_microbatches * slowest + waits)


def _run(plan: Plan, costs: StageCosts[FloatArray], shapes: StageShapes, closed: FloatArray) -> FloatArray:
    """Least seconds of pipelines whose schedules are run, of plans (rows) that take so long by shape [s].

    The shapes of each plan in the order of their closed forms, until none that is left can be faster.
    """
    order, best = np.argsort(closed, axis=1, kind="stable"), np.full(len(closed), np.inf)
    for start in range(0, len(shapes), AT_ONCE):
        next_ones = order[:, start : start + AT_ONCE]
        row, place = np.nonzero(np.take_along_axis(closed, next_ones, axis=1) < best[:, None] * (1 - SAME))
        if not len(row):
            break
        shape = next_ones[row, place]
        for first in range(0, len(row), RUNS):
            rows, of = row[first : first + RUNS], shape[first : first + RUNS]
            np.minimum.at(best, rows, closed[rows, of] + _stalled(plan, costs.take(rows), shapes.take(of)))
    return best


def _stalled(plan: Plan, costs: StageCosts[FloatArray], shapes: StageShapes) -> FloatArray:
    """What running the schedule adds to the closed form, of one shape of each plan, as little recomputed as can be."""

    def cost(kind: str, name: str) -> FloatArray:
        return np.asarray(getattr(costs.kinds[kind], name))[:, None]

    always = sum(number * cost(kind, "always") for kind, number in shapes.stages.items())
    aside = costs.seconds[:, None, None]
    return stall(plan.num_microbatches, *passes_of(cost, shapes.by_kind, aside, np.asarray(always), plan.vpp))
