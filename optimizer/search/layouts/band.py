"""The best layout over the whole lattice: bounds first, then CP-SAT for the few plans that could still win.

bound of every plan  ->  band below the best so far  ->  layouts, lowest bound first  ->  LaidOut
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from optimizer.constraints.given_layout import laid_out
from optimizer.errors import Infeasible, TimeLimit
from optimizer.job import Job
from optimizer.objectives.step.layer_costs import LayerTable, layer_costs, layer_table
from optimizer.objectives.step.price import price
from optimizer.plan import Knobs, Plan, Plans
from optimizer.search.lattice.enumerate import concatenate
from optimizer.search.lattice.oracle import FASTEST, Points
from optimizer.search.layouts.bound import StepFloor, fitting_slowest, joined, step_floor
from optimizer.search.layouts.even_splits import even_memory, only_even
from optimizer.search.layouts.layout import (
    Layout,
    best_assignment,
    even_layout,
    placed_layout,
)
from optimizer.search.layouts.leanest_layout import fitting_layout, solver_free
from optimizer.search.layouts.problem import problem_of

SLICE = 4096  # plans of the band whose memory is looked at together
LEADING = 20  # even splits whose stages are looked at one by one
EFFORT = 2.0  # of the solver's deterministic time, about seconds, for the layout of a plan of the band
CUT_SHORT = 4  # layouts that may be cut short before the search of the band ends, with a gap
LITTLE = 0.2  # of the solver's deterministic time, about seconds, for the layout of a runner-up
SAME = 3e-9  # relative: an even split so close to its bound is a best layout


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A plan with the best layout found for it, or without one where its bound rules it out. `seconds` is the step time
    of the layout, else the bound [s]. `source` is the plan as it was taken from the lattice.
    """

    plan: Plan
    seconds: float
    solved: bool = False
    proven: bool = True
    source: Plans | None = field(default=None, compare=False, repr=False)

    def alone(self) -> Plans:
        """The plan as a batch of one, which inherits what its source knows."""
        return Plans.of([self.plan]) if self.source is None else self.source.placed([self.plan.placement])


@dataclass(frozen=True, kw_only=True)
class LaidOut:
    """The best plan over lattice and layouts. `best` is None when no layout of any plan fits.

    candidates: the plans with the lowest bounds, the best among them. bound: no layout of any plan is faster [s].
    knob_bound: the same at any setting of the knobs [s]. band: plans whose bound is below the best even split, `solved`
    of them with CP-SAT. `complete`: no layout that could be better was left out for want of time or effort.
    """

    best: Candidate | None
    candidates: tuple[Candidate, ...]
    bound: float
    knob_bound: float
    space: int
    band: int
    solved: int
    complete: bool


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The part of a LaidOut that numpy finds, and how many plans it leaves `undecided`: only a solver knows whether a
    layout of theirs beats the best.
    """

    band: int
    undecided: int
    knob_bound: float


@dataclass
class _Search:
    """What has been found so far."""

    job: Job
    knobs: Knobs
    seed: int
    deadline: float
    effort: float = EFFORT
    cut_short: int = 0
    undecided: list[float] = field(default_factory=list)
    best: Candidate | None = None
    limit: float = np.inf
    found: dict[int, Candidate] = field(default_factory=dict)
    solved: int = 0

    def left(self) -> float | None:
        """Seconds until the deadline."""
        return None if self.deadline == np.inf else self.deadline - perf_counter()

    def expired(self) -> bool:
        """Whether the time is over, or too many layouts are too hard."""
        return self.cut_short >= CUT_SHORT or perf_counter() >= self.deadline


def lay_out(
    job: Job,
    chunks: Iterable[Plans],
    knobs: Knobs = Knobs(),
    *,
    even: float = np.inf,
    limit: float = np.inf,
    seed: int = 0,
    time_limit: float | None = None,
    any_knobs: bool = True,
) -> LaidOut:
    """The fastest plan with the fastest layout that fits, if it is no slower than `even`, the best even split, and than
    `limit`, a step that was found already [s].

    Plans come in the order of their bounds; the search ends where the next bound is no lower than the best step.
    `any_knobs` asks for the bound over all knobs as well, else it is nothing.
    """
    search = _search(job, knobs, seed, time_limit)
    plans, floor, space = _lowest(job, chunks, knobs, even, any_knobs)
    bounds = floor.step_time(floor.slowest())
    order = np.argsort(bounds, kind="stable")
    search.limit = min(even, limit) * (1 + SAME)
    fitting = bounds.copy()
    end = 0
    while end < len(order) and bounds[order[end]] < search.limit and not search.expired():
        part = order[end : end + SLICE]
        fitting[part] = _visit(search, plans.take(part), floor.take(part), part)
        end += len(part)
    value = search.best.seconds if search.best else np.inf
    unseen = [float(bound) for bound in bounds[order[end : end + 1]] if bound < search.limit]
    bound = min([value, *search.undecided, *unseen])
    chosen = order[:FASTEST]
    if search.best is not None:
        winner = next(index for index, candidate in search.found.items() if candidate is search.best)
        chosen = chosen if winner in chosen else np.append(chosen, winner)
    chosen = np.sort(chosen)
    return LaidOut(
        best=search.best,
        candidates=tuple(
            search.found.get(i) or Candidate(plan=plan, seconds=_finite(fitting[i], bounds[i]))
            for i, plan in zip(chosen.tolist(), plans.take(chosen).plans(), strict=True)
        ),
        bound=bound,
        knob_bound=_knob_bound(job, plans, floor, value) if any_knobs else 0.0,
        space=space,
        band=int(np.sum(bounds < even)),
        solved=search.solved,
        complete=bound >= value * (1 - SAME),
    )


def place(
    job: Job, plans: Plans, knobs: Knobs = Knobs(), *, seed: int = 0, time_limit: float | None = None
) -> tuple[Candidate | None, ...]:
    """Each plan with the best layout that is found with little effort; None where none fits.

    When the time is over the plans that are left get none at all: the result is shorter.
    """
    search = _search(job, knobs, seed, time_limit, LITTLE)
    if search.expired():
        return ()
    floor, table = step_floor(job, plans, knobs), layer_table(job, plans, knobs)
    bounds = floor.step_time(fitting_slowest(job, floor, table, plans))
    found: list[Candidate | None] = []
    for index, bound in enumerate(bounds):
        if search.expired():
            break
        found.append(_solve(search, plans, floor, table, index, float(bound)) if np.isfinite(bound) else None)
    return tuple(found)


def smoothed(job: Job, plan: Plan, knobs: Knobs = Knobs(), *, seed: int = 0) -> Plan:
    """The plan with chunks of like length where layouts are as good: unlike chunks stall the interleaved schedule."""
    if job.layout_given or len(plan.layers_per_stage) == plan.pp or plan.vpp == 1:
        return plan
    problem = problem_of(job, plan, layer_costs(job, plan, knobs))
    given, found = placed_layout(problem, plan.placement), best_assignment(problem, seed=seed)
    return found.of(plan) if found.objective <= given.objective * (1 + SAME) else plan


def best_even(job: Job, points: Points, knobs: Knobs) -> Candidate | None:
    """The fastest even split that fits when every stage is looked at, among the fastest ones of a sweep."""
    order = np.argsort(points.seconds, kind="stable")
    # The stages of a dense model are those that represent them.
    chosen = order[points.fits[order]][: LEADING if job.model.experts else 1]
    if not len(chosen):
        return None
    some = points.plans.take(chosen)
    plans = [laid_out(job, plan) for plan in some.plans()]
    costs = price(job, some.placed([plan.placement for plan in plans]), knobs)
    seconds = np.where(costs.reserved <= job.usable_memory, costs.step_time, np.inf)
    first = int(np.argmin(seconds))
    if not np.isfinite(seconds[first]):
        return None
    return Candidate(plan=plans[first], seconds=float(seconds[first]), solved=True, source=some.take([first]))


def bounds_of(job: Job, chunks: Iterable[Plans], knobs: Knobs, even: float, best: float) -> Bounds:
    """What the bounds alone say of a search that found `best` beside the best even split `even` [s]: no solver runs."""
    plans, floor, _ = _lowest(job, chunks, knobs, even, True)
    bounds = floor.step_time(floor.slowest())
    low = np.flatnonzero(bounds < best)
    some, rows = plans.take(low), floor.take(low)
    fitting = rows.step_time(fitting_slowest(job, rows, layer_table(job, some, knobs), some, best))
    return Bounds(
        band=int(np.sum(bounds < even)),
        undecided=int(np.sum(fitting < best * (1 - SAME))),
        knob_bound=_knob_bound(job, plans, floor, best),
    )


def _search(job: Job, knobs: Knobs, seed: int, time_limit: float | None, effort: float = EFFORT) -> _Search:
    deadline = np.inf if time_limit is None else perf_counter() + time_limit
    return _Search(job=job, knobs=knobs, seed=seed, deadline=deadline, effort=effort)


def _finite(fitting: float, bound: float) -> float:
    return float(fitting if np.isfinite(fitting) else bound)


def _lowest(
    job: Job, chunks: Iterable[Plans], knobs: Knobs, even: float, any_knobs: bool
) -> tuple[Plans, StepFloor, int]:
    """The plans with a bound below the best even split, and the lowest ones anyhow, in the order of the lattice."""
    kept: list[Plans] = []
    floors: list[StepFloor] = []
    space = 0
    for plans in chunks:
        floor = step_floor(job, plans, knobs)
        bounds = floor.step_time(floor.slowest(), any_knobs=any_knobs)
        low = bounds < even
        low[np.argsort(bounds, kind="stable")[:FASTEST]] = True
        index = np.flatnonzero(low)
        kept.append(plans.take(index))
        floors.append(floor.take(index))
        space += len(plans)
    every = concatenate(kept)
    return every, joined(floors, every), space


def _visit(search: _Search, plans: Plans, floor: StepFloor, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Lay out those plans whose bound stays below the best once memory counts; the bounds [s]."""
    table = layer_table(search.job, plans, search.knobs)
    bounds = floor.step_time(fitting_slowest(search.job, floor, table, plans, search.limit))
    alike = np.flatnonzero(only_even(search.job, plans) & np.isfinite(bounds))
    if len(alike):
        fits = even_memory(search.job, plans.take(alike), search.knobs) <= search.job.usable_memory
        bounds[alike[~fits]] = np.inf
    for position in np.argsort(bounds, kind="stable"):
        if bounds[position] >= search.limit:
            break
        if search.expired():
            search.undecided.append(float(bounds[position]))
            break
        candidate = _solve(search, plans, floor, table, int(position), float(bounds[position]))
        if candidate is None:
            bounds[position] = search.limit
            continue
        search.found[int(numbers[position])] = candidate
        if not candidate.proven:
            search.undecided.append(float(bounds[position]))
        if candidate.solved and candidate.seconds < search.limit:
            search.best, search.limit = candidate, candidate.seconds
    return bounds


def _solve(
    search: _Search, plans: Plans, floor: StepFloor, table: LayerTable, index: int, bound: float
) -> Candidate | None:
    """The best layout of one of the plans: the even split if it meets the bound, else CP-SAT's.

    None when none fits with a step below the limit.
    """
    source = plans.take([index])
    plan = source.plan(0)
    problem = problem_of(search.job, plan, table.row(index))

    def candidate(layout: Layout, proven: bool) -> Candidate:
        seconds = floor.step_of(layout.objective, index)
        return Candidate(plan=layout.of(plan), seconds=seconds, solved=True, proven=proven, source=source)

    even = even_layout(problem, recompute=False)
    if max(even.memory) <= search.job.usable_memory:
        split = candidate(even, True)
        if split.seconds <= bound * (1 + SAME):
            return split
    if solver_free(problem) and fitting_layout(problem) is None:
        return None
    search.solved += 1
    try:
        layout = best_assignment(
            problem,
            seed=search.seed,
            time_limit=search.left(),
            effort=search.effort,
            at_most=floor.pipeline_within(search.limit * (1 + SAME), index),
            smooth=False,
        )
    except Infeasible:
        return None
    except TimeLimit:
        search.cut_short += 1
        return Candidate(plan=plan, seconds=bound, proven=False)
    search.cut_short += not layout.proven
    return candidate(layout, layout.proven)


def _knob_bound(job: Job, plans: Plans, floor: StepFloor, best: float) -> float:
    """A step time that no setting of the knobs beats on any plan with any layout [s]: all state is on the host."""
    bounds = floor.step_time(floor.slowest(), any_knobs=True)
    order = np.argsort(bounds, kind="stable")
    least, free = best, Knobs(offload=1.0)
    for start in range(0, len(order), SLICE):
        part = order[start : start + SLICE]
        if bounds[part[0]] >= least:
            break
        some, rows = plans.take(part), floor.take(part)
        slowest = fitting_slowest(job, rows, layer_table(job, some, free), some, least, any_knobs=True)
        least = min(least, float(rows.step_time(slowest, any_knobs=True).min()))
    return least
