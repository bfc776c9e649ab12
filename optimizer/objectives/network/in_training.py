"""Collectives as a training step sees them: isolated times at the stack's share of the link rates."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from optimizer.job.job import Job
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.network.collectives import collective_time
from optimizer.objectives.network.topology import span


def collective(
    job: Job, kind: str, message: FloatArray, size: ArrayLike, stride: ArrayLike, *, skewed: bool = True
) -> FloatArray:
    """Time of one collective over groups of `size` ranks, neighbours `stride` GPUs apart [s].

    `message` [B] follows nccl-tests: the buffer of an all-reduce, the gathered buffer of an all-gather or
    reduce-scatter, the send buffer of an all-to-all. Groups of one cost nothing. The ranks of a training step arrive
    at different moments: each collective waits log2(ranks) x collective_skew more than an isolated one, unless its
    ranks were idle together before and it is not `skewed`.

    Source: assumed form, the last of n like ranks being about log n late; the rate is fitted.
    """
    ranks = np.asarray(size).astype(np.int64)
    if (ranks <= 1).all():
        return np.zeros(np.shape(message))
    skew = job.stack["collective_skew"] * np.log2(np.maximum(ranks, 1))
    return skew * skewed + collective_time(
        kind,
        message,
        span(job.cluster, ranks, np.asarray(stride).astype(np.int64)),
        job.cluster,
        scale_up_efficiency=job.stack["scale_up_efficiency"],
        network_efficiency=job.stack["network_efficiency"],
    )
