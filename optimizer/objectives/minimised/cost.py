"""The money of a step: the rent of its machines, or what owning and running them costs where nobody rents them out."""

from __future__ import annotations

from functools import lru_cache

from optimizer.base.errors import InputError
from optimizer.catalog.economics import default_price
from optimizer.catalog.offers import Offer, PriceBook
from optimizer.catalog.whole import whole
from optimizer.job.hardware import Cluster
from optimizer.job.job import Job
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.minimised import energy
from optimizer.objectives.money import Ownership, ownership_cost, rent_cost, running_cost
from optimizer.objectives.objective import Objective, Phases
from optimizer.objectives.power import power_limit, provisioned_power


def rate(job: Job) -> float:
    """What a second of a step costs [USD/s]: rent of whole machines, or their ownership with the power they draw.

    Raises:
        InputError: where the price book has no price of the device, or its power is not known and it is not rented.
    """
    rent = rent_of(job.cluster, job.gpus)
    return rent if rent is not None else owned(job.cluster, job.gpus, sale_of(job.cluster), energy.watts(job))


def phases(layer_costs: LayerCosts) -> Phases:
    """What owned GPUs cost beyond that while they compute or stream memory [USD/s]; rent is the same all the time."""
    job = layer_costs.job
    if rent_of(job.cluster, job.gpus) is not None:
        return {}
    electricity = default_price("electricity").value
    return {phase: electricity * watts for phase, watts in energy.phases(layer_costs).items()}


@lru_cache(maxsize=64)
def rent_of(cluster: Cluster, gpus: int) -> float | None:
    """Rent of the whole machines that hold so many GPUs [USD/s]; None where the price book has no rent of them."""
    offer = PriceBook().rent(cluster.device.name, cluster.name)
    if offer is None:
        return None
    lot = whole(gpus, cluster.gpus_per_node, offer.sold, offer.sold_as)
    return float(rent_cost(lot.gpus, 1.0, offer.value))


@lru_cache(maxsize=64)
def sale_of(cluster: Cluster) -> Offer:
    """The price at which machines are bought. Raises InputError where the price book has none of the device."""
    offer = PriceBook().sale(cluster.device.name, cluster.name)
    if offer is None:
        raise InputError(
            f"no price of {cluster.device.name} is known, which --minimize cost needs: add a row to presets/offers.csv"
        )
    return offer


def owned(cluster: Cluster, gpus: int, offer: Offer, power: float) -> float:
    """What machines that are owned cost a second, at the middle of every assumption, without their network [USD/s].

    Args:
        cluster: the machines.
        gpus: how many GPUs a job uses; whole nodes are owned.
        offer: at which they are bought.
        power: that the site draws [W].
    """
    lot = whole(gpus, cluster.gpus_per_node, offer.sold, offer.sold_as)
    capex = lot.gpus * offer.value * (1.0 if offer.term == "purchase" else default_price("server_to_chip_cost").value)
    usual = ("lifetime", "residual", "support", "staff", "software", "electricity", "colocation")
    own = Ownership(**{name: default_price(name).value for name in usual})
    rated = lot.gpus * provisioned_power(cluster, power_limit(cluster.device) or 0.0)
    return float(ownership_cost(capex, 1.0, running_cost(capex, lot.gpus, rated, power, own), own))


OBJECTIVE = Objective(
    name="cost",
    label="cost",
    unit="USD",
    about="rent by the price book, or ownership and electricity where it has none",
    good="cheap",
    better="cheaper",
    best="cheapest",
    worse="dearer",
    per="dollar",
    rate=rate,
    phases=phases,
)
