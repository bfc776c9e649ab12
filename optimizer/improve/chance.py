"""The chance that a plan fits, from the interval of its memory."""

from __future__ import annotations

from math import erf, log, sqrt

import numpy as np

from optimizer.job import Job
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.interval import interval
from optimizer.plan import Plan

SIDES = 1.6448536269514722  # standard deviations on either side that hold 90 %


def chance_to_fit(job: Job, plan: Plan, estimate: Estimate) -> float:
    """Probability that what a plan reserves is within the memory usable [1].

    The interval of the memory holds 90 % of a log-normal around the estimate.

    >>> round(normal_share(1.0), 4)
    0.8413
    """
    return normal_share(log(job.usable_memory / estimate.reserved) / _spread(job, plan))


def chances(job: Job, plan: Plan, reserved: FloatArray) -> FloatArray:
    """The same for what many plans reserve [B], as sure of each as of one plan."""
    deviations = np.log(job.usable_memory / np.maximum(reserved, 1.0)) / _spread(job, plan)
    return np.array([normal_share(value) for value in deviations.tolist()])


def _spread(job: Job, plan: Plan) -> float:
    """Standard deviation of the logarithm of what is reserved [1]."""
    return log(interval(job, plan, 1.0, "memory").high) / SIDES


def normal_share(deviations: float) -> float:
    """Share of a normal distribution below so many standard deviations [1]."""
    return 0.5 * (1.0 + erf(deviations / sqrt(2.0)))
