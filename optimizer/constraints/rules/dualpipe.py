"""DualPipe needs an even pipeline, enough micro-batches, layers placed by the user, and an all-to-all that overlaps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.base.errors import InputError
from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import LAYERS, LAYOUT, Job
from optimizer.job.plan import SCHEDULES, Plans
from optimizer.objectives.pipeline.dualpipe import ROUNDS

DUALPIPE = SCHEDULES.index("dualpipe")


def placed(job: Job) -> None:
    """Raises InputError where dualpipe is asked for and the layers are not placed."""
    asked = {job.limits.fixed.get("schedule"), *job.limits.choices.get("schedule", ())}
    if "dualpipe" in asked and not job.layout_given:
        raise InputError(f"schedule=dualpipe: {DualPipe().explain(job)}")


@dataclass(frozen=True, kw_only=True)
class DualPipe:
    """The dualpipe schedule needs an even pp and an even number of at least 2 pp micro-batches.

    Its stages run their mirror's layers too, which the search over layouts does not know: they lie as the user says.

    Source: deepseek-ai/DualPipe @3da1bbe, dualpipe/dualpipe.py, step.
    """

    name: str = "dualpipe"
    variables: tuple[str, ...] = ("pp", "num_microbatches", "schedule")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether micro-batches can enter at both ends."""
        m, pp = plans.num_microbatches, plans.pp
        runs = (pp % 2 == 0) & (m % 2 == 0) & (m >= ROUNDS * pp) & job.layout_given
        return np.asarray((plans.schedule != DUALPIPE) | runs)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of stages, micro-batches and schedules."""

        def runs(pp: int, m: int, schedule: int) -> bool:
            enough = pp % 2 == 0 and m % 2 == 0 and m >= ROUNDS * pp and job.layout_given
            return schedule != DUALPIPE or enough

        program.where(self.variables, runs, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        needs = f"dualpipe needs an even pp and an even number of at least {ROUNDS} pp micro-batches"
        if job.layout_given:
            return needs
        return f"{needs}, and layers that you place (--fix {LAYOUT}=even or --fix {LAYERS}=...): it searches no layouts"
