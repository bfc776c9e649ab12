"""Time of collectives on the tiers of a cluster: the fastest algorithm and protocol for each message and group.

Messages are in nccl-tests' convention: the buffer of an all-reduce, the gathered buffer of an all-gather or
reduce-scatter, the send buffer of a rank in an all-to-all, what is sent point to point.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from optimizer.base.errors import InputError
from optimizer.job.hardware import Cluster, Tier
from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.network.algorithms import levels, lines
from optimizer.objectives.network.topology import Span

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point")
FEW, PIECE = 256, 16384  # entries: done at once, with lines that never win among them, and what a cache holds


def volume_per_rank(kind: str, message: ArrayLike, ranks: ArrayLike) -> FloatArray:
    """Bytes that each rank sends in a bandwidth-optimal collective [B].

    all_reduce 2 P (N-1)/N; all_gather, reduce_scatter, all_to_all P (N-1)/N; point_to_point P, with P the message [B]
    and N the ranks. Raises InputError for another kind.

    Source: NVIDIA/nccl-tests doc/PERFORMANCE.md (bus bandwidth factors).

    >>> float(volume_per_rank("all_reduce", 1e9, 4))
    1500000000.0
    """
    check_kind(kind)
    p, n = np.asarray(message, dtype=np.float64), np.asarray(ranks, dtype=np.float64)
    factor = {"all_reduce": 2.0}.get(kind, 1.0)
    return p * (n > 1) if kind == "point_to_point" else factor * p * (n - 1.0) / n


def ring_all_reduce_time(message: ArrayLike, ranks: ArrayLike, alpha: ArrayLike, beta: ArrayLike) -> FloatArray:
    """Textbook ring all-reduce: 2 (N-1) steps of message / N bytes each [s].

    alpha is the latency of a step [s], beta the inverse bandwidth of its slowest link [s/B].

    Source: Thakur, Rabenseifner, Gropp 2005, section 4.

    >>> round(float(ring_all_reduce_time(83.886e6, 8, 0.2e-6, 1 / 90e9)) * 1e3, 3)
    1.634
    """
    p, n = np.asarray(message, dtype=np.float64), np.asarray(ranks, dtype=np.float64)
    step = np.asarray(alpha, dtype=np.float64) + p / n * np.asarray(beta, dtype=np.float64)
    total: FloatArray = 2.0 * (n - 1.0) * step
    return total


def collective_time(
    kind: str,
    message: ArrayLike,
    group: Span,
    cluster: Cluster,
    *,
    scale_up_efficiency: float = 1.0,
    network_efficiency: float = 1.0,
) -> FloatArray:
    """Time of one collective on every group, by the fastest algorithm [s].

    time = min over algorithms of latency(group) + slope(group) x message. `message` [B] and the group broadcast.
    A group of one and an empty message cost nothing; a group that the cluster cannot hold takes forever (inf).
    The efficiencies multiply the rates of the first tier and of the others. Raises InputError for an unknown kind.

    Source: `algorithms` and `protocols`; presets/nccl.csv.
    """
    check_kind(kind)
    sizes = np.asarray(message, dtype=np.float64)
    distinct, index = group.patterns
    efficiencies = scale_up_efficiency, network_efficiency
    latency, slope = _offers(kind, distinct.columns, cluster.tiers, efficiencies, index.size > FEW)
    return _lowest(sizes, index, latency, slope)


def check_kind(kind: str) -> None:
    """Raise InputError unless this is one of KINDS."""
    if kind not in KINDS:
        raise InputError(f"unknown collective {kind!r}; use one of {', '.join(KINDS)}")


@lru_cache(maxsize=1024)
def _offers(
    kind: str, groups: tuple[bytes, ...], tiers: tuple[Tier, ...], efficiencies: tuple[float, float], many: bool
) -> tuple[FloatArray, FloatArray]:
    """Latency [s] and slope [s/B] of every algorithm (rows) for every group (columns).

    `groups` are the integers of a Span's columns. A search meets the same groups again and again, whatever it sends.
    """
    size, *members = (np.frombuffer(column, dtype=np.int64) for column in groups)
    group = Span(size=size, members=tuple(members))
    offers = list(lines(kind, group, levels(group, tiers, *efficiencies)))
    latency, slope = np.array([offer.latency for offer in offers]), np.array([offer.slope for offer in offers])
    if many:
        latency, slope = _competitive(latency, slope)
    lost = ~group.reachable
    latency[:, lost], slope[:, lost] = np.inf, 0.0
    return latency, slope


def _competitive(latency: FloatArray, slope: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Leave out the algorithms (rows) that for every group are beaten by another in latency and slope alike."""
    envelope: list[int] = []
    for row in range(len(latency)):
        others = [other for other in range(len(latency)) if other in envelope or other > row]
        worse = np.zeros(latency.shape[1], dtype=np.bool_)
        for other in others:
            worse |= (latency[other] <= latency[row]) & (slope[other] <= slope[row])
        if not worse.all():
            envelope.append(row)
    return latency[envelope], slope[envelope]


def _lowest(sizes: FloatArray, index: IntArray, latency: FloatArray, slope: FloatArray) -> FloatArray:
    """Minimum over the rows of latency[row, index] + slope[row, index] x size, and 0 for a size of 0.

    Done in pieces that stay in the processor's cache, three times as fast as whole arrays; a few at once.
    """
    if index.size <= sizes.size <= FEW and index.shape == sizes.shape[sizes.ndim - index.ndim :]:
        which = np.broadcast_to(index, sizes.shape)
        lowest = (latency[:, which] + slope[:, which] * sizes).min(axis=0)
        return np.where(sizes > 0, lowest, 0.0)
    sizes, index = np.broadcast_arrays(sizes, index)
    shape, sizes, index = sizes.shape, sizes.ravel(), index.ravel()
    best = np.empty(sizes.size)
    for start in range(0, sizes.size, PIECE):
        size, which, low = sizes[start : start + PIECE], index[start : start + PIECE], best[start : start + PIECE]
        low.fill(np.inf)
        for base, rise in zip(latency, slope, strict=True):
            line = rise.take(which)
            line *= size
            line += base.take(which)
            np.minimum(low, line, out=low)
        low[size <= 0] = 0.0
    return best.reshape(shape)
