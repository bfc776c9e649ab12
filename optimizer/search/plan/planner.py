"""From a job to its answer: price the lattice, prove the best plan, tune it, say what else was close."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter

from optimizer.answer import Answer, NearTies
from optimizer.constraints.dualpipe import placed
from optimizer.constraints.rules import structural
from optimizer.job import Job
from optimizer.objectives.step.price import price
from optimizer.plan import Plans
from optimizer.search.infeasible.conflict import conflict
from optimizer.search.lattice.enumerate import Space
from optimizer.search.lattice.oracle import Sweep, Tuning, fold
from optimizer.search.layouts.band import best_even, smoothed
from optimizer.search.plan.alternatives import MEASURED_MFU, alternatives, estimate_of, flags, near_ties
from optimizer.search.plan.best import Known, laid_out_best
from optimizer.search.plan.certificate import certify, unfinished, without_plan
from optimizer.search.plan.safety import safety_of
from optimizer.search.plan.simplicity import simpler_than
from optimizer.target import unbuilt


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
    within: float = inf,
    trials: int = 8,
    time_limit: float | None = None,
    seed: int = 0,
    study: str | None = None,
    ceilings: Mapping[str, float] = MEASURED_MFU,
    priced_risk: bool = True,
    explained: bool = True,
    known: Known | None = None,
) -> Answer:
    """The plan with the least step time that satisfies every rule, with its proof and up to `top` runners-up, none of
    them slower by more than the share `within`; `priced_risk` adds what it costs to fit as surely as asked, and
    `explained` why there is no plan, which may take longer than to find that there is none. known: what was found for
    this very job and is taken as it is.

    Raises InputError when a pinned variable does not exist or cannot take its value, and for schedule=dualpipe where
    the layers are not placed.
    """
    placed(job)
    clock, tuning = Clock(), Tuning(trials=trials, seed=seed, study=study)
    mine = known if known and (known.job, known.tuning) == (job, tuning) else None
    answer = _searched(job, clock, tuning, top, within, time_limit, ceilings, priced_risk, explained, mine)
    return replace(answer, trials=trials, seed=seed, search_s=clock.all())


def _searched(
    job: Job,
    clock: Clock,
    tuning: Tuning,
    top: int,
    within: float,
    time_limit: float | None,
    ceilings: Mapping[str, float],
    priced_risk: bool,
    explained: bool,
    known: Known | None,
) -> Answer:
    """The phases of the search one after the other."""
    with clock.phase("sweep"):
        rules = structural(job)
        space = known.space if known else Space(job, rules)
        swept = known.swept if known else fold(job, space, tuning, time_limit)
    if not swept.complete:
        return _unfinished(job, swept, clock, ceilings)
    with clock.phase("layouts"):
        laid, even = laid_out_best(job, space, swept, tuning, _left(time_limit, clock), known.laid if known else None)
    if laid is None or laid.best is None:
        return _without_plan(job, replace(swept, complete=laid is None or laid.complete), clock, explained, time_limit)
    with clock.phase("proof"):
        left = _left(time_limit, clock)
        certificate = certify(job, rules, swept, laid, even, seed=tuning.seed, time_limit=left)
    with clock.phase("alternatives"):
        best, knobs = smoothed(job, laid.best.plan, laid.best.knobs, seed=tuning.seed), laid.best.knobs
        estimate = estimate_of(job, price(job, Plans.of([best]), knobs), 0)
        points, left = swept.points, _left(time_limit, clock)
        seconds = estimate.step_time
        others = alternatives(job, points, laid, best, seconds, top, tuning, time_limit=left) if points else ()
        others = tuple(other for other in others if other.slower <= within)
        ties = near_ties(points, best, seconds, others) if points else NearTies()
        simpler = simpler_than(job, points, best, knobs, seconds) if points else None
    with clock.phase("safety"):
        safety = safety_of(job, space, laid.best, seconds, tuning, _left(time_limit, clock)) if priced_risk else None
    return Answer(
        status="optimal" if certificate.proven else "feasible",
        job=job,
        plan=best,
        knobs=knobs,
        estimate=estimate,
        certificate=certificate,
        alternatives=others,
        near_ties=ties,
        safety=safety,
        simpler=simpler,
        flags=(*flags(job, estimate, ceilings), *unbuilt(job.stack, best)),
    )


def _left(time_limit: float | None, clock: Clock) -> float | None:
    return None if time_limit is None else max(0.0, time_limit - sum(clock.seconds.values()))


def _unfinished(job: Job, swept: Sweep, clock: Clock, ceilings: Mapping[str, float]) -> Answer:
    """The best even split that was seen before the time was over."""
    even = best_even(job, swept.points) if swept.points else None
    if even is None:
        return _without_plan(job, swept, clock)
    estimate = estimate_of(job, price(job, Plans.of([even.plan]), even.knobs), 0)
    return Answer(
        status="feasible",
        job=job,
        plan=even.plan,
        knobs=even.knobs,
        estimate=estimate,
        certificate=unfinished(job, swept, even.seconds),
        near_ties=near_ties(swept.points, even.plan, even.seconds) if swept.points else NearTies(),
        flags=(*flags(job, estimate, ceilings), *unbuilt(job.stack, even.plan)),
    )


def _without_plan(
    job: Job, swept: Sweep, clock: Clock, explained: bool = True, time_limit: float | None = None
) -> Answer:
    """Why there is no plan, where that is to be explained, or that the time was too short to tell."""
    if not swept.complete:
        return Answer(status="unknown", job=job, certificate=without_plan(job, swept))
    with clock.phase("conflict"):
        clashes = conflict(job, time_limit=_left(time_limit, clock)) if explained else ()
    return Answer(status="infeasible", job=job, certificate=without_plan(job, swept), conflict=clashes)
