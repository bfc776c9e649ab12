"""The cluster that a measured row describes: its GPU's preset, with the row's node size and network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from optimizer.calibration.row_network import network_bandwidth, nvlink_share
from optimizer.calibration.row_numbers import integer
from optimizer.errors import InputError
from optimizer.hardware import Cluster
from optimizer.presets import load_cluster
from optimizer.presets.hardware import with_network

Row = Mapping[str, str]


def read_cluster(row: Row, assumed: list[str]) -> Cluster:
    """The cluster preset of a row's GPU, with its node size and network where the row gives them."""
    per_node = integer(row, "gpus_per_node", 0) if row.get("gpus_per_node") else 0
    return _cluster(_device_name(row, assumed), per_node, row.get("intra_link", ""), row.get("inter_link", ""))


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
