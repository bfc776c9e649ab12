"""The oracle: every plan of the lattice priced with numpy, the best of them, and what came close."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from optimizer.constraints.memory import KnobPrice, Price
from optimizer.constraints.rule import Rule
from optimizer.job import Job
from optimizer.objectives.step.estimate import Costs
from optimizer.objectives.step.price import price as step_price
from optimizer.plan import Knobs, Plans
from optimizer.search.lattice.enumerate import lattice

DEFAULT_KNOBS = Knobs()
BAND = 0.05
FASTEST = 100
HELD = 20_000  # most plans of a lattice that CP-SAT is given whole: it then takes some 0.2 s
RESCUED = 50
STRUCTURE = ("tp", "cp", "ep", "etp", "pp")
KNOB_TERMS = ("dp_communication", "contention", "optimizer")  # all that bucket, share of SMs and offload change


@dataclass(frozen=True, kw_only=True)
class Points:
    """Priced plans in lattice order: `seconds` and `reserved` bytes of each, whether it `fits`, and `offloaded`,
    the bytes it would reserve with all optimizer state on the host.
    """

    plans: Plans
    seconds: NDArray[np.float64]
    reserved: NDArray[np.float64]
    offloaded: NDArray[np.float64]
    fits: NDArray[np.bool_]

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Points:
        """Some of the points."""
        return Points(
            plans=self.plans.take(index),
            seconds=self.seconds[index],
            reserved=self.reserved[index],
            offloaded=self.offloaded[index],
            fits=self.fits[index],
        )


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What the oracle saw. `points` keeps the fastest plans (fitting or not, or with offloading only), those that fit
    within BAND of the best, and the best of every structure, or where layouts are given every plan for CP-SAT to hold;
    `best` is the position of the optimum in it, or -1.

    `space` plans were priced and `fitting` of them fit; `complete` says that none was left out. `ideal` is the step
    time at an MFU of 1 [s], `knob_bound` a time that no setting of the knobs beats on any plan priced [s].
    """

    points: Points | None
    best: int
    space: int
    fitting: int
    complete: bool
    ideal: float
    knob_bound: float


def sweep(
    job: Job,
    rules: Sequence[Rule],
    knobs: Knobs = DEFAULT_KNOBS,
    *,
    price: KnobPrice = step_price,
    time_limit: float | None = None,
) -> Sweep:
    """Price every plan that satisfies the structural rules; ties go to the plan that comes first in the lattice."""
    return fold(job, lattice(job, rules), partial(price, knobs=knobs), time_limit)


def fold(job: Job, chunks: Iterable[Plans], price: Price, time_limit: float | None = None) -> Sweep:
    """Price batches of plans one after the other, keeping what matters."""
    start = perf_counter()
    kept: Points | None = None
    space, fitting, complete, ideal, knob_bound = 0, 0, True, 0.0, np.inf
    for plans in chunks:
        if time_limit is not None and perf_counter() - start > time_limit:
            complete = False
            break
        costs = price(job, plans)
        points = _points(job, plans, costs)
        space, fitting = space + len(plans), fitting + int(points.fits.sum())
        ideal = float(costs.mfu[0] * costs.step_time[0])
        knob_bound = min(knob_bound, _knob_bound(job, points, costs))
        kept = points if kept is None else _both(kept, points)
        if space > HELD or not job.layout_given:
            kept = _trimmed(kept, job.usable_memory)
    best = -1
    if kept is not None and fitting:
        best = int(np.argmin(np.where(kept.fits, kept.seconds, np.inf)))
    return Sweep(
        points=kept,
        best=best,
        space=space,
        fitting=fitting,
        complete=complete,
        ideal=ideal,
        knob_bound=knob_bound,
    )


def _points(job: Job, plans: Plans, costs: Costs) -> Points:
    return Points(
        plans=plans,
        seconds=costs.step_time,
        reserved=costs.reserved,
        offloaded=costs.reserved - costs.memory.get("optimizer", np.zeros(len(plans))),
        fits=costs.reserved <= job.usable_memory,
    )


def _both(first: Points, second: Points) -> Points:
    return Points(
        plans=concatenate([first.plans, second.plans]),
        seconds=np.concatenate([first.seconds, second.seconds]),
        reserved=np.concatenate([first.reserved, second.reserved]),
        offloaded=np.concatenate([first.offloaded, second.offloaded]),
        fits=np.concatenate([first.fits, second.fits]),
    )


def _knob_bound(job: Job, points: Points, costs: Costs) -> float:
    """Least time of any plan that could fit, with every second that a knob can remove removed [s]."""
    removable = sum((costs.time[term] for term in KNOB_TERMS if term in costs.time), np.zeros(len(points.plans)))
    slowdown = costs.step_time / (costs.step_time - costs.time.get("stragglers", 0.0))
    bounds = costs.step_time - removable * slowdown
    return float(np.min(np.where(points.offloaded <= job.usable_memory, bounds, np.inf)))


def _trimmed(points: Points, usable: float) -> Points:
    """Without the points that neither the proof nor the runners-up can need, in the same order."""
    keep = np.zeros(len(points.plans), dtype=bool)
    fastest = np.argsort(points.seconds, kind="stable")
    keep[fastest[:FASTEST]] = True
    fitting = fastest[points.fits[fastest]]
    if len(fitting):
        keep |= points.fits & (points.seconds <= points.seconds[fitting[0]] * (1 + BAND))
        keep[fitting[firsts(points.plans.take(fitting))]] = True
    rescued = fastest[(points.offloaded <= usable)[fastest]]
    keep[rescued[:RESCUED]] = True
    return points.take(keep)


def firsts(plans: Plans) -> NDArray[np.intp]:
    """Position of the first plan of every structure."""
    code = np.zeros(len(plans), dtype=np.int64)
    for name in STRUCTURE:
        values, rank = np.unique(getattr(plans, name), return_inverse=True)
        code = code * len(values) + rank
    return np.unique(code, return_index=True)[1]
