"""A run and what it should be: the job, its plan and knobs, priced as they are or with something changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from optimizer.calibration.predict import with_parameters
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.price import price


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
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
