"""The sharding group divides the replicas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plans


@dataclass(frozen=True, kw_only=True)
class Shard:
    """shard is 0 (all replicas), or divides dp x cp and something is sharded.

    Unless it was asked for, a group is a node's replicas, of more than one node, and shards the weights: what is
    gathered for every micro-batch is then gathered inside the node, and all else only costs memory.

    Source: Zhao et al., arXiv 2304.11277, section 3.2.2 (hybrid sharding).
    """

    name: str = "shard"
    variables: tuple[str, ...] = ("tp", "cp", "dp", "zero_stage", "shard")

    def check(self, job: Job, plans: Plans) -> BoolArray:
        """Whether the groups tile the replicas."""
        return _possible(job, *(getattr(plans, name) for name in self.variables))

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of the replicas and groups."""
        if any(program.domains["shard"]):
            rows = np.array(program.combinations(self.variables))
            program.allow(self.variables, rows[_possible(job, *rows.T)], literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        if _asked(job):
            return "the sharding group must divide dp x cp, and needs ZeRO stage 1 or more"
        node = job.cluster.gpus_per_node
        return f"the sharding group is all replicas, or under ZeRO-3 those of a node of {node} GPUs"


def _asked(job: Job) -> bool:
    limits = job.limits
    return any("shard" in pins for pins in (limits.fixed, limits.ranges, limits.choices))


def _possible(job: Job, tp: IntArray, cp: IntArray, dp: IntArray, zero: IntArray, shard: IntArray) -> BoolArray:
    groups = (dp * cp % np.maximum(shard, 1) == 0) & (zero > 0)
    if not _asked(job):
        a_node = (shard * tp == job.cluster.gpus_per_node) & (shard > 1) & (shard < dp * cp)
        groups = groups & a_node & (zero == 3)
    return np.asarray((shard == 0) | groups)
