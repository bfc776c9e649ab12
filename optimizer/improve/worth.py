"""What a run takes in days and in dollars at the speed of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.base.units import DAY
from optimizer.catalog.offers import Offer
from optimizer.improve.state import State
from optimizer.purchase.price.run_cost import rental, usual_reliability, wall_time


@dataclass(frozen=True, kw_only=True)
class Run:
    """A whole run: its tokens, and the offer by which its GPUs are rented, None where no price is known."""

    tokens: float
    offer: Offer | None


def days(run: Run, state: State) -> float:
    """Days of a run at a plan's throughput, failures, restarts and checkpoints included [day]."""
    job = state.job
    usual = usual_reliability(job.cluster.device.name, job.cluster.name)
    return wall_time(run.tokens / state.throughput, job.gpus, usual, params=job.model.params).wall / DAY


def dollars(run: Run, state: State) -> float | None:
    """Rent of whole nodes over that time [USD], None without a price."""
    if run.offer is None:
        return None
    job = state.job
    training, params, cluster = run.tokens / state.throughput, job.model.params, job.cluster
    return rental(training, job.gpus, cluster.gpus_per_node, run.offer, params=params, cluster=cluster.name).cost
