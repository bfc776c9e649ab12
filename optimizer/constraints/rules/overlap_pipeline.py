"""An all-to-all that overlaps needs another micro-batch's pass of the same virtual stage at hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import SCHEDULES, Plans

DUALPIPE = SCHEDULES.index("dualpipe")


@dataclass(frozen=True, kw_only=True)
class OverlapPipeline:
    """With an all-to-all that overlaps, pp = 1 or vpp > 1: plain 1F1B waits for the gradient of the pass it just ran.

    DualPipe always has a pass of the other direction.

    Source: NVIDIA/Megatron-LM @d98e8a64dd (core 0.20), megatron/core/transformer/transformer_config.py, __post_init__,
    overlap_moe_expert_parallel_comm.
    """

    name: str = "overlap-pipeline"
    variables: tuple[str, ...] = ("pp", "vpp", "schedule", "overlap_exchange")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether passes of two micro-batches can pair."""
        paired = (plans.pp == 1) | (plans.vpp > 1) | (plans.schedule == DUALPIPE)
        return np.asarray(~plans.overlap_exchange | paired)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of stages, virtual stages, schedules and whether it overlaps."""
        program.where(self.variables, lambda pp, vpp, how, on: not on or pp == 1 or vpp > 1 or how == DUALPIPE, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        return "an all-to-all that overlaps needs vpp > 1 or the schedule dualpipe where pp > 1"
