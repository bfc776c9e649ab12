"""The uncertain inputs of one design: as the campaign assumes them, with what is known of its plan and its price."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from optimizer.catalog.offers import OLD, USER
from optimizer.objectives.step.interval import Interval, interval
from optimizer.purchase.campaign import Assumption, Campaign
from optimizer.purchase.designs.points import Point
from optimizer.purchase.price.catalogue import price_row
from optimizer.purchase.ranges import Range, own_price, own_range

MFU = "mfu"
PRICES = ("rent", "capex")
DAYS_OF_YEAR = 365.25


def own_assumptions(campaign: Campaign, point: Point) -> tuple[Assumption, ...]:
    """Every uncertain input, with the plan's own interval as that of the rate, and the price's as its row has it.

    What the user gave is left as it is. A quote of the user's is firm.
    """
    return tuple(item if item.grade == USER else _own(item, campaign, point) for item in campaign.assumptions)


def _own(item: Assumption, campaign: Campaign, point: Point) -> Assumption:
    """What is known of one input for this very plan, price or machine."""
    if item.name == MFU:
        return _rate(item, point)
    if item.name in PRICES:
        offer = price_row(campaign, point.design)
        if offer.own or offer.low < offer.high:
            span = Range(low=offer.low / offer.value, mid=1.0, high=offer.high / offer.value)  # over its middle [1]
            item = replace(item, value=span, source=offer.source or offer.row, date=offer.date, grade=offer.grade)
        return item if offer.own else replace(item, value=aged(item.value, offer.age(campaign.book.day)))
    own = own_price(item.name, point.design.cluster.device.name, point.design.cluster.name)
    return replace(item, value=own_range(own), source=own.source, date=own.date, grade=own.grade) if own else item


def aged(span: Range, age: float | None) -> Range:
    """The range of a price that is `age` days old, over its middle [1]: wider once it is OLD.

    (low^s, 1, high^s), s = sqrt(age / OLD), at least 1: logarithms of prices wander, so that their spread grows with
    the root of the time. A price without a date is taken to be as old as a year.

    >>> aged(Range(low=0.7, mid=1.0, high=1.3), 4 * OLD)
    Range(low=0.49, mid=1.0, high=1.69)
    """
    scale = max(1.0, sqrt((DAYS_OF_YEAR if age is None else age) / OLD))
    return Range(low=round(span.low**scale, 6), mid=span.mid, high=round(span.high**scale, 6))


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
    spans = plan_intervals(point)
    steps = [sqrt(span.low * span.high) for span in spans]  # as the figures have them
    low = min(step / each.high for step, each in zip(steps, spans, strict=True))
    high = max(step / each.low for step, each in zip(steps, spans, strict=True))
    reasons = untested(point)
    why = f"90 % interval of {point.answers[0].job.stack.name}"
    why += f", extrapolated: {'; '.join(reasons)}" if reasons else ", interpolated between measured runs"
    return replace(item, value=Range(low=low, mid=1.0, high=high), source=why)
