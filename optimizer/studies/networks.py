"""Is the network the bottleneck? One plan on several networks, and the bandwidth that it would need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from optimizer.base.errors import InputError
from optimizer.base.units import parse, show
from optimizer.catalog import load_link
from optimizer.job.hardware import Link
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.studies.communication import CommunicationStudy, PricedTraffic, communication, priced

BISECTIONS = 60
FASTEST = 1e15  # beyond any link; what does not overlap with the compute at this one is latency [B/s]


@dataclass(frozen=True, kw_only=True)
class Network:
    """A link that stands in for the network of a cluster; its bandwidth is one way and per GPU [B/s]."""

    name: str
    link: Link


@dataclass(frozen=True, kw_only=True)
class NetworkVerdict:
    """A plan on one network."""

    network: Network
    communication: float  # what crosses the network in a step, nothing overlapped [s]
    compute: float  # what the GPU's kernels take in a step [s]
    # least bandwidth at which the communication takes no longer than the compute [B/s]; infinite where latency alone is
    # too long, 0 where nothing crosses
    needed: float
    exposed: float  # communication that the step shows [s]
    step_time: float  # of the plan [s]
    mfu: float  # of the plan [1]

    @property
    def bottleneck(self) -> bool:
        """Whether communication takes longer than the compute that it could at best overlap with."""
        return self.communication > self.compute


def network(text: str, job: Job) -> Network:
    """A network as people write it: a link preset, with ports per GPU after a colon, or a bandwidth per GPU.

    "infiniband-ndr" is one port per GPU, "infiniband-hdr:0.125" one port for eight GPUs, "200Gb/s" the job's own
    kind of network at that rate. Raises UnknownName or InputError.
    """
    if text[:1].isdigit():
        bandwidth = parse(text, "B/s")
        if bandwidth <= 0:
            raise InputError(f"the bandwidth of a network must be positive, but got {text!r}")
        link = job.cluster.tiers[network_level(job)].link.scaled(bandwidth)
        return Network(name=f"{show(bandwidth, 'B/s')} per GPU", link=link)
    name, colon, ports = text.partition(":")
    link = load_link(name)
    try:
        count = float(ports) if colon else 1.0
    except ValueError:
        count = 0.0
    if not count > 0:
        raise InputError(f"{text!r}: after the colon comes the number of ports per GPU, such as {name}:0.5")
    return Network(name=link.name + (f" × {count:g}" if colon else ""), link=link.scaled(link.bandwidth * count))


def network_level(job: Job) -> int:
    """Number of the first tier that counts as the network: the one beyond the scale-up domain, if the job leaves it."""
    return 1 if job.gpus > job.cluster.scale_up_size and len(job.cluster.tiers) > 1 else 0


def on_network(job: Job, link: Link) -> Job:
    """The same job with another link in every tier of its network; oversubscription and sizes stay."""
    level, tiers = network_level(job), job.cluster.tiers
    changed = tuple(replace(tier, link=link) for tier in tiers[level:])
    return replace(job, cluster=replace(job.cluster, tiers=(*tiers[:level], *changed)))


def bottleneck(job: Job, plan: Plan, networks: Sequence[Network], knobs: Knobs = Knobs()) -> tuple[NetworkVerdict, ...]:
    """The plan on each network, with what it would need."""
    return tuple(_verdict(job, plan, one, knobs) for one in networks)


def _verdict(job: Job, plan: Plan, chosen: Network, knobs: Knobs) -> NetworkVerdict:
    study = communication(on_network(job, chosen.link), plan, knobs)
    crossing = tuple(row for row in study.rows if row.outermost >= network_level(job))
    return NetworkVerdict(
        network=chosen,
        communication=sum(row.time_per_step for row in crossing),
        compute=study.compute_time,
        needed=needed_bandwidth(study, crossing, chosen.link, knobs),
        exposed=study.exposed_time,
        step_time=study.estimate.step_time,
        mfu=study.estimate.mfu,
    )


def needed_bandwidth(study: CommunicationStudy, crossing: Sequence[PricedTraffic], link: Link, knobs: Knobs) -> float:
    """Least bandwidth of this kind of link at which the crossing collectives take no longer than the compute [B/s].

    By bisection of its logarithm, since their time falls with the bandwidth.
    """
    if not crossing:
        return 0.0

    def fits(bandwidth: float) -> bool:
        job = on_network(study.job, link.scaled(bandwidth))
        repriced = (priced(job, row.traffic, knobs) for row in crossing)
        return sum(row.time_per_step for row in repriced) <= study.compute_time

    low, high = 1.0, FASTEST
    if not fits(high):
        return float("inf")
    for _ in range(BISECTIONS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
