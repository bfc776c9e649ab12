"""The uncertain inputs of one design: as the campaign assumes them, with what is known of its plan and its price."""

from __future__ import annotations

from dataclasses import replace

from optimizer.catalog.offers import USER, Offer
from optimizer.objectives.step.interval import Interval, interval
from optimizer.purchase.campaign import Assumption, Campaign
from optimizer.purchase.designs.points import Point
from optimizer.purchase.price.catalogue import price_row
from optimizer.purchase.ranges import OWN, Range, own_price, own_range

MFU = "mfu"
PRICES = ("rent", "capex")


def own_assumptions(campaign: Campaign, point: Point) -> tuple[Assumption, ...]:
    """Every uncertain input, with the plan's own interval as that of the rate, and the price's as its row has it.

    What the user gave is left as it is. A quote of the user's is firm.
    """
    device, cluster = point.design.cluster.device.name, point.design.cluster.name
    mine = {MFU: lambda item: _rate(item, point), **dict.fromkeys(PRICES, lambda item: _price(item, campaign, point))}
    mine |= {name: lambda item: _published(item, device, cluster) for name in OWN}
    return tuple(
        mine[item.name](item) if item.name in mine and item.grade != USER else item for item in campaign.assumptions
    )


def plan_intervals(point: Point) -> tuple[Interval, ...]:
    """The interval of the step of each run [s]."""
    return tuple(
        interval(answer.job, answer.plan, answer.estimate.step_time)
        for answer in point.answers
        if answer.plan is not None and answer.estimate is not None
    )


def untested(point: Point) -> tuple[str, ...]:
    """Why the plans lie outside of the runs that their stacks were fitted to; empty where they do not."""
    return tuple(dict.fromkeys(reason for span in plan_intervals(point) for reason in span.reasons))


def _rate(item: Assumption, point: Point) -> Assumption:
    """Rate reached over rate planned: the widest interval of the runs, since one stack errs alike on all of them."""
    steps = [answer.estimate.step_time for answer in point.answers if answer.estimate is not None]
    spans = plan_intervals(point)
    low = min(step / each.high for step, each in zip(steps, spans, strict=True))
    high = max(step / each.low for step, each in zip(steps, spans, strict=True))
    reasons = untested(point)
    why = f"90 % interval of {point.answers[0].job.stack.name}"
    why += f", extrapolated: {'; '.join(reasons)}" if reasons else ", interpolated between measured runs"
    return replace(item, value=Range(low=low, mid=1.0, high=high), source=why)


def _published(item: Assumption, device: str, cluster: str) -> Assumption:
    """What is published for this very machine, where anything is."""
    own = own_price(item.name, device, cluster)
    if own is None:
        return item
    return replace(item, value=own_range(own), source=own.source, date=own.date, grade=own.grade)


def _price(item: Assumption, campaign: Campaign, point: Point) -> Assumption:
    offer = price_row(campaign, point.design)
    if offer.own or offer.low < offer.high:
        return replace(item, value=_span(offer), source=offer.source or offer.row, date=offer.date, grade=offer.grade)
    return item


def _span(offer: Offer) -> Range:
    """The ends of a price over its middle [1]."""
    return Range(low=offer.low / offer.value, mid=1.0, high=offer.high / offer.value)
