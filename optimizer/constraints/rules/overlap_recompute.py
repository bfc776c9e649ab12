"""An all-to-all that overlaps is not recomputed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.job.recomputation import RECOMPUTE, modules_of

REPEATS = np.array([mode == "full" or "moe" in modules_of(mode) for mode in RECOMPUTE])


@dataclass(frozen=True, kw_only=True)
class OverlapRecompute:
    """With an all-to-all that overlaps, neither whole layers nor whole MoE layers are recomputed.

    Source: NVIDIA/Megatron-LM @d98e8a64dd (core 0.20), megatron/core/transformer/transformer_config.py, __post_init__,
    overlap_moe_expert_parallel_comm.
    """

    name: str = "overlap-recompute"
    variables: tuple[str, ...] = ("recompute", "overlap_exchange")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the backward pass leaves the all-to-all as it is."""
        return np.asarray(~plans.overlap_exchange | ~REPEATS[plans.recompute])

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of modes and whether it overlaps."""
        program.where(self.variables, lambda mode, on: not (on and REPEATS[mode]), literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        return "an all-to-all that overlaps needs a recomputation that repeats no whole layers, nor whole MoE layers"
