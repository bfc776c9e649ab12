"""Sequence parallelism accompanies tensor parallelism."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class SequenceParallel:
    """Sequence parallelism needs tp > 1 and a stack that offers it; expert parallelism with tp > 1 needs it, and so
    does any MoE layer with tp > 1 where the stack offers it.

    Source: Megatron-LM, megatron/training/arguments.py (validate_args); megatron/core/transformer/moe/moe_layer.py,
    whose forward pass raises ValueError when it trains without.
    """

    name: str = "sequence-parallel"
    variables: tuple[str, ...] = ("tp", "ep", "sequence_parallel")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the switch is possible, and on where it must be."""
        possible = (plans.tp > 1) & job.stack.features.sequence_parallel
        needed = (plans.tp > 1) & ((plans.ep > 1) | _moe_needs_it(job))
        return np.where(plans.sequence_parallel, possible, ~needed)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of the degrees and the switch."""
        offered, without = job.stack.features.sequence_parallel, not _moe_needs_it(job)
        program.where(
            self.variables,
            lambda tp, ep, sp: tp > 1 and offered if sp else tp == 1 or (ep == 1 and without),
            literal,
        )

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        if not job.stack.features.sequence_parallel:
            return f"{job.stack.name} has no sequence parallelism"
        needing = "a MoE model" if _moe_needs_it(job) else "ep > 1"
        return f"sequence parallelism needs tp > 1, and {needing} with tp > 1 needs sequence parallelism"


def _moe_needs_it(job: Job) -> bool:
    """Whether a MoE layer needs it with tp > 1, whatever its ep."""
    return job.model.experts is not None and job.stack.features.sequence_parallel
