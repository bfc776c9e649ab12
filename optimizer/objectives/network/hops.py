"""Latency of a path that stores and forwards on every link: a first-order model of what hops cost.

The planner's own times (`collectives`) stream a message through all links of a path at once; this one waits for each
link in turn, which is the upper end, and says which kind of link the time is spent on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from optimizer.job.hardware import Cluster, Tier
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.network.collectives import check_kind
from optimizer.objectives.network.topology import Span


def path(cluster: Cluster, tier: int) -> tuple[int, ...]:
    """Links of each tier on the path between two GPUs that meet in this tier: one of it, two of every tier below.

    >>> from optimizer.catalog import load_cluster
    >>> path(load_cluster("dgx-h100"), 1)
    (2, 1, 0)
    """
    return tuple(2 if level < tier else int(level == tier) for level in range(len(cluster.tiers)))


def hop_time(message: ArrayLike, tier: Tier) -> FloatArray:
    """Time of a message on one link: latency [s] + message [B] / bandwidth [B/s] [s]."""
    return tier.link.latency + np.asarray(message, dtype=np.float64) / tier.bandwidth


def path_time(message: ArrayLike, crossings: Sequence[int], cluster: Cluster) -> FloatArray:
    """Time of a message over the links of a path, one after the other [s].

    sum over tiers of crossings x (latency + message / bandwidth).

    Source: the hop-typed model of NVLink and InfiniBand paths.

    >>> from optimizer.job.hardware import Device, Link
    >>> device = Device(name="d", peak_flops={}, memory=0, memory_nominal=0, memory_bandwidth=0)
    >>> tier = Tier(name="node", link=Link(name="l", bandwidth=1e9, latency=1e-6), size=8)
    >>> round(float(path_time(1e6, (2,), Cluster(name="c", device=device, tiers=(tier,)))), 6)
    0.002002
    """
    size = np.asarray(message, dtype=np.float64)
    parts = (count * hop_time(size, tier) for count, tier in zip(crossings, cluster.tiers, strict=True))
    return sum(parts, np.zeros(size.shape))


def ring_time(kind: str, message: ArrayLike, group: Span, cluster: Cluster) -> FloatArray:
    """Time of a ring whose every step takes as long as its slowest path [s].

    passes x (n - 1) x max over the tiers used of path_time(message / n), passes = 2 for an all-reduce, else 1.
    Raises InputError for an unknown kind.

    Source: as `path_time`; ring volumes as in NVIDIA/nccl-tests.
    """
    check_kind(kind)
    n = group.size.astype(np.float64)
    part = np.asarray(message, dtype=np.float64) / n
    slowest, below = np.zeros(np.broadcast(part, n).shape), np.ones(n.shape)
    for level, members in enumerate(group.members):
        used = np.where(members > below, path_time(part, path(cluster, level), cluster), 0.0)
        slowest, below = np.maximum(slowest, used), members.astype(np.float64)
    total: FloatArray = (2.0 if kind == "all_reduce" else 1.0) * (n - 1.0) * slowest
    return total
