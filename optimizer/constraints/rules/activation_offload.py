"""Activations may lie in the host's memory where the stack can bring them there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.job.recomputation import RECOMPUTE

FULL = RECOMPUTE.index("full")


@dataclass(frozen=True, kw_only=True)
class ActivationOffload:
    """Nothing is offloaded, or the stack can, and no whole layers are recomputed, whose input alone is resident."""

    name: str = "activation-offload"
    variables: tuple[str, ...] = ("recompute", "activation_offload")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the stack can keep so much on the host."""
        possible = job.stack.features.activation_offload & (plans.recompute != FULL)
        return np.asarray((plans.activation_offload == 0) | possible)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of modes and shares."""
        offered = job.stack.features.activation_offload
        pairs = program.combinations(self.variables)
        rows = [(mode, share) for mode, share in pairs if share == 0 or (offered and mode != FULL)]
        program.allow(self.variables, rows, literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        if job.stack.features.activation_offload:
            return f"{job.stack.name} keeps activations on the host where whole layers are not recomputed"
        return f"{job.stack.name} keeps no activations on the host"
