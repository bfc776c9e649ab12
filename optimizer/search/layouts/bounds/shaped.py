"""What no layout of interleaved pipelines beats: all shapes of their virtual stages, of many plans at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plan, Plans
from optimizer.job.rows import Rows
from optimizer.objectives.arrays import BoolArray, FloatArray, raised
from optimizer.objectives.pipeline.schedules import in_flight
from optimizer.objectives.pipeline.stall import stall
from optimizer.objectives.step.linear_stage import LinearStage
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.objectives.step.time_terms import bubble, hidden
from optimizer.search.layouts.bounds.shares import Prospects
from optimizer.search.layouts.costs import StageCosts
from optimizer.search.layouts.solve.loads import passes_of
from optimizer.search.layouts.solve.shapes import StageShapes, shapes_of_model

ENTRIES = 1 << 20  # of the largest array: stages of shapes of plans
AT_ONCE = 32  # shapes of a plan whose schedules are run together
RUNS = 512  # schedules that are run together
SAME = 1e-9  # relative: times that are equal but for rounding


def shaped_bounds(prospects: Prospects, rows: IntArray, limit: float) -> FloatArray:
    """Values that no layout of some prospects beats, their own bounds or higher [unit of the objective].

    Where no value is below `limit` it is not found out how far it is above.
    """
    floors, plan = prospects.floors, prospects.plan[rows]
    floor = floors.floor.take(plan).offloaded(prospects.low[rows])
    at_most, least = floor.pipelines_within(limit), np.zeros(len(rows))
    plans = floors.layer_costs.plans.take(plan)
    interleaved = np.flatnonzero(plans.vpp > 1)
    pipelines = np.stack([plans.pp, plans.vpp, plans.num_microbatches, plans.schedule])[:, interleaved]
    model, even = floors.job.model, not floors.job.stack.features.uneven_stages
    _, kind = np.unique(pipelines, axis=1, return_inverse=True)
    for number in range(int(kind.max(initial=-1)) + 1):
        some = interleaved[kind.ravel() == number]
        of_first = plans.plan(int(some[0]))
        shapes = shapes_of_model(model, of_first.pp, of_first.vpp, even=even)
        for part in _parts(some, shapes):
            least[part] = _least(_Shaped.of(prospects, rows[part], of_first, shapes), at_most[part])
    possible = np.isfinite(least)
    bounds = np.maximum(prospects.bounds[rows], floor.values_of(np.where(possible, least, 0.0)))
    return np.where(possible, bounds, np.inf)


def _parts(rows: IntArray, shapes: StageShapes) -> Iterator[IntArray]:
    """Some rows after the other, as many as have ENTRIES stages in all shapes; none where there is no shape."""
    size = max(1, ENTRIES // max(1, len(shapes) * shapes.pp))
    for start in range(0, len(rows) if len(shapes) else 0, size):
        yield rows[start : start + size]


@dataclass(frozen=True, kw_only=True)
class _Shaped(Rows):
    """Prospects (rows) of one kind of pipeline in all its shapes.

    costs: with the lowest share of the optimizer state on the host, memory: with the highest. once: what the mean stage
    does once per step, filled: what weights' gradients fill of the bubble [s]. plan: one of theirs, flying:
    micro-batches in flight on each stage.
    """

    WHOLE = ("job", "plan", "shapes", "flying")

    job: Job
    plan: Plan
    shapes: StageShapes
    flying: FloatArray
    costs: StageCosts[FloatArray]
    memory: LinearStage[FloatArray]
    once: FloatArray
    filled: FloatArray

    @staticmethod
    def of(prospects: Prospects, rows: IntArray, plan: Plan, shapes: StageShapes) -> _Shaped:
        """Those of some prospects, of the same kind of pipeline."""
        floors, of_row = prospects.floors, prospects.plan[rows]
        costs, floor = floors.costs.take(of_row), floors.floor.take(of_row)
        return _Shaped(
            job=floors.job,
            plan=plan,
            shapes=shapes,
            flying=in_flight(Plans.of([plan]), np.arange(plan.pp, dtype=np.float64)),
            costs=costs.offloaded(prospects.low[rows]),
            memory=costs.memory.offloaded(prospects.high[rows]),
            once=floor.offloaded(prospects.low[rows]).once - floors.job.stack["step_overhead"],
            filled=floor.filled,
        )

    def total(self, of: Callable[[str], FloatArray], numbers: Mapping[str, IntArray] | None = None) -> FloatArray:
        """A sum over the layers of every stage, or so many of them, of prospects by shape and stage."""
        counts = self.shapes.numbers if numbers is None else np.array([*numbers.values()], dtype=np.float64)
        return np.tensordot(np.stack([of(kind) for kind in numbers or self.shapes.stages], axis=1), counts, axes=1)

    def seconds(self, name: str) -> FloatArray:
        """A field of LayerSeconds summed over every stage [s]."""
        return self.total(lambda kind: np.asarray(getattr(self.costs.kinds[kind], name)))

    def recomputed(self) -> tuple[FloatArray, BoolArray]:
        """Seconds that stages recompute at least for one micro-batch so that they may fit, and the shapes that may.

        Stages that recompute alike do the first so many layers of each of their virtual stages; others what is too much
        of their bytes, where a layer takes the fewest seconds a byte.
        """
        layers = self.memory.layers

        def saved(kind: str) -> FloatArray:  # by what is kept of one micro-batch
            return np.asarray(layers[kind].chosen * np.maximum(layers[kind].in_flight - layers[kind].recomputed, 0.0))

        def seconds(kind: str) -> FloatArray:
            return np.asarray(layers[kind].chosen * self.costs.kinds[kind].recompute)

        resident = (
            self.total(lambda kind: layers[kind].static) + self.total(lambda kind: layers[kind].in_flight) * self.flying
        )
        excess = self.memory.fixed[:, None, None] - raised(safe_memory(self.job)) + resident
        chosen = np.flatnonzero(np.logical_or.reduce([layer.chosen > 0 for layer in layers.values()]))
        recompute_time, fits = np.zeros(excess.shape), np.asarray((excess <= 0.0).all(axis=2))
        if not len(chosen):
            return recompute_time, fits
        if len(chosen) < len(fits):
            recompute_time[chosen], fits[chosen] = self.take(chosen).recomputed()
            return recompute_time, fits
        possible = np.asarray((excess <= self.total(saved) * self.flying).all(axis=2))
        if not self.job.recomputes_alike:
            prices = [seconds(kind) / np.where(saved(kind) > 0, saved(kind), np.nan) for kind in self.shapes.stages]
            price = np.nan_to_num(np.fmin.reduce(prices))[:, None, None]
            recompute_time = np.maximum(excess, 0.0) * price / self.flying
            return recompute_time, possible
        fits = np.zeros_like(fits)
        for first in range(1, int(self.shapes.counts.max(initial=0)) + 1):
            numbers = self.shapes.first(first)
            recompute_time[~fits] = self.total(seconds, numbers)[~fits]
            fits |= (excess <= self.total(saved, numbers) * self.flying).all(axis=2)
        return recompute_time, possible

    def closed(self, recompute_time: FloatArray) -> FloatArray:
        """Seconds of pipelines that recompute so much by choice by their closed form, by shape."""
        seconds = self.costs.seconds[:, None, None] + self.seconds("seconds") + recompute_time
        slowest, whole = seconds.max(axis=2), seconds.sum(axis=2)
        waits = bubble(slowest, whole, np.asarray(float(self.plan.vpp)), self.filled[:, None], np.zeros(1))
        return np.asarray(self.plan.num_microbatches * slowest + waits)

    def beyond_mean(self) -> FloatArray:
        """What the slowest stage does once per step, beside what hides, beyond the mean stage, by shape [s]."""
        reduced, gathered, backward, forward = map(
            self.seconds, ("reduced", "gathered", "cover_backward", "cover_forward")
        )
        rest = self.costs.hides[:, None, None], *(np.asarray(float(n)) for n in (self.plan.vpp, self.plan.pp))
        once = self.seconds("per_step") - hidden(reduced, backward, gathered, forward, *rest)
        return np.asarray(np.maximum(once.max(axis=2) - self.once[:, None], 0.0))

    def stalled(self, rows: IntArray, shape: IntArray, recompute_time: FloatArray) -> FloatArray:
        """What running the schedule adds to the closed form, of one shape of each of some prospects [s]."""
        costs, shapes = self.costs.take(rows), self.shapes.take(shape)

        def cost(kind: str, name: str) -> FloatArray:
            return np.asarray(getattr(costs.kinds[kind], name))[:, None]

        always = sum(number * cost(kind, "always") for kind, number in shapes.stages.items())
        passes = passes_of(cost, shapes.by_kind, costs.seconds[:, None, None], always + recompute_time, self.plan.vpp)
        return stall(self.plan.num_microbatches, *passes)


def _least(shaped: _Shaped, at_most: FloatArray) -> FloatArray:
    """Seconds of pipelines that no shape which may fit beats, with what is done once per step beyond the mean stage;
    infinite where none may fit. As far as it matters whether they are below `at_most` [s].
    """
    recompute_time, fits = shaped.recomputed()
    seconds = np.where(fits, shaped.closed(recompute_time), np.inf)
    least: FloatArray = seconds.min(axis=1)
    below = np.flatnonzero(least < at_most)
    if not len(below):
        return least
    shaped, recompute_time = shaped.take(below), recompute_time[below]
    seconds = seconds[below] + shaped.beyond_mean()
    least[below] = seconds.min(axis=1)
    left = np.flatnonzero(least[below] < at_most[below])
    least[below[left]] = _as_run(shaped.take(left), seconds[left], recompute_time[left])
    return least


def _as_run(shaped: _Shaped, seconds: FloatArray, recompute_time: FloatArray) -> FloatArray:
    """The least of these seconds by shape with what waiting adds where the schedules are run [s].

    The shapes of each prospect in the order of their seconds, until none that is left can be faster.
    """
    order, best = np.argsort(seconds, axis=1, kind="stable"), np.full(len(seconds), np.inf)
    for start in range(0, seconds.shape[1], AT_ONCE):
        next_ones = order[:, start : start + AT_ONCE]
        row, place = np.nonzero(np.take_along_axis(seconds, next_ones, axis=1) < best[:, None] * (1 - SAME))
        if not len(row):
            break
        shape = next_ones[row, place]
        for first in range(0, len(row), RUNS):
            rows, of = row[first : first + RUNS], shape[first : first + RUNS]
            np.minimum.at(best, rows, seconds[rows, of] + shaped.stalled(rows, of, recompute_time[rows, of]))
    return best
