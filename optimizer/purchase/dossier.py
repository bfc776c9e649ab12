"""Everything that a report on a purchase says, worked out once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from optimizer.purchase.campaign import Campaign, Design
from optimizer.purchase.catalogue import power_curve, purchase_price, rent_price
from optimizer.purchase.front import shortlist
from optimizer.purchase.inverse import (
    Fewest,
    Parity,
    RentOrBuy,
    cheapest,
    cheapest_by_kind,
    fastest,
    fewest_gpus,
    parities,
    rent_or_buy_known,
)
from optimizer.purchase.pareto import Purchase
from optimizer.purchase.points import Planner, Point, Workshop, default_planner
from optimizer.purchase.ranges import Range
from optimizer.purchase.sensitivity import Swing, intervals, tornado


@dataclass(frozen=True, kw_only=True)
class Dominance:
    """A feasible point off the front, and the point of the front that beats it by most in its worst objective."""

    point: Point
    by: Point


@dataclass(frozen=True, kw_only=True)
class Quote:
    """What one kind of machine costs and draws, with the sources: price [USD/s or USD per GPU], limit [W]."""

    kind: str
    title: str
    price: float
    price_source: str
    power_limit: float
    power_measured: bool


@dataclass(frozen=True, kw_only=True)
class Dossier:
    """A purchase with its intervals, sensitivities and the answers to the questions asked backwards.

    advised: the cheapest point of the front that meets the deadline even at the far end of its interval, or else the
    cheapest. ranges: by position in the front. shown: the few points of the front that stand for all of it.
    """

    purchase: Purchase
    ranges: tuple[Mapping[str, Range], ...]
    shown: tuple[Point, ...]
    advised: Point | None
    swings: tuple[Swing, ...]
    cheapest: Point | None
    fastest: Point | None
    frugal: Point | None
    dominated: tuple[Dominance, ...]
    parities: tuple[Parity, ...]
    rent_or_buy: tuple[RentOrBuy, ...]
    fewest: tuple[Fewest, ...]
    quotes: tuple[Quote, ...]

    def range_of(self, point: Point) -> Mapping[str, Range]:
        """Intervals of a point of the front."""
        return self.ranges[self.purchase.front.index(point)]


def dossier(
    purchase: Purchase,
    kinds: Sequence[Design],
    *,
    deadline_for_fewest: float = 0.0,
    planner: Planner = default_planner,
    on_point: Callable[[], None] = lambda: None,
) -> Dossier:
    """Work out everything a report says; the fewest GPUs only when a deadline for them is given [s]."""
    campaign, front = purchase.campaign, purchase.front
    tornados = [tornado(campaign, point) for point in front]
    ranges = tuple(intervals(point, swings) for point, swings in zip(front, tornados, strict=True))
    advised = _advised(campaign, front, ranges)
    best = cheapest_by_kind(purchase.points)
    frugal = min(front, key=lambda point: point.figures.energy, default=None)
    wanted = [point for point in (advised, cheapest(front), fastest(front), frugal) if point is not None]
    workshop = Workshop(campaign=campaign, planner=planner, on_point=on_point)
    return Dossier(
        purchase=purchase,
        ranges=ranges,
        shown=shortlist(front, wanted, purchase.reference),
        advised=advised,
        swings=tornados[front.index(advised)] if advised else (),
        cheapest=cheapest(front),
        fastest=fastest(front),
        frugal=frugal,
        dominated=tuple(_dominances(purchase)),
        parities=parities(campaign, tuple(best.values())),
        rent_or_buy=rent_or_buy_known(campaign, tuple(best.values())),
        fewest=tuple(fewest_gpus(workshop, kind, deadline_for_fewest) for kind in kinds) if deadline_for_fewest else (),
        quotes=tuple(_quote(campaign, kind) for kind in kinds),
    )


def _advised(campaign: Campaign, front: Sequence[Point], ranges: Sequence[Mapping[str, Range]]) -> Point | None:
    safe = [
        point
        for point, found in zip(front, ranges, strict=True)
        if found["time_to_train"].high <= campaign.bounds.deadline and found["cost"].high <= campaign.bounds.budget
    ]
    return cheapest(safe) or cheapest(front)


def _dominances(purchase: Purchase) -> list[Dominance]:
    """Each feasible point off the front with a point of the front that is no worse in anything."""
    found = []
    on_front = {id(point) for point in purchase.front}
    for point in purchase.feasible:
        if id(point) in on_front:
            continue
        better = [rival for rival in purchase.front if _margin(rival, point) <= 1.0]
        if better:
            found.append(Dominance(point=point, by=min(better, key=lambda rival: _margin(rival, point))))
    return found


def _margin(rival: Point, point: Point) -> float:
    """The rival's worst ratio to the point over the three objectives; at most 1 when it dominates."""
    mine, theirs = point.figures, rival.figures
    return max(theirs.time_to_train / mine.time_to_train, theirs.cost / mine.cost, theirs.energy / mine.energy)


def _quote(campaign: Campaign, kind: Design) -> Quote:
    price, source = purchase_price(campaign, kind) if campaign.buy else rent_price(campaign, kind)
    curve = power_curve(kind, campaign.scenario())
    return Quote(
        kind=kind.kind,
        title=kind.title,
        price=price,
        price_source=source,
        power_limit=kind.cluster.device.power,
        power_measured=curve.measured,
    )
