"""The network that the words of a measured row describe."""

from __future__ import annotations

import re

_NVLINKS = {"v100": (2, 6), "a100": (3, 12), "h100": (4, 18)}  # generation, links of a GPU


def nvlink_share(device: str, text: str) -> float:
    """Share of a GPU's NVLinks that a description of the node means [1].

    "NVLink 4" on A100, whose links are of the third generation, can only mean four of its twelve links.

    >>> nvlink_share("a100-80", 'NVLink ("NVLink 4")'), nvlink_share("h100", "NVLink4 450GB/s per dir")
    (0.3333333333333333, 1.0)
    """
    generation, links = _NVLINKS.get(device.split("-")[0], (0, 1))
    count = re.search(r"nvlink ?(\d+)", text.lower())
    return int(count[1]) / links if count and generation < int(count[1]) <= links else 1.0


_PORTS = re.compile(
    r"(?:(\d+)\s*x)?[^,;\d]*?(?:connectx-?\d+|cx-?\d+|quantum-?\d+|bluefield-?\s?\d+)?[^,;\d]*?(\d+)\s*gb(?:ps|/s|/sec|it/s)"
)
_GENERATION = {"omni-path": 100, "opa": 100, "edr": 100, "hdr": 200, "ndr": 400, "xdr": 800}


def network_bandwidth(text: str, gpus_per_node: int) -> float:
    """One-way bandwidth per GPU that a description of the node's network implies, 0 when it says none [B/s].

    Of several networks the one for computing counts, or the fastest.

    >>> network_bandwidth("8x HDR InfiniBand 200Gb/s per node", 8) / 1e9
    25.0
    >>> network_bandwidth("1600 Gbps RoCE", 8) / 1e9
    25.0
    >>> network_bandwidth("Storage: 2x ConnectX-7 IB NDR 400Gb/s, Compute: 8x ConnectX-7 IB NDR 400Gb/s", 8) / 1e9
    50.0
    """
    parts = [part for part in re.split(r"[,;]", text.lower()) if "pcie" not in part]
    named = [part for part in parts if "compute" in part]
    return max((_node_speed(part, gpus_per_node) for part in named or parts), default=0.0)


_BENCHMARK = re.compile(r"collective bench in the same job gb/s: allreduce ([\d.]+)")


def all_reduce_benchmark(notes: str) -> float:
    """Bus bandwidth of the all-reduce that a run timed over all of its GPUs, 0 when it says none [B/s].

    >>> all_reduce_benchmark("job 1; collective bench in the same job GB/s: AllReduce 190.5 AllGather 75") / 1e9
    190.5
    """
    match = _BENCHMARK.search(notes.lower())
    return float(match[1]) * 1e9 if match else 0.0


def _node_speed(text: str, gpus_per_node: int) -> float:
    match = _PORTS.search(text)
    speed = float(match[2]) if match else next((rate for word, rate in _GENERATION.items() if word in text), 0.0)
    count = re.search(r"(\d+)\s*x\b", text)
    if "per gpu" in text:
        return speed * 1e9 / 8
    if count or "node" in text or (speed >= 400 and "gbps" in text):
        return (int(count[1]) if count else 1) * speed * 1e9 / 8 / gpus_per_node
    return speed * 1e9 / 8
