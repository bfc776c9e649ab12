"""What collectives of tensor parallelism cost the host of a pipeline whose stages lie on several nodes."""

from __future__ import annotations

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.objectives.arrays import FloatArray


def pipelined_wait(job: Job, plans: Plans, busy: FloatArray, host: FloatArray, collectives: FloatArray) -> FloatArray:
    """Time by which one layer of a pipeline between nodes is late, beside its own `busy` seconds [s].

    max(0, host + collectives x tp x pipelined_collective - busy) where pp > 1 and the GPUs fill more than one node,
    else 0; `host` [s] and `collectives` [1] are those of both passes. No cause is known for it: a time per TP rank and
    collective that does not depend on the message, absent without pipelining and inside a node.

    Source: nanotron runs of the Ultra-Scale Playbook (Hugging Face, 2025), whose slots take 14, 21 and 50 ms per layer
    under TP 4, 8 and 16 however small the micro-batch; the form and the rate are fitted to them.
    """
    rate = job.stack["pipelined_collective"]
    late = np.maximum(0.0, host + collectives * plans.tp * rate - busy)
    between = (plans.pp > 1) & (plans.tp > 1) & (plans.gpus > job.cluster.gpus_per_node)
    return np.where(between, late, 0.0)
