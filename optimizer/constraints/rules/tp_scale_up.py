"""Tensor parallelism stays inside the scale-up domain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, FloatArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class TpScaleUp:
    """tp is at most the limit, and groups tile the domain, a node, or are made of whole nodes."""

    name: str = "tp-scale-up"
    variables: tuple[str, ...] = ("tp",)

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether a tensor group stays inside."""
        size, node = job.cluster.scale_up_size, job.cluster.gpus_per_node
        tiles = (size % plans.tp == 0) | (node % plans.tp == 0) | (plans.tp % node == 0)
        return np.asarray((plans.tp <= ceiling(job)) & tiles)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """Tp is one of the sizes that fit."""
        size, node = job.cluster.scale_up_size, job.cluster.gpus_per_node
        most = ceiling(job)
        program.where(self.variables, lambda tp: tp <= most and 0 in (size % tp, node % tp, tp % node), literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        origin = "the limit set" if job.limits.max_tp else f"the scale-up domain of {job.cluster.name}"
        return f"tp must be at most {ceiling(job)} ({origin}) and tile nodes of {job.cluster.gpus_per_node} GPUs"

    def required(self, job: Job, plans: Plans) -> FloatArray:
        """The tp that must be allowed; infinite where it does not tile."""
        size, node = job.cluster.scale_up_size, job.cluster.gpus_per_node
        tiles = (size % plans.tp == 0) | (node % plans.tp == 0) | (plans.tp % node == 0)
        return np.where(tiles, plans.tp, np.inf)

    def relax(self, job: Job, required: float) -> tuple[Job, str]:
        """A larger largest tp."""
        return job.with_limits(max_tp=int(required)), f"largest tp {ceiling(job)} -> {int(required)}"


def ceiling(job: Job) -> int:
    """Largest tensor-parallel degree: the limit set, or the scale-up domain."""
    return job.limits.max_tp or job.cluster.scale_up_size
