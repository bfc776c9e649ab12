"""The fullest GPU reserves no more than it has, as surely as the job asks."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from optimizer.base.units import GB
from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, FloatArray
from optimizer.job.job import EVEN_RISK, Job
from optimizer.job.plan import FIELDS, Knobs, Plans
from optimizer.objectives.step.linear_stage import reserved_memory
from optimizer.objectives.step.safe_memory import chance_to_fit, margin, reach, risk_of, safe_memory

PERCENT = 100
FINEST = 1e-9  # of a percent: what rounding may add to a risk


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Peak reserved memory <= what is usable, less the margin that the risk of going out of memory asks for.

    At the `knobs`; `fits` says for CP-SAT which of the program's points fit.
    """

    fits: BoolArray | None = None
    knobs: Knobs = Knobs()
    name: str = "memory"
    variables: tuple[str, ...] = FIELDS

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether each plan fits as surely as asked."""
        return self.required(job, plans) <= safe_memory(job)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """None of the points that do not fit."""
        if self.fits is not None:
            program.forbid([program.points[point] for point in np.flatnonzero(~self.fits)], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        capacity, usable, safe = _capacity(job), job.usable_memory, safe_memory(job)
        if usable <= 0:
            return (
                f"nothing is left of {capacity / GB:.1f} GB beside {job.stack['context_memory'] / GB:.1f} GB of context"
            )
        context = f"{capacity / GB:.1f} GB less {(capacity - usable) / GB:.1f} GB for the context"
        if risk_of(job) == EVEN_RISK:
            return f"every GPU must fit in {usable / GB:.1f} GB ({context})"
        return (
            f"every GPU must fit in {safe / GB:.1f} GB ({context} and {(usable - safe) / GB:.1f} GB for a risk of "
            f"{percent(risk_of(job))} to go out of memory)"
        )

    def required(self, job: Job, plans: Plans) -> FloatArray:
        """Memory that each plan reserves [B]."""
        return reserved_memory(job, plans, self.knobs)

    def relax(self, job: Job, required: float) -> tuple[Job, str]:
        """More memory per GPU, in whole GB, or where that suffices more risk, in whole percent."""
        capacity, enough = _capacity(job), self.size(job, required) * GB
        text = f"HBM {capacity / GB:.4g} -> {enough / GB:.0f} GB"
        risk = self.risk(job, required)
        if risk:
            text += f", or --oom-risk {percent(risk_of(job))} -> {risk}%"
        return job.with_limits(hbm=enough), text

    def size(self, job: Job, required: float) -> int:
        """Whole GB of a GPU on which a plan that reserves so much [B] keeps the rule."""
        return ceil((reach(job, required) + _context(job)) / GB)

    def next_size(self, job: Job, required: float) -> float:
        """What a plan may reserve to keep the rule on a GPU one GB smaller [B]."""
        return ((self.size(job, required) - 1) * GB - _context(job)) * margin(job, risk_of(job))

    def risk(self, job: Job, required: float) -> int:
        """Whole percent of risk at which a plan that reserves so much [B] keeps the rule, 0 where none does or the
        job's own is enough.
        """
        if not safe_memory(job) < required <= job.usable_memory:
            return 0
        return min(ceil((1.0 - chance_to_fit(job, required)) * PERCENT - FINEST), round(EVEN_RISK * PERCENT))

    def next_risk(self, job: Job, required: float) -> float:
        """What a plan may reserve to keep the rule at one percent less, or at 50 % where it does not at all [B]."""
        if required <= safe_memory(job) or risk_of(job) == EVEN_RISK:
            return 0.0
        risk = self.risk(job, required)
        if not risk:
            return job.usable_memory
        return job.usable_memory * margin(job, max((risk - 1) / PERCENT, risk_of(job)))


def percent(share: float) -> str:
    """A share in percent, to three digits.

    >>> percent(0.1), percent(0.001)
    ('10%', '0.1%')
    """
    return f"{PERCENT * share:.3g}%"


def _capacity(job: Job) -> float:
    return job.limits.hbm or job.cluster.device.memory


def _context(job: Job) -> float:
    return _capacity(job) - job.usable_memory
