"""Where communication groups lie on the tiers of a cluster, for many groups at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optimizer.job.hardware import Cluster
from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import ranked

FEW = 1024  # groups that are remembered: to lay out so few takes longer than to look them up


@dataclass(frozen=True, kw_only=True)
class Span:
    """Groups of ranks, one per entry, and how they lie on the tiers of a cluster (innermost first).

    `members[t]` is how many ranks of the group lie inside one domain of tier t; a group that the cluster can hold
    has `members[-1] == size`.
    """

    size: IntArray
    members: tuple[IntArray, ...]

    @property
    def reachable(self) -> NDArray[np.bool_]:
        """Whether the cluster can hold the group."""
        return self.members[-1] >= self.size

    def domains(self, tier: int) -> IntArray:
        """Number of domains of this tier over which a group is spread; tier -1 is the single GPU."""
        return self.size if tier < 0 else -(-self.size // self.members[tier])

    @cached_property
    def patterns(self) -> tuple[Span, IntArray]:
        """The distinct groups, and for each entry which of them it is.

        A million plans have a few hundred distinct groups; costs that depend on the group alone are computed on these.
        """
        index, count = np.zeros(self.size.size, dtype=np.int64), 0
        for column in (self.size, *self.members):
            index, count = ranked(index * (int(column.max(initial=0)) + 1) + column.ravel())
        first = np.zeros(count, dtype=np.int64)
        first[index] = np.arange(index.size)
        distinct = tuple(column.ravel()[first] for column in (self.size, *self.members))
        return Span(size=distinct[0], members=distinct[1:]), index.reshape(self.size.shape)

    @cached_property
    def columns(self) -> tuple[bytes, ...]:
        """The integers of size and members, to look groups up by."""
        return tuple(column.tobytes() for column in (self.size, *self.members))


def span(cluster: Cluster, size: ArrayLike, stride: ArrayLike) -> Span:
    """Lay groups of `size` ranks, neighbours `stride` GPUs apart, over the tiers of a cluster.

    A domain of T GPUs holds members = min(size, max(1, T // stride)) ranks [1]. Arguments broadcast. The first rank
    is taken to sit at a domain's start, so a stride or size that does not divide T is a slight idealisation.

    Eight neighbours share a node of eight; eight ranks that are 8 apart have one node each:

    >>> from optimizer.job.hardware import Device, Link, Tier
    >>> device = Device(name="d", peak_flops={}, memory=0, memory_nominal=0, memory_bandwidth=0)
    >>> link = Link(name="l", bandwidth=1e9, latency=0)
    >>> tiers = (Tier(name="node", link=link, size=8), Tier(name="network", link=link, size=1024))
    >>> cluster = Cluster(name="c", device=device, tiers=tiers)
    >>> [members.tolist() for members in span(cluster, 8, [1, 8]).members]
    [[8, 1], [8, 8]]
    """
    sizes, strides = np.broadcast_arrays(np.asarray(size, dtype=np.int64), np.asarray(stride, dtype=np.int64))
    tiers = tuple(tier.size for tier in cluster.tiers)
    if sizes.size <= FEW:
        return _remembered(tiers, sizes.shape, sizes.tobytes(), strides.tobytes())
    return _span(tiers, sizes, strides)


def _span(tiers: tuple[int, ...], sizes: IntArray, strides: IntArray) -> Span:
    members = (np.minimum(sizes, np.maximum(1, size // strides)) for size in tiers)
    return Span(size=sizes, members=tuple(members))


@lru_cache(maxsize=1024)
def _remembered(tiers: tuple[int, ...], shape: tuple[int, ...], sizes: bytes, strides: bytes) -> Span:
    size, stride = (np.frombuffer(column, dtype=np.int64).reshape(shape) for column in (sizes, strides))
    return _span(tiers, size, stride)
