"""The cluster that a measured row describes: its GPU's preset, with the row's node size and network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import log10

from optimizer.calibration.rows.device import device_name
from optimizer.calibration.rows.network import named_fabric, network_bandwidth, nvlink_share
from optimizer.calibration.rows.numbers import integer, number
from optimizer.catalog import load_cluster, load_link
from optimizer.catalog.hardware import with_network
from optimizer.job.hardware import Cluster

Row = Mapping[str, str]
BENCHMARK_STEPS = 10
# Wire rate of a NIC that a run can use / a NIC's share of the bus bandwidth of an all-reduce over all of its GPUs.
# Networks that this says are broken (13 GB/s instead of 175) do slow runs of nanotron-2024 down, those at a third do
# not. Scanned over 2.2, 4.5, 6.7 and 9, refitted each time: runs of at least 10 % MFU err by 7.8, 6.9, 6.9 and 7.0 %,
# by 7.1 % without; all runs by 18.1, 16.4, 16.1 and 16.3 %, by 17.0 % without; the regret of its 16 groups of plans,
# which a few runs decide, is 21, 14, 18 and 9 %, 23 % without.
HEADROOM = 4.5


def read_cluster(row: Row) -> Cluster:
    """The cluster preset of a row's GPU, with its node size and network where the row gives them."""
    per_node = integer(row, "gpus_per_node", 0) if row.get("gpus_per_node") else 0
    cluster = _cluster(
        device_name(row["gpu"], row.get("gpu_mem_gb", "")),
        per_node,
        row.get("intra_link", ""),
        row.get("inter_link", ""),
    )
    benchmark = number(row, "all_reduce_gb_s") * 1e9 if row.get("all_reduce_gb_s") else 0.0
    return _slowed(cluster, benchmark) if benchmark and integer(row, "gpus") > cluster.scale_up_size else cluster


def _slowed(cluster: Cluster, benchmark: float) -> Cluster:
    """The cluster with NICs of at most HEADROOM times what its run's benchmark needs of each [B/s].

    In BENCHMARK_STEPS steps a decade, as exact as such a benchmark is, so that like runs are priced together.
    """
    full = cluster.tiers[1].link.bandwidth
    steps = round(BENCHMARK_STEPS * log10(full * cluster.scale_up_size / (HEADROOM * benchmark)))
    return with_network(cluster, nic_bandwidth=full * 10 ** (-steps / BENCHMARK_STEPS)) if steps > 0 else cluster


@cache
def _cluster(device: str, per_node: int, links: str, network: str) -> Cluster:
    cluster = load_cluster(device)
    inner, *outer = cluster.tiers
    share = nvlink_share(device, links)
    cluster = replace(cluster, tiers=(replace(inner, link=inner.link.scaled(share * inner.link.bandwidth)), *outer))
    resized = bool(per_node) and per_node != cluster.gpus_per_node
    if resized and cluster.scale_up_size == cluster.gpus_per_node:
        cluster = replace(with_network(cluster, scale_up_size=per_node), gpus_per_node=per_node)
    if fabric := named_fabric(network):
        link = load_link(fabric)
        outer = [replace(tier, link=link.scaled(tier.link.bandwidth)) for tier in cluster.tiers[1:]]
        cluster = replace(cluster, tiers=(cluster.tiers[0], *outer))
    bandwidth = network_bandwidth(network, cluster.gpus_per_node)
    return with_network(cluster, nic_bandwidth=bandwidth) if bandwidth else cluster
