"""The front: nothing evaluated beats it, it is the same every time, and limits are honoured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.catalog.offers import PriceBook
from optimizer.job.job import Job
from optimizer.purchase.campaign import Design, Requirements, counts
from optimizer.purchase.designs.front import (
    binding_limits,
    hypervolume,
    non_dominated,
    objectives,
    reference_point,
    shortlist,
    smallest_excess,
    worst_excess,
)
from optimizer.purchase.designs.outer import explore
from optimizer.purchase.designs.pareto import pareto
from optimizer.purchase.designs.points import Point, Workshop
from tests.purchase.campaigns import campaign, grid, kinds, no_plan, quick_planner

DAY = 86400.0


def dominates(first: Point, second: Point) -> bool:
    """No worse in anything and better in something, written out by hand."""
    a, b = objectives([first])[0], objectives([second])[0]
    return bool(np.all(a <= b) and np.any(a < b))


@pytest.mark.parametrize("trials", [0, 60])
def test_no_reported_point_is_dominated_by_any_evaluated_one(trials: int) -> None:
    found = pareto(
        campaign(bounds=Requirements(deadline=400 * DAY, budget=200e6)),
        grid(power_caps=(1.0, 0.8)),
        planner=quick_planner,
        ranges={"nic": (25e9, 100e9), "power_cap": (0.5, 1.0)},
        trials=trials,
    )
    assert len(found.front) >= 2
    assert not [1 for point in found.front for alternative in found.feasible if dominates(alternative, point)]
    off = [point for point in found.feasible if all(point is not kept for kept in found.front)]
    equal = {tuple(row) for row in objectives(found.front)}
    assert all(
        any(dominates(kept, point) for kept in found.front) or tuple(objectives([point])[0]) in equal for point in off
    )


def test_the_same_seed_gives_the_same_front() -> None:
    def once() -> list[str]:
        found = pareto(campaign(), grid(), planner=quick_planner, ranges={"nic": (25e9, 100e9)}, trials=30, seed=7)
        return [f"{point.design.label()} {point.figures.cost!r}" for point in found.front]

    assert once() == once()


def test_searches_with_several_seeds_agree_with_the_exhaustive_coarse_grid() -> None:
    question = campaign(bounds=Requirements(deadline=300 * DAY))
    coarse = grid("h100", "b200", nics=(25e9, 50e9, 100e9), power_caps=(0.6, 0.8, 1.0))
    exhaustive = pareto(question, coarse, planner=quick_planner)
    ranges = {"nic": (25e9, 100e9), "power_cap": (0.6, 1.0)}
    found = [
        pareto(question, grid("h100", "b200"), planner=quick_planner, ranges=ranges, trials=150, seed=seed)
        for seed in range(2)
    ]
    reference = reference_point([*exhaustive.feasible, *(point for one in found for point in one.feasible)])
    volumes = [hypervolume(one.front, reference) for one in found]
    assert max(volumes) - min(volumes) < 0.02
    assert min(volumes) > 0.97 * hypervolume(exhaustive.front, reference)


def test_the_trace_never_falls_and_ends_at_the_hypervolume() -> None:
    found = pareto(campaign(), grid(), planner=quick_planner, ranges={"nic": (25e9, 100e9)}, trials=25)
    assert len(found.trace) == 26
    assert np.all(np.diff(found.trace) >= -1e-12)
    assert found.trace[-1] == pytest.approx(found.hypervolume)


def test_hypervolume_of_one_point_is_its_box() -> None:
    found = pareto(campaign(), grid("h100", gpus=(1024,)), planner=quick_planner)
    assert found.hypervolume == pytest.approx((1 - 1 / 1.1) ** 3)
    assert non_dominated([]) == ()
    assert hypervolume([], (1.0, 1.0, 1.0)) == 0.0


def test_every_limit_is_checked() -> None:
    question = campaign(
        bounds=Requirements(deadline=60 * DAY, budget=70e6, power=10e6, racks=300, on_hand={"b200": 2000})
    )
    found = pareto(question, grid(), planner=quick_planner)
    by_label = {point.design.label(): {excess.limit for excess in point.excesses} for point in found.points}
    assert "deadline" in by_label["1,024 H100"]
    assert by_label["16,384 H100"] >= {"power", "racks"}
    assert "devices on hand" in by_label["4,096 B200"]
    assert "devices on hand" not in by_label["16,384 H100"]


def test_without_a_feasible_point_the_nearest_and_the_limit_are_named() -> None:
    found = pareto(campaign(bounds=Requirements(deadline=1 * DAY)), grid(), planner=quick_planner)
    assert found.front == ()
    assert found.hypervolume == 0.0
    assert worst_excess(found.nearest[0]) == min(worst_excess(point) for point in found.points)
    assert binding_limits(found.points) == {"deadline": len(found.points)}
    assert smallest_excess(found.points, "deadline").share == pytest.approx(worst_excess(found.nearest[0]))


def test_designs_without_a_plan_are_reported_not_dropped() -> None:
    found = pareto(campaign(), grid("h100", gpus=(1024, 2048)), planner=no_plan)
    assert found.points == ()
    assert [item.reason for item in found.rejected] == ["no plan (infeasible)"] * 2


def test_plans_are_searched_once_for_all_power_caps() -> None:
    asked: list[Job] = []

    def counting(job: Job) -> Answer:
        asked.append(job)
        return quick_planner(job)

    pareto(campaign(), grid("h100", gpus=(1024,), power_caps=(1.0, 0.8, 0.6)), planner=counting)
    assert len(asked) == 1


def test_a_power_cap_trades_time_for_energy() -> None:
    workshop = Workshop(campaign=campaign(), planner=quick_planner)
    base = replace(kinds("h100")[0], gpus=8192)
    free, capped = (workshop.point(replace(base, power_cap=cap)) for cap in (1.0, 0.6))
    assert isinstance(free, Point)
    assert isinstance(capped, Point)
    assert capped.figures.time_to_train > free.figures.time_to_train
    assert capped.figures.energy < free.figures.energy


def test_the_design_shapes_the_cluster() -> None:
    base = kinds("h100")[0]
    built = replace(base, nic=100e9, oversubscription=2.0, scale_up=72).built()
    assert built.scale_up_size == 72
    assert [tier.link.bandwidth for tier in built.tiers[1:]] == [100e9, 100e9]
    assert [tier.oversubscription for tier in built.tiers[1:]] == [1.0, 2.0]
    assert base.built() == base.cluster


def test_an_unknown_price_is_said_before_the_search() -> None:
    with pytest.raises(InputError, match=r"no spot price of mi325x.*--rent mi325x="):
        pareto(campaign(book=PriceBook(term="spot")), grid("mi325x"), planner=no_plan)


def test_trials_need_ranges_and_ranges_trials() -> None:
    for given in ({"trials": 2}, {"ranges": {"nic": (1e9, 5e10)}}):
        assert len(pareto(campaign(), grid("h100"), planner=quick_planner, **given).points) == len(grid("h100").gpus)


def test_an_unknown_variable_or_sampler_is_refused() -> None:
    with pytest.raises(InputError, match="no continuous variable"):
        pareto(campaign(), grid("h100"), planner=quick_planner, ranges={"colour": (1.0, 2.0)}, trials=2)
    with pytest.raises(InputError, match="unknown sampler"):
        pareto(campaign(), grid("h100"), planner=quick_planner, ranges={"nic": (1e9, 5e10)}, trials=2, sampler="luck")
    workshop = Workshop(campaign=campaign(), planner=quick_planner)
    for low, high, right in ((0.5, 0.9, True), (0.5, 0.5, True), (0.0, 0.5, False), (0.9, 0.5, False)):
        if right:
            assert explore(workshop, grid("h100"), {"power_cap": (low, high)}, trials=0, seed=0) == ()
        else:
            with pytest.raises(InputError, match="must rise from above zero"):
                explore(workshop, grid("h100"), {"power_cap": (low, high)}, trials=0, seed=0)


@pytest.mark.parametrize("text", ["", "a", "4:2", "0:8", "1:2:3:4", "8:16:0"])
def test_counts_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--gpus"):
        counts(text)


def test_labels_say_only_what_is_unusual() -> None:
    design = Design(kind="gb200-nvl72", cluster=kinds("gb200-nvl72")[0].cluster, gpus=4096, power_cap=0.8, nic=50e9)
    assert design.label() == "4,096 GB200 NVL72, cap 80%, NIC 400 Gb/s"


def test_the_shortlist_keeps_what_is_wanted_and_covers_the_rest() -> None:
    found = pareto(campaign(), grid(), planner=quick_planner, ranges={"power_cap": (0.5, 1.0)}, trials=60)
    assert len(found.front) > 8
    few = shortlist(found.front, [found.front[0], found.front[0], found.front[-1]], found.reference)
    assert len(few) == 8
    assert few[0] is found.front[0]
    assert few[-1] is found.front[-1]
    assert hypervolume(few, found.reference) > 0.9 * found.hypervolume
