"""Energy of communication, summed over the links that each byte crosses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optimizer.job.hardware import Cluster, Tier
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.network.collectives import check_kind
from optimizer.objectives.network.topology import Span

BITS = 8.0


@dataclass(frozen=True, kw_only=True)
class Hops:
    """Link traversals of a collective by tier (innermost first), and the part of the message that each one carries."""

    traversals: tuple[FloatArray, ...]
    share: FloatArray


def hops(kind: str, group: Span) -> Hops:
    """How often a collective crosses a link of each tier, all ranks together [1].

    Ring (all-reduce 2 (n-1) steps, all-gather and reduce-scatter n-1): in each step every rank sends 1/n of the message
    to its neighbour. All-to-all: every ordered pair exchanges 1/n. Point to point: one path, the whole message.
    A path over tier t crosses one link of that tier and two of every tier below it, on the way out and in.
    Raises InputError for an unknown kind.

    Source: the hop-typed model of NVLink and InfiniBand paths; ring volumes as in NVIDIA/nccl-tests.

    Sixteen ranks on two nodes: 14 neighbours of the ring inside nodes and 2 across, in each of 30 steps:

    >>> from optimizer.job.hardware import Device, Link, Tier
    >>> from optimizer.objectives.network.topology import span
    >>> device = Device(name="d", peak_flops={}, memory=0, memory_nominal=0, memory_bandwidth=0)
    >>> link = Link(name="l", bandwidth=1e9, latency=0)
    >>> tiers = (Tier(name="node", link=link, size=8), Tier(name="network", link=link, size=1024))
    >>> cluster = Cluster(name="c", device=device, tiers=tiers)
    >>> [float(count) for count in hops("all_reduce", span(cluster, 16, 1)).traversals]
    [540.0, 60.0]
    """
    check_kind(kind)
    n = group.size.astype(np.float64)
    if kind == "point_to_point":
        paths = [np.where(edges > 0, 1.0, 0.0) for edges in _new_members(group)]
        share = np.where(n > 1, 1.0, 0.0)
    elif kind == "all_to_all":
        paths = [n * peers for peers in _new_members(group)]
        share = 1.0 / n
    else:
        steps = (2.0 if kind == "all_reduce" else 1.0) * (n - 1.0)
        paths = [steps * edges for edges in _ring_edges(group)]
        share = 1.0 / n
    beyond = np.zeros(group.size.shape)
    traversals: list[FloatArray] = []
    for here in reversed(paths):
        traversals.append(here + 2.0 * beyond)
        beyond = beyond + here
    return Hops(traversals=tuple(reversed(traversals)), share=share)


def network_energy(kind: str, message: ArrayLike, group: Span, cluster: Cluster) -> FloatArray:
    """Energy that a collective of `message` bytes takes on the links, all ranks together [J].

    E = 8 bit/B x message x share x sum over tiers of traversals x energy per bit of the tier's link [J/bit].
    Reduction inside switches is not credited. Message and group broadcast.
    """
    crossed = hops(kind, group)
    per_bit = sum(
        (count * tier.link.energy for count, tier in zip(crossed.traversals, cluster.tiers, strict=True)),
        start=np.zeros(group.size.shape),
    )
    joule: FloatArray = BITS * np.asarray(message, dtype=np.float64) * crossed.share * per_bit
    return joule


def _new_members(group: Span) -> list[FloatArray]:
    """Peers of a rank that a tier brings within reach: members of its domain less those of the tier below."""
    below = np.ones(group.size.shape)
    peers = []
    for members in group.members:
        peers.append(members - below)
        below = members.astype(np.float64)
    return peers


def _ring_edges(group: Span) -> list[FloatArray]:
    """Neighbours of the closed ring whose connection goes over each tier; n of them in all, none for a group of one."""
    chain = [(group.domains(tier - 1) - group.domains(tier)).astype(np.float64) for tier in range(len(group.members))]
    edges: list[FloatArray] = []
    closed = np.zeros(group.size.shape, dtype=np.bool_)
    for crossings in reversed(chain):
        closing = (crossings > 0) & ~closed
        edges.append(crossings + closing)
        closed = closed | closing
    return edges[::-1]


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
