"""Counts, ranges and sentences of a purchase where one sign or one number more or less decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.purchase.alternatives import _bandwidth
from optimizer.purchase.as_json import point_row
from optimizer.purchase.campaign import Requirements, counts
from optimizer.purchase.charts import cost_energy, time_cost, tornado_chart, trace_chart
from optimizer.purchase.designs.figures import figures
from optimizer.purchase.designs.front import reference_point
from optimizer.purchase.designs.inverse import Parity, cheapest, fastest, fewest_gpus
from optimizer.purchase.designs.outer import STEPS, Grid, _highest
from optimizer.purchase.designs.pareto import _trace, pareto
from optimizer.purchase.designs.points import Excess, Point, Rejected, Workshop
from optimizer.purchase.dossier import dossier
from optimizer.purchase.price.catalogue import is_rack
from optimizer.purchase.uncertainty.sensitivity import repriced
from optimizer.purchase.units import FACTORS
from optimizer.purchase.words import _dates, parity_sentence, summary
from tests.purchase.campaigns import campaign, kinds, quick_planner

DAY = 86400.0


def test_counts_start_at_a_single_gpu() -> None:
    assert counts("1:8") == (1, 2, 4, 8)
    assert counts("1:3:1") == (1, 2, 3)


@pytest.mark.parametrize("name", STEPS)
def test_the_last_step_of_a_range_is_within_it(name: str) -> None:
    low, step = 2 * STEPS[name], STEPS[name]
    assert _highest(name, low, low + 3 * step) == pytest.approx(low + 3 * step)
    assert _highest(name, low, low + 2.5 * step) == pytest.approx(low + 2 * step)


def test_a_deadline_that_a_single_node_meets_takes_one_look() -> None:
    found = fewest_gpus(Workshop(campaign=campaign(), planner=quick_planner), kinds("h100")[0], 1e9 * DAY)
    assert found.point is not None
    assert (found.point.design.gpus, found.tried) == (8, 1)


def test_a_single_gpu_may_be_the_fewest() -> None:
    base = kinds("h100")[0]
    alone = replace(base, cluster=replace(base.cluster, gpus_per_node=1))
    found = fewest_gpus(Workshop(campaign=campaign(), planner=quick_planner), alone, 1e9 * DAY)
    assert found.point is not None
    assert found.point.design.gpus == 1


def test_a_design_exactly_on_budget_or_on_the_deadline_is_within_it() -> None:
    point = Workshop(campaign=campaign(), planner=quick_planner).point(replace(kinds("h100")[0], gpus=4096))
    assert isinstance(point, Point)
    cost, time = point.figures.cost, point.figures.time_to_train
    assert fastest([point], budget=cost) is cheapest([point], deadline=time) is point
    assert fastest([point], budget=cost * (1 - 1e-12)) is None
    assert cheapest([point], deadline=time * (1 - 1e-12)) is None


@pytest.mark.parametrize(
    ("domain", "whole"), [(8, False), (15, False), (16, True), (72, True), (1024, True), (1025, False)]
)
def test_domains_of_16_to_1024_gpus_are_racks(domain: int, whole: bool) -> None:
    assert is_rack(replace(kinds("h100")[0], scale_up=domain)) is whole


def test_a_limit_counts_the_designs_that_miss_it() -> None:
    """All miss the deadline, one of two the power."""
    bounds = Requirements(deadline=1 * DAY, power=3e6)
    question, machines = campaign(bounds=bounds), kinds("h100")
    found = pareto(question, Grid(kinds=machines, gpus=(1024, 8192)), planner=quick_planner)
    missing = [sum(any(e.limit == name for e in point.excesses) for point in found.points) for name in ("power",)]
    assert missing == [1]
    text = " ".join(summary(dossier(found, machines, deadline_for_fewest=60 * DAY, planner=quick_planner)))
    assert "Deadline: 2 of 2 designs miss it" in text
    assert "Power: 1 of 2 designs miss it" in text


def test_a_run_without_a_date_has_none_in_words() -> None:
    question = campaign()
    (run,) = question.runs
    portfolio = replace(question, runs=(run, replace(run, by=900 * DAY)))
    found = Workshop(campaign=portfolio, planner=quick_planner).point(replace(kinds("h100")[0], gpus=8192))
    assert isinstance(found, Point)
    first, second = _dates(portfolio, found).split("; ")
    assert "(by day" not in first
    assert "(by day 900)" in second


def test_failures_cost_energy_as_they_cost_time() -> None:
    """What is lost to restarts draws what training draws: energy x goodput is that of the training itself."""
    question, design = campaign(), replace(kinds("h100")[0], gpus=8192)
    found = Workshop(campaign=question, planner=quick_planner).point(design)
    assert isinstance(found, Point)
    fewer, more = (
        figures(question, design, found.planned, question.scenario(design, failure_rate=rate)) for rate in (1e-12, 1e-8)
    )
    assert more.goodput < 0.99 * fewer.goodput
    assert more.energy * more.goodput == pytest.approx(fewer.energy * fewer.goodput, rel=1e-6)
    # An H100 of 700 W, with its share of the node and of the site.
    assert 500 < fewer.energy / (8192 * fewer.time_to_train) < 2000


def test_what_is_advised_cheapest_and_fastest_is_shown_however_long_the_front_is() -> None:
    found = pareto(campaign(), Grid(kinds=kinds("h100"), gpus=tuple(range(1024, 16385, 1024))), planner=quick_planner)
    made = dossier(found, (), planner=quick_planner)
    assert len(found.front) > len(made.shown)
    assert {id(made.advised), id(made.cheapest), id(made.fastest), id(made.frugal)} <= set(map(id, made.shown))


def test_a_month_of_a_kilowatt_is_a_twelfth_of_a_year() -> None:
    factor, unit = FACTORS["colocation"]  # from USD/J
    assert (factor, unit) == (pytest.approx(1e3 * 365.25 / 12 * DAY, rel=1e-3), "USD/kW-month")


def test_a_rent_at_parity_may_stay_and_one_above_it_may_not() -> None:
    point = Workshop(campaign=campaign(), planner=quick_planner).point(replace(kinds("h100")[0], gpus=4096))
    assert isinstance(point, Point)
    for price, said in ((2.0, "stays cheapest up to"), (1.9, "would be cheapest below")):
        assert said in parity_sentence(Parity(device=point, alternative=point, price=price, now=2.0))


def test_a_row_has_the_memory_of_the_design_or_else_of_the_device() -> None:
    point = Workshop(campaign=campaign(), planner=quick_planner).point(replace(kinds("h100")[0], gpus=4096))
    assert isinstance(point, Point)
    assert point_row(point)["hbm_gb"] == point.design.cluster.device.memory / 1e9
    assert point_row(replace(point, design=replace(point.design, hbm=141e9)))["hbm_gb"] == 141


def test_what_breaks_a_limit_is_no_progress_of_a_search() -> None:
    point = Workshop(campaign=campaign(), planner=quick_planner).point(replace(kinds("h100")[0], gpus=4096))
    assert isinstance(point, Point)
    cheaper = replace(point, figures=replace(point.figures, time_to_train=point.figures.time_to_train / 2))
    faster = replace(cheaper.figures, time_to_train=cheaper.figures.time_to_train / 2)
    broken = replace(cheaper, figures=faster, excesses=(Excess(limit="racks", value=6.0, allowed=4.0),))
    before, progress, none = _trace([point, cheaper], [cheaper, broken], reference_point([point]))
    assert before < progress == none


def test_what_a_dossier_of_one_design_draws_and_counts() -> None:
    machines = kinds("h100")
    found = pareto(campaign(), Grid(kinds=machines, gpus=(4096,)), planner=quick_planner)
    made = dossier(found, machines, deadline_for_fewest=60 * DAY, planner=quick_planner)
    assert made.advised is not None
    (alone,) = made.shown
    for chart, across, upward in (
        (time_cost, alone.figures.time_to_train / DAY, alone.figures.cost / 1e6),
        (cost_energy, alone.figures.cost / 1e6, alone.figures.energy / 3.6e12),
    ):
        figure = chart(made).figure
        (marks,) = [mark for mark in figure["data"] if mark.get("text") == ["1"]]
        for name, value in (("xaxis", across), ("yaxis", upward)):
            low, high = figure["layout"][name]["range"]
            assert 10**low < value < 10**high
        assert (marks["x"], marks["y"]) == (pytest.approx([across]), pytest.approx([upward]))
    refused = replace(made.purchase, rejected=(Rejected(design=alone.design, reason="no plan"),) * 2)
    assert "Designs examined: 3; within every limit: 1;" in " ".join(summary(replace(made, purchase=refused)))
    low, high = tornado_chart(made, made.advised).figure["layout"]["xaxis"]["range"]
    costs = [cost / 1e6 for swing in made.swings for cost in swing.results["cost"]]
    middle = made.advised.figures.cost / 1e6
    width = max([*costs, middle]) - min([*costs, middle])
    assert low < min([*costs, middle]) < max([*costs, middle]) < high
    assert high - low < 3 * max(width, 0.05 * middle)


def test_a_trace_is_told_where_it_grows() -> None:
    chart = trace_chart([0.1, 0.1, 0.2, 0.2, 0.3])
    assert chart.rows == (("1", "0.1000"), ("3", "0.2000"), ("5", "0.3000"))
    assert "it last grew at trial 5" in chart.words


def test_the_slowest_network_that_is_cheap_enough_is_told() -> None:
    question = campaign()
    point = Workshop(campaign=question, planner=quick_planner).point(replace(kinds("h100")[0], gpus=4096))
    assert isinstance(point, Point)
    design = replace(point.design, nic=2 * point.design.network_bandwidth)
    planned = repriced(question, design, point)
    (answer,), (again,) = point.answers, repriced(question, point.design, point)
    assert answer.estimate is not None
    worked = answer.estimate.flops_per_gpu * answer.estimate.step_time
    assert again.estimate.flops_per_gpu * again.estimate.step_time == pytest.approx(worked)
    cost = figures(question, design, planned, question.scenario(design), point.on_host).cost
    assert _bandwidth(question, point, cost) == design.nic
    assert _bandwidth(question, point, 0.0) is None
