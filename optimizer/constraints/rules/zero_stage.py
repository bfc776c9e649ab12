"""The sharding of optimizer state, gradients and weights is one that the stack offers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, FloatArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class ZeroStage:
    """The ZeRO stage is offered, with a pipeline or without; stage 2 is under no pipeline.

    A pipeline accumulates gradients over micro-batches, so stage 2 would scatter them after each.

    Source: DeepSpeed, deepspeed/runtime/pipe/engine.py; pytorch/torchtitan, torchtitan/distributed/fsdp.py (FSDP keeps
    weights whole and reduces gradients once under a pipeline: ZeRO-1).
    """

    name: str = "zero-stage"
    variables: tuple[str, ...] = ("pp", "zero_stage")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the stack can shard so."""
        alone, piped = (
            np.isin(plans.zero_stage, job.stack.zero_stages(with_pipeline)) for with_pipeline in (False, True)
        )
        return np.where(plans.pp > 1, piped, alone)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of pipelines and stages."""
        alone, piped = (set(job.stack.zero_stages(with_pipeline)) for with_pipeline in (False, True))
        program.where(self.variables, lambda pp, zero: zero in (piped if pp > 1 else alone), literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        alone, piped = (", ".join(map(str, job.stack.zero_stages(with_pipeline))) for with_pipeline in (False, True))
        return f"{job.stack.name} offers ZeRO stages {alone}; under a pipeline {piped}"

    def required(self, job: Job, plans: Plans) -> FloatArray:
        """The stage to offer; infinite where a pipeline forbids it."""
        return np.where((plans.zero_stage == 2) & (plans.pp > 1), np.inf, plans.zero_stage)

    def relax(self, job: Job, required: float) -> tuple[Job, str]:
        """A stack that offers one more stage."""
        stage = int(required)
        own = job.stack.features
        names = ("zero_stages", *("piped_zero_stages",) * bool(own.piped_zero_stages and stage != 2))
        stages: dict[str, Any] = {name: tuple(sorted({*getattr(own, name), stage})) for name in names}
        features = replace(own, **stages)
        settings = " ".join(f"--set stack.{name}=[{','.join(map(str, some))}]" for name, some in stages.items())
        how = f"{settings}, or a --stack that has it"
        return replace(job, stack=replace(job.stack, features=features)), f"allow ZeRO-{stage} ({how})"
