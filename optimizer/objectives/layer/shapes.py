"""Which columns of a plan decide what is priced once for many of them, and the local shapes of its layers."""

from __future__ import annotations

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plans
from optimizer.job.recomputation import RECOMPUTE
from optimizer.objectives.kernels.shapes import Shapes

LAYER_KEYS = ("tp", "cp", "ep", "etp", "micro_batch", "sequence_parallel", "dispatcher", "overlap_exchange")
SHAPE_KEYS = (*LAYER_KEYS, "recompute", "activation_offload")
TRANSFER_KEYS = ("tp", "cp", "pp", "dp", "micro_batch", "sequence_parallel")
REPLICA_KEYS = ("tp", "cp", "ep", "etp", "pp", "dp", "zero_stage", "shard")
BILL_KEYS = tuple(dict.fromkeys((*SHAPE_KEYS, *REPLICA_KEYS)))  # all but micro-batches, virtual stages and schedule


def shapes_of(job: Job, plans: Plans) -> Shapes:
    """The local shapes of each plan's layers."""
    columns = {name: getattr(plans, name).astype(np.float64) for name in LAYER_KEYS[:5]}
    return Shapes(
        **columns,
        sequence_parallel=plans.sequence_parallel,
        seq_len=job.seq_len,
        dispatcher=plans.dispatcher,
        overlap=plans.overlap_exchange if np.any(plans.overlap_exchange) else None,
    )


def without_full(recompute: IntArray) -> IntArray:
    """Modes of recomputation with nothing recomputed where whole layers would be: what a spared layer has."""
    return np.where(recompute == RECOMPUTE.index("full"), RECOMPUTE.index("none"), recompute)
