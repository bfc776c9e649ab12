"""One physical cause: how it slows a step down, how bad it can be, and how to find out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from optimizer.calibration.predict import with_parameters
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.price import price


@dataclass(frozen=True, kw_only=True, eq=False)
class SlowStep:
    """Why does this plan take longer than predicted?"""

    job: Job
    plan: Plan
    knobs: Knobs = Knobs()

    def seconds(self, job: Job | None = None) -> float:
        """The step under the job as it is, or another [s]."""
        return float(price(job or self.job, Plans.of([self.plan]), self.knobs).step_time[0])

    @cached_property
    def predicted(self) -> float:
        """The step if nothing is wrong [s]."""
        return self.seconds()

    @cached_property
    def terms(self) -> Mapping[str, float]:
        """Seconds of that step by term."""
        time = price(self.job, Plans.of([self.plan]), self.knobs).time
        return {name: float(values[0]) for name, values in time.items()}

    def with_stack(self, **parameters: float) -> float:
        """The step with other parameters of the stack [s]."""
        return self.seconds(replace(self.job, stack=with_parameters(self.job.stack, parameters)))


DRAWS = 201  # equally likely settings that stand for a prior
Shares = Mapping[str, float]
# How often the logs of runs show each value of a sign (see signs.py) when nothing is wrong, or the cause
# has nothing to do with it [1]. Source: assumed; published runs vary by 0.3-3 % from one to the next, and checkpoints
# stall some of them.
USUAL: Mapping[str, Shares] = {
    "motion": {"steady": 0.75, "jitter": 0.13, "wander": 0.12},
    "tail": {"even": 0.7, "skewed": 0.18, "stalls": 0.1, "standstill": 0.02},
    "trend": {"flat": 0.9, "rises": 0.06, "falls": 0.04},
    "floor": {"above": 0.93, "reached": 0.07},
    "overlap": {"on": 0.9, "off": 0.1},
    "loaders": {"some": 0.95, "none": 0.05},
}


@dataclass(frozen=True, kw_only=True)
class Test:
    """What to do to find out, the minutes it takes on the nodes, and what it shows if this is the cause."""

    what: str
    minutes: float
    shows: Callable[[float], str]
    __test__ = False  # no test case, for pytest


@dataclass(frozen=True, kw_only=True, eq=False)
class Cause:
    """A single change that makes a step slower.

    seconds: the step under a setting of it [s], the larger the further the setting is from `healthy` towards `worst`.
    settings: equally likely settings of runs that have this fault, with `why` as their source. says: the setting in
    words. signs: how often the logs of such runs show each value of a sign, where that is not USUAL. odds: how
    often it is the fault / how often another one is, before anything is known [1]. absent: why the run cannot have it.
    """

    name: str
    label: str
    seconds: Callable[[SlowStep, float], float]
    healthy: Callable[[SlowStep], float]
    worst: Callable[[SlowStep], float]
    settings: Callable[[SlowStep], FloatArray]
    why: str
    says: Callable[[float], str]
    test: Test
    signs: Mapping[str, Shares] = field(default_factory=dict)
    prior_odds: float = 1.0
    absent: Callable[[SlowStep], str] = lambda question: ""

    def chance(self, sign: str, value: str) -> float:
        """How often the log of such a run shows this value of a sign [1]."""
        return self.signs.get(sign, USUAL[sign])[value]


def log_uniform(low: float, high: float) -> FloatArray:
    """Equally likely settings, each factor between the bounds as likely as the next.

    >>> log_uniform(1.0, 100.0)[100].round(6).tolist()
    10.0
    """
    return np.asarray(low * (high / low) ** quantiles())


def exponential(mean: float, most: float) -> FloatArray:
    """Equally likely settings of an exponential distribution, cut at the most there can be.

    >>> exponential(0.1, 9.0)[100].round(4).tolist()
    0.0693
    """
    share = -np.expm1(-most / mean)
    return np.asarray(-mean * np.log1p(-share * quantiles()))


def quantiles() -> FloatArray:
    """The middles of DRAWS equal parts of (0, 1)."""
    return np.asarray((np.arange(DRAWS) + 0.5) / DRAWS)
