"""Algorithms of collectives as straight lines: time = latency + slope x message, for each distinct group.

Ring, tree (chain inside a node, tree between nodes), reduction inside the NVLink switch (NVLS), the same between
nodes by trees (NVLSTree) or inside network switches (SHARP), and pairwise exchange. Which one is taken depends on the
message, and is the business of `collectives`.

On a torus a ring is one ring per axis, and an all-to-all passes through the chips between: see `torus`.

Source: NVIDIA/nccl src/graph/tuning.cc @5067397 (v2.30.7), restated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from optimizer.job.hardware import Tier
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.network.protocols import PAIRWISE, RING, Profile, profile
from optimizer.objectives.network.topology import Span
from optimizer.objectives.network.torus import is_torus, torus_detour, torus_rate, torus_steps


@dataclass(frozen=True, kw_only=True)
class CostLine:
    """One algorithm with one protocol: `latency` [s] and `slope` [s/B of the message], one entry per group."""

    latency: FloatArray
    slope: FloatArray


@dataclass(frozen=True, kw_only=True)
class TierLevel:
    """One tier as the groups meet it: `crossings` of a chain through all ranks, `inside` ranks below one domain.

    `detour` is how often each byte of an all-to-all crosses a link of the tier [1].
    """

    profile: Profile
    rate: FloatArray
    used: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    crossings: FloatArray
    inside: FloatArray
    detour: FloatArray


def levels(
    group: Span, tiers: tuple[Tier, ...], scale_up_efficiency: float, network_efficiency: float
) -> tuple[TierLevel, ...]:
    """The tiers with what a rank can send over each at best [B/s], before protocols.

    On a mesh a rank with k - 1 peers in its domain uses min(bandwidth, (k - 1) x pair bandwidth), on a torus the axes
    that its group has.
    """
    met = []
    for number, tier in enumerate(tiers):
        below = group.domains(number - 1)
        inside = group.members[number - 1] if number else np.ones_like(group.size)
        members = group.members[number]
        rate = np.minimum(tier.link.bandwidth, np.maximum(1, members - inside) * tier.link.pair_bandwidth)
        crossings, detour = (below - group.domains(number)).astype(np.float64), np.ones(group.size.shape)
        if number == 0 and is_torus(tier):
            rate, detour = torus_rate(members, tier), torus_detour(members, tier)
            crossings = torus_steps(members, tier) * group.domains(number)
        met.append(
            TierLevel(
                profile=profile(tier.link, network=number > 0),
                rate=rate / tier.oversubscription * (network_efficiency if number else scale_up_efficiency),
                used=members > inside,
                crossings=crossings,
                inside=inside.astype(np.float64),
                detour=detour,
            )
        )
    return tuple(met)


def lines(kind: str, group: Span, tiers: tuple[TierLevel, ...]) -> Iterator[CostLine]:
    """Every algorithm that can do this collective; a group of one costs nothing by each of them."""
    if kind in ("all_to_all", "point_to_point"):
        yield from (_pairwise(kind, group, tiers, number) for number in range(len(PAIRWISE)))
        return
    yield from (_ring(kind, group, tiers, number) for number in range(len(RING)))
    if kind == "all_reduce":
        if len(tiers) > 1:
            yield from (_tree(group, tiers, number) for number in range(len(RING)))
        yield from _in_switch(group, tiers)


def _base(tiers: tuple[TierLevel, ...], bases: list[float]) -> FloatArray:
    """Fixed latency of a collective: the largest of the tiers it uses [s]."""
    parts = [np.where(tier.used, base, 0.0) for tier, base in zip(tiers, bases, strict=True)]
    largest: FloatArray = np.max(parts, axis=0)
    return largest


def _ring_rate(tiers: tuple[TierLevel, ...], number: int) -> FloatArray:
    """Bus bandwidth of a ring [B/s]: min over its tiers of (ranks side by side x share x rate).

    A group with g ranks in each node keeps g NICs busy, as NCCL's channels do.
    """
    rates = [np.where(t.used, t.inside * t.profile.ring[number].share * t.rate, np.inf) for t in tiers]
    slowest: FloatArray = np.min(rates, axis=0)
    return slowest


def _ring(kind: str, group: Span, tiers: tuple[TierLevel, ...], number: int) -> CostLine:
    """Ring: passes x (n - 1) steps, each as long as the tier it crosses; passes = 2 for an all-reduce, else 1.

    slope = passes (n - 1) / n / bus bandwidth + 1 / (n x copy rate).
    """
    passes = 2.0 if kind == "all_reduce" else 1.0
    n = group.size.astype(np.float64)
    steps = sum(t.crossings * t.profile.ring[number].step for t in tiers)
    latency = _base(tiers, [t.profile.ring[number].base for t in tiers]) + passes * steps
    slope = passes * (n - 1.0) / n / _ring_rate(tiers, number)
    own = np.where(n > 1, 1.0 / (n * tiers[0].profile.copy(kind) * tiers[0].rate), 0.0)
    return CostLine(latency=latency, slope=slope + own)


def _tree_steps(group: Span, tiers: tuple[TierLevel, ...], number: int) -> FloatArray:
    """Latency of going down a tree over the nodes: log2(domains below) per tier, of that tier's step [s]."""
    depth = np.zeros(group.size.shape)
    for level, tier in enumerate(tiers[1:], start=1):
        branching = np.log2(group.domains(level - 1) / group.domains(level))
        depth = depth + branching * tier.profile.ring[number].step
    return depth


def _tree(group: Span, tiers: tuple[TierLevel, ...], number: int) -> CostLine:
    """Tree all-reduce: a chain inside a node and a tree between nodes, up and down; the whole buffer twice.

    latency = base + 2 ((members - 1) step + log2(nodes) step of the network), slope = 2 / (share x bus bandwidth).
    """
    node = tiers[0]
    chain = (group.members[0] - 1.0) * node.profile.ring[number].step
    base = _base(tiers, [t.profile.ring[number].base for t in tiers])
    share = min(t.profile.tree for t in tiers)
    slope = np.where(group.size > 1, 2.0 / (share * _ring_rate(tiers, number)), 0.0)
    return CostLine(latency=base + 2.0 * (chain + _tree_steps(group, tiers, number)), slope=slope)


def _in_switch(group: Span, tiers: tuple[TierLevel, ...]) -> Iterator[CostLine]:
    """All-reduce inside the switches of a node (NVLS), continued between nodes by trees (NVLSTree) or SHARP.

    slope = max of 1 / (share x rate) inside the node and passes / (NICs x share x rate) outside, with 2 passes for
    trees and 1 when every network tier reduces in its switches too. NCCL takes it from `in_switch_ranks` in a node.
    """
    node, network = tiers[0], tiers[1:]
    inside = node.profile.in_switch
    if inside is None:
        return
    sharp = [t.profile.in_switch for t in network if t.profile.in_switch is not None]
    reduced = bool(network) and len(sharp) == len(network)
    passes, depth = (1.0, np.zeros(group.size.shape)) if reduced else (2.0, _tree_steps(group, tiers, len(RING) - 1))
    slope = np.where(node.used, 1.0 / (inside.share * node.rate), 0.0)
    base = np.where(node.used, inside.base, 0.0)
    for level, tier in enumerate(network):
        share = sharp[level].share if reduced else tier.profile.ring[-1].share
        slope = np.maximum(slope, np.where(tier.used, passes / (tier.inside * share * tier.rate), 0.0))
        base = np.maximum(base, np.where(tier.used & reduced, inside.base, 0.0))
    if reduced:
        steps = [np.where(t.used, t.profile.ring[-1].step, 0.0) for t in network]
        depth = np.asarray(np.max(steps, axis=0), dtype=np.float64)
    offered = np.where(node.used, group.members[0] >= node.profile.in_switch_ranks, reduced) | (group.size == 1)
    yield CostLine(latency=np.where(offered, base + 2.0 * depth, np.inf), slope=slope)


def _pairwise(kind: str, group: Span, tiers: tuple[TierLevel, ...], number: int) -> CostLine:
    """All-to-all as n - 1 sends at once, or one send: each tier carries its share of the peers, the slowest decides.

    slope = max over tiers of detour x peers / n / (share x rate), peers being the ranks reached over that tier or a
    later one, because a rank's own NIC carries all of its traffic out of the node. A single send: 1 / (share x rate).
    """
    n = group.size.astype(np.float64)
    latency = _base(tiers, [t.profile.pairwise[number].base for t in tiers])
    slope = np.zeros(group.size.shape)
    for level, tier in enumerate(tiers):
        protocol = tier.profile.pairwise[number]
        if kind == "point_to_point":
            slope = np.maximum(slope, np.where(tier.used, 1.0 / (protocol.share * tier.rate), 0.0))
            continue
        peers = (group.members[0] - 1.0) if level == 0 else n - tier.inside
        latency = latency + np.where(tier.used, (group.members[level] - tier.inside) * protocol.step, 0.0)
        reached = tier.detour * peers / n / (protocol.share * tier.rate)
        slope = np.maximum(slope, np.where(tier.used, reached, 0.0))
    if kind == "all_to_all":
        slope = slope + np.where(n > 1, 1.0 / (n * tiers[0].profile.copy(kind) * tiers[0].rate), 0.0)
    return CostLine(latency=latency, slope=slope)
