"""Questions asked backwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import pytest

from optimizer.purchase.campaign import Campaign, Design, Requirements
from optimizer.purchase.designs.figures import PlannedRun, figures
from optimizer.purchase.designs.inverse import (
    by_repair,
    cheapest,
    cheapest_by_kind,
    fastest,
    fewest_gpus,
    parities,
    rent_or_buy,
    resale,
    standby,
)
from optimizer.purchase.designs.pareto import pareto
from optimizer.purchase.designs.points import Point, Rejected, Workshop
from optimizer.purchase.ranges import Range
from tests.purchase.by_hand import machine
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
    (base,) = kinds("h100")
    found = fewest_gpus(workshop, replace(base, cluster=replace(base.cluster, max_gpus=8192)), 1 * DAY)
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


@cache
def usual() -> Point:
    return machine("h100")


@dataclass
class Counted(Workshop):
    """Designs that end after 1 / GPUs; of some counts there is no plan."""

    planless: Callable[[int], bool] = lambda gpus: False

    def point(self, design: Design) -> Point | Rejected:
        if self.planless(design.gpus):
            return Rejected(design=design, reason="no plan")
        found = usual()
        return replace(found, design=design, figures=replace(found.figures, time_to_train=1 / design.gpus))


@pytest.mark.parametrize(
    ("needed", "found", "tried"),
    [
        (8, 8, 1),
        (9, 16, 2),
        (17, 24, 4),  # 8, 16, 32; 24
        (24, 24, 4),
        (25, 32, 4),
        (129, 136, 10),  # to 256; 192, 160, 144, 136
        (8193, 8704, 16),  # to 16,384; 12,288, 10,240, 9,216, 8,704: a sixteenth more than 8,192
        (
            12289,
            12800,
            16,
        ),  # to 16,384; 12,288, 14,336, 13,312, 12,800: 512 more than 12,288, a sixteenth of which is 768
        (2**18, 2**18, 20),
        (2**18 + 1, None, 16),
    ],
)
def test_counts_double_and_are_halved_to_a_node_or_a_sixteenth(needed: int, found: int | None, tried: int) -> None:
    answer = fewest_gpus(Counted(campaign=campaign()), kinds("h100")[0], 1 / needed)
    assert answer.point is None if found is None else answer.point and answer.point.design.gpus == found
    assert answer.tried == tried
    assert answer.deadline == 1 / needed
    assert answer.fastest is not None
    assert answer.fastest.design.gpus == min(2**18, 2 ** (max(8, needed) - 1).bit_length())


def test_counts_without_a_plan_are_too_few_and_a_machine_is_asked_for_no_more_than_there_may_be() -> None:
    (base,) = kinds("h100")
    workshop = Counted(campaign=campaign(), planless=lambda gpus: gpus < 40)
    answer = fewest_gpus(workshop, base, 1.0)
    assert answer.point is not None
    assert (answer.point.design.gpus, answer.tried) == (40, 6)  # 8, 16, 32, 64; 48, 40
    small = replace(base, cluster=replace(base.cluster, max_gpus=32))
    none = fewest_gpus(workshop, small, 1.0)
    assert (none.kind, none.title, none.point, none.fastest, none.tried) == ("h100", "H100", None, None, 3)
    whole = replace(base, cluster=replace(base.cluster, max_gpus=64))
    assert fewest_gpus(workshop, whole, 1 / 64).tried == 6


def spared(question: Campaign, design: Design, planned: Sequence[PlannedRun], repair: float | None = None) -> int:
    """The cheapest number of spare nodes below fifty."""
    values = question.scenario(design, **({} if repair is None else {"repair": repair}))
    return min(range(50), key=lambda count: figures(question, replace(design, spares=count), planned, values).cost)


def test_as_many_nodes_stand_by_as_pay_and_more_the_longer_a_repair_takes() -> None:
    question = campaign()
    point = machine("h100", question=question)
    span = next(item.value for item in question.assumptions if item.name == "repair")
    found = by_repair(question, point)
    assert found == tuple(
        (end, spared(question, point.design, point.planned, end)) for end in (span.low, span.mid, span.high)
    )
    assert found[0][1] < found[1][1] < found[2][1]
    firm = tuple(
        replace(item, value=Range.exact(1.0)) if item.name == "repair" else item for item in question.assumptions
    )
    assert by_repair(replace(question, assumptions=firm), point) == ((1.0, 0),)


def test_what_is_spared_stands_beside_none_half_and_twice_as_many() -> None:
    question = campaign()
    point = machine("h100", question=question)
    best = spared(question, point.design, point.planned)
    assert best > 2
    for asked in (None, 7 * best):
        design = replace(point.design, spares=asked)
        rows = standby(question, replace(point, design=design))
        more = [] if asked is None else [asked]
        assert [row.spares for row in rows] == [0, best // 2, best, 2 * best, *more]
        assert [row.spares for row in rows if row.pays] == [best]
        values = question.scenario(design)
        for row in rows:
            assert row.figures == figures(question, replace(design, spares=row.spares), point.planned, values)
    never = tuple(
        replace(item, value=Range.exact(0.0)) if item.name == "repair" else item for item in question.assumptions
    )
    (none,) = standby(replace(question, assumptions=never), point)
    assert (none.spares, none.pays) == (0, True)
