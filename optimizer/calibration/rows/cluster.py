"""The cluster that a measured row describes: the preset of its GPU, with the node size and network of the row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import log10

from optimizer.calibration.rows.device import device_name
from optimizer.calibration.rows.numbers import integer, number
from optimizer.catalog import load_cluster, load_link
from optimizer.catalog.hardware import with_network
from optimizer.job.hardware import Cluster
from optimizer.objectives.network.collectives import collective_time, volume_per_rank
from optimizer.objectives.network.topology import span

Row = Mapping[str, str]
BENCHMARK_STEPS = 10
# Wire rate of a NIC that a run can use / a NIC's share of the bus bandwidth of an all-reduce over all of its GPUs.
# Networks that this says are broken (13 GB/s instead of 175) do slow runs of nanotron-2024 down, those at a third do
# not. Scanned over 2.2, 4.5, 6.7 and 9, refitted each time: runs of at least 10 % MFU err by 7.8, 6.9, 6.9 and 7.0 %,
# by 7.1 % without; all runs by 18.1, 16.4, 16.1 and 16.3 %, by 17.0 % without; the regret of its 16 groups of plans,
# which a few runs decide, is 21, 14, 18 and 9 %, 23 % without.
HEADROOM = 4.5
# What nanotron's benchmark sends (vinjn/nanotron-ultrascale-playbook @924e4d0, pp_comm_bandwidth.html) [B], and the
# share of a whole network's rate below which one is broken [1]: of its 506 runs on 64 GPUs and more 330 reach less than
# 0.45 of it, the others more than 0.55.
BENCHMARK, HALF = 2.0**28, 0.5
_NVLINKS = {"v100": (2, 6), "a100": (3, 12), "h100": (4, 18)}  # generation, links of a GPU
# a number, its prefix, and the unit: bits where the b is small or spelled out, bytes where it is not; none means bits
_SPEED = re.compile(r"(\d+(?:\.\d+)?)\s*([gt])(b(?:it)?(?:ps|/s(?:ec)?)|be\b|e\b|\b)", re.IGNORECASE)
_PORTS = re.compile(r"(\d+)\s*(?:[x×*](?![a-z])|ports?\b|nics?\b|rails?\b)|[x×]\s*(\d+)\b")
_GENERATION = {"omni-path": 100, "opa": 100, "edr": 100, "hdr": 200, "ndr": 400, "xdr": 800}
BIT, NODE = 8, 1000  # bits of a byte; from so many Gbit/s on, no single port is meant
_EFA = {12.5e9: "efa-v2", 25e9: "efa-v3"}  # by the rate of a port [B/s]


def read_cluster(row: Row) -> Cluster:
    """The cluster preset of a row's GPU, with its node size and network where the row gives them."""
    device, per_node = device_name(row["gpu"], row.get("gpu_mem_gb", "")), integer(row, "gpus_per_node", 0)
    cluster = _cluster(device, per_node, row.get("intra_link", ""), row.get("inter_link", ""))
    benchmark = number(row, "all_reduce_gb_s") * 1e9 if row.get("all_reduce_gb_s") else 0.0
    return _slowed(cluster, benchmark) if benchmark and integer(row, "gpus") > cluster.scale_up_size else cluster


def broken_network(row: Row) -> bool:
    """Whether a run is of another machine than its GPU's: whether the benchmark that it made of its own network reaches
    less than HALF of what an all-reduce of BENCHMARK bytes over all of its GPUs takes on a whole network.

    >>> row = {"gpu": "H100", "gpus": "64", "gpus_per_node": "8", "inter_link": "32x 100Gb/s EFA per node"}
    >>> [broken_network({**row, "all_reduce_gb_s": rate}) for rate in ("", "13", "97", "175")]
    [False, True, True, False]
    """
    if not row.get("all_reduce_gb_s"):
        return False
    cluster, gpus = read_cluster({**row, "all_reduce_gb_s": ""}), integer(row, "gpus")
    if gpus <= cluster.scale_up_size:
        return False
    seconds = collective_time("all_reduce", BENCHMARK, span(cluster, gpus, 1), cluster)
    whole = float(volume_per_rank("all_reduce", BENCHMARK, gpus) / seconds)
    return number(row, "all_reduce_gb_s") * 1e9 < HALF * whole


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


def nvlink_share(device: str, text: str) -> float:
    """Share of a GPU's NVLinks that a description of the node means [1].

    "NVLink 4" on A100, whose links are of the third generation, can only mean four of its twelve links.

    >>> nvlink_share("a100-80", 'NVLink ("NVLink 4")'), nvlink_share("h100", "NVLink4 450GB/s per dir")
    (0.3333333333333333, 1.0)
    """
    generation, links = _NVLINKS.get(device.split("-")[0], (0, 1))
    count = re.search(r"nvlink ?(\d+)", text.lower())
    return int(count[1]) / links if count and generation < int(count[1]) <= links else 1.0


def network_bandwidth(text: str, gpus_per_node: int) -> float:
    """One-way bandwidth per GPU that a description of the node's network implies, 0 when it says none [B/s].

    Of several networks the one for computing counts, or the fastest.

    >>> network_bandwidth("8x HDR InfiniBand 200Gb/s per node", 8) / 1e9
    25.0
    >>> network_bandwidth("1600 Gbps RoCE", 8) / 1e9
    25.0
    >>> network_bandwidth("InfiniBand 8x400 Gbit/s per node", 8) / 1e9
    50.0
    >>> network_bandwidth("Storage: 2x ConnectX-7 IB NDR 400Gb/s, Compute: 8x ConnectX-7 IB NDR 400Gb/s", 8) / 1e9
    50.0
    """
    parts = [part for part in re.split(r"[,;]", text) if "pcie" not in part.lower()]
    named = [part for part in parts if "compute" in part.lower()]
    return max((_node_speed(part, gpus_per_node) for part in named or parts), default=0.0)


def named_fabric(text: str) -> str:
    """The link preset of a network that behaves unlike InfiniBand and is named, "" for others.

    >>> named_fabric("32x 100Gb/s EFA per node"), named_fabric("8x 800Gb/s EFA per node"), named_fabric("8x HDR")
    ('efa-v2', 'efa-v4', '')
    """
    return _EFA.get(_port_speed(text), "efa-v4") if re.search(r"\befa", text.lower()) else ""


def _node_speed(text: str, gpus_per_node: int) -> float:
    """One-way bandwidth per GPU of one network [B/s].

    A number of ports is the node's, unless the words are per GPU; without one a rate is a GPU's, unless it is said to
    be the node's, or is more than a port has, or is what clouds sell by the node (Gbps).
    """
    lower = text.lower()
    speed = _port_speed(text)
    match = _PORTS.search(lower)
    ports = int(match[1] or match[2]) if match else 0
    if re.search(r"per gpu|/gpu|a gpu", lower):
        return max(ports, 1) * speed
    gigabits = speed * BIT / 1e9
    if ports or "node" in lower or gigabits >= NODE or (gigabits >= 400 and "gbps" in lower):
        return max(ports, 1) * speed / gpus_per_node
    return speed


def _port_speed(text: str) -> float:
    """The rate in a text, else that of the generation that it names [B/s].

    >>> [_port_speed(text) / 1e9 for text in ("NDR", "HDR 200Gb/s", "50 GB/s", "3.2 Tb/s", "400GbE", "400G")]
    [50.0, 25.0, 50.0, 400.0, 50.0, 50.0]
    """
    match = _SPEED.search(text)
    if match is None:
        return next((rate for word, rate in _GENERATION.items() if word in text.lower()), 0.0) * 1e9 / BIT
    number, prefix, unit = match.groups()
    in_bytes = unit.startswith("B") and "it" not in unit.lower()
    return float(number) * (1e12 if prefix.lower() == "t" else 1e9) / (1 if in_bytes else BIT)
