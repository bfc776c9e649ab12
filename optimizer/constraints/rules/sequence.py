"""Sequences split evenly over context-parallel and sequence-parallel ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class Sequence:
    """2 cp (with context parallelism) x tp (with sequence parallelism) divides the sequence length.

    The factor 2 balances the causal mask: every rank takes one early and one late chunk.

    Source: Megatron-LM, get_batch_on_this_cp_rank in megatron/core/utils.py.
    """

    name: str = "sequence"
    variables: tuple[str, ...] = ("tp", "cp", "sequence_parallel")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the sequence splits evenly."""
        chunks = np.where(plans.cp > 1, 2 * plans.cp, 1) * np.where(plans.sequence_parallel, plans.tp, 1)
        return np.asarray(job.seq_len % chunks == 0)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of the degrees that divide."""

        def divides(tp: int, cp: int, sp: int) -> bool:
            return job.seq_len % ((2 * cp if cp > 1 else 1) * (tp if sp else 1)) == 0

        program.where(self.variables, divides, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        return f"2 cp (if cp > 1) x tp (with sequence parallelism) must divide {job.seq_len:,} tokens"
