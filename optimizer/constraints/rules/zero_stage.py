"""The sharding of optimizer state, gradients and weights is one that the stack offers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, FloatArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class ZeroStage:
    """The ZeRO stage is offered; gradients alone (stage 2) cannot be sharded under a pipeline.

    A pipeline accumulates gradients over micro-batches, so stage 2 would scatter them after each.

    Source: DeepSpeed, deepspeed/runtime/pipe/engine.py.
    """

    name: str = "zero-stage"
    variables: tuple[str, ...] = ("pp", "zero_stage")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the stack can shard so."""
        offered = np.isin(plans.zero_stage, job.stack.features.zero_stages)
        return np.asarray(offered & ~((plans.zero_stage == 2) & (plans.pp > 1)))

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of pipelines and stages."""
        offered = set(job.stack.features.zero_stages)
        pairs = program.combinations(self.variables)
        rows = [(pp, zero) for pp, zero in pairs if zero in offered and (pp == 1 or zero != 2)]
        program.allow(self.variables, rows, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        offered = ", ".join(map(str, job.stack.features.zero_stages))
        return f"{job.stack.name} offers ZeRO stages {offered}; stage 2 needs pp = 1"

    def required(self, job: Job, plans: Plans) -> FloatArray:
        """The stage to offer; infinite where a pipeline forbids it."""
        return np.where((plans.zero_stage == 2) & (plans.pp > 1), np.inf, plans.zero_stage)

    def relax(self, job: Job, required: float) -> tuple[Job, str]:
        """A stack that offers one more stage."""
        stage = int(required)
        stages = tuple(sorted({*job.stack.features.zero_stages, stage}))
        features = replace(job.stack.features, zero_stages=stages)
        how = f"--set stack.zero_stages=[{','.join(map(str, stages))}], or a --stack that has it"
        return replace(job, stack=replace(job.stack, features=features)), f"allow ZeRO-{stage} ({how})"
