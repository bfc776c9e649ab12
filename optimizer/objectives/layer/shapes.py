"""Which columns of a plan decide what is priced once for many of them, and the local shapes of its layers."""

from __future__ import annotations

import numpy as np

from optimizer.job import REBUILT, Job
from optimizer.objectives.kernels.operators import Shapes
from optimizer.plan import Plans
from optimizer.recomputation import RECOMPUTE

LAYER_KEYS = ("tp", "cp", "ep", "etp", "micro_batch", "sequence_parallel")
SHAPE_KEYS = (*LAYER_KEYS, "recompute", "activation_offload")
TRANSFER_KEYS = ("tp", "cp", "dp", "micro_batch", "sequence_parallel")
REPLICA_KEYS = ("tp", "cp", "ep", "etp", "pp", "dp", "zero_stage", "shard")


def shapes_of(job: Job, plans: Plans) -> Shapes:
    """The local shapes of each plan's layers."""
    columns = {name: getattr(plans, name).astype(np.float64) for name in SHAPE_KEYS[:5]}
    return Shapes(**columns, sequence_parallel=plans.sequence_parallel, seq_len=job.seq_len)


def without_rebuilding(plans: Plans) -> Plans:
    """The plans with nothing recomputed where recomputation is full: what a spared layer costs."""
    full = plans.recompute == RECOMPUTE.index("full")
    return plans.recomputed(np.where(full, RECOMPUTE.index("none"), plans.recompute))


def with_spared_layers(job: Job, plans: Plans) -> Plans:
    """The plans as their leanest layers are: spared where a plan may choose, not where a person asked for all."""
    fixed = job.limits.fixed
    return plans if fixed.get("recompute") == "full" and REBUILT not in fixed else without_rebuilding(plans)
