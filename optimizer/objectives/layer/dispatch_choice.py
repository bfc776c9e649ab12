"""Which dispatcher each plan takes: the one under which a mixture takes the least time, all else being equal."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from optimizer.job import Job
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.kernels.operators import Shapes, layer_operators
from optimizer.objectives.layer.seconds import layer_time
from optimizer.variables import DISPATCHERS

KEYS = ("tp", "cp", "ep", "etp", "micro_batch", "sequence_parallel")


def fastest_dispatchers(job: Job, columns: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """Index of DISPATCHERS for every row: least forward and backward time of one mixture, the first of equal ones.

    Nothing else of a step depends on the dispatcher, and every other time grows with a layer's: no other choice makes a
    plan faster unless it recomputes its mixtures, whose forward pass then counts twice. Of those that the stack offers
    and the job allows.
    """
    offered = [name for name in job.stack.dispatchers if name in job.limits.choices.get("dispatcher", DISPATCHERS)]
    rows = np.zeros(len(columns["ep"]), dtype=np.int64)
    if job.model.experts is None or not offered or offered == [DISPATCHERS[0]]:
        return rows
    table = np.stack([columns[key].astype(np.int64) for key in KEYS])
    few, places = np.unique(table, axis=1, return_inverse=True)
    times = np.array([_mixture_seconds(job, few, name) for name in offered])
    chosen = np.array([DISPATCHERS.index(name) for name in offered])[np.argmin(times, axis=0)]
    return np.where(columns["ep"] > 1, chosen[places.ravel()], rows)


def _mixture_seconds(job: Job, few: NDArray[np.int64], dispatcher: str) -> FloatArray:
    """Forward and backward pass of one mixture with these degrees under one dispatcher [s]."""
    tp, cp, ep, etp, micro_batch = few[:5].astype(np.float64)
    shapes = Shapes(
        tp=tp,
        cp=cp,
        ep=ep,
        etp=etp,
        micro_batch=micro_batch,
        sequence_parallel=few[5] > 0,
        seq_len=job.seq_len,
        dispatcher=np.full(few.shape[1], DISPATCHERS.index(dispatcher)),
    )
    time = layer_time(job, layer_operators(job.model, shapes, job.stack, True), shapes, True, modules=False)
    return time.forward.total + time.backward.total
