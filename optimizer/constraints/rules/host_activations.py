"""What a plan keeps of activations and weights on the host fits in its memory, if its layers lie as well as can be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.base.units import GB
from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray, FloatArray
from optimizer.job.job import Job
from optimizer.job.plan import FIELDS, Plans
from optimizer.objectives.arrays import raised
from optimizer.objectives.layer.cost import offloads_activations
from optimizer.objectives.layer.sharded import hosts_weights
from optimizer.objectives.step.host_memory import (
    host_memory_per_gpu,
    least_host_activations,
    least_weights_on_host,
    node_memory,
)

STEP = 16 * GB  # in which memory of a host is bought


@dataclass(frozen=True, kw_only=True)
class HostActivations:
    """Activations and weights on the host <= what its memory has for each GPU, under some layout; any where it is not
    known.

    The layouts that are searched keep it stage by stage. `fits` says for CP-SAT which of the program's points fit.
    """

    fits: BoolArray | None = None
    name: str = "host-activations"
    variables: tuple[str, ...] = FIELDS

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether some layout of each plan fits on the host."""
        if not job.cluster.host_memory:
            return np.ones(len(plans), dtype=np.bool_)
        return self._on_host(job, plans) <= raised(host_memory_per_gpu(job))

    def post(self, job: Job, program: Program, literal: int) -> None:
        """None of the points that do not fit."""
        if self.fits is not None:
            program.forbid([program.points[point] for point in np.flatnonzero(~self.fits)], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        what = "weights and activations" if job.stack.features.hosted_weights else "activations"
        return (
            f"{what} on the host must fit in {host_memory_per_gpu(job) / GB:.0f} GB per GPU, "
            f"of {_node(job):,.0f} GB of a node of {job.cluster.name} (--set host_memory)"
        )

    def required(self, job: Job, plans: Plans) -> FloatArray:
        """Memory of a node that each plan's activations ask for, in steps of STEP [B]."""
        return np.ceil(node_memory(job, 1.0) * self._on_host(job, plans) / STEP) * STEP

    def relax(self, job: Job, required: float) -> tuple[Job, str]:
        """More memory in every node."""
        enough = max(required, job.cluster.host_memory)
        return job.with_host_memory(enough), f"host memory of a node {_node(job):,.0f} -> {enough / GB:,.0f} GB"

    def lifted(self, job: Job) -> Job:
        """The job where the host takes whatever activations it is asked to take."""
        asked = {name for some in (job.limits.fixed, job.limits.ranges, job.limits.choices) for name in some}
        moving = {"activation_offload", "recompute"} if job.stack.features.selective_on_host else {"activation_offload"}
        return job if asked.isdisjoint(moving) and not job.stack.features.hosted_weights else job.with_host_memory(0.0)

    def _on_host(self, job: Job, plans: Plans) -> FloatArray:
        """Room on the host that each plan's activations and weights take for a GPU at least [B]."""
        least, some = np.zeros(len(plans)), np.flatnonzero(hosts_weights(job, plans))
        if len(some):
            least[some] = least_weights_on_host(job, plans.take(some))
        some = np.flatnonzero(offloads_activations(job, plans))
        if len(some):
            alone, activations = plans.pp[some] == 1, least_host_activations(job, plans.take(some))
            least[some] = np.where(alone, least[some] + activations, np.maximum(least[some], activations))
        return least


def _node(job: Job) -> float:
    return job.cluster.host_memory / GB
