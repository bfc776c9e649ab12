"""The cluster that a measured row describes: its GPU's preset, with the row's node size and network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import log10

from optimizer.calibration.row_network import all_reduce_benchmark, network_bandwidth, nvlink_share
from optimizer.calibration.row_numbers import integer
from optimizer.errors import InputError
from optimizer.hardware import Cluster
from optimizer.presets import load_cluster
from optimizer.presets.hardware import with_network

Row = Mapping[str, str]
BENCHMARK_STEPS = 10
# Wire rate of a NIC that a run can use / a NIC's share of the bus bandwidth of an all-reduce over all of its GPUs.
# Networks that this says are broken (13 GB/s instead of 175) do slow runs of nanotron-2024 down, those at a third do
# not. Scanned over 2.2, 4.5, 6.7 and 9, refitted each time: runs of at least 10 % MFU err by 7.8, 6.9, 6.9 and 7.0 %,
# by 7.1 % without; all runs by 18.1, 16.4, 16.1 and 16.3 %, by 17.0 % without; the regret of its 16 groups of plans,
# which a few runs decide, is 21, 14, 18 and 9 %, 23 % without.
HEADROOM = 4.5


def read_cluster(row: Row, assumed: list[str]) -> Cluster:
    """The cluster preset of a row's GPU, with its node size and network where the row gives them."""
    per_node = integer(row, "gpus_per_node", 0) if row.get("gpus_per_node") else 0
    cluster = _cluster(_device_name(row, assumed), per_node, row.get("intra_link", ""), row.get("inter_link", ""))
    benchmark = all_reduce_benchmark(row.get("notes", ""))
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
    bandwidth = network_bandwidth(network, cluster.gpus_per_node)
    return with_network(cluster, nic_bandwidth=bandwidth) if bandwidth else cluster


def _device_name(row: Row, assumed: list[str]) -> str:
    text = row["gpu"].lower()
    match = re.search(
        r"(gb300|gb200|b300|b200|h200|h800|h100|h20|a800|a100|v100|mi\d+x|l40s|tpu ?v\d\w*|gaudi ?\d)", text
    )
    if match is None:
        raise InputError(f"gpu {row['gpu']!r} is not a known device")
    name = match[1].replace(" ", "")
    memory = row.get("gpu_mem_gb", "")
    if name == "a100" and memory.startswith("40"):
        return "a100-40"
    if name == "v100":
        return "v100-32" if memory.startswith("32") else "v100-16"
    if name in ("a100", "a800", "h100", "h800") and "pcie" in text:
        return f"{name}-pcie" if name == "h100" else f"{name}-80-pcie"
    if name.startswith("tpuv"):
        return "tpu-" + name[3:]
    return name
