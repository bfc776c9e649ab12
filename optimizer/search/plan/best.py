"""The best plan of a job with its best layout and knobs: every plan priced, without a certificate."""

from __future__ import annotations

from dataclasses import dataclass, replace

from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Placement, Plan, Plans
from optimizer.objectives.step.estimate import Estimate
from optimizer.search.lattice.deadline import Deadline
from optimizer.search.lattice.enumerate import Space, space_of
from optimizer.search.lattice.oracle import Points, Sweep, Tuning, fold
from optimizer.search.layouts.assigned import AssignedLayouts, Candidate
from optimizer.search.layouts.candidates import lay_out, place
from optimizer.search.layouts.contenders import Contenders
from optimizer.search.layouts.one_layout import as_given, best_even
from optimizer.search.plan.alternatives import PLACED, estimate_of_plan, runners_up, value_of


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best plan of a job that fits."""

    job: Job  # what was asked
    plan: Plan  # with its layers assigned
    knobs: Knobs  # of the plan
    estimate: Estimate  # its price
    swept: Sweep  # every plan of the lattice, priced

    @property
    def value(self) -> float:
        """What the job minimises [unit of the objective]."""
        return value_of(self.job, self.plan, self.knobs, self.estimate)

    @property
    def worth(self) -> float:
        """Tokens trained on for a unit of what is minimised: for a second, a joule, a dollar [1/unit]."""
        return self.job.tokens / self.value


def best_plan(job: Job, tuning: Tuning = Tuning()) -> Best | None:
    """The best plan that satisfies every rule, at its own knobs or at fixed ones, or None when there is none.

    It is the plan that the planner answers with. Raises InputError for a pin on an unknown variable.
    """
    space = space_of(job)
    contenders = Contenders(job=job, tuning=tuning)
    swept = fold(job, space, tuning, seen=contenders.add)
    layouts, _ = best_layouts(job, space, swept, tuning, contenders=contenders)
    if layouts is None or layouts.best is None:
        return None
    best = layouts.best
    estimate = estimate_of_plan(job, best.plan, best.knobs)
    return Best(job=job, plan=best.plan, knobs=best.knobs, estimate=estimate, swept=swept)


@dataclass(frozen=True, kw_only=True)
class Known:
    """The sweep and the layouts of a job with such settings, which need not be searched again."""

    job: Job
    tuning: Tuning
    space: Space
    swept: Sweep
    layouts: AssignedLayouts


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What the sweep of a job says before any layout is looked for; even: its best even split, None without one."""

    job: Job
    space: Space
    swept: Sweep
    even: Candidate | None
    tuning: Tuning = Tuning()

    @property
    def worth(self) -> float:
        """Tokens for a unit of what is minimised, of the best even split; the best layout may exceed it, 0 without one
        [1/unit].
        """
        return self.job.tokens / self.even.value if self.even else 0.0

    def layouts_beyond(self, least: float = 0.0) -> AssignedLayouts | None:
        """The best layouts where they do more than `least` tokens for a unit, otherwise others; None without plans.

        Bounds spare the search for layouts that could not exceed it.
        """
        if not self.swept.space:
            return None
        if self.job.layout_given:
            return as_given(self.swept)
        below = self.job.tokens / least if least else float("inf")
        return lay_out(self.job, self.space, self.tuning, even=self.even, below=below, own=self.swept.own)

    def worth_of(self, layouts: AssignedLayouts | None) -> float:
        """Tokens for a unit, of the best of these layouts, 0 without one [1/unit]."""
        return self.job.tokens / layouts.best.value if layouts and layouts.best else 0.0

    def known(self, layouts: AssignedLayouts | None, least: float) -> Known | None:
        """The sweep with layouts that were looked for beyond `least`, where that left none out."""
        if layouts is None or self.job.layout_given or least > self.worth:
            return None
        return Known(job=self.job, tuning=self.tuning, space=self.space, swept=self.swept, layouts=layouts)


def outlook(job: Job, tuning: Tuning = Tuning()) -> Outlook:
    """A job priced plan by plan, each at its own knobs. Raises InputError for a pin on an unknown variable."""
    space = space_of(job)
    swept = fold(job, space, tuning)
    even = best_even(job, swept.points) if swept.points and not job.layout_given else None
    return Outlook(job=job, space=space, swept=swept, even=even, tuning=tuning)


def best_layouts(
    job: Job,
    space: Space,
    swept: Sweep,
    tuning: Tuning,
    time_limit: float | None = None,
    known: AssignedLayouts | None = None,
    contenders: Contenders | None = None,
) -> tuple[AssignedLayouts | None, float]:
    """The best layouts of a lattice that was swept, and the value of the best even split, infinite without one
    [unit of the objective].

    None for a lattice without plans. known: the layouts, where they have been searched. contenders: kept while the
    lattice was swept. Raises TimeLimit where not all
    plans were bounded in time.
    """
    if not swept.space:
        return None, float("inf")
    if job.layout_given:
        return as_given(swept), float("inf")
    even = best_even(job, swept.points) if swept.points else None
    value = even.value if even else float("inf")
    deadline = Deadline.after(time_limit)
    batches = contenders.batches(space, job, value, deadline) if contenders else space.until(deadline)
    layouts = known or lay_out(job, batches, tuning, even=even, time_limit=time_limit, own=swept.own, size=swept.space)
    if layouts.complete or not swept.points or not layouts.best:
        return layouts, value
    return _with_the_leaders(job, swept.points, layouts, layouts.best, tuning, deadline.left), value


def _with_the_leaders(
    job: Job, points: Points, layouts: AssignedLayouts, best: Candidate, tuning: Tuning, time_limit: float | None
) -> AssignedLayouts:
    """Layouts whose search was cut short, with little effort for the best and its runners-up: the best of them."""
    others = [points.plans.plan(position) for position in runners_up(points, best.plan, PLACED)]
    leaders = [best.plan.lying(Placement()), *others]
    placed = dict(zip(leaders, place(job, Plans.of(leaders), tuning, time_limit=time_limit), strict=True))
    solved = (other for other in placed.values() if other and other.solved)
    leader = min((best, *solved), key=lambda other: other.value)
    return replace(
        layouts,
        best=leader,
        bound=min(layouts.bound, leader.value),
        candidates=(*layouts.candidates, best),
        placed=placed,
    )
