"""The share of a step that pipeline stages wait is under its ceiling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, FloatArray, at_least
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.objectives.pipeline.schedules import bubble_fraction, bubble_left


@dataclass(frozen=True, kw_only=True)
class Bubble:
    """(pp - 1) / (vpp m + pp - 1) <= ceiling; zero-bubble schedules leave less of the pp - 1, as `bubble_left` says.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2, as a share of the whole pipeline time; see
    objectives/pipeline/schedules.py for what schedules leave of it.
    """

    name: str = "bubble"
    variables: tuple[str, ...] = ("pp", "vpp", "num_microbatches", "schedule")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the stages wait little enough."""
        return self.required(job, plans) <= job.limits.bubble

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of pipelines and numbers of micro-batches."""
        rows = np.array(program.combinations(self.variables))
        pp, vpp, counts, schedule = rows.T
        waits = bubble_fraction(pp, vpp, counts, bubble_left(schedule, pp, counts))
        program.allow(self.variables, rows[waits <= job.limits.bubble], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        return f"the pipeline bubble (pp - 1) / (vpp m + pp - 1) must be at most {job.limits.bubble:.4g}"

    def required(self, job: Job, plans: Plans) -> FloatArray:
        """The bubble of each plan."""
        left = bubble_left(plans.schedule, plans.pp, plans.num_microbatches)
        return bubble_fraction(plans.pp, plans.vpp, plans.num_microbatches, left)

    def relax(self, job: Job, required: float) -> tuple[Job, str]:
        """A higher ceiling, in tenths of a percent."""
        limit = at_least(required, 1000)
        return job.with_limits(bubble=limit), f"bubble {job.limits.bubble:.1%} -> {limit:.1%}"
