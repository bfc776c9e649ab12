"""Context parallelism leaves every rank enough tokens, and needs a fused attention kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, FloatArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class ContextParallel:
    """cp = 1, or seq_len / cp is at least the limit and the stack has fused attention."""

    name: str = "context-parallel"
    variables: tuple[str, ...] = ("cp",)

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether each rank keeps enough tokens."""
        enough = plans.cp * job.limits.min_cp_tokens <= job.seq_len
        return np.asarray((plans.cp == 1) | (enough & _offered(job)))

    def post(self, job: Job, program: Program, literal: int) -> None:
        """Cp is 1 or at most tokens / limit."""
        most = job.seq_len // job.limits.min_cp_tokens if _offered(job) else 1
        program.where(self.variables, lambda cp: cp == 1 or cp <= most, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        if not _offered(job):
            return f"{job.stack.name} has no fused attention, which context parallelism needs"
        return f"{job.seq_len:,} tokens / cp must leave at least {job.limits.min_cp_tokens:,} tokens on a rank"

    def required(self, job: Job, plans: Plans) -> FloatArray:
        """Fewer tokens per rank ask for a larger move; infinite where the stack cannot, or a rank would have none."""
        possible = _offered(job) & (plans.cp <= job.seq_len)
        return np.where(plans.cp == 1, 0.0, np.where(possible, plans.cp / job.seq_len, np.inf))

    def relax(self, job: Job, required: float) -> tuple[Job, str]:
        """A smaller least number of tokens."""
        tokens = int(1 / required + 1e-6)
        return (
            job.with_limits(min_cp_tokens=tokens),
            f"tokens per context-parallel rank {job.limits.min_cp_tokens:,} -> {tokens:,}",
        )


def _offered(job: Job) -> bool:
    return job.stack.features.attention.startswith("flash")
