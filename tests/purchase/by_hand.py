"""A purchase of two machines in round numbers, for tests of what is said about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from optimizer.purchase.campaign import Campaign
from optimizer.purchase.designs.pareto import Purchase
from optimizer.purchase.designs.points import Point, Workshop
from optimizer.purchase.dossier import Dossier
from optimizer.purchase.ranges import Range
from tests.purchase.campaigns import campaign, kinds, quick_planner

DAY = 86400.0
MWH = 3.6e9


def machine(kind: str, *, question: Campaign | None = None, **values: Any) -> Point:
    """4,096 GPUs of one kind, with these figures instead of what they come to."""
    asked = question or campaign()
    found = Workshop(campaign=asked, planner=quick_planner).point(replace(kinds(kind)[0], gpus=4096))
    assert isinstance(found, Point)
    return replace(found, figures=replace(found.figures, **values))


def by_hand(question: Campaign | None = None, figures: Mapping[str, Any] = {}, **changes: Any) -> Dossier:
    """H100 for 100 days, 50 million USD and 10,000 MWh, advised; MI300X for 80 days, 60 million and 12,000.

    figures: others of the first.
    """
    asked = question or campaign()
    first = machine("h100", question=asked, time_to_train=100 * DAY, cost=50e6, energy=10_000 * MWH, **figures)
    second = machine("mi300x", question=asked, time_to_train=80 * DAY, cost=60e6, energy=12_000 * MWH)
    points = (second, first)
    found = Purchase(
        campaign=asked,
        points=points,
        rejected=(),
        front=points,
        hypervolume=0.25,
        reference=(110 * DAY, 66e6, 13_200 * MWH),
    )
    values: dict[str, Any] = {
        "purchase": found,
        "ranges": tuple(around(point) for point in points),
        "shown": points,
        "advised": first,
        "tie": None,
        "cheapest": first,
        "fastest": second,
        "frugal": first,
        **dict.fromkeys(("swings", "dominated", "parities", "rent_or_buy", "fewest", "quotes"), ()),
    }
    return Dossier(**values | changes)


def around(point: Point) -> dict[str, Range]:
    """A tenth less to a fifth more of each figure that has a range."""
    values = {name: getattr(point.figures, name) for name in ("time_to_train", "cost", "energy", "co2")}
    return {name: Range(low=0.9 * value, mid=value, high=1.2 * value) for name, value in values.items()}
