"""Clusters that are better in one thing, so many times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from optimizer.job.hardware import Cluster

Better = Callable[[Cluster, float], Cluster]


def faster_memory(cluster: Cluster, times: float) -> Cluster:
    device = replace(cluster.device, memory_bandwidth=cluster.device.memory_bandwidth * times)
    return replace(cluster, device=device)


def higher_peak(cluster: Cluster, times: float) -> Cluster:
    """More FLOP/s from as many SMs; what a sweep measured stays."""
    peaks = {dtype: peak * times for dtype, peak in cluster.device.peak_flops.items()}
    return replace(cluster, device=replace(cluster.device, peak_flops=peaks))


def more_memory(cluster: Cluster, times: float) -> Cluster:
    return replace(cluster, device=replace(cluster.device, memory=cluster.device.memory * times))


def faster_host(cluster: Cluster, times: float) -> Cluster:
    return replace(cluster, host_bandwidth=cluster.host_bandwidth * times)


def faster_tier(number: int) -> Better:
    """The same latency, another bandwidth."""

    def better(cluster: Cluster, times: float) -> Cluster:
        tiers = list(cluster.tiers)
        at = min(number, len(tiers) - 1)
        link = tiers[at].link
        tiers[at] = replace(tiers[at], link=link.scaled(link.bandwidth * times))
        return replace(cluster, tiers=tuple(tiers))

    return better


BETTER = {
    "peak": higher_peak,
    "memory bandwidth": faster_memory,
    "memory": more_memory,
    "host link": faster_host,
    "scale-up": faster_tier(0),
    "network": faster_tier(1),
    "spine": faster_tier(2),
}
