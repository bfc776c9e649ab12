"""Descriptions of accelerators, links and clusters: datasheet and measured numbers, no timing.

They are keys of what is worked out once; tables take no part in the hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from optimizer.base.errors import InputError
from optimizer.job.model import Provenance

# What each quantity of a device, link or cluster is measured in; readers of presets and of users' files check it.
_QUANTITIES: Mapping[str, tuple[str, ...]] = {
    "FLOP/s": ("peak_flops", "measured_matmul"),
    "B": ("memory", "memory_nominal", "l2_cache", "half_message", "host_memory"),
    "B/s": ("memory_bandwidth", "bandwidth", "bandwidth_duplex", "p2p_bandwidth", "ll_bandwidth", "host_bandwidth"),
    "W": ("power",),
    "1": (
        "sms",
        "host_slowness",
        "efficiency",
        "in_switch_reduction",
        "gpus_per_node",
        "max_gpus",
        "size",
        "oversubscription",
        "ports_per_gpu",
    ),
    "s": ("latency",),
    "J/bit": ("energy",),
}
DIMENSIONS: Mapping[str, str] = {name: unit for unit, names in _QUANTITIES.items() for name in names}


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator."""

    name: str
    vendor: str = "NVIDIA"
    release: str = ""  # when it came out
    peak_flops: Mapping[str, float] = field(hash=False)  # dense peaks by dtype [FLOP/s]
    memory: float  # what a process can allocate at most [B]
    memory_nominal: float  # as on the datasheet [B]
    memory_bandwidth: float  # of the HBM [B/s]
    l2_cache: float = 0.0  # last cache before it [B]
    sms: int = 1  # streaming multiprocessors
    power: float = 0.0  # limit of its power [W]
    host_slowness: float = 1.0  # time in which its host launches a kernel over that of an x86 server [1]
    measured_matmul: Mapping[str, float] = field(default_factory=dict, hash=False)  # rates by dtype [FLOP/s]
    # parameters of matrix products that were measured on the user's own, by "bf16" or "fp8" and name
    # (optimizer.objectives.kernels.gemm_curve); what it leaves out is that of the nearest preset
    gemm: Mapping[str, Mapping[str, float]] = field(default_factory=dict, hash=False)
    provenance: Mapping[str, Provenance] = field(default_factory=dict, hash=False)

    def peak(self, dtype: str) -> float:
        """Dense peak for matrix products in this dtype [FLOP/s].

        fp8 recipes (mxfp8, fp8-block, ...) share one peak. Raises InputError for a dtype without hardware support.
        """
        key = "fp8" if "fp8" in dtype.lower() else dtype.lower()
        if key == "bf16" and key not in self.peak_flops and "fp16" in self.peak_flops:
            raise InputError(f"{self.name} has no bf16 matrix units; use --dtype fp16")
        if key not in self.peak_flops:
            raise InputError(f"{self.name} has no {dtype} matrix units; it offers {', '.join(sorted(self.peak_flops))}")
        return self.peak_flops[key]


@dataclass(frozen=True, kw_only=True)
class Link:
    """One kind of link."""

    name: str
    bandwidth: float  # one-way and per GPU [B/s]
    latency: float  # per hop [s]
    energy: float = 0.0  # [J/bit]
    efficiency: float = 0.8  # largest share of `bandwidth` that collectives reach [1]
    half_message: float = 0.0  # message size per step at which they reach half of that [B]
    in_switch_reduction: bool = False  # NVLS or SHARP
    topology: str = "switch"  # switch, mesh, torus or bus
    p2p_bandwidth: float = 0.0  # of one pair of neighbours on a mesh or torus; 0: all of it [B/s]
    # everything else that is known, in SI: NCCL's latencies, number of links, the `axes` of a torus and `wraparound`,
    # the fewest chips on an axis that make it a ring, ...
    quantities: Mapping[str, float] = field(default_factory=dict, hash=False)
    provenance: Mapping[str, Provenance] = field(default_factory=dict, hash=False)

    @property
    def pair_bandwidth(self) -> float:
        """One-way bandwidth between two neighbours when nobody else talks [B/s]."""
        return self.p2p_bandwidth or self.bandwidth

    def scaled(self, bandwidth: float) -> Link:
        """The same kind of link with another bandwidth [B/s]: the latency stays, so half_message grows with it.

        >>> Link(name="ndr", bandwidth=50e9, latency=2e-6, half_message=6e5).scaled(100e9).half_message
        1200000.0
        """
        ratio = bandwidth / self.bandwidth
        return replace(
            self, bandwidth=bandwidth, half_message=self.half_message * ratio, p2p_bandwidth=self.p2p_bandwidth * ratio
        )


@dataclass(frozen=True, kw_only=True)
class Tier:
    """One level of the network."""

    name: str
    link: Link  # over which its GPUs talk
    size: int  # most GPUs of a group
    oversubscription: float = 1.0  # divides the bandwidth that leaves the tier below; 2.0: half

    @property
    def bandwidth(self) -> float:
        """One-way bandwidth per GPU after oversubscription [B/s]."""
        return self.link.bandwidth / self.oversubscription


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Identical accelerators on a hierarchy of tiers."""

    name: str
    device: Device
    tiers: tuple[Tier, ...]  # innermost first: the scale-up domain (NVLink, xGMI, ICI)
    gpus_per_node: int = 8
    max_gpus: int = 1_000_000  # that a job may have
    host_bandwidth: float = 25e9  # what one GPU reaches to host memory, one way [B/s]
    host_memory: float = 0.0  # of a node, 0 where it is not known [B]
    provenance: Mapping[str, Provenance] = field(default_factory=dict, hash=False)

    @property
    def scale_up(self) -> Tier:
        """The innermost tier: the domain in which every GPU reaches every other at full NVLink speed."""
        return self.tiers[0]

    @property
    def scale_up_size(self) -> int:
        """Number of GPUs in the scale-up domain."""
        return self.tiers[0].size


def cut_domain(node: int, domain: int) -> str:
    """What is wrong with nodes and domains of so many GPUs; "" where one number divides the other.

    >>> cut_domain(8, 8), cut_domain(4, 72), cut_domain(8, 2)
    ('', '', '')
    >>> cut_domain(3, 8)
    'nodes of 3 GPUs cut through the innermost tier, of 8: let one of the two numbers divide the other'
    """
    if node % domain == 0 or domain % node == 0:
        return ""
    return (
        f"nodes of {node} GPUs cut through the innermost tier, of {domain}: let one of the two numbers divide the other"
    )
