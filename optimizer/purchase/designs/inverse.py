"""Questions asked backwards: fewest GPUs, least cost or time, rent or buy, fair price, how many spare nodes pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from optimizer.base.errors import InputError
from optimizer.base.units import YEAR
from optimizer.catalog.economics import default_price
from optimizer.objectives.money import Ownership, break_even, parity_price, resale_value, running_cost
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.campaign import AUTO, Campaign, Design
from optimizer.purchase.designs.figures import Figures, figures, ownership
from optimizer.purchase.designs.front import worst_excess
from optimizer.purchase.designs.points import Point, Rejected, Workshop, with_spares
from optimizer.purchase.price.catalogue import bought, is_rack, provisioned_power, rent_offer, rented

MOST = 2**18  # GPUs that are tried


@dataclass(frozen=True, kw_only=True)
class Fewest:
    """The fewest GPUs of one kind that meet a deadline, among the counts tried; `point` is None when none does."""

    kind: str
    title: str
    deadline: float
    point: Point | None
    tried: int
    fastest: Point | None = None


@dataclass(frozen=True, kw_only=True)
class RentOrBuy:
    """After how long buying a point's machines has cost less than renting them."""

    point: Point
    capex: float
    running: float
    rent: float
    time: float  # [s]; infinite when it never does
    lifetime: float  # of the machines [s]; a later time is no reason to buy


@dataclass(frozen=True, kw_only=True)
class Resale:
    """What owned machines come to when they are sold after so many whole years of continuous use."""

    years: int
    value: float  # what they sell for by the trend of prices [USD]
    book: float  # what is not written off yet [USD]
    yearly: float  # price less value, and running cost, over the years [USD]
    rent: float | None  # of the same machines for a year [USD], None where not known


@dataclass(frozen=True, kw_only=True)
class Parity:
    """The rent at which `device` costs as much as `alternative` [USD/s per GPU], and its rent now."""

    device: Point
    alternative: Point
    price: float
    now: float


def cheapest(points: Sequence[Point], deadline: float = float("inf")) -> Point | None:
    """The feasible point that costs least within the deadline."""
    within = [point for point in points if point.feasible and point.figures.time_to_train <= deadline]
    return min(within, key=lambda point: (point.figures.cost, point.figures.time_to_train), default=None)


def fastest(points: Sequence[Point], budget: float = float("inf")) -> Point | None:
    """The feasible point that ends first within the budget."""
    within = [point for point in points if point.feasible and point.figures.cost <= budget]
    return min(within, key=lambda point: (point.figures.time_to_train, point.figures.cost), default=None)


def cheapest_by_kind(points: Sequence[Point]) -> dict[str, Point]:
    """The cheapest feasible point of each kind of machine, in the order of the kinds."""
    kinds = dict.fromkeys(point.design.kind for point in points)
    best = {kind: cheapest([point for point in points if point.design.kind == kind]) for kind in kinds}
    return {kind: point for kind, point in best.items() if point is not None}


def best_by_kind(points: Sequence[Point]) -> dict[str, Point]:
    """The cheapest point of each kind within the limits, else the one that misses them by least; none if all miss."""
    best = cheapest_by_kind(points)
    if not best:
        return {}
    for point in sorted((point for point in points if not point.feasible), key=worst_excess):
        best.setdefault(point.design.kind, point)
    return best


def fewest_gpus(workshop: Workshop, base: Design, deadline: float) -> Fewest:
    """Fewest GPUs of one kind of machine that end the campaign by the deadline, all other limits aside.

    Doubling finds two counts around the answer, halving narrows them to a sixteenth of the smaller one in whole nodes
    (or racks). Time need not fall with every added GPU, because plans need divisors: the count is the fewest of those
    tried.
    """
    unit = base.domain if is_rack(base) else base.cluster.gpus_per_node
    tried: dict[int, Point | Rejected] = {}

    def meets(gpus: int) -> bool:
        point = tried[gpus] = workshop.point(replace(base, gpus=gpus))
        return isinstance(point, Point) and point.figures.time_to_train <= deadline

    low = high = unit
    while high <= min(MOST, base.cluster.max_gpus) and not meets(high):
        low, high = high, high * 2
    while high in tried and high - low > max(unit, low // 16):
        middle = (low + high) // 2
        if meets(middle):
            high = middle
        else:
            low = middle
    planned = [point for point in tried.values() if isinstance(point, Point)]
    return Fewest(
        kind=base.kind,
        title=base.title,
        deadline=deadline,
        point=next((point for point in planned if point is tried.get(high)), None),
        tried=len(tried),
        fastest=min(planned, key=lambda point: point.figures.time_to_train, default=None),
    )


def rent_or_buy(campaign: Campaign, point: Point) -> RentOrBuy:
    """When buying the machines of a point pays, at continuous use and the point's power.

    Raises InputError when a rent or a purchase price is not known.
    """
    design = point.design
    own, capex, running = _owned(campaign, point)
    rent = rented(campaign, design).gpus * rent_offer(campaign, design).value
    time = float(break_even(capex, running, rent))
    return RentOrBuy(point=point, capex=capex, running=running, rent=rent, time=time, lifetime=own.lifetime)


def _owned(campaign: Campaign, point: Point) -> tuple[Ownership, float, float]:
    """What owning a point's machines costs: the inputs, their price [USD] and what they cost to run [USD/s]."""
    design = point.design
    values = {item.name: item.value.mid for item in (*assumptions(buy=True), *campaign.assumptions)}
    gpus = bought(campaign, design).gpus
    own, capex = ownership(campaign, design, values, gpus, point.on_host)
    running = running_cost(capex, gpus, gpus * provisioned_power(design), point.figures.mean_power, own)
    return own, capex, float(running)


def resale(campaign: Campaign, point: Point) -> tuple[Resale, ...]:
    """A point's machines sold after each whole year of their life; empty where no purchase price is known."""
    try:
        own, capex, running = _owned(campaign, point)
    except InputError:
        return ()
    try:
        rent = rented(campaign, point.design).gpus * rent_offer(campaign, point.design).value * YEAR
    except InputError:
        rent = None
    trend = default_price("price_performance_trend").value
    years = []
    for year in range(1, int(own.lifetime / YEAR) + 1):
        value = float(resale_value(capex, year * YEAR, trend))
        book = capex * (1 - (1 - own.residual) * year * YEAR / own.lifetime)
        yearly = (capex - value) / year + running * YEAR
        years.append(Resale(years=year, value=value, book=book, yearly=yearly, rent=rent))
    return tuple(years)


def rent_or_buy_known(campaign: Campaign, points: Sequence[Point]) -> tuple[RentOrBuy, ...]:
    """rent_or_buy of the points for which both prices are known."""
    known = []
    for point in points:
        try:
            known.append(rent_or_buy(campaign, point))
        except InputError:
            continue
    return tuple(known)


def parities(campaign: Campaign, best: Sequence[Point]) -> tuple[Parity, ...]:
    """The rent of each device at which its cheapest design costs as much as the cheapest of all (or the second)."""
    if campaign.buy or len(best) < 2:
        return ()
    ranked = sorted(best, key=lambda point: point.figures.cost)
    fair = []
    for point in ranked:
        alternative = ranked[1] if point is ranked[0] else ranked[0]
        price = parity_price(alternative.figures.cost, point.figures.paid_gpus, point.figures.time_to_train)
        now = rent_offer(campaign, point.design).value
        fair.append(Parity(device=point, alternative=alternative, price=float(price), now=now))
    return tuple(fair)


@dataclass(frozen=True, kw_only=True)
class Standby:
    """So many spare nodes and what a design comes to with them; pays: no other number costs less."""

    spares: int
    figures: Figures
    pays: bool


def by_repair(campaign: Campaign, point: Point) -> tuple[tuple[float, int], ...]:
    """How many spare nodes pay at the shortest, the middle and the longest time of a repair [s]: it decides them."""
    own = replace(campaign, spares=AUTO)
    span = next(item.value for item in campaign.assumptions if item.name == "repair")
    return tuple(
        (time, with_spares(own, point.design, point.planned, point.on_host, repair=time).spares or 0)
        for time in dict.fromkeys((span.low, span.mid, span.high))
    )


def standby(campaign: Campaign, point: Point) -> tuple[Standby, ...]:
    """None, half of, as many as and twice as many spare nodes as pay, and what was asked for."""
    own = replace(campaign, spares=AUTO)
    best = with_spares(own, point.design, point.planned, point.on_host).spares or 0
    asked = [point.design.spares] if point.design.spares is not None else []
    return tuple(
        Standby(
            spares=count,
            figures=figures(
                own, replace(point.design, spares=count), point.planned, own.scenario(point.design), point.on_host
            ),
            pays=count == best,
        )
        for count in sorted({0, best // 2, best, 2 * best, *asked})
    )
