"""What is believed of a job's predictions: the published runs nearest to it, and the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from math import hypot

import numpy as np

from optimizer.catalog.belief import TUNING, likeness_numbers, published_errors
from optimizer.job.job import Job
from optimizer.job.known import QUANTITIES, TIME, YOURS, RunError
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.likeness import ErrorLikeness, nearness
from optimizer.objectives.belief.places import EASY_MFU, Places, place
from optimizer.objectives.belief.posterior import ALONE, Posterior, unlike

TINY = 1e-12
NEAREST = 120  # published runs that count for a job: those whose errors are most like its own
COARSE = 2.0  # doublings of size within which jobs share them
SEVERAL = 2  # runs that together show an unlike site: one alone may be a mistake
ODD = 0.025  # by which one run may lie off another of the same machine and model [1]


@lru_cache(maxsize=64)  # an answer says an error several times
def error_of(job: Job, plan: Plan | None, mfu: float, quantity: str = TIME, site: str = YOURS) -> tuple[float, float]:
    """Mean and standard deviation of log(measured / predicted) of one prediction [1].

    The shipped stacks are fitted to the published runs, so that these say how far off a median may be and not where it
    is: their mean widens. What a user's own runs say of it counts as it is, and with it as much of the published mean
    as they explain of the variance (see `by_own_runs`).

    Args:
        job: Its stack holds the user's own runs, if any.
        plan: One of its plans, None for any of them.
        mfu: What the prediction makes of the GPUs [1].
        quantity: What is predicted, of QUANTITIES.
        site: Whose machines the job runs on.
    """
    where, about = Places.of([place(job, plan, mfu, site, quantity)]), surroundings(job, site, quantity)
    before = posterior(about, ()).at(where)
    after = posterior(about, job.stack.known).at(where) if job.stack.known else before
    mean, spread = by_own_runs(before, after, likeness(quantity).single(where), _near(job, where, quantity))
    return float(mean[0]), float(spread[0])


def errors_of(job: Job, plans: Plans, mfu: FloatArray, quantity: str = TIME) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of log(measured / predicted) of many plans of a job, as error_of has them for one [1].

    The noise of a run is on the diagonal: it is what no other plan tells.

    Args:
        job: Its stack holds the user's own runs, if any.
        plans: Of the job.
        mfu: What their predictions make of the GPUs [1].
        quantity: What is predicted, of QUANTITIES.
    """
    where, about = Places.around(job, plans, mfu, quantity), surroundings(job, quantity=quantity)
    known, noise = posterior(about, job.stack.known), likeness(quantity).single(where)
    mean, *left = conditioned(posterior(about, ()).at(where), known.at(where), noise, _near(job, where, quantity))
    return mean, known.covariance(where) + sum(np.outer(each, each) for each in left) + np.diag(noise**2)


def alikeness(predictions: Sequence[tuple[Job, Plan | None, float]]) -> FloatArray:
    """Correlation of the errors of predicted step times of several jobs, their plans and MFUs, one row each [1]."""
    places = [place(job, plan, mfu) for job, plan, mfu in predictions]
    where, alike = Places.of(places), likeness(TIME)
    rows, known = published(TIME, *(each.root for each in places))
    order = np.argsort(-alike.covariance(where, known), axis=1, kind="stable")[:, :NEAREST]
    nearest = np.unique(order)
    own = list(dict.fromkeys(row for job, *_ in predictions for row in job.stack.known if row.quantity == TIME))
    near = known.take(nearest).with_others(Places.of(own))
    after = Posterior.given(alike, near, *_errors([*(rows[index] for index in nearest), *own]))
    covariance = after.covariance(where) + np.diag(alike.single(where) ** 2)
    spreads = np.sqrt(np.diag(covariance))
    return np.asarray(covariance / np.outer(spreads, spreads))


def once_measured(job: Job, plan: Plan, mfu: float, runs: Sequence[tuple[Job, Plan, float]]) -> FloatArray:
    """Standard deviation of the error of a predicted step time once one of some runs was measured, by run [1].

    Args:
        job: Its stack holds the user's own runs, if any.
        plan: One of its plans.
        mfu: What the prediction makes of the GPUs [1].
        runs: Jobs and plans that could be run, with their predicted MFUs; of the same software.
    """
    where = Places.of([place(*each) for each in ((job, plan, mfu), *runs)])
    about, noise = surroundings(job), likeness(TIME).single(where)
    known = posterior(about, job.stack.known)
    covariance = known.covariance(where)
    explained = covariance[0, 1:] ** 2 / (np.diag(covariance)[1:] + noise[1:] ** 2)
    first = not any(row.quantity == TIME for row in job.stack.known)
    near = nearness(where, where)[0, 1:] if first else np.ones(len(runs))
    left = covariance[0, 0] - (1.0 - ((1.0 - ALONE) * (1.0 - near)) ** 2) * explained
    after = np.sqrt(np.maximum(left, 0.0) + noise[0] ** 2)
    before = posterior(about, ()).at(where.take(np.zeros(len(runs), dtype=np.intp)))
    return np.asarray(np.hypot(after, conditioned(before, (before[0], after), np.full(len(runs), noise[0]), near)[1]))


def by_own_runs(
    before: tuple[FloatArray, FloatArray], after: tuple[FloatArray, FloatArray], noise: FloatArray, near: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and spread of errors by what own runs told of them: that of `conditioned`, and sqrt(s^2 + sum u^2) [1].

    >>> before, noise, near = (np.array([0.3]), np.array([0.5])), np.array([0.1]), np.ones(1)
    >>> by_own_runs(before, before, noise, near)[0], by_own_runs(before, (np.array([-0.2]), noise), noise, near)[0]
    (array([0.]), array([-0.2]))
    """
    mean, *left = conditioned(before, after, noise, near)
    return mean, np.sqrt(after[1] ** 2 + sum(each**2 for each in left))


def conditioned(
    before: tuple[FloatArray, FloatArray], after: tuple[FloatArray, FloatArray], noise: FloatArray, near: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean of errors by what own runs told of them, and what is left untold u that may be so as well [1].

    Of the mean by the published runs, m_0, the share is left that own runs do not explain of the variance:
    (1 - t) m_0, t = 1 - (s^2 - n^2) / (s_0^2 - n^2). One run alone tells as likely of itself as of others: of these
    ALONE of what it says beyond ODD is believed.

    Args:
        before: Mean m_0 and spread s_0 by the published runs alone.
        after: Mean m and spread s by the own runs too.
        noise: Standard deviation n of one run.
        near: How near the own run is where it is the only one, else 1 [1].

    >>> before, after, noise = (np.zeros(2), np.full(2, 0.5)), (np.full(2, -0.225), np.full(2, 0.1)), np.full(2, 0.1)
    >>> conditioned(before, after, noise, np.array([1.0, 0.0]))[0]
    array([-0.225, -0.1  ])
    """
    explained = 1.0 - (after[1] ** 2 - noise**2) / np.maximum(before[1] ** 2 - noise**2, TINY)
    untold = (1.0 - np.clip(explained, 0.0, 1.0)) * before[0]
    mean = after[0] - untold
    beyond = np.sign(mean) * np.maximum(np.abs(mean) - ODD * (1.0 - near), 0.0)
    believed = (ALONE + (1.0 - ALONE) * near) * beyond
    return believed, untold, mean - believed


def _near(job: Job, where: Places, quantity: str) -> FloatArray:
    """How near the user's own run is to each place where it is the only one that tells of a quantity, else 1 [1]."""
    own = [row for row in job.stack.known if row.quantity == quantity]
    alone = len(own) == 1 and own[0].spread == 0
    return nearness(where, Places.of(own))[:, 0] if alone else np.ones(len(where))


def likeness(quantity: str) -> ErrorLikeness:
    """How alike errors of this quantity are."""
    return _likeness()[QUANTITIES.index(quantity)]


@lru_cache(maxsize=1)
def _likeness() -> tuple[ErrorLikeness, ...]:
    return tuple(ErrorLikeness(**likeness_numbers()[quantity]) for quantity in QUANTITIES)


def surroundings(job: Job, site: str = YOURS, quantity: str = TIME) -> RunError:
    """The place that stands for all of a job and for jobs about as large: their nearest published runs are the same."""
    about = place(job, None, EASY_MFU, site, quantity)
    return replace(about, size=tuple(COARSE * round(doublings / COARSE) for doublings in about.size))


@lru_cache(maxsize=64)
def posterior(about: RunError, own: tuple[RunError, ...]) -> Posterior:
    """What the published runs nearest to a place and the user's own say of it, whose site may be unlike all others."""
    alike, (rows, places) = likeness(about.quantity), published(about.quantity, about.root)
    nearest = np.argsort(-alike.covariance(Places.of([about]), places)[0], kind="stable")[:NEAREST]
    mine = [row for row in own if row.quantity == about.quantity]
    same = [row for row in mine if (row.software, row.device, row.site) == (about.software, about.device, about.site)]
    strange = unlike(_errors(same)[0], *posterior(about, ()).at(Places.of(same))) if same else 0.0
    if len(same) >= SEVERAL:
        alike = replace(alike, parts={**alike.parts, "site": hypot(alike.parts["site"], strange)})
    near = places.take(nearest).with_others(Places.of(mine))
    given = Posterior.given(alike, near, *_errors([*(rows[index] for index in nearest), *mine]))
    in_doubt = strange and len(same) < SEVERAL
    return given.in_doubt(Places.of(same), _errors(same)[0]) if in_doubt else given


def published(quantity: str, *roots: str) -> tuple[tuple[RunError, ...], Places]:
    """The published errors of a quantity, and where they lie; of fine-tuning too for software that is built for it."""
    others = set(roots) - _roots()
    return _published(quantity, bool(others) and not others.isdisjoint(_roots(TUNING)))


@cache
def _roots(*file: str) -> frozenset[str]:
    """Software of a table of errors."""
    return frozenset(row.root for row in published_errors(*file))


@lru_cache(maxsize=2 * len(QUANTITIES))
def _published(quantity: str, tuning: bool) -> tuple[tuple[RunError, ...], Places]:
    rows = (*published_errors(), *(published_errors(TUNING) if tuning else ()))
    chosen = tuple(row for row in rows if row.quantity == quantity)
    return chosen, Places.of(chosen)


def _errors(rows: list[RunError]) -> tuple[FloatArray, FloatArray]:
    return np.array([row.error for row in rows]), np.array([row.spread for row in rows])
