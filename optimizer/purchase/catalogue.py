"""What a kind of machine costs and draws, read from the presets for one design."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil

from optimizer.errors import InputError
from optimizer.presets.economics import Price, default_price, find_price
from optimizer.purchase.campaign import TERMS, Campaign, Design
from optimizer.purchase.energy import PowerCurve, switch_power

USUAL_NIC = 50e9  # 400 Gb/s, the ports that the presets' switch counts and network share hold for
REFERENCE_CURVE = "h200"
LARGE_DOMAIN = 16


def power_curve(design: Design, values: Mapping[str, float]) -> PowerCurve:
    """Power of the design's GPUs; devices without a measured curve take the H200's, not marked as measured.

    Raises InputError when the device's power limit is not known.
    """
    device = design.cluster.device
    if not device.power:
        raise InputError(f"the power of {device.name} is not known; leave it out of --hardware")
    floor, slope = (find_price(f"power_{part}", device.name, REFERENCE_CURVE) for part in ("floor", "slope"))
    if floor is None or slope is None:
        raise InputError(f"presets/prices.csv has no power curve of {REFERENCE_CURVE}; add power_floor and power_slope")
    switch = find_price("switch_power", "infiniband-ndr")
    network = 0.0
    if switch is not None:
        network = float(
            switch_power(switch.value, default_price("switches_per_1024_gpus").value, ports(design), design.taper)
        )
    return PowerCurve(
        limit=device.power * values["gpu_power"],
        floor=floor.value,
        slope=slope.value,
        host=values["host_share"] * device.power,
        network=network,
        measured=floor.name == device.name,
    )


def ports(design: Design) -> float:
    """NIC bandwidth per GPU in units of 400 Gb/s [1]."""
    return design.network_bandwidth / USUAL_NIC


def rent_price(campaign: Campaign, design: Design) -> tuple[float, str]:
    """Rent of one GPU [USD/s], and which offer that is.

    Raises InputError when no offer of the wanted term is known.
    """
    if design.kind in campaign.rents:
        return campaign.rents[design.kind], "given by the user"
    names = (design.cluster.name, design.cluster.device.name)
    for term in (campaign.term,) if campaign.term else TERMS:
        found = find_price(term, *names)
        if found is not None:
            return found.value, f"{term.replace('_', ' ')} {found.name}, {found.date}: {found.source}"
    offers = [term for term in TERMS if find_price(term, *names)]
    known = f"; known: {', '.join(offers)}" if offers else ""
    raise InputError(
        f"no {campaign.term or 'rental'} price of {design.kind} is known{known}; "
        f"give --rent {design.kind}=USD_PER_GPU_HOUR"
    )


def purchase_price(campaign: Campaign, design: Design) -> tuple[float, str]:
    """Price of one GPU with its share of the server [USD], and which figure that is.

    A price of bare chips or baseboards is raised by the usual ratio of a server to its chips. Raises InputError when
    none is known.
    """
    if design.kind in campaign.prices:
        return campaign.prices[design.kind], "given by the user"
    cluster = design.cluster
    server = find_price("purchase", cluster.name)
    if server is not None:
        return server.value / _gpus_of(
            server, cluster.gpus_per_node
        ), f"{server.name} {server.scope}, {server.date}: {server.source}"
    chips = find_price("baseboard", cluster.name) or find_price("purchase", cluster.device.name)
    if chips is not None:
        ratio = default_price("server_to_chip_cost").value
        each = chips.value / _gpus_of(chips, 1) * ratio
        return each, f"{chips.name} {chips.scope} x {ratio:g} for the server, {chips.date}: {chips.source}"
    raise InputError(f"no purchase price of {design.kind} is known; give --purchase {design.kind}=USD_PER_GPU")


def provisioned_power(design: Design) -> float:
    """Rated power of one GPU with its share of the server or rack [W]."""
    cluster = design.cluster
    rated = find_price("node_power_max", cluster.name) or find_price("rack_power_max", cluster.name)
    if rated is not None:
        return rated.value / _gpus_of(rated, cluster.gpus_per_node)
    return cluster.device.power * default_price("server_to_chip_power").value


def occupied(design: Design) -> tuple[int, int]:
    """GPUs in the nodes that the job occupies (rented), and in whole racks where a rack is the domain (bought)."""
    domain = design.scale_up or design.cluster.scale_up_size
    node = design.cluster.gpus_per_node
    unit = domain if is_rack(design) else node
    return ceil(design.gpus / node) * node, ceil(design.gpus / unit) * unit


def is_rack(design: Design) -> bool:
    """Whether the scale-up domain is a rack that is sold as a whole."""
    return LARGE_DOMAIN <= (design.scale_up or design.cluster.scale_up_size) <= 1024


def racks(design: Design) -> int:
    """Racks that the job occupies."""
    if is_rack(design):
        return ceil(design.gpus / (design.scale_up or design.cluster.scale_up_size))
    return ceil(design.gpus / design.cluster.gpus_per_node / default_price("nodes_per_rack").value)


def _gpus_of(price: Price, otherwise: int) -> int:
    """GPUs that one price covers: the number in its scope, such as "per rack of 72 GPUs"."""
    number = re.search(r"\d+", price.scope)
    return int(number[0]) if number else 1 if price.scope.endswith("GPU") else otherwise
