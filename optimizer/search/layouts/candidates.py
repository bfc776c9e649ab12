"""The best layout over the whole lattice: bounds first, then a search for the few plans that could still win.

bound of every plan at any knobs -> candidates below the best so far, tuned -> layouts, lowest bound first -> LaidOut
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from optimizer.base.errors import Infeasible, TimeLimit
from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plans
from optimizer.objectives.arrays import BoolArray, FloatArray, ascending, lowered
from optimizer.objectives.expected import risk_classes
from optimizer.objectives.layer.layer_costs import LayerCosts, layer_costs_of
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.step.host_memory import most_offload
from optimizer.objectives.step.per_step import slower_on_host
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice.deadline import Deadline
from optimizer.search.lattice.knobs import OwnSettings, at_risk
from optimizer.search.lattice.oracle import FASTEST, PROVEN_WHOLE, Tuning
from optimizer.search.layouts.assigned import AssignedLayouts, Candidate, LayoutBounds, ProofPlans
from optimizer.search.layouts.bounds.cuts import bounded, cut_bound
from optimizer.search.layouts.bounds.lattice_bounds import LatticeBounds, MostHosted
from optimizer.search.layouts.bounds.shaped import shaped_bounds
from optimizer.search.layouts.bounds.shares import (
    PlanFloors,
    Prospects,
    plan_floors,
    prospects_at,
    some_on_host,
)
from optimizer.search.layouts.bounds.step_floor import StepFloor
from optimizer.search.layouts.problem import recomputable
from optimizer.search.layouts.solve.layout import Layout, Solved, even_layout
from optimizer.search.layouts.solve.least_memory import fitting_layout

TOGETHER = 64  # prospects whose shapes are bounded together
SLICE = 1024  # candidates whose knobs and memory are looked at together
EFFORT = 2.0  # of the solver's deterministic time, about seconds, for the layout of a candidate
CUT_SHORT = 4  # layouts that may be cut short before the search ends, with a gap
LITTLE = 0.2  # of the solver's deterministic time, about seconds, for the layout of a runner-up
SAME = 3e-9  # relative: an even split so close to its bound is a best layout


@dataclass
class _Search:
    """What has been found so far.

    classes: the safe memory of each class of risk [B] and its factor [1]. wider: by how much values in the class that
    is visited may exceed the limit; all_wider: those of pipelines that are not interleaved too.
    """

    job: Job
    tuning: Tuning
    deadline: Deadline
    layouts: Solved
    own: OwnSettings
    cut_short: int = 0
    undecided: list[float] = field(default_factory=list)
    best: Candidate | None = None
    limit: float = np.inf
    by_number: dict[int, Candidate] = field(default_factory=dict)
    solved: set[int] = field(default_factory=set)
    floors: list[tuple[IntArray, PlanFloors]] = field(default_factory=list)
    classes: tuple[tuple[float, float], ...] = ()
    wider: float = 1.0
    all_wider: bool = False

    def safer(self, usable: float, reserved: float) -> float:
        """Factor of the safest class of risk with room for so much, over that of the class with `usable` [1], [B]."""
        fitting = [factor for most, factor in self.classes if reserved <= most <= usable]
        return min(fitting) / max(fitting) if fitting else 1.0

    @property
    def reach(self) -> float:
        """The value in a class below which a layout may be better in a safer one [unit of the objective]."""
        return self.limit * self.wider

    def worth_solving(self, interleaved: BoolArray | bool) -> FloatArray:
        """The same by plan: layouts of a pipeline that is not `interleaved` take a solver's time."""
        return np.where(interleaved | self.all_wider, self.reach, self.limit)

    def expired(self) -> bool:
        """Whether the time is over, or too many layouts are too hard."""
        return self.cut_short >= CUT_SHORT or self.deadline.left == 0.0


def lay_out(
    job: Job,
    cost_batches: Iterable[LayerCosts],
    tuning: Tuning = Tuning(),
    *,
    even: Candidate | None = None,
    time_limit: float | None = None,
    below: float = np.inf,
    own: OwnSettings | None = None,
    lattice: LatticeBounds | None = None,
    layouts: Solved | None = None,
    with_knob_bound: bool = True,
    size: int = 0,
) -> AssignedLayouts:
    """The best plan with its best layout that fits, or `even`, the best even split, where none is better.

    below: layouts of a higher value are of no interest and not looked for [unit of objective]. own: settings of the
    job's plans as far as they are known, lattice: bounds of the plans, layouts: of problems that are solved.
    with_knob_bound: else there is none. size: plans of the lattice, where the batches are what is left of it.

    Every plan is laid out at its own settings of the knobs; how much of the optimizer state is on the host is found
    with the layout. Plans come in the order of their bounds at any knobs, and none is laid out whose bound is no lower
    than the best step.
    """
    search = _search(job, tuning, time_limit, own=own, layouts=layouts)
    split = even.value if even else np.inf
    lattice = lattice or LatticeBounds.of(job, cost_batches, tuning, split, size)
    bounds = lattice.bounds
    search.limit = min(split, below) * (1 + SAME)
    in_class, every = bounds.copy(), np.full(len(bounds), np.inf)
    hosted, classes = lattice.most_hosted(bounds < search.limit), risk_classes(job)
    for number, each in enumerate(classes):
        low = np.arange(len(bounds)) if number == 0 else np.flatnonzero(in_class * each.factor < lowered(search.limit))
        some, floor = lattice.at(low, each.risk if number else None)
        # What is no better in the safest class either is not looked for again.
        search.wider = each.factor / classes[-1].factor
        in_class[low] = _class(search, some, floor, hosted, in_class[low], low, each.factor)
        every = np.minimum(every, in_class * each.factor)
    if search.best is None and even is not None:
        search.best = even
    value = search.best.value if search.best else np.inf
    bound = float(min([value, *search.undecided]))
    knob_bound = lattice.knob_bound(hosted, value) if with_knob_bound else -np.inf
    return AssignedLayouts(
        best=search.best,
        candidates=tuple(search.by_number.values()),
        proof=_proof_plans(search, lattice, every),
        bound=bound,
        knob_bound=knob_bound if tuning.fixed is None else bound,
        space=lattice.space,
        band=int(np.sum(bounds * classes[-1].factor < split)),
        solved=len(search.solved),
        complete=bound >= value * (1 - SAME),
        lattice=lattice,
        layouts=search.layouts,
    )


def _class(
    search: _Search,
    layer_costs: LayerCosts,
    floor: StepFloor,
    hosted: MostHosted,
    bounds: FloatArray,
    numbers: IntArray,
    factor: float,
) -> FloatArray:
    """Lay out the plans of a class of risk, the lowest bound first; `factor` is that of the class.

    For each plan, over that factor, the value of its layout or one that none of its layouts in the class beats
    [unit of objective].
    """
    bounds = np.maximum(bounds, floor.bound(any_knobs=search.tuning.fixed is None))
    values = bounds.copy()
    waiting = np.ones(len(bounds), dtype=np.bool_)
    for part in _slices(layer_costs.plans, bounds):
        if search.expired():
            break
        waiting[part] = False
        part = part[bounds[part] * factor < search.reach]
        if not len(part):
            continue
        fitting = hosted.fitting(numbers[part], layer_costs.take(part), floor.take(part), search.reach / factor)
        values[part] = np.maximum(bounds[part], fitting)
        low = part[values[part] * factor < search.reach]
        if len(low):
            own = _known(search, layer_costs.take(low), floor.take(low), numbers[low])
            prospects = ((prospects_of(own), scale) for prospects_of, scale in _prospects(search, own, factor))
            values[low] = _visit(search, prospects, numbers[low]) / factor
    search.undecided.append(float(np.min(bounds[waiting], initial=np.inf)) * factor)
    return values


def _slices(plans: Plans, bounds: FloatArray) -> Iterator[IntArray]:
    """Positions of all plans in the order of their bounds; before them a slice of those with one virtual stage a
    device, whose layouts are found in milliseconds: the best of them spares the others most of the solver's work.
    """
    order = ascending(bounds)
    first = order[plans.vpp[order] == 1][:SLICE]
    yield first
    rest = order[~np.isin(order, first)]
    for start in range(0, len(rest), SLICE):
        yield rest[start : start + SLICE]


def place(
    job: Job,
    plans: Plans,
    tuning: Tuning = Tuning(),
    *,
    time_limit: float | None = None,
    own: OwnSettings | None = None,
    below: Callable[[Sequence[Candidate | None]], FloatArray] | None = None,
) -> tuple[Candidate | None, ...]:
    """Each plan with the best layout that is found with little effort; None where none fits or is found in time.

    below: values beyond which layouts are of no interest, one a plan, by what is found [unit of the objective].
    """
    search = _search(job, tuning, time_limit, LITTLE, own)
    if search.expired():
        return (None,) * len(plans)
    layer_costs, numbers = layer_costs_of(job, plans), np.arange(len(plans))
    floors_of_all = _own(search, layer_costs)
    alone, may_fit = (
        [replace(search, undecided=[], by_number={}, solved=set()) for _ in numbers],
        _fit_at_all(floors_of_all),
    )
    classes = [(floors_of_all.of(at_risk(layer_costs, each.risk)), each.factor) for each in risk_classes(job)]
    by_class = [[(floors, *kind) for kind in _prospects(search, floors, factor)] for floors, factor in classes]
    # Nothing on the host first, and the safest class: what is found there for all plans spares most of the others.
    # Then the one of the largest risk: no layout of the others takes less time.
    for riskiest, *safer in zip(*by_class, strict=True):
        *between, safest = safer or [riskiest]
        shortest = np.zeros(len(plans))  # of each plan's layouts in any class, over its scale [unit of the objective]
        for floors, prospects_of, scale in (safest, *([riskiest, *reversed(between)] if safer else ())):
            # So wide that what is no better in the largest risk is no better in any class between.
            wider = scale / between[-1][2] if between and scale == riskiest[2] else 1.0
            limits = _lowered(alone, below) * wider
            open_plans = np.flatnonzero(may_fit & (np.maximum(floors.least, shortest) * scale < limits))
            if not len(open_plans):
                continue
            search.limit = float(limits.max())
            some = prospects_of(floors.take(open_plans))
            for place in ascending(floors.least[open_plans]).tolist():
                if search.expired():
                    return tuple(each.best for each in alone)
                plan, of_plan = int(open_plans[place]), some.take(np.flatnonzero(some.plan == place))
                one = alone[plan]
                one.undecided, one.wider, one.all_wider = [], wider, True
                least = float(_visit(one, [(of_plan, scale)], numbers[open_plans])[place])
                if wider > 1.0:
                    shortest[plan] = min(least, one.reach, *one.undecided) / scale
                _lowered(alone, below)
    return tuple(each.best for each in alone)


def _lowered(
    searches: Sequence[_Search], below: Callable[[Sequence[Candidate | None]], FloatArray] | None
) -> FloatArray:
    """The limits of searches, with those lowered beyond which layouts are of no interest."""
    if below:
        for each, limit in zip(searches, below([each.best for each in searches]).tolist(), strict=True):
            each.limit = min(each.limit, limit * (1 + SAME))
    return np.array([each.limit for each in searches])


def _fit_at_all(floors: PlanFloors) -> BoolArray:
    """Plans of which some layout may fit at the largest risk, with as much of the optimizer on the host as may be."""
    layer_costs = at_risk(floors.layer_costs, risk_classes(floors.job)[0].risk)
    none, most = np.zeros(len(layer_costs)), most_offload(layer_costs)
    return np.isfinite(floors.of(layer_costs).bounds(np.arange(len(layer_costs)), none, most, np.inf))


def bounds_of(job: Job, cost_batches: Iterable[LayerCosts], tuning: Tuning, even: float, best: float) -> LayoutBounds:
    """What the bounds alone say of a search that found `best` beside the best even split `even`: no solver runs."""
    some = [layer_costs for layer_costs in cost_batches if len(layer_costs)]
    if not some:
        return LayoutBounds(band=0, undecided=0, knob_bound=best)
    lattice = LatticeBounds.of(job, some, tuning, even)
    bounds, search, open_plans = lattice.bounds, _search(job, tuning, None), set[int]()
    search.limit, classes = best * (1 - SAME), risk_classes(job)
    hosted = lattice.most_hosted(bounds < best)
    for number, each in enumerate(classes):
        low = np.flatnonzero(bounds < search.limit / each.factor)
        if len(low):
            in_class, floor = lattice.at(low, each.risk if number else None)
            fitting = hosted.fitting(low, in_class, floor, search.limit / each.factor) * each.factor
            left = fitting < search.limit
            low, in_class, floor = low[left], in_class.take(left), floor.take(left)
        if len(low):
            open_plans |= set(low[list(_undecided(search, in_class, floor, low, each.factor))].tolist())
    return LayoutBounds(
        band=int(np.sum(bounds * classes[-1].factor < even)),
        undecided=len(open_plans),
        knob_bound=lattice.knob_bound(hosted, best),
    )


def _search(
    job: Job,
    tuning: Tuning,
    time_limit: float | None,
    effort: float = EFFORT,
    own: OwnSettings | None = None,
    layouts: Solved | None = None,
) -> _Search:
    layouts, deadline = layouts or Solved(seed=tuning.seed, effort=effort), Deadline.after(time_limit)
    classes = tuple((safe_memory(job.with_limits(oom_risk=each.risk)), each.factor) for each in risk_classes(job))
    return _Search(job=job, tuning=tuning, deadline=deadline, layouts=layouts, own=own or tuning.own(), classes=classes)


def _proof_plans(search: _Search, lattice: LatticeBounds, fitting: FloatArray) -> ProofPlans:
    """All of the plans, or those with the lowest bounds and the best."""
    layer_costs, bounds = lattice.layer_costs, lattice.bounds
    values, fits = np.where(np.isfinite(fitting), fitting, bounds), np.isfinite(fitting)
    if lattice.space <= PROVEN_WHOLE:
        return ProofPlans(layer_costs=layer_costs, values=values, fits=fits)
    winner = [index for index, candidate in search.by_number.items() if candidate is search.best]
    chosen = np.union1d(np.argsort(bounds, kind="stable")[:FASTEST], np.array(winner, dtype=np.int64))
    return ProofPlans(layer_costs=layer_costs.take(chosen).copied(), values=values[chosen], fits=fits[chosen])


def _undecided(
    search: _Search, layer_costs: LayerCosts, floor: StepFloor, numbers: IntArray, factor: float
) -> set[int]:
    """Plans of which the bounds alone do not say that no layout is below the limit of a search."""
    own = _own(search, layer_costs, floor)
    return {
        int(plan)
        for prospects_of, scale in _prospects(search, own, factor)
        for some in (prospects_of(own),)
        for plan in some.plan[some.bounds * scale < search.limit]
    }


def _prospects(
    search: _Search, own: PlanFloors, factor: float
) -> Iterator[tuple[Callable[[PlanFloors], Prospects], float]]:
    """What makes prospects of plans like these at the fixed settings; or at their own, with nothing on the host and
    then with something there. Beside it what their bounds are multiplied with: the `factor` of the class of risk, and
    that of an optimizer on the host.
    """
    fixed, job = search.tuning.fixed, own.job
    hosting = factor * float(objective_of(job).layout(job, own.layer_costs.plans.take(np.zeros(1, np.int64)), 1.0)[0])
    if fixed is not None:
        scale = hosting if fixed.offload else factor
        yield (
            lambda some: prospects_at(some, np.full(len(some.layer_costs), fixed.offload), search.reach / scale),
            scale,
        )
        return
    if slower_on_host(job) or hosting > factor:
        yield lambda some: prospects_at(some, np.zeros(len(some.layer_costs)), search.reach / factor), factor
    if slower_on_host(job):
        yield lambda some: some_on_host(some, search.reach / hosting), hosting
    else:
        yield lambda some: prospects_at(some, most_offload(some.layer_costs), search.reach / hosting), hosting


def _visit(search: _Search, prospects: Iterable[tuple[Prospects, float]], numbers: IntArray) -> FloatArray:
    """Assign the layers of plans whose bound stays below the best, the lowest bound first; `numbers` are theirs in the
    lattice.

    For each plan the value of its layout, or one that none of its layouts beats [unit of objective].
    """
    least = np.full(len(numbers), np.inf)
    for some, scale in prospects:
        bounds = some.bounds * scale
        for position in _next(search, some, bounds, scale):
            if search.expired():
                search.undecided.append(float(np.min(bounds)))
                break
            number = int(numbers[some.plan[position]])
            solved = _solve(search, some, position, number, scale)
            if isinstance(solved, Candidate):
                _note(search, solved.at_its_risk, number)
            bounds[position] = solved.value if isinstance(solved, Candidate) else solved
        np.minimum.at(least, some.plan, bounds)
    return least


def _next(search: _Search, some: Prospects, bounds: FloatArray, scale: float) -> Iterator[int]:
    """Positions of the prospects whose bounds stay below the best, the lowest first; `bounds` are raised to those of
    all shapes of their pipelines, some prospects at a time, but for one alone of which only even splits may be better.
    """
    order, listed = ascending(bounds), objective_of(search.job).listed
    interleaved = some.floors.layer_costs.plans.vpp[some.plan] > 1
    for start in range(0, len(order), TOGETHER):
        part = order[start : start + TOGETHER]
        part = part[bounds[part] < search.worth_solving(interleaved[part])]
        if not len(part):
            continue
        if len(part) > 1 or bounds[part[0]] * listed < search.reach * (1 + SAME):
            bounds[part] = np.maximum(bounds[part], shaped_bounds(some, part, search.reach / scale) * scale)
        for position in part[ascending(bounds[part])].tolist():
            if bounds[position] < search.worth_solving(interleaved[position]):
                yield position


def _note(search: _Search, candidate: Candidate, number: int) -> None:
    """Remember what was found for a plan, the best of several settings."""
    if not candidate.proven:
        search.undecided.append(min(candidate.value, candidate.least))
    known = search.by_number.get(number)
    if known is None or (candidate.solved, -candidate.value) > (known.solved, -known.value):
        search.by_number[number] = candidate
    if candidate.solved and candidate.value < lowered(search.limit):
        search.best, search.limit = candidate, candidate.value


def _own(search: _Search, layer_costs: LayerCosts, floor: StepFloor | None = None) -> PlanFloors:
    """The plans at their own settings, or all at the fixed ones; `floor` is theirs at the default or the fixed ones."""
    if (fixed := search.tuning.fixed) is not None:
        return plan_floors(layer_costs, fixed)
    return plan_floors(layer_costs, search.own.of(layer_costs), floor)


def _known(search: _Search, layer_costs: LayerCosts, floor: StepFloor, numbers: IntArray) -> PlanFloors:
    """The floors of plans with these numbers in the lattice, found once for all classes of risk."""
    for known, floors in search.floors:
        place = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
        if (known[place] == numbers).all():
            return floors.take(place).of(layer_costs)
    floors, order = _own(search, layer_costs, floor), np.argsort(numbers)
    search.floors.append((numbers[order], floors.take(order)))
    return floors


def _solve(search: _Search, prospects: Prospects, position: int, number: int, scale: float) -> Candidate | float:
    """The best layout of one of the plans: the even split if it meets the bound, or that of others, else what is found.

    Else a value that no layout of it beats: the limit where no better one fits, infinite where none fits at all.
    """
    floors, index, bound = prospects.floors, int(prospects.plan[position]), float(prospects.bounds[position]) * scale
    plan = floors.layer_costs.plans.plan(index)
    problem, objective = prospects.problem(position, plan), objective_of(search.job)
    limit = float(search.worth_solving(plan.vpp > 1))
    listed = scale * objective.listed  # of all layouts but the even split

    def candidate(layout: Layout) -> Candidate:
        value, least = (scale * floors.floor.value_of(time, index) for time in (layout.objective, layout.least))
        placed = layout.of(plan)
        return Candidate(
            plan=placed,
            value=value * float(objective.layout(search.job, Plans.of([placed]), 0.0)[0]),
            knobs=prospects.knobs(position, layout.more),
            solved=True,
            proven=layout.proven,
            least=max(bound, least),
            safer=search.safer(problem.usable, max(layout.memory)),
        )

    evens = [even_layout(problem, recompute=problem.alike)]
    if recomputable(problem) and not problem.alike:
        evens.append(even_layout(problem))
    splits = [replace(candidate(even), proven=True) for even in evens if even.fits(problem)]
    split = min(splits, key=lambda each: each.value, default=None)
    if split:
        # Of even splits it is the best one where no other recomputes less, or as much with less on the host.
        others = not evens[0].fits(problem) or (bool(recomputable(problem)) and (problem.alike or problem.more > 0))
        uneven = 0.0 if others else float(floors.uneven[index])
        if split.value <= max(bound, max(bound / scale, uneven) * listed) * (1 + SAME):
            return split
    # Every other layout is listed, and takes no less than the bound of all of them.
    if bound * objective.listed >= limit * (1 + SAME):
        return limit  # and an even split below it is returned already
    if bounded(problem) and limit < np.inf:
        least = cut_bound(problem, floors.floor_at(index, float(prospects.low[position])), limit / listed)
        if least * listed >= limit * (1 + SAME):
            return split if split and split.value < limit else limit
    try:
        if problem.vpp == 1 and fitting_layout(problem.at_most_offload, search.deadline.left) is None:
            return np.inf
        search.solved.add(number)
        layout = search.layouts.best(
            problem, floors.floor.within(limit * (1 + SAME) / listed, index), search.deadline.left
        )
    except Infeasible:
        return split if split and split.value < limit else limit
    except TimeLimit:
        search.cut_short += 1
        return Candidate(plan=plan, value=bound, proven=False, least=bound)
    search.cut_short += not layout.proven
    by_number = candidate(layout)
    if split and split.value < by_number.value:
        return replace(split, proven=by_number.proven or split.value <= by_number.least, least=by_number.least)
    return by_number
