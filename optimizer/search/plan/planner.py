"""From a job to its answer: price the lattice, prove the best plan, tune it, say what else was close."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from optimizer.answer.answer import Answer, NearTies
from optimizer.job.job import Job
from optimizer.job.target import unbuilt
from optimizer.search.infeasible.conflict import conflict
from optimizer.search.lattice.oracle import Sweep, Tuning
from optimizer.search.layouts.one_layout import best_even
from optimizer.search.plan.alternatives import alternatives, estimate_of_plan, flags, near_ties
from optimizer.search.plan.best import Known
from optimizer.search.plan.certificate import certify, unfinished, without_plan
from optimizer.search.plan.safety import safety_of
from optimizer.search.plan.unproven import Clock, Unproven, search


def plan(
    job: Job,
    *,
    top: int = 5,
    within: float = inf,
    trials: int = 8,
    time_limit: float | None = None,
    seed: int = 0,
    study: str | None = None,
    priced_risk: bool = True,
    explained: bool = True,
    read_twice: bool = True,
    known: Known | None = None,
) -> Answer:
    """The plan of the least value by the job's objective that satisfies every rule, with its proof and runners-up.

    Args:
        job: what to plan for.
        top: how many runners-up at the most.
        within: share by which a runner-up may be worse than the best plan [1].
        trials: of Optuna, for the knobs of each plan.
        time_limit: of the search [s].
        seed: of trials and solver.
        study: URL of a storage that keeps the trials.
        priced_risk: add what it costs to fit as surely as asked.
        explained: say why there is no plan, which may take longer than to see that there is none.
        read_twice: let CP-SAT compare all plans once more, under its own reading of the rules.
        known: sweep and layouts of this very job, which are taken as they are.

    Raises InputError when a pinned variable does not exist or cannot take its value, and for schedule=dualpipe where
    the layers are not placed.
    """
    unproven = search(job, Tuning(trials=trials, seed=seed, study=study), time_limit=time_limit, known=known)
    return proven(unproven, top=top, within=within, priced_risk=priced_risk, explained=explained, read_twice=read_twice)


def proven(
    unproven: Unproven,
    *,
    top: int = 5,
    within: float = inf,
    priced_risk: bool = True,
    explained: bool = True,
    read_twice: bool = True,
) -> Answer:
    """The second half of `plan`: the proof, and what else is close. Raises as `plan` does."""
    unproven = replace(unproven, clock=Clock(dict(unproven.clock.seconds)))  # so that it can be proven another time
    job, swept, layouts, clock, tuning = unproven.job, unproven.swept, unproven.layouts, unproven.clock, unproven.tuning
    if not swept.complete:
        return _finished(unproven, _unfinished(job, swept, clock))
    if layouts is None or layouts.best is None or unproven.plan is None or unproven.estimate is None:
        left = replace(swept, complete=layouts is None or layouts.complete)
        return _finished(unproven, _without_plan(job, left, clock, explained, unproven.time_limit))
    with clock.phase("proof"):
        certificate = certify(
            job,
            unproven.rules,
            swept,
            layouts,
            unproven.even,
            seed=tuning.seed,
            time_limit=unproven.left,
            read_twice=read_twice,
        )
    with clock.phase("alternatives"):
        points, best, value = swept.points, unproven.plan, unproven.value
        time_limit, own = unproven.left, swept.own
        others = (
            alternatives(job, points, layouts, best, value, top, tuning, time_limit=time_limit, own=own)
            if points
            else ()
        )
        others = tuple(other for other in others if other.slower <= within)
        ties = near_ties(points, best, value, others) if points else NearTies()
    with clock.phase("safety"):
        safety = (
            safety_of(
                job,
                unproven.space,
                swept,
                layouts,
                layouts.best,
                unproven.estimate,
                tuning,
                unproven.left,
                unproven.contenders,
            )
            if priced_risk
            else None
        )
    return _finished(
        unproven,
        replace(
            unproven.answer(),
            status="optimal" if certificate.proven else "feasible",
            certificate=certificate,
            alternatives=others,
            near_ties=ties,
            safety=safety,
        ),
    )


def _finished(unproven: Unproven, answer: Answer) -> Answer:
    return replace(answer, trials=unproven.tuning.trials, seed=unproven.tuning.seed, search_s=unproven.clock.all())


def _unfinished(job: Job, swept: Sweep, clock: Clock) -> Answer:
    """The best even split that was seen before the time was over."""
    even = best_even(job, swept.points) if swept.points else None
    if even is None:
        return _without_plan(job, swept, clock)
    estimate = estimate_of_plan(job, even.plan, even.knobs)
    return Answer(
        status="feasible",
        job=job,
        plan=even.plan,
        knobs=even.knobs,
        estimate=estimate,
        certificate=unfinished(job, swept, even.value),
        near_ties=near_ties(swept.points, even.plan, even.value) if swept.points else NearTies(),
        flags=(*flags(job, estimate), *unbuilt(job.stack, even.plan)),
    )


def _without_plan(
    job: Job, swept: Sweep, clock: Clock, explained: bool = True, time_limit: float | None = None
) -> Answer:
    """Why there is no plan, where that is to be explained, or that the time was too short to tell."""
    if not swept.complete:
        return Answer(status="unknown", job=job, certificate=without_plan(job, swept))
    with clock.phase("conflict"):
        clashes = conflict(job, time_limit=clock.left(time_limit)) if explained else ()
    return Answer(status="infeasible", job=job, certificate=without_plan(job, swept), conflict=clashes)
