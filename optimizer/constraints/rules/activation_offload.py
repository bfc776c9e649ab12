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
    """Nothing is offloaded, or the stack can: activations of layers that are not recomputed whole, inputs of those."""

    name: str = "activation-offload"
    variables: tuple[str, ...] = ("recompute", "activation_offload")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the stack can keep so much on the host."""
        possible = np.where(plans.recompute == FULL, *_offered(job))
        return np.asarray((plans.activation_offload == 0) | possible)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of modes and shares."""
        of_full, of_others = _offered(job)
        program.where(
            self.variables, lambda mode, share: share == 0 or (of_full if mode == FULL else of_others), literal
        )

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        of_full, of_others = _offered(job)
        resident = " and ".join(
            name
            for name, offered in (
                ("activations of layers that are not recomputed whole", of_others),
                ("inputs of those that are", of_full),
            )
            if offered
        )
        return f"{job.stack.name} keeps {resident or 'no activations'} on the host"


def _offered(job: Job) -> tuple[bool, bool]:
    """Whether the stack keeps inputs of layers that are recomputed whole on the host, and activations of others."""
    return job.stack.features.hosted_checkpoints, job.stack.features.activation_offload
