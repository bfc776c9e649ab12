"""What a run takes and costs on rented machines: the one sum behind every amount of rent that is printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial

from optimizer.catalog.economics import default_price
from optimizer.catalog.offers import Offer, book_of
from optimizer.catalog.whole import Lot, whole
from optimizer.job.job import Job
from optimizer.objectives.money import rent_cost
from optimizer.purchase.price.goodput import (
    Checkpoint,
    checkpoint,
    exact_goodput,
    mean_time_between_failures,
    optimal_interval,
)
from optimizer.purchase.ranges import own_price
from optimizer.reports.plan_tiles import Budget

GPUS_PER_NODE = 8  # of the failure rate's scope
RELIABILITY = ("failure_rate", "restart", "checkpoint_stall", "checkpoint_size", "storage")


@dataclass(frozen=True, kw_only=True)
class WallTime:
    """Time of a run with failures and checkpoints."""

    wall: float  # [s]
    goodput: float  # share of it that trains [1]
    checkpoint_interval: float  # [s]
    checkpoint: Checkpoint  # what is written, and to what

    @property
    def storage_share(self) -> float:
        """Share of the time in which the storage takes a checkpoint at its full bandwidth [1]."""
        return self.checkpoint.write / self.checkpoint_interval


@dataclass(frozen=True, kw_only=True)
class Rental:
    """A run on rented machines."""

    time: WallTime
    lot: Lot  # what is rented
    offer: Offer  # by which row of the price book
    cost: float  # [USD]
    committed: float  # what the contract costs when its shortest time is paid for, however short the run [USD]


@cache
def usual_reliability(device: str = "", cluster: str = "") -> Mapping[str, float]:
    """The middle of every assumption on failures, restarts and checkpoints, a machine's own where published, in SI."""
    return {name: (own_price(name, device, cluster) or default_price(name)).value for name in RELIABILITY}


def wall_time(
    training: float,
    gpus: int,
    values: Mapping[str, float],
    *,
    params: float = 0.0,
    waiting: float = 0.0,
) -> WallTime:
    """Wall time of `training` seconds on `gpus` GPUs, in a scenario that names RELIABILITY.

    params: of the model, whose checkpoint the storage takes while training goes on: checkpoints follow each other no
    faster than it does, and a failure goes back behind the one that is still being written. waiting: share of the time
    in which the job waits for a repair [1].

    >>> usual = usual_reliability()
    >>> light, heavy = (wall_time(86400.0, 16384, usual, params=params) for params in (8e9, 20e12))
    >>> light.storage_share < 0.01, round(heavy.storage_share, 2), heavy.goodput < light.goodput
    (True, 0.35, True)
    """
    written = checkpoint(params, gpus, values)
    mtbf = mean_time_between_failures(values["failure_rate"] / GPUS_PER_NODE, gpus)
    stall = values["checkpoint_stall"]
    interval = max(float(optimal_interval(stall, mtbf)), written.write)
    share = float(exact_goodput(interval, stall, values["restart"] + written.write, mtbf))
    share *= 1.0 - waiting
    return WallTime(wall=training / share, goodput=share, checkpoint_interval=interval, checkpoint=written)


def committed_cost(lot: Lot, wall: float, offer: Offer) -> float:
    """Rent of a lot over the run or over the shortest time that the offer binds for, whichever is longer [USD]."""
    return float(rent_cost(lot.gpus, max(wall, offer.commitment), offer.value))


def rental(
    training: float,
    gpus: int,
    node: int,
    offer: Offer,
    values: Mapping[str, float] | None = None,
    *,
    params: float = 0.0,
    cluster: str = "",
) -> Rental:
    """What `training` seconds of steps come to on `gpus` GPUs in nodes of `node`.

    values: the scenario; without one the middle of every assumption, for the offer's device in this cluster. params: as
    wall_time takes them.

    Ten days of steps on 1,024 GPUs at 2 USD: 491,520 USD, and what failures, restarts and checkpoints add:

    >>> from optimizer.catalog.offers import quote
    >>> found = rental(864000.0, 1024, 8, quote("h100", "on_demand", 2 / 3600, row="-"))
    >>> round(found.cost * found.time.goodput), round(found.time.goodput, 3)
    (491520, 0.989)
    """
    time = wall_time(training, gpus, values or usual_reliability(offer.device, cluster), params=params)
    lot = whole(gpus, node, offer.sold, offer.sold_as)
    cost = float(rent_cost(lot.gpus, time.wall, offer.value))
    return Rental(time=time, lot=lot, offer=offer, cost=cost, committed=committed_cost(lot, time.wall, offer))


def whole_run(job: Job, tokens: float) -> Budget:
    """A run of so many tokens, with the price that holds for the job's machines."""
    device, cluster = job.cluster.device.name, job.cluster
    offer = book_of().rent(device, cluster.name, alone=job.gpus <= cluster.gpus_per_node)
    return Budget(tokens=tokens, price=offer.title() if offer else "", charged=partial(charged, job, offer=offer))


def charged(job: Job, training: float, offer: Offer | None) -> tuple[float, float | None]:
    """Wall time of so many seconds of a job's steps [s], failures included, and their rent [USD].

    Whole nodes are rented; of an offer without a network, single GPUs of one. Without an offer the rent is None.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.catalog.offers import book_of
    >>> job = Job(model=load_model("llama3-8b"), cluster=load_cluster("rtx-4090"), stack=load_stack("megatron-core"),
    ...     gpus=1, seq_len=2048, global_batch=16, train="qlora")
    >>> hours, dollars = charged(job, 36_000.0, book_of().rent("rtx-4090", alone=True))
    >>> round(dollars / (hours / 3600), 2)
    0.74
    """
    params, cluster = job.model.params, job.cluster
    if offer is None:
        usual = usual_reliability(cluster.device.name, cluster.name)
        return wall_time(training, job.gpus, usual, params=params).wall, None
    node = cluster.gpus_per_node if offer.fabric else min(job.gpus, cluster.gpus_per_node)
    rented = rental(training, job.gpus, node, offer, params=params, cluster=cluster.name)
    return rented.time.wall, rented.cost
