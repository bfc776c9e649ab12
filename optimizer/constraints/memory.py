"""The fullest GPU reserves no more than it has."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, FloatArray
from optimizer.job import Job
from optimizer.objectives.step.memory import reserved_memory
from optimizer.plan import FIELDS, Knobs, Plans
from optimizer.units import GB


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Peak reserved memory <= usable memory.

    At the `knobs`; CP-SAT is told which of the program's points fit: `fits`.
    """

    fits: BoolArray | None = None
    knobs: Knobs = Knobs()
    name: str = "memory"
    variables: tuple[str, ...] = FIELDS

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether each plan fits."""
        return self.required(job, plans) <= job.usable_memory

    def post(self, job: Job, program: Program, literal: int) -> None:
        """None of the points that do not fit."""
        if self.fits is not None:
            program.forbid([program.points[point] for point in np.flatnonzero(~self.fits)], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        capacity = job.limits.hbm or job.cluster.device.memory
        if job.usable_memory <= 0:
            return (
                f"nothing is left of {capacity / GB:.1f} GB beside {job.stack['context_memory'] / GB:.1f} GB of context"
            )
        return (
            f"every GPU must fit in {job.usable_memory / GB:.1f} GB "
            f"({capacity / GB:.1f} GB less {(capacity - job.usable_memory) / GB:.1f} GB for the context)"
        )

    def required(self, job: Job, plans: Plans) -> FloatArray:
        """Memory that each plan reserves [B]."""
        return reserved_memory(job, plans, self.knobs)

    def relax(self, job: Job, required: float) -> tuple[Job, str]:
        """More memory per GPU, in whole GB."""
        capacity = job.limits.hbm or job.cluster.device.memory
        enough = ceil((required + capacity - job.usable_memory) / GB) * GB
        return job.with_limits(hbm=enough), f"HBM {capacity / GB:.4g} -> {enough / GB:.0f} GB"
