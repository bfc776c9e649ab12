"""Everything that a report on a purchase says, worked out once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from optimizer.catalog.offers import Offer
from optimizer.purchase.alternatives import AlternativeDesign, alternatives
from optimizer.purchase.campaign import Campaign, Design
from optimizer.purchase.designs.front import shortlist
from optimizer.purchase.designs.inverse import (
    Fewest,
    Parity,
    RentOrBuy,
    Resale,
    Standby,
    best_by_kind,
    by_repair,
    cheapest,
    cheapest_by_kind,
    fastest,
    fewest_gpus,
    parities,
    rent_or_buy_known,
    resale,
    standby,
)
from optimizer.purchase.designs.pareto import Purchase
from optimizer.purchase.designs.points import Planner, Point, Workshop, default_planner
from optimizer.purchase.price.catalogue import power_curve, power_limit, price_row, purchase_price
from optimizer.purchase.ranges import Range
from optimizer.purchase.staged import Delivery, Staged, by_kind
from optimizer.purchase.uncertainty.sensitivity import Swing, input_swings, intervals, tornado
from optimizer.purchase.uncertainty.win_probability import BreakEven, Decision, break_evens, judged, least_regret


@dataclass(frozen=True, kw_only=True)
class Dominance:
    """A feasible point off the front, and the point of the front that beats it by most in its worst objective."""

    point: Point
    by: Point


@dataclass(frozen=True, kw_only=True)
class Quote:
    """What one kind of machine costs and draws."""

    kind: str
    title: str
    price: float  # [USD/s or USD per GPU]
    offer: Offer  # the row that it comes from
    # lowest and highest rent of the same device at the same term [USD/s], None when bought
    others: tuple[Offer, Offer] | None
    power_limit: float  # [W]
    power_measured: bool


@dataclass(frozen=True, kw_only=True)
class Dossier:
    """A purchase with its intervals, sensitivities and the answers to the questions asked backwards."""

    purchase: Purchase
    ranges: tuple[Mapping[str, Range], ...]  # Intervals of the points of the front, in their order
    shown: tuple[Point, ...]  # The few points of the front that stand for all of it
    # The point of the least expected regret among the best of each machine on the front: its cheapest that keeps the
    # limits over the whole of its ranges, or else its cheapest
    advised: Point | None
    # The best of another machine, where what one question is worth exceeds what the advised is better by
    tie: Point | None
    swings: tuple[Swing, ...]
    cheapest: Point | None
    fastest: Point | None
    frugal: Point | None
    dominated: tuple[Dominance, ...]
    parities: tuple[Parity, ...]
    rent_or_buy: tuple[RentOrBuy, ...]
    fewest: tuple[Fewest, ...]
    quotes: tuple[Quote, ...]
    standby: tuple[Standby, ...] = ()  # Spare nodes of the advised point
    repairs: tuple[tuple[float, int], ...] = ()  # How many spare nodes pay by the time of a repair [s]
    resale: tuple[Resale, ...] = ()  # The machines of the advised point sold after each year of their life
    staged: tuple[Staged, ...] = ()  # What deliveries come to, one after the other
    alternatives: tuple[AlternativeDesign, ...] = ()  # The best design of each machine, and what it would take to win
    # The chance of each machine to win, and what to find out first
    decision: Decision = field(default_factory=Decision)
    break_evens: tuple[BreakEven, ...] = ()  # Where an answer to a question changes the choice

    def range_of(self, point: Point) -> Mapping[str, Range]:
        """Intervals of a point of the front."""
        return self.ranges[self.purchase.front.index(point)]


def dossier(
    purchase: Purchase,
    kinds: Sequence[Design],
    *,
    deadline_for_fewest: float = 0.0,
    deliveries: Sequence[Delivery] = (),
    planner: Planner = default_planner,
    on_point: Callable[[], None] = lambda: None,
) -> Dossier:
    """Work out everything a report says; the fewest GPUs only when a deadline for them is given [s]."""
    campaign, front = purchase.campaign, purchase.front
    ranges = tuple(intervals(point, input_swings(campaign, point)) for point in front)
    bounds = campaign.bounds
    safe = [
        point
        for point, spans in zip(front, ranges, strict=True)
        if spans["time_to_train"].high <= bounds.deadline and spans["cost"].high <= bounds.budget
    ]
    chosen = cheapest_by_kind(front) | cheapest_by_kind(safe)
    within = cheapest_by_kind(purchase.points) | chosen
    best = best_by_kind(purchase.points) | chosen
    decision = judged(campaign, tuple(best.values()), seed=purchase.seed)
    advised, tie = least_regret(decision, front)
    advised = advised or cheapest(safe) or cheapest(front)
    frugal = min(front, key=lambda point: point.figures.energy, default=None)
    wanted = [point for point in (advised, cheapest(front), fastest(front), frugal) if point is not None]
    workshop = Workshop(campaign=campaign, planner=planner, on_point=on_point)
    return Dossier(
        purchase=purchase,
        ranges=ranges,
        shown=shortlist(front, wanted, purchase.reference),
        advised=advised,
        tie=tie,
        swings=tornado(campaign, advised) if advised else (),
        cheapest=cheapest(front),
        fastest=fastest(front),
        frugal=frugal,
        dominated=tuple(_dominances(purchase)),
        parities=parities(campaign, tuple(within.values())),
        rent_or_buy=rent_or_buy_known(campaign, tuple(within.values())),
        fewest=tuple(fewest_gpus(workshop, kind, deadline_for_fewest) for kind in kinds) if deadline_for_fewest else (),
        quotes=tuple(_quote(campaign, kind) for kind in kinds),
        standby=standby(campaign, advised) if advised else (),
        repairs=by_repair(campaign, advised) if advised else (),
        resale=resale(campaign, advised) if advised else (),
        staged=by_kind(campaign, deliveries, purchase.points),
        alternatives=alternatives(campaign, tuple(best.values())),
        decision=decision,
        break_evens=tuple(
            each for item in decision.questions for each in break_evens(campaign, tuple(best.values()), item)
        ),
    )


def _dominances(purchase: Purchase) -> list[Dominance]:
    """Each feasible point off the front with the point of the front that beats it by most."""
    on_front = {id(point) for point in purchase.front}
    return [
        Dominance(point=point, by=min(purchase.front, key=lambda other: _margin(other, point)))
        for point in purchase.feasible
        if id(point) not in on_front
    ]


def _margin(other: Point, point: Point) -> float:
    """The other's worst ratio to the point over the three objectives; at most 1 when it dominates."""
    mine, theirs = point.figures, other.figures
    return max(theirs.time_to_train / mine.time_to_train, theirs.cost / mine.cost, theirs.energy / mine.energy)


def _quote(campaign: Campaign, kind: Design) -> Quote:
    offer = price_row(campaign, kind)
    known = () if campaign.buy else replace(campaign.book, term=offer.term, provider="").rents(offer.device)
    curve = power_curve(kind, campaign.scenario(kind))
    return Quote(
        kind=kind.kind,
        title=kind.title,
        price=purchase_price(campaign, kind)[0] if campaign.buy else offer.value,
        offer=offer,
        others=(known[0], known[-1]) if len(known) > 1 else None,
        power_limit=power_limit(kind),
        power_measured=curve.measured,
    )
