"""What a rule is: one truth on arrays of plans, one reading for CP-SAT, one sentence for people."""

from __future__ import annotations

from math import floor
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from optimizer.constraints.program import Program
from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plans

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]


class Rule(Protocol):
    """Which plans may exist. `variables` are those that `check` reads: the sweep applies a rule once they are set."""

    @property
    def name(self) -> str:
        """What messages call the rule."""
        ...

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the plan variables that decide."""
        ...

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether each plan satisfies the rule: the one truth."""
        ...

    def post(self, job: Job, program: Program, literal: int) -> None:
        """The same for CP-SAT, enforced by the literal."""
        ...

    def explain(self, job: Job) -> str:
        """The rule in one sentence with the job's numbers."""
        ...


@runtime_checkable
class LimitRule(Rule, Protocol):
    """A rule with a limit that can be moved."""

    def required(self, job: Job, plans: Plans) -> FloatArray:
        """By how much the limit must move for each plan, in any unit that grows with the move."""
        ...

    def relax(self, job: Job, required: float) -> tuple[Job, str]:
        """The job with the limit moved that far, and the move in words."""
        ...


@runtime_checkable
class NumberRule(Rule, Protocol):
    """A rule about a number of the job, which other numbers may satisfy."""

    def others(self, job: Job) -> IntArray:
        """Every other number that may be offered, nearest first."""
        ...

    def moved(self, job: Job, other: Job) -> str:
        """The change from the job to one with another number, in words."""
        ...

    def none(self, job: Job) -> str:
        """That none of the others is enough, in words."""
        ...


def at_least(required: float, steps: int) -> float:
    """The smallest multiple of one step, of so many to 1, that is no less than this.

    >>> at_least(0.0588, 1000), at_least(0.07, 100), at_least(0.1 + 0.2, 1000)
    (0.059, 0.07, 0.301)
    """
    count = floor(required * steps)
    return next(limit for limit in (count / steps, (count + 1) / steps) if limit >= required)


def nearest_first(numbers: IntArray, number: int) -> IntArray:
    """Rising numbers other than this one by their difference from it, of two as near the smaller first.

    >>> nearest_first(np.array([8, 9, 10, 11, 12, 13]), 10).tolist()
    [9, 11, 8, 12, 13]
    """
    others = numbers[numbers != number]
    return np.asarray(others[np.argsort(np.abs(others - number), kind="stable")])
