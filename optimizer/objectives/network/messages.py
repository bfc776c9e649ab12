"""A message as data: what is sent, among whom, how often, and under what it may hide."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from optimizer.job.job import Job
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.network.collectives import collective_time
from optimizer.objectives.network.topology import span

FORWARD, BACKWARD, STEP = "forward", "backward", "step"
TP, CP, EP, PP, DP = "tp", "cp", "ep", "pp", "dp"


@dataclass(frozen=True, kw_only=True)
class Message:
    """One kind of collective of one layer, stage boundary or gradient bucket; arrays have one entry per plan.

    parallelism: what causes it, TP to DP. purpose: in words. kind: one of collectives.KINDS. size: of one message, as
    nccl-tests counts it [B]. ranks, stride: its group, neighbours `stride` GPUs apart. times: how many of them in one
    pass of one micro-batch, or for each element of the parameters where phase is STEP. phase: FORWARD, BACKWARD or
    STEP. under: the term of compute that it may hide under. skewed: its ranks wait for each other. each:
    seconds of one where kernels of their own send it, None for a collective [s]; taken: share of the multiprocessors
    that it holds while it hides [1].
    """

    parallelism: str
    purpose: str
    kind: str
    size: FloatArray
    ranks: FloatArray
    stride: FloatArray
    times: FloatArray
    phase: str
    under: str = ""
    skewed: bool = True
    each: FloatArray | None = None
    taken: FloatArray | float = 0.0

    @cached_property
    def sent(self) -> FloatArray:
        """Messages that cross a link: none in groups of one [1]."""
        return np.where((self.ranks > 1) & (self.size > 0), self.times, 0.0)

    def seconds(self, job: Job) -> FloatArray:
        """Time of all of them, nothing hidden [s]."""
        if not self.sent.any():
            return np.zeros(np.shape(self.sent))
        if self.each is not None:
            return self.sent * self.each
        return self.sent * collective(job, self.kind, self.size, self.ranks, self.stride, skewed=self.skewed)


def exposed(communication: FloatArray, compute: FloatArray, overlap: FloatArray | float) -> FloatArray:
    """Communication left over when `overlap` of what fits under the compute is hidden [s].

    exposed = communication - overlap x min(communication, compute).

    Source: assumed form, nothing longer than the computation can hide; the share is fitted.

    >>> float(exposed(np.array(3.0), np.array(2.0), 0.5))
    2.0
    """
    return communication - overlap * np.minimum(communication, compute)


def beyond(communication: FloatArray, compute: FloatArray, overlap: FloatArray | float) -> FloatArray:
    """Communication that would hide too if there were more to compute [s]: overlap x (communication - compute).

    Other messages that hide under the same computation can travel meanwhile. Were they not to, a second of computation
    under which both hide would count twice, and a faster GPU lose more than it gains.

    >>> float(beyond(np.array(3.0), np.array(2.0), 0.5)), float(beyond(np.array(1.0), np.array(2.0), 0.5))
    (0.5, 0.0)
    """
    return overlap * np.maximum(communication - compute, 0.0)


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
