"""The first half of a search: every plan priced and the best of them with its layout, before anything is proven."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter

from optimizer.answer.answer import Answer
from optimizer.base.errors import TimeLimit
from optimizer.constraints.rule import Rule
from optimizer.constraints.rules.dualpipe import placed
from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.job.target import unbuilt
from optimizer.objectives.step.estimate import Estimate
from optimizer.search.lattice.enumerate import Space, space_of
from optimizer.search.lattice.oracle import Sweep, Tuning, fold
from optimizer.search.layouts.assigned import AssignedLayouts
from optimizer.search.layouts.contenders import Contenders
from optimizer.search.plan.alternatives import estimate_of_plan, flags, value_of
from optimizer.search.plan.best import Known, best_layouts


@dataclass(frozen=True)
class Clock:
    """Seconds by phase of the search."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure what happens inside."""
        start = perf_counter()
        yield
        self.seconds[name] = perf_counter() - start

    def left(self, time_limit: float | None) -> float | None:
        """What is left of a time limit, None without one [s]."""
        return None if time_limit is None else max(0.0, time_limit - sum(self.seconds.values()))

    def all(self) -> Mapping[str, float]:
        """Every phase and their sum."""
        return {**self.seconds, "total": sum(self.seconds.values())}


@dataclass(frozen=True, kw_only=True)
class Unproven:
    """The best plan of a job with its layout, before anything is proven about it."""

    job: Job  # what was asked
    tuning: Tuning  # how knobs are chosen
    time_limit: float | None  # of the whole search [s]
    clock: Clock  # seconds by phase so far
    rules: Sequence[Rule]  # of the lattice
    space: Space  # every plan of it
    swept: Sweep  # what pricing them all says
    contenders: Contenders | None = None  # plans that were kept meanwhile, None where the sweep was known
    layouts: AssignedLayouts | None = None  # that were searched
    even: float = inf  # value of the best even split, infinite without one [unit of the objective]
    plan: Plan | None = None  # None where there is none, or the time was over
    knobs: Knobs = Knobs()  # of the plan
    estimate: Estimate | None = None  # its price

    @property
    def value(self) -> float:
        """What the plan is minimised by, infinite without one [unit of the objective]."""
        if self.plan is None or self.estimate is None:
            return inf
        return value_of(self.job, self.plan, self.knobs, self.estimate)

    @property
    def left(self) -> float | None:
        """What is left of the time limit, if there is one [s]."""
        return self.clock.left(self.time_limit)

    def answer(self) -> Answer:
        """The plan as an answer that claims no proof: no certificate, no runners-up."""
        if self.plan is None or self.estimate is None:
            return Answer(status="unknown", job=self.job)
        return Answer(
            status="feasible",
            job=self.job,
            plan=self.plan,
            knobs=self.knobs,
            estimate=self.estimate,
            flags=(*flags(self.job, self.estimate), *unbuilt(self.job.stack, self.plan)),
            trials=self.tuning.trials,
            seed=self.tuning.seed,
            search_s=self.clock.all(),
        )


def search(
    job: Job, tuning: Tuning = Tuning(), *, time_limit: float | None = None, known: Known | None = None
) -> Unproven:
    """The first half of `plan`: every plan priced, the best of them with its layout. Raises as `plan` does.

    Args:
        job: what to plan for.
        tuning: how knobs are chosen.
        time_limit: of the whole search [s].
        known: sweep and layouts of this very job with such settings, which are taken as they are; of another job they
            are left alone.
    """
    placed(job)
    clock, mine = Clock(), known if known and (known.job, known.tuning) == (job, tuning) else None
    with clock.phase("sweep"):
        rules = structural(job)
        space = mine.space if mine else space_of(job)
        contenders = None if mine else Contenders(job=job, tuning=tuning)
        swept = mine.swept if mine else fold(job, space, tuning, time_limit, contenders.add if contenders else None)
    start = Unproven(
        job=job,
        tuning=tuning,
        time_limit=time_limit,
        clock=clock,
        rules=rules,
        space=space,
        swept=swept,
        contenders=contenders,
    )
    if not swept.complete:
        return start
    with clock.phase("layouts"):
        try:
            layouts, even = best_layouts(
                job, space, swept, tuning, start.left, mine.layouts if mine else None, contenders
            )
        except TimeLimit:
            return replace(start, swept=replace(swept, complete=False))
        start = replace(start, layouts=layouts, even=even)
        if layouts is None or layouts.best is None:
            return start
        best, knobs = layouts.best.plan, layouts.best.knobs
        estimate = estimate_of_plan(job, best, knobs)
    return replace(start, plan=best, knobs=knobs, estimate=estimate)
