"""The vocabulary is padded to a multiple of 128 tp, within reason."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, FloatArray, at_least
from optimizer.job.job import Job
from optimizer.job.plan import Plans

MULTIPLE = 128


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Padding grows the vocabulary by at most the limit.

    Source: Megatron-LM, --make-vocab-size-divisible-by 128 (times the tensor-parallel size).
    """

    name: str = "vocabulary"
    variables: tuple[str, ...] = ("tp",)

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the padding is within its limit."""
        return self.required(job, plans) <= job.limits.vocab_padding

    def post(self, job: Job, program: Program, literal: int) -> None:
        """Tp keeps the padding within its limit."""
        vocab, most = job.model.vocab, job.limits.vocab_padding
        program.where(
            self.variables, lambda tp: ceil(vocab / (MULTIPLE * tp)) * MULTIPLE * tp / vocab - 1 <= most, literal
        )

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        return (
            f"the vocabulary of {job.model.vocab:,} padded to a multiple of {MULTIPLE} x tp "
            f"may grow by at most {job.limits.vocab_padding:.0%}"
        )

    def required(self, job: Job, plans: Plans) -> FloatArray:
        """Share by which padding grows the vocabulary."""
        padded = np.ceil(job.model.vocab / (MULTIPLE * plans.tp)) * MULTIPLE * plans.tp
        return np.asarray(padded / job.model.vocab - 1, dtype=np.float64)

    def relax(self, job: Job, required: float) -> tuple[Job, str]:
        """A larger share of padding."""
        limit = at_least(required, 100)
        return job.with_limits(vocab_padding=limit), f"vocabulary padding {job.limits.vocab_padding:.0%} -> {limit:.0%}"
