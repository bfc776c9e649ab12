"""The sharding group divides the replicas."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


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
        whole = plans.shard == 0
        replicas, group = plans.dp * plans.cp, plans.shard + whole
        possible = (replicas % group == 0) & (plans.zero_stage > 0)
        if not _asked(job):
            a_node = (group * plans.tp == job.cluster.gpus_per_node) & (group > 1) & (group < replicas)
            possible = possible & a_node & (plans.zero_stage == 3)
        return np.asarray(whole | possible)

    def post(self, job: Job, program: Program, literal: int) -> None:
        """A table of the replicas and groups."""
        if program.domains["shard"] != (0,):
            program.where(self.variables, partial(_allowed, job), literal)

    def explain(self, job: Job) -> str:
        """The rule with the job's numbers."""
        if _asked(job):
            return "the sharding group must divide dp x cp, and needs ZeRO stage 1 or more"
        node = job.cluster.gpus_per_node
        return f"the sharding group is all replicas, or under ZeRO-3 those of a node of {node} GPUs"


def _asked(job: Job) -> bool:
    limits = job.limits
    return any("shard" in pins for pins in (limits.fixed, limits.ranges, limits.choices))


def _allowed(job: Job, tp: int, cp: int, dp: int, zero_stage: int, shard: int) -> bool:
    if shard == 0:
        return True
    if zero_stage == 0 or dp * cp % shard:
        return False
    return _asked(job) or (zero_stage == 3 and shard * tp == job.cluster.gpus_per_node and 1 < shard < dp * cp)
