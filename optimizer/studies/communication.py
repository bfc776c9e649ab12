"""What a plan communicates: every collective with its size, time, energy and the links it crosses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.network.collectives import volume_per_rank
from optimizer.objectives.network.energy import BITS, Hops, hop_time, hops
from optimizer.objectives.network.messages import collective
from optimizer.objectives.network.topology import span
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.per_step import rate_of_share
from optimizer.search.plan.alternatives import estimate_of_plan
from optimizer.studies.intensity import LayerRoofline, layer_roofline
from optimizer.studies.memory_need import MemoryNeed
from optimizer.studies.traffic import Traffic, traffic

COMPUTE_TERMS = ("gemm", "attention", "elementwise", "launch", "head")


@dataclass(frozen=True, kw_only=True)
class Hop:
    """The links of one tier that one collective crosses."""

    tier: str
    link: str
    traversals: float  # links x messages of all ranks together
    message: float  # size of each [B]
    latency: float  # time of one of them on an idle link [s]
    energy: float  # of all of them [J]
    sent: float  # by a GPU to peers that it meets in this tier, mean of all ranks [B]

    @property
    def volume(self) -> float:
        """Bytes on the links of this tier, all together [B]."""
        return self.traversals * self.message


@dataclass(frozen=True, kw_only=True)
class PricedTraffic:
    """One kind of collective with its price."""

    traffic: Traffic
    time: float  # of one [s]
    sent: float  # by a sending GPU in it [B]
    path: tuple[Hop, ...]  # by tier, innermost first

    @property
    def energy(self) -> float:
        """Energy of one collective on the links, all ranks together [J]."""
        return sum(hop.energy for hop in self.path)

    @property
    def time_per_layer(self) -> float:
        """Time for one layer and micro-batch, nothing overlapped [s]."""
        return self.traffic.per_layer * self.time

    @property
    def time_per_step(self) -> float:
        """Time for one GPU and step, nothing overlapped [s]."""
        return self.traffic.per_step * self.time

    @property
    def volume_per_layer(self) -> float:
        """Bytes one GPU sends for one layer and micro-batch [B]."""
        return self.traffic.per_layer * self.sent

    @property
    def volume_per_step(self) -> float:
        """Bytes one GPU sends in a step [B]."""
        return self.traffic.per_step * self.sent

    @property
    def total_volume(self) -> float:
        """Bytes all GPUs together send in a step [B]."""
        senders = 1 if self.traffic.kind == "point_to_point" else self.traffic.ranks
        return self.traffic.in_total * senders * self.sent

    @property
    def total_energy(self) -> float:
        """Energy of a step on the links of the whole cluster [J]."""
        return self.traffic.in_total * self.energy

    @property
    def energy_per_layer(self) -> float:
        """Energy of one layer and micro-batch on the links, all ranks of the group together [J]."""
        return self.traffic.per_layer * self.energy

    @property
    def outermost(self) -> int:
        """Number of the outermost tier that it crosses; -1 for none."""
        return max((level for level, hop in enumerate(self.path) if hop.traversals > 0), default=-1)


@dataclass(frozen=True, kw_only=True)
class CommunicationStudy:
    """All communication of a plan, the roofline of its layers, and the price of the step."""

    job: Job
    plan: Plan
    rows: tuple[PricedTraffic, ...]
    layer: LayerRoofline
    estimate: Estimate

    @property
    def memory(self) -> MemoryNeed:
        """The memory that the plan needs."""
        return MemoryNeed(reserved=self.estimate.reserved, usable=self.job.usable_memory)

    @property
    def compute_time(self) -> float:
        """What keeps a GPU of the slowest stage busy in a step: kernels, and the host that launches them [s]."""
        return sum(self.estimate.time.get(term, 0.0) for term in COMPUTE_TERMS)

    @property
    def communication_time(self) -> float:
        """All collectives of one GPU and step, nothing overlapped [s]."""
        return sum(row.time_per_step for row in self.rows)

    @property
    def other_times(self) -> dict[str, float]:
        """What else the step takes, by term and largest first: bubble, optimizer, host and the like [s]."""
        terms = {
            name: value
            for name, value in self.estimate.time.items()
            if value > 0 and name not in COMPUTE_TERMS and not name.endswith("_communication")
        }
        return dict(sorted(terms.items(), key=lambda term: -term[1]))

    @property
    def exposed_time(self) -> float:
        """What of it the step shows, as the plan is priced [s]."""
        return sum(value for name, value in self.estimate.time.items() if name.endswith("_communication"))

    @property
    def energy(self) -> float:
        """Energy of a step on the links of the whole cluster [J]."""
        return sum(row.total_energy for row in self.rows)

    @property
    def parallelisms(self) -> tuple[str, ...]:
        """The kinds of parallelism that communicate, in the order of `rows`."""
        return tuple(dict.fromkeys(row.traffic.parallelism for row in self.rows))

    def of(self, parallelism: str) -> tuple[PricedTraffic, ...]:
        """The rows of one kind of parallelism."""
        return tuple(row for row in self.rows if row.traffic.parallelism == parallelism)


def communication(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> CommunicationStudy:
    """Study the communication of one step of a plan.

    Raises InputError when the device has no units for the job's dtype.
    """
    rows = tuple(priced(job, row, knobs) for row in traffic(job, plan, knobs))
    estimate = estimate_of_plan(job, plan, knobs)
    layer = layer_roofline(job, plan, sent_by_tier(job, plan, rows))
    return CommunicationStudy(job=job, plan=plan, rows=rows, layer=layer, estimate=estimate)


def sent_by_tier(job: Job, plan: Plan, rows: Sequence[PricedTraffic]) -> tuple[float, ...]:
    """What a GPU sends for one layer and micro-batch to peers in each tier, innermost first [B].

    What data parallelism sends once per step is shared by the micro-batches.
    """
    sent = [0.0] * len(job.cluster.tiers)
    for row in rows:
        times = row.traffic.per_layer / (plan.num_microbatches if row.traffic.once else 1)
        for level, hop in enumerate(row.path):
            sent[level] += times * hop.sent
    return tuple(sent)


def priced(job: Job, row: Traffic, knobs: Knobs) -> PricedTraffic:
    """One kind of collective with its time, path and energy.

    What data parallelism sends once per step runs on the SM share of the knobs, what it sends for every micro-batch at
    the stack's rate of sharded collectives, as in the price of a step.
    """
    group = span(job.cluster, row.ranks, row.stride)
    skewed = row.parallelism != "pp"
    time = float(collective(job, row.kind, np.array([row.message]), [row.ranks], [row.stride], skewed=skewed)[0])
    if row.parallelism == "dp":
        time /= float(rate_of_share(knobs.comm_sm_share)) if row.once else job.stack.features.sharded_rate
    crossed = hops(row.kind, group)
    part = row.message * float(crossed.share)
    senders = 1 if row.kind == "point_to_point" else row.ranks
    path = tuple(
        Hop(
            tier=tier.name,
            link=tier.link.name,
            traversals=float(count),
            message=part,
            latency=float(hop_time(part, tier)),
            energy=BITS * part * float(count) * tier.link.energy,
            sent=paths * part / senders,
        )
        for count, paths, tier in zip(crossed.traversals, _paths(crossed), job.cluster.tiers, strict=True)
    )
    sent = float(volume_per_rank(row.kind, row.message, row.ranks))
    return PricedTraffic(traffic=row, time=time, sent=sent, path=path)


def _paths(crossed: Hops) -> list[float]:
    """Paths that meet in each tier: its traversals less two for every path that goes beyond it."""
    paths: list[float] = []
    for count in reversed(crossed.traversals):
        paths.append(float(count) - 2.0 * sum(paths))
    return paths[::-1]
