"""The chance that a plan fits, from the interval of its memory."""

from __future__ import annotations

from math import erf, log, sqrt

from optimizer.job import Job
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
    found = interval(job, plan, estimate.reserved, "memory")
    spread = log(found.high / estimate.reserved) / SIDES
    return normal_share(log(job.usable_memory / estimate.reserved) / spread)


def normal_share(deviations: float) -> float:
    """Share of a normal distribution below so many standard deviations [1]."""
    return 0.5 * (1.0 + erf(deviations / sqrt(2.0)))
