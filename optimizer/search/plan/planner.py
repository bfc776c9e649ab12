"""From a job to its answer: price the lattice, prove the best plan, tune it, say what else was close."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

import numpy as np

from optimizer.answer import Answer, NearTies
from optimizer.constraints.memory import Memory
from optimizer.constraints.rules import structural
from optimizer.job import Job
from optimizer.objectives.step.price import price
from optimizer.plan import Knobs, Plans
from optimizer.search.lattice.enumerate import Space
from optimizer.search.lattice.oracle import Sweep, fold
from optimizer.search.layouts.band import SAME, Candidate, LaidOut, best_even, lay_out, smoothed
from optimizer.search.layouts.given import as_given
from optimizer.search.plan.alternatives import MEASURED_MFU, alternatives, estimate_of, flags, near_ties
from optimizer.search.plan.certificate import certify, unfinished, without_plan
from optimizer.search.plan.knobs import STARTS, tunable, tune
from optimizer.search.why.conflict import conflict


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

    def all(self) -> Mapping[str, float]:
        """Every phase and their sum."""
        return {**self.seconds, "total": sum(self.seconds.values())}


def plan(
    job: Job,
    *,
    top: int = 5,
    within: float = np.inf,
    trials: int = 8,
    time_limit: float | None = None,
    seed: int = 0,
    study: str | None = None,
    ceilings: Mapping[str, float] = MEASURED_MFU,
) -> Answer:
    """The plan with the least step time that satisfies every rule, with its proof and up to `top` runners-up, none of
    them slower by more than the share `within`.

    Raises InputError when a pinned variable does not exist or cannot take its value.
    """
    clock = Clock()
    with clock.phase("sweep"):
        rules = structural(job)
        space = Space(job, rules)
        swept = fold(job, space, price, time_limit)
    with clock.phase("knobs"):
        knobs = _knobs(job, swept, trials, seed, study, _left(time_limit, clock))
    with clock.phase("resweep"):
        if knobs is not None and knobs != Knobs() and swept.complete:
            swept, knobs = _again(job, space, swept, knobs, _left(time_limit, clock))
    if not swept.complete:
        return _unfinished(job, swept, knobs, clock, ceilings)
    with clock.phase("layouts"):
        found, complete = _layouts(job, space, swept, knobs, seed, _left(time_limit, clock))
    if found is None:
        return _without_plan(job, replace(swept, complete=complete), clock)
    with clock.phase("proof"):
        memory = Memory(knobs=found.knobs)
        certificate = certify(
            job, (*rules, memory), found.swept, found.laid, found.even, seed=seed, time_limit=_left(time_limit, clock)
        )
    with clock.phase("alternatives"):
        best = smoothed(job, found.best.plan, found.knobs, seed=seed)
        alone = replace(found.best, plan=best).alone()
        estimate = estimate_of(job, price(job, alone, found.knobs), 0)
        points = found.swept.points
        left = _left(time_limit, clock)
        others = (
            alternatives(job, points, found.laid, best, found.best.seconds, top, found.knobs, time_limit=left)
            if points
            else ()
        )
        others = tuple(other for other in others if other.slower <= within)
        ties = near_ties(points, best, found.best.seconds, others) if points else NearTies()
    return Answer(
        status="optimal" if certificate.proven else "feasible",
        job=job,
        plan=best,
        knobs=found.knobs,
        estimate=estimate,
        certificate=certificate,
        alternatives=others,
        near_ties=ties,
        flags=flags(job, estimate, ceilings),
        search_s=clock.all(),
    )


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The best plan with its layout, the sweep at its knobs, and the step time of the best even split [s]."""

    best: Candidate
    knobs: Knobs
    swept: Sweep
    laid: LaidOut
    even: float


def _layouts(
    job: Job, space: Space, swept: Sweep, knobs: Knobs | None, seed: int, time_limit: float | None
) -> tuple[_Found | None, bool]:
    """The best layout at the tuned knobs, and at those of them that leave the optimizer's state on the device.

    Layouts may fit where no even split does, so that the default knobs are tried, and everything on the host. Without a
    plan, the second value says whether there is none.
    """
    if not swept.space:
        return None, True
    complete, clock = True, Clock()
    found: _Found | None = None
    tried = STARTS if knobs is None else (knobs, replace(knobs, offload=0.0))
    for setting in dict.fromkeys(tried):
        with clock.phase(str(setting)):
            at_setting, left = swept, _left(time_limit, clock)
            if setting != (knobs or Knobs()):
                at_setting = fold(job, space, partial(price, knobs=setting), left)
                if not at_setting.complete:
                    complete = False
                    break
            laid, even = _laid_out(job, space, at_setting, setting, found, seed, left)
        complete = complete and laid.complete
        if laid.best is not None and (found is None or laid.best.seconds < found.best.seconds * (1 - SAME)):
            seconds = even.seconds if even else np.inf
            found = _Found(best=laid.best, knobs=setting, swept=at_setting, laid=laid, even=seconds)
        if knobs is None and found is not None:
            break
    return found, complete


def _laid_out(
    job: Job, space: Space, swept: Sweep, knobs: Knobs, found: _Found | None, seed: int, time_limit: float | None
) -> tuple[LaidOut, Candidate | None]:
    """The best layouts at these knobs if they are faster than what was found, and the best even split of the sweep."""
    if job.layout_given:
        return as_given(swept), None
    even = best_even(job, swept.points, knobs) if swept.points else None
    laid = lay_out(
        job,
        space,
        knobs,
        even=even.seconds if even else np.inf,
        limit=found.best.seconds if found else np.inf,
        seed=seed,
        time_limit=time_limit,
        any_knobs=found is None,
    )
    if found is not None:
        laid = replace(laid, knob_bound=found.laid.knob_bound)  # it holds for every setting
    if laid.best is None and even is not None and found is None:
        laid = replace(laid, best=even, candidates=(*laid.candidates, even))
    return laid, even


def _again(job: Job, space: Space, swept: Sweep, knobs: Knobs, time_limit: float | None) -> tuple[Sweep, Knobs]:
    """The sweep at the tuned knobs; where there is no time for all of it, the one at the defaults if anything fits."""
    again = fold(job, space, partial(price, knobs=knobs), time_limit)
    return (again, knobs) if again.complete or swept.best < 0 else (swept, Knobs())


def _left(time_limit: float | None, clock: Clock) -> float | None:
    return None if time_limit is None else max(0.0, time_limit - sum(clock.seconds.values()))


def _unfinished(job: Job, swept: Sweep, knobs: Knobs | None, clock: Clock, ceilings: Mapping[str, float]) -> Answer:
    """The best even split that was seen before the time was over."""
    even = best_even(job, swept.points, knobs) if swept.points and knobs else None
    if even is None or knobs is None:
        return _without_plan(job, swept, clock)
    estimate = estimate_of(job, price(job, Plans.of([even.plan]), knobs), 0)
    return Answer(
        status="feasible",
        job=job,
        plan=even.plan,
        knobs=knobs,
        estimate=estimate,
        certificate=unfinished(job, swept, even.seconds),
        near_ties=near_ties(swept.points, even.plan, even.seconds) if swept.points else NearTies(),
        flags=flags(job, estimate, ceilings),
        search_s=clock.all(),
    )


def _knobs(job: Job, swept: Sweep, trials: int, seed: int, study: str | None, time_limit: float | None) -> Knobs | None:
    """The best settings found for the leading plans, or None when none fits with any."""
    if swept.points is None:
        return None
    plans = tunable(swept.points, job.usable_memory)
    if not len(plans):
        return None
    if not swept.complete or (trials <= 0 and swept.best >= 0):
        return Knobs() if swept.best >= 0 else None
    tuned = tune(job, plans, trials=trials, seed=seed, study=study, time_limit=time_limit)
    return tuned.knobs if tuned else None


def _without_plan(job: Job, swept: Sweep, clock: Clock) -> Answer:
    """Why there is no plan, or that the time was too short to tell."""
    if not swept.complete:
        return Answer(status="unknown", job=job, certificate=without_plan(job, swept), search_s=clock.all())
    with clock.phase("conflict"):
        clashes = conflict(job)
    return Answer(
        status="infeasible", job=job, certificate=without_plan(job, swept), conflict=clashes, search_s=clock.all()
    )
