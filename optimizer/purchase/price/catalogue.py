"""What a kind of machine costs and draws, read from the presets for one design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil

from optimizer.base.errors import InputError
from optimizer.catalog.economics import default_price, find_price
from optimizer.catalog.offers import RENTS, Offer
from optimizer.catalog.whole import Lot, whole
from optimizer.objectives import power
from optimizer.objectives.network.fabric import PORT, Fabric, fabric
from optimizer.objectives.power import PowerCurve
from optimizer.purchase.campaign import Campaign, Design

LARGE_DOMAIN = 16


def power_curve(design: Design, values: Mapping[str, float]) -> PowerCurve:
    """Power of the design's GPUs; devices without a measured curve take the H200's, not marked as measured.

    Raises InputError when the device's power limit is not known.
    """
    limit = power_limit(design)
    return replace(_usual_curve(design), limit=limit * values["gpu_power"], host=values["host_share"] * limit)


@lru_cache(maxsize=1024)
def _usual_curve(design: Design) -> PowerCurve:
    return power.power_curve(
        design.cluster.device, power_limit(design), fabric_of(design, design.gpus).switches, design.gpus
    )


def power_limit(design: Design) -> float:
    """Power limit of one GPU or chip [W]. Raises InputError where it is not known."""
    device = design.cluster.device
    limit = power.power_limit(device)
    if limit is None:
        raise InputError(f"the power of {device.name} is not known; leave it out of --hardware")
    return limit


def idle_power(design: Design, values: Mapping[str, float]) -> float:
    """What a GPU with its share of the node draws while it does nothing [W]: as measured, else a share of its limit."""
    cluster = design.cluster
    measured = find_price("node_power_idle", cluster.name)
    if measured is not None:
        return measured.value / cluster.gpus_per_node
    return default_price("idle_share").value * power_limit(design) * (1.0 + values["host_share"])


def fabric_of(design: Design, gpus: int) -> Fabric:
    """The network outside the scale-up domain, of so many GPUs."""
    ports = design.network_bandwidth / PORT
    return fabric(gpus, design.cluster.gpus_per_node, ports, design.taper)


def network_price(design: Design, gpus: int, spread: float) -> float:
    """Price of the network of `gpus` GPUs [USD]: switches and links x spread, and NICs that the servers lack."""
    links, cards = _network(design, gpus)
    return links * spread + cards


@lru_cache(maxsize=1024)
def _network(design: Design, gpus: int) -> tuple[float, float]:
    """Price of switches and links, and of the NICs that the servers lack [USD]; draws of many cases ask again."""
    mine, usual = fabric_of(design, gpus), fabric_of(as_sold(design), gpus)
    return mine.price(), max(0, mine.nics - usual.nics) * default_price("nic_400g").value


def added_network(design: Design, gpus: int, spread: float) -> float:
    """What the network costs beyond that of the cluster as it is sold [USD], never less than nothing."""
    if not (design.nic or design.oversubscription):
        return 0.0
    usual = network_price(as_sold(design), gpus, spread)
    return max(0.0, network_price(design, gpus, spread) - usual)


@lru_cache(maxsize=1024)
def as_sold(design: Design) -> Design:
    """The design with the network that its cluster has by itself."""
    return replace(design, nic=0.0, oversubscription=0.0)


def host_memory(design: Design) -> float | None:
    """Memory of the host for one GPU [B]; None where it is not known."""
    cluster = design.cluster
    return cluster.host_memory / cluster.gpus_per_node if cluster.host_memory else None


def rent_offer(campaign: Campaign, design: Design) -> Offer:
    """The row of the price book by which this design is rented.

    Raises InputError when no offer of the wanted term and provider is known.
    """
    device, book = design.cluster.device.name, campaign.book
    offer = book.rent(device, design.cluster.name)
    if offer is not None:
        return offer
    wanted = " ".join(part for part in (book.provider, book.term.replace("_", " ") or "rental") if part)
    offers = {item.term for item in replace(book, term="", provider="").rents(device)}
    known = f"; known: {', '.join(term for term in RENTS if term in offers)}" if offers else ""
    raise InputError(
        f"no {wanted} price of {design.kind} is known{known}; "
        f"give --rent {design.kind}=USD_PER_GPU_HOUR or a row of --prices FILE"
    )


def purchase_price(campaign: Campaign, design: Design) -> tuple[float, Offer]:
    """Price of one GPU with its share of the server [USD], and the row of the price book that it comes from.

    A price of bare chips or baseboards is raised by the usual ratio of a server to its chips. Raises InputError when
    none is known.
    """
    offer = campaign.book.sale(design.cluster.device.name, design.cluster.name)
    if offer is None:
        raise InputError(
            f"no purchase price of {design.kind} is known; give --purchase {design.kind}=USD_PER_GPU "
            "or a row of --prices FILE"
        )
    return offer.value * (1.0 if offer.term == "purchase" else default_price("server_to_chip_cost").value), offer


def price_row(campaign: Campaign, design: Design) -> Offer:
    """The row of the price book that decides what a design costs, rented or bought."""
    return purchase_price(campaign, design)[1] if campaign.buy else rent_offer(campaign, design)


def provisioned_power(design: Design) -> float:
    """Rated power of one GPU with its share of the server or rack [W]."""
    return power.provisioned_power(design.cluster, power_limit(design))


def rented(campaign: Campaign, design: Design) -> Lot:
    """What is rented: the sizes that the offer is sold in, else whole nodes."""
    offer = rent_offer(campaign, design)
    return _lot(design, offer.sold, offer.sold_as)


def bought(campaign: Campaign, design: Design) -> Lot:
    """What is bought: the sizes that the offer is sold in, else racks where a rack is the domain, else nodes."""
    offer = purchase_price(campaign, design)[1]
    if is_rack(design) and (design.scale_up or not offer.sold):
        return _lot(design, (design.domain,), "rack")
    return _lot(design, offer.sold, offer.sold_as)


def _lot(design: Design, sizes: Sequence[int], name: str) -> Lot:
    """The whole things that hold the job and its spare nodes."""
    node = design.cluster.gpus_per_node
    return replace(whole(design.gpus + (design.spares or 0) * node, node, sizes, name), used=design.gpus)


def paid(campaign: Campaign, design: Design) -> Lot:
    """The whole things that a design is paid for."""
    return bought(campaign, design) if campaign.buy else rented(campaign, design)


def is_rack(design: Design) -> bool:
    """Whether the scale-up domain is a rack that is sold as a whole."""
    return LARGE_DOMAIN <= design.domain <= 1024


def racks(design: Design) -> int:
    """Racks that the job occupies."""
    if is_rack(design):
        return ceil(design.gpus / design.domain)
    return ceil(design.gpus / design.cluster.gpus_per_node / default_price("nodes_per_rack").value)
