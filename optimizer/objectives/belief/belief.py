"""What is believed of a job's predictions: the published runs nearest to it, and the user's own."""

from __future__ import annotations

from functools import lru_cache
from math import sqrt

import numpy as np

from optimizer.catalog.belief import likeness_numbers, published_errors
from optimizer.job.job import Job
from optimizer.job.known import QUANTITIES, TIME, YOURS, Known
from optimizer.job.plan import Plan
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.likeness import Likeness
from optimizer.objectives.belief.places import EASY_MFU, Places, place
from optimizer.objectives.belief.posterior import Posterior

NEAREST = 120  # published runs that count for a job: those whose errors are most like its own


def error_of(job: Job, plan: Plan | None, mfu: float, quantity: str = TIME, site: str = YOURS) -> tuple[float, float]:
    """Mean and standard deviation of log(measured / predicted) of one prediction [1].

    The shipped stacks are fitted to the published runs, so that these say how far off a median may be and not where it
    is: their mean widens. What a user's own runs say of it counts as it is.

    Args:
        job: Its stack holds the user's own runs, if any.
        plan: One of its plans, None for any of them.
        mfu: What the prediction makes of the GPUs [1].
        quantity: What is predicted, of QUANTITIES.
        site: Whose machines the job runs on.
    """
    where = Places.of([place(job, plan, mfu, site, quantity)])
    published = posterior(place(job, None, EASY_MFU, site, quantity), job.stack.known)
    mean, spread = (float(values[0]) for values in published.at(where))
    return (mean, spread) if job.stack.known else (0.0, sqrt(spread**2 + mean**2))


def likeness(quantity: str) -> Likeness:
    """How alike errors of this quantity are."""
    return _likeness()[QUANTITIES.index(quantity)]


@lru_cache(maxsize=1)
def _likeness() -> tuple[Likeness, ...]:
    return tuple(Likeness(**likeness_numbers()[quantity]) for quantity in QUANTITIES)


@lru_cache(maxsize=64)
def posterior(about: Known, own: tuple[Known, ...]) -> Posterior:
    """What the published runs nearest to a place and the user's own say of it."""
    alike, (rows, places) = likeness(about.quantity), published(about.quantity)
    nearest = np.argsort(-alike.covariance(Places.of([about]), places)[0], kind="stable")[:NEAREST]
    mine = [row for row in own if row.quantity == about.quantity]
    near = Places.of([*(rows[index] for index in nearest), *mine])
    return Posterior.given(alike, near, *_errors([*(rows[index] for index in nearest), *mine]))


@lru_cache(maxsize=len(QUANTITIES))
def published(quantity: str) -> tuple[tuple[Known, ...], Places]:
    """The published errors of a quantity, and where they lie."""
    rows = tuple(row for row in published_errors() if row.quantity == quantity)
    return rows, Places.of(rows)


def _errors(rows: list[Known]) -> tuple[FloatArray, FloatArray]:
    return np.array([row.error for row in rows]), np.array([row.spread for row in rows])
