"""Questions asked backwards."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from optimizer.purchase.campaign import Requirements
from optimizer.purchase.designs.inverse import (
    cheapest,
    cheapest_by_kind,
    fastest,
    fewest_gpus,
    parities,
    rent_or_buy,
    resale,
)
from optimizer.purchase.designs.pareto import pareto
from optimizer.purchase.designs.points import Point, Workshop
from tests.purchase.campaigns import campaign, grid, kinds, quick_planner, rented_at

DAY = 86400.0


def test_fewest_gpus_meet_the_deadline_and_a_sixteenth_less_does_not() -> None:
    workshop = Workshop(campaign=campaign(), planner=quick_planner)
    found = fewest_gpus(workshop, kinds("h100")[0], 120 * DAY)
    assert found.point is not None
    gpus = found.point.design.gpus
    assert found.point.figures.time_to_train <= 120 * DAY
    fewer = workshop.point(replace(found.point.design, gpus=gpus - max(8, gpus // 15)))
    assert isinstance(fewer, Point)
    assert fewer.figures.time_to_train > 120 * DAY


def test_a_deadline_that_no_count_meets_says_the_fastest() -> None:
    workshop = Workshop(campaign=campaign(), planner=quick_planner)
    found = fewest_gpus(workshop, kinds("h100")[0], 1 * DAY, most=8192)
    assert found.point is None
    assert found.fastest is not None
    assert found.fastest.design.gpus == 8192


def test_cheapest_and_fastest_agree_with_a_look_at_every_point() -> None:
    points = pareto(campaign(bounds=Requirements(deadline=400 * DAY)), grid(), planner=quick_planner).points
    feasible = [point for point in points if point.feasible]
    assert cheapest(points) is min(feasible, key=lambda point: point.figures.cost)
    assert fastest(points) is min(feasible, key=lambda point: point.figures.time_to_train)
    within = cheapest(points, 100 * DAY)
    assert within is not None
    assert within.figures.time_to_train <= 100 * DAY
    assert fastest(points, budget=1.0) is None
    # Exactly on the limit is within it.
    first, least = fastest(points), cheapest(points)
    assert first is not None
    assert least is not None
    assert cheapest([least], least.figures.time_to_train) is least
    assert fastest([first], first.figures.cost) is first


def test_at_its_parity_price_a_device_costs_what_its_alternative_does() -> None:
    question = campaign()
    best = cheapest_by_kind(pareto(question, grid(), planner=quick_planner).points)
    for parity in parities(question, tuple(best.values())):
        kind = parity.device.design.kind
        again = pareto(replace(question, book=rented_at(**{kind: parity.price})), grid(kind), planner=quick_planner)
        same = next(point for point in again.points if point.design.key == parity.device.design.key)
        assert same.figures.cost == pytest.approx(parity.alternative.figures.cost)


def test_machines_sold_early_cost_more_a_year_than_those_kept_and_nothing_is_left_in_the_books_at_the_end() -> None:
    question = campaign()
    point = cheapest_by_kind(pareto(question, grid("b200"), planner=quick_planner).points)["b200"]
    years, capex = resale(question, point), rent_or_buy(question, point).capex
    assert [item.years for item in years] == [1, 2, 3, 4, 5]
    assert years[-1].book == pytest.approx(0.0, abs=1e-6 * capex)
    assert years[-1].value == pytest.approx(capex * 10**-0.7)
    assert all(late.yearly < early.yearly for early, late in pairwise(years))


def test_after_the_break_even_owning_has_cost_less() -> None:
    question = campaign()
    point = cheapest_by_kind(pareto(question, grid("b200"), planner=quick_planner).points)["b200"]
    found = rent_or_buy(question, point)
    assert found.capex + found.running * found.time == pytest.approx(found.rent * found.time)
    assert 0 < found.time < found.lifetime == pytest.approx(5 * 365.25 * DAY)
