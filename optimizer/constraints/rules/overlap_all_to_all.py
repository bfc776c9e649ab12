"""The expert-parallel all-to-all overlaps with another micro-batch where there is one and the stack offers it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans

MOST_MTP_LAYERS = 1


@dataclass(frozen=True, kw_only=True)
class OverlapAllToAll:
    """An all-to-all that overlaps needs ep > 1, a stack that offers it, and at most one MTP layer.

    Source: NVIDIA/Megatron-LM @d98e8a64dd (core 0.20), megatron/core/transformer/transformer_config.py, __post_init__,
    overlap_moe_expert_parallel_comm.
    """

    name: str = "overlap-exchange"
    variables: tuple[str, ...] = ("ep", "overlap_exchange")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether there is an all-to-all that the stack can overlap."""
        return np.asarray(~plans.overlap_exchange | ((plans.ep > 1) & _possible(job)))

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of degrees and whether it overlaps."""
        program.where(self.variables, lambda ep, overlaps: not overlaps or (ep > 1 and _possible(job)), literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        if job.model.experts is None:
            return f"{job.model.name} is dense: no all-to-all can overlap"
        if not job.stack.features.offers_overlap:
            return f"{job.stack.name} overlaps the all-to-all with no other micro-batch when a plan asks"
        if not _possible(job):
            return f"an all-to-all overlaps with at most {MOST_MTP_LAYERS} MTP layer: {job.model.mtp_layers}"
        return f"{job.stack.name} overlaps the all-to-all with another micro-batch where ep > 1"


def _possible(job: Job) -> bool:
    return job.stack.features.offers_overlap and job.model.mtp_layers <= MOST_MTP_LAYERS
