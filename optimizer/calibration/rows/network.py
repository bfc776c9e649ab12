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


# a number, its prefix, and the unit: bits where the b is small or spelled out, bytes where it is not; none means bits
_SPEED = re.compile(r"(\d+(?:\.\d+)?)\s*([gt])(b(?:it)?(?:ps|/s(?:ec)?)|be\b|e\b|\b)", re.IGNORECASE)
_PORTS = re.compile(r"(\d+)\s*(?:[x×*](?![a-z])|ports?\b|nics?\b|rails?\b)|[x×]\s*(\d+)\b")
_GENERATION = {"omni-path": 100, "opa": 100, "edr": 100, "hdr": 200, "ndr": 400, "xdr": 800}
BIT, NODE = 8, 1000  # bits of a byte; from so many Gbit/s on, no single port is meant


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


_EFA = {12.5e9: "efa-v2", 25e9: "efa-v3"}  # by the rate of a port [B/s]


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
    found = _PORTS.search(lower)
    ports = int(found[1] or found[2]) if found else 0
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
