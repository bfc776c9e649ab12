"""The best design of each machine, and what it would take to beat the winner: price, rate or bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

from optimizer.base.errors import InputError
from optimizer.purchase.campaign import Campaign
from optimizer.purchase.designs.figures import figures
from optimizer.purchase.designs.points import Point, excesses, figures_in
from optimizer.purchase.price.catalogue import price_row, purchase_price
from optimizer.purchase.uncertainty.sensitivity import repriced

HALVINGS = 40
LEAST, MOST = 1e-2, 1e2  # factors between which a break-even is looked for
FASTER = (2.0, 4.0, 8.0)  # networks tried


@dataclass(frozen=True, kw_only=True)
class AlternativeDesign:
    """The best design of one machine, and what it would take to win; None where nothing of the kind suffices."""

    point: Point
    winner: bool
    target: float  # cost not to exceed to be the cheapest [USD], infinite where no other machine is within the limits
    price: float | None  # of one GPU at which it costs the target [USD/s or USD]
    price_now: float  # the same today
    mfu: float | None  # that it must reach at today's price [1]
    # per GPU and way at which it costs the target with its own plan, the network paid for [B/s]
    bandwidth: float | None

    @property
    def vendor(self) -> str:
        """Who makes the device."""
        return self.point.design.cluster.device.vendor


def alternatives(campaign: Campaign, best: Sequence[Point]) -> tuple[AlternativeDesign, ...]:
    """The best design of each machine, the most tokens per dollar first of those within the limits, then the others.

    The winner must stay below the second that is within the limits, if there is one.
    """
    ranked = sorted(best, key=lambda point: (not point.feasible, point.figures.cost))
    if not ranked:
        return ()
    winner, *others = ranked
    second = next((point.figures.cost for point in others if point.feasible), float("inf"))
    return tuple(
        _alternative(campaign, point, second if point is winner else winner.figures.cost, point is winner)
        for point in ranked
    )


def break_even_factor(campaign: Campaign, point: Point, name: str, target: float) -> float | None:
    """The factor on an input at which a point costs `target` or just keeps its limits, whichever is the harder; None
    where no factor between LEAST and MOST makes the difference, as where it misses a limit on racks or memory.

    name: "rent", "capex" or "mfu", in which time and cost are monotone.
    """

    def over(factor: float) -> bool:
        values = campaign.scenario(point.design, **{name: factor * campaign.scenario()[name]})
        outcome = figures_in(campaign, point, values)
        return outcome.cost > target or bool(excesses(campaign, point.design, outcome, point.on_host))

    low, high = LEAST, MOST
    if over(low) == over(high):
        return None
    rising = over(high)
    for _ in range(HALVINGS):
        middle = sqrt(low * high)
        low, high = (low, middle) if over(middle) == rising else (middle, high)
    return sqrt(low * high)


def _alternative(campaign: Campaign, point: Point, target: float, winner: bool) -> AlternativeDesign:
    price = break_even_factor(campaign, point, "capex" if campaign.buy else "rent", target)
    now = purchase_price(campaign, point.design)[0] if campaign.buy else price_row(campaign, point.design).value
    faster = break_even_factor(campaign, point, "mfu", target)
    mfu = faster * point.figures.mfu if faster else None
    return AlternativeDesign(
        point=point,
        winner=winner,
        target=target,
        price=price * now if price else None,
        price_now=now,
        mfu=mfu if mfu and mfu <= 1.0 else None,
        bandwidth=None if winner else _bandwidth(campaign, point, target),
    )


def _bandwidth(campaign: Campaign, point: Point, target: float) -> float | None:
    """The first of the faster networks with which the same plan costs no more than the target."""
    for factor in FASTER if point.design.network_bandwidth else ():
        design = replace(point.design, nic=point.design.network_bandwidth * factor)
        try:
            planned = repriced(campaign, design, point)
        except InputError:
            return None
        outcome = figures(campaign, design, planned, campaign.scenario(design), point.on_host)
        if outcome.cost <= target and not excesses(campaign, design, outcome, point.on_host):
            return design.nic
    return None
