"""Designs that move their batch, have no plan or spare nodes by the rack; fronts, boxes and searches by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.job.job import Job
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.campaign import AUTO
from optimizer.purchase.designs import pareto as of_pareto
from optimizer.purchase.designs import points as of_points
from optimizer.purchase.designs.front import hypervolume, nearest_points, objectives, worst_excess
from optimizer.purchase.designs.outer import STEPS, explore
from optimizer.purchase.designs.pareto import pareto
from optimizer.purchase.designs.points import Excess, Point, Rejected, Workshop, default_planner, host_bytes
from optimizer.studies.best_use import batches_near
from tests.purchase.by_hand import machine
from tests.purchase.campaigns import campaign, grid, kinds, no_plan, quick_planner


def test_plans_of_a_purchase_have_no_runners_up_and_are_read_once(
    with_answer: Callable[[Answer], list[dict[str, Any]]], gpt3_answer: Answer
) -> None:
    asked = with_answer(gpt3_answer)
    assert default_planner(gpt3_answer.job) is gpt3_answer
    assert asked == [{"job": gpt3_answer.job, "top": 0, "priced_risk": False, "read_twice": False}]


def test_of_the_batches_within_reach_the_one_that_ends_first_is_taken() -> None:
    (run,) = campaign().runs
    question = campaign(runs=(run, replace(run, global_batch=3 * run.global_batch)), flex=0.05)
    design = replace(kinds("h100")[0], gpus=2304, batch_factor=2.0)
    found = Workshop(campaign=question, planner=quick_planner).point(design)
    batches = batches_near(2 * run.global_batch, 0.05, 2304)
    fixed = Workshop(campaign=replace(question, flex=0.0), planner=quick_planner)
    tried = [fixed.point(replace(design, batch_factor=batch / run.global_batch)) for batch in batches]
    times = [point.figures.time_to_train for point in tried if isinstance(point, Point)]
    assert isinstance(found, Point)
    assert (len(batches) > 2, len(times)) == (True, len(batches))
    assert found.figures.time_to_train == pytest.approx(min(times))
    first, second = (answer.job.global_batch for answer in found.answers)
    assert second == pytest.approx(3 * first, abs=2)
    refused = Workshop(campaign=question, planner=no_plan).point(design)
    assert refused == Rejected(design=design, reason="no plan (infeasible)")


@pytest.mark.parametrize("lacking", [{"plan": None}, {"estimate": None}])
def test_an_answer_without_a_plan_or_its_price_is_no_point(lacking: dict[str, Any]) -> None:
    def planner(job: Job) -> Answer:
        return replace(quick_planner(job), **lacking)

    assert isinstance(Workshop(campaign=campaign(), planner=planner).point(machine("h100").design), Rejected)


def test_a_plan_that_keeps_all_on_the_device_takes_nothing_of_the_host() -> None:
    point = machine("h100")
    assert [host_bytes(answer) for answer in point.answers] == [0.0]
    assert point.on_host == 0.0


@pytest.mark.parametrize(("kind", "nodes"), [("h100", 1), ("gb200-nvl72", 18)])
def test_spare_nodes_come_by_the_rack_where_racks_are_bought(
    kind: str, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def cheapest_count(cost: Callable[[int], float], together: int) -> int:
        asked.append(together)
        return 0

    monkeypatch.setattr(of_points, "cheapest_count", cheapest_count)
    question = campaign(buy=True, assumptions=assumptions(True), spares=AUTO)
    assert isinstance(
        Workshop(campaign=question, planner=quick_planner).point(replace(kinds(kind)[0], gpus=1008)), Point
    )
    assert asked == [nodes]


def test_the_nearest_points_are_three_machines_by_their_worst_excess() -> None:
    def missing(kind: str, *shares: float) -> Point:
        broken = tuple(Excess(limit=f"{share}", value=1 + share, allowed=1.0) for share in shares)
        return replace(machine(kind), excesses=broken)

    near, far = missing("h100", 0.25, 0.5), missing("h100", 0.75)
    others = [missing("b200", 0.125), missing("mi300x", 0.625), missing("h200", 0.875)]
    assert nearest_points([far, near, *others]) == (others[0], near, others[1])
    assert [worst_excess(point) for point in (near, far, machine("h100"))] == [0.5, 0.75, 0.0]


def test_a_hypervolume_is_the_part_of_the_box_that_some_point_dominates() -> None:
    """Counted cell by cell, on corners that are whole numbers of cells; one point lies beyond the box."""
    corners = [(1, 6, 3), (4, 2, 3), (2, 5, 1), (7, 7, 7), (3, 3, 5), (1, 9, 1), (12, 1, 1)]
    points = [
        replace(
            machine("h100"),
            figures=replace(machine("h100").figures, time_to_train=10.0 * x, cost=2.0 * y, energy=1.0 * z),
        )
        for x, y, z in corners
    ]
    for some in (points, points[:1], points[3:], points[-1:]):
        held = objectives(some) / (10.0, 2.0, 1.0)
        cells = sum(any(all(row <= cell) for row in held) for cell in map(np.array, product(range(8), repeat=3)))
        assert hypervolume(some, (80.0, 16.0, 8.0)) == pytest.approx(cells / 8**3)
    assert objectives([]).shape == (0, 3)


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_half_of_a_search_are_corners_and_the_rest_lies_on_steps_within(sampler: str) -> None:
    workshop = Workshop(campaign=campaign(), planner=quick_planner)
    ranges = {"nic": (25e9, 400e9), "power_cap": (0.5, 1.0)}
    found = explore(workshop, grid("h100", gpus=(1024,)), ranges, trials=6, sampler=sampler, seed=0)
    tried = [(point.design.nic, point.design.power_cap) for point in found]
    corners = list(product(*ranges.values()))
    assert tried[:3] == corners[:3]
    assert not set(tried[3:]) & set(corners)
    for name, values in zip(ranges, zip(*tried, strict=True), strict=True):
        low, high = ranges[name]
        steps = (np.array(values) - low) / STEPS[name]
        assert steps == pytest.approx(steps.round(), abs=1e-6)
        assert all(low <= value <= high * (1 + 1e-12) for value in values)


def test_what_has_no_plan_is_tried_and_told_as_such() -> None:
    workshop = Workshop(campaign=campaign(), planner=no_plan)
    found = explore(workshop, grid("h100", gpus=(1024,)), {"nic": (25e9, 100e9)}, trials=4, seed=0)
    assert [type(point) for point in found] == [Rejected] * 4


def test_a_purchase_starts_from_seed_0_and_says_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def explored(*_: Any, seed: int, **options: Any) -> tuple[Point, ...]:
        seeds.append(seed)
        return ()

    monkeypatch.setattr(of_pareto, "explore", explored)
    each: tuple[dict[str, Any], ...] = ({}, {"seed": 7})
    for given in each:
        found = pareto(
            campaign(),
            grid("h100", gpus=(1024,)),
            planner=quick_planner,
            ranges={"nic": (25e9, 1e11)},
            trials=1,
            **given,
        )
        seeds.append(found.seed)
    assert seeds == [0, 0, 7, 7]
    assert replace(found, seed=type(found).seed).seed == 0


def test_a_cap_that_cannot_be_is_said_of_a_grid_of_one_design() -> None:
    for cap in (0.4, 1.01):
        with pytest.raises(InputError, match="power cap must be between 50% and 100%"):
            pareto(campaign(), grid("h100", gpus=(8,)), ranges={"power_cap": (0.5, cap)})
