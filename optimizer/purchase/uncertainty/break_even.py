"""The value of one input at which another machine becomes the cheapest: found by setting it, not by a slope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.purchase.campaign import Campaign
from optimizer.purchase.designs.points import Point, excesses, figures_in
from optimizer.purchase.uncertainty.inputs import own_assumptions
from optimizer.purchase.uncertainty.win_probability import OpenQuestion

HALVINGS = 40


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """Beyond a value of an input another machine is the cheapest within the limits."""

    question: OpenQuestion
    value: float  # from which on, in SI as in a scenario
    end: float  # to the side of which, in SI
    now: Point  # the cheapest today
    then: Point  # the cheapest beyond

    @property
    def side(self) -> str:
        """On which side of `value` the other one is the cheapest."""
        return "below" if self.end < self.value else "above"


def break_evens(campaign: Campaign, points: Sequence[Point], question: OpenQuestion) -> tuple[BreakEven, ...]:
    """Where the choice changes between the middle of an input and either end of its range; empty where it does not."""
    changes = []
    now = choice(campaign, points, question, None)
    about = next((point for point in points if question.about in ("", point.design.title)), None)
    if now is None or about is None:
        return ()
    item = next(item for item in own_assumptions(campaign, about) if item.name == question.name)
    middle = item.value.mid
    for end in (item.value.low, item.value.high):
        if end == middle:
            continue
        then = choice(campaign, points, question, end)
        if then is None or then is now:
            continue
        near, far = middle, end
        for _ in range(HALVINGS):
            between = (near + far) / 2
            if choice(campaign, points, question, between) is now:
                near = between
            else:
                far = between
        changed = choice(campaign, points, question, far) or then
        changes.append(BreakEven(question=question, value=far, end=end, now=now, then=changed))
    return tuple(changes)


def choice(campaign: Campaign, points: Sequence[Point], question: OpenQuestion, value: float | None) -> Point | None:
    """The cheapest point within the limits where one input has this value, and every other one is at its middle."""
    within = []
    for point in points:
        hit = value is not None and question.about in ("", point.design.title)
        values = campaign.scenario(point.design, **({question.name: value} if hit and value is not None else {}))
        outcome = figures_in(campaign, point, values)
        if not excesses(campaign, point.design, outcome, point.on_host):
            within.append((outcome.cost, point))
    return min(within, key=lambda item: item[0])[1] if within else None
