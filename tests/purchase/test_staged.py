"""Deliveries against a walk second by second, and what is within the limits first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from optimizer.purchase.as_json import _staged
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.campaign import Campaign, Requirements
from optimizer.purchase.ranges import Range
from optimizer.purchase.staged import Delivery, by_kind, course, staged, totals
from tests.purchase.by_hand import DAY, machine
from tests.purchase.campaigns import campaign

COSTS, POWERS = (100.0, 300.0, 700.0), (1.0, 2.0, 4.0)  # of a second on the GPUs of each stage [USD], and meanwhile [W]


def walked(
    starts: Sequence[int], dates: Sequence[int], walls: Sequence[Sequence[int]], restart: int
) -> tuple[list[tuple[int, int, int, int]], int]:
    """Run, stage, start and end of each stretch, and when all ends [s].

    walls: seconds that each run takes on the GPUs of each stage.
    """
    stretches, now = [], dates[0]
    for run, start in enumerate(starts):
        now, left = max(now, start), Fraction(1)
        while left > 0:
            stage, first = sum(date <= now for date in dates) - 1, now
            while left > 0 and (now == first or now not in dates):
                left -= Fraction(1, walls[stage][run])
                now += 1
            stretches.append((run, stage, first, now))
            now += restart * (left > 0)
    return stretches, now


@pytest.mark.parametrize(
    ("starts", "dates", "restart"),
    [
        ((0, 0), (0,), 2),
        ((0, 0), (0, 10), 0),
        ((0, 0), (0, 10), 2),
        ((0, 0), (2, 10), 2),
        ((0, 0), (0, 10, 15), 2),
        ((0, 0), (0, 8, 10), 2),  # the next comes as the runs go on
        ((0, 0), (0, 8, 10), 5),  # and while they stand
        ((0, 0), (0, 40), 2),  # as the first run ends
        ((0, 0), (0, 40, 60), 2),
        ((0, 0), (0, 120), 2),  # as all end
        ((0, 0), (0, 500), 2),  # too late
        ((0, 50), (0, 50), 2),  # as the second run starts
        ((0, 50), (0, 45), 2),  # while nothing runs
        ((0, 50), (0, 45, 48), 2),
        ((30, 100), (0, 10, 50), 3),
    ],
)
def test_runs_go_on_through_deliveries_as_second_by_second(
    starts: tuple[int, int], dates: tuple[int, ...], restart: int
) -> None:
    walls = ((40, 80), (20, 40), (10, 20))
    few = machine("h100").figures
    stages: list[Any] = [
        replace(few, walls=tuple(map(float, seconds)), time_to_train=1.0, cost=cost, mean_power=power)
        for seconds, cost, power in zip(walls, COSTS, POWERS, strict=True)
    ]
    runs = [replace(campaign().runs[0], start=float(start)) for start in starts]
    deliveries = [Delivery(gpus=8 << stage, at=float(date)) for stage, date in enumerate(dates)]
    found = course(runs, deliveries, stages[: len(dates)], float(restart))
    stretches, end = walked(starts, dates, walls, restart)
    gpus = totals(deliveries)
    assert [(each.run, each.gpus) for each in found.stretches] == [(run, gpus[at]) for run, at, *_ in stretches]
    assert [(each.start, each.end) for each in found.stretches] == [pytest.approx(ends) for _, _, *ends in stretches]
    assert found.time_to_train == pytest.approx(end)
    present = [sum(date <= now for date in dates) - 1 for now in range(dates[0], end)]
    assert found.cost == pytest.approx(sum(COSTS[stage] for stage in present))
    assert found.energy == pytest.approx(sum(POWERS[stage] for stage in present))


def known() -> Campaign:
    """The question of a buyer who knows every input."""
    inputs = [replace(item, value=Range.exact(item.value.mid), grade="user") for item in assumptions(False)]
    return campaign(assumptions=tuple(inputs))


def test_machines_within_the_limits_come_first_then_the_cheapest() -> None:
    question = known()
    points = [machine(kind, question=question) for kind in ("h100", "b200", "mi300x")]
    deliveries = (Delivery(gpus=4096, at=0.0),)
    every = by_kind(question, deliveries, points)
    costs, times = zip(*((item.course.cost, item.course.time_to_train) for item in every), strict=True)
    assert list(costs) == sorted(costs)
    slow = max(range(3), key=lambda place: times[place])
    assert slow < 2  # not the dearest
    bounds = Requirements(deadline=sorted(times)[1])
    again = by_kind(replace(question, bounds=bounds), deliveries, points)
    kept = [place for place in range(3) if place != slow]
    assert [item.course.cost for item in again] == pytest.approx([costs[place] for place in (*kept, slow)])
    assert [item.in_limits for item in again] == [True, True, False]


def test_every_run_must_end_by_its_date() -> None:
    question = known()
    both = replace(question, runs=question.runs * 2)
    points = [machine("h100", question=both)]
    deliveries = (Delivery(gpus=4096, at=0.0),)
    first, second = staged(both, deliveries, points).course.stretches
    for shares, within in (((1.0, 1.0), True), ((0.99, 1.0), False), ((1.0, 0.99), False)):
        runs = tuple(
            replace(run, by=share * each.end)
            for run, each, share in zip(both.runs, (first, second), shares, strict=True)
        )
        assert staged(replace(both, runs=runs), deliveries, points).in_limits is within


def test_a_stretch_is_in_the_json_in_days() -> None:
    found = staged(campaign(), (Delivery(gpus=2048, at=0.0), Delivery(gpus=2048, at=9 * DAY)), [machine("h100")] * 2)
    row = _staged(found)
    assert [each["after_days"] for each in row["deliveries"]] == [0.0, 9.0]
    assert [each["end_days"] for each in row["stretches"]] == pytest.approx(
        [9.0, found.course.time_to_train / DAY], rel=1e-9
    )
    assert row["ranges"]["cost_usd"] == pytest.approx([found.ranges["cost"].low, found.ranges["cost"].high])
