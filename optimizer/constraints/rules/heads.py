"""Tensor parallelism splits whole heads of attention and of recurrences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class Heads:
    """tp divides the heads of every kind of layer."""

    name: str = "heads"
    variables: tuple[str, ...] = ("tp",)

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether every rank gets as many whole heads."""
        return np.asarray(job.model.split_heads % plans.tp == 0)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """Tp is a divisor of the heads."""
        program.where(self.variables, lambda tp: job.model.split_heads % tp == 0, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        states = " and those of its recurrences" if job.model.recurrence else ""
        return f"tp must divide the {job.model.heads} attention heads{states}"
