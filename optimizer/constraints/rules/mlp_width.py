"""Tensor parallelism splits every MLP evenly."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class MlpWidth:
    """tp divides the hidden width, the width of the dense MLP and that of the shared experts."""

    name: str = "mlp-width"
    variables: tuple[str, ...] = ("tp",)

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether all widths split evenly."""
        fits = job.model.hidden % plans.tp == 0
        for width in _widths(job):
            fits = fits & (width % plans.tp == 0)
        return np.asarray(fits)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """Tp divides the greatest common divisor of the widths."""
        common = gcd(job.model.hidden, *_widths(job))
        program.where(self.variables, lambda tp: common % tp == 0, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        widths = ", ".join(f"{width:,}" for width in (job.model.hidden, *_widths(job)))
        return f"tp must divide the hidden and MLP widths {widths}"


def _widths(job: Job) -> tuple[int, ...]:
    widths = [job.model.ffn_hidden] if job.model.dense_layers else []
    if job.model.experts and job.model.experts.shared_ffn_hidden:
        widths.append(job.model.experts.shared_ffn_hidden)
    return tuple(widths)
