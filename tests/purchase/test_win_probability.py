"""Chances, what each machine would take to win, and what to find out first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.catalog.offers import PriceBook, quote
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.objectives.step.interval import Interval, interval
from optimizer.purchase.alternatives import alternatives
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.campaign import Campaign, Requirements
from optimizer.purchase.designs.figures import figures
from optimizer.purchase.designs.inverse import cheapest_by_kind
from optimizer.purchase.designs.pareto import pareto
from optimizer.purchase.designs.points import Point, figures_in
from optimizer.purchase.dossier import dossier
from optimizer.purchase.ranges import Range
from optimizer.purchase.report import machine_tables, purchase_report
from optimizer.purchase.uncertainty import inputs, win_probability
from optimizer.purchase.uncertainty.inputs import own_assumptions
from optimizer.purchase.uncertainty.win_probability import Decision, judged, least_regret, spread
from optimizer.purchase.words import probability_sentences
from optimizer.reports.render.html import report_page
from optimizer.reports.terms import words_in
from tests.purchase.campaigns import campaign, grid, kinds, quick_planner, rented_at

DAY = 86400.0
FEW = 500  # draws where a chance is far from what it is compared with


def best(question: Campaign) -> list[Point]:
    return list(cheapest_by_kind(pareto(question, grid(gpus=(4096,)), planner=quick_planner).points).values())


def test_the_rate_has_the_interval_of_the_plan_and_a_quote_is_firm() -> None:
    question = campaign(book=rented_at(h100=2.0 / 3600))
    for point in best(question):
        mine = {item.name: item for item in own_assumptions(question, point)}
        answer = point.answers[0]
        assert answer.plan is not None
        assert answer.estimate is not None
        found = interval(answer.job, answer.plan, answer.estimate.step_time)
        step = answer.estimate.step_time
        assert (mine["mfu"].value.low, mine["mfu"].value.high) == pytest.approx((step / found.high, step / found.low))
        firm = mine["rent"].value.low == mine["rent"].value.high
        assert firm == (point.design.kind == "h100")
    given_rate = campaign(assumptions=assumptions(False, {"mfu": "0.8:1:1.1"}))
    (rate,) = (item for item in own_assumptions(given_rate, best(given_rate)[0]) if item.name == "mfu")
    assert (rate.value.low, rate.value.high) == (0.8, 1.1)


def test_a_device_that_was_never_fitted_says_so_and_is_less_certain() -> None:
    question = campaign()
    mine = {
        point.design.kind: {item.name: item for item in own_assumptions(question, point)} for point in best(question)
    }
    assert "device b200 is not among the fitted" in mine["b200"]["mfu"].source
    assert "device" not in mine["h100"]["mfu"].source


@given(low=st.floats(0.1, 1.0), up=st.floats(1.0, 5.0), error=st.lists(st.floats(-4, 4), min_size=2, max_size=9))
def test_spreads_rise_with_the_error_and_reach_the_ends(low: float, up: float, error: list[float]) -> None:
    value = Range(low=low, mid=1.0, high=up)
    found = spread(value, np.sort(np.array(error)))
    assert (np.diff(found) >= -1e-12).all()
    ends = spread(value, np.array([-1.6449, 0.0, 1.6449]))
    assert ends == pytest.approx([low, 1.0, up])


def test_chances_add_up_and_follow_the_prices() -> None:
    even = judged(campaign(), best(campaign()), draws=FEW)
    assert sum(item.chance for item in even.probabilities) == pytest.approx(1.0)
    assert [item.chance for item in even.probabilities] == sorted(
        (item.chance for item in even.probabilities), reverse=True
    )
    cheap = campaign(book=rented_at(h100=0.2 / 3600))
    found = judged(cheap, best(cheap), draws=FEW)
    assert found.probabilities[0].point.design.kind == "h100"
    assert found.probabilities[0].chance > 0.99
    assert found.questions == ()
    assert judged(cheap, best(cheap), draws=FEW) == found


@cache
def alike() -> tuple[Campaign, tuple[Point, ...]]:
    """H100 and B200 at rents that make both cost the same, none of them firm."""
    question = campaign()
    h100, b200 = (point for point in best(question) if point.design.kind in ("h100", "b200"))
    rent = h100.figures.cost / (b200.figures.paid_gpus * b200.figures.time_to_train)
    book = PriceBook().with_quotes([quote("b200", "on_demand", rent, row="here")])
    # A quote that is not firm: as wide as any other price.
    quoted = replace(book.offers[0], grade="C", date="2026-11")
    loose = replace(question, book=PriceBook(offers=(quoted, *(o for o in book.offers[1:] if o.device != "b200"))))
    return loose, tuple(point for point in best(loose) if point.design.kind in ("h100", "b200"))


def as_sure_as(width: float, device: str) -> Callable[..., Interval]:
    """Intervals in which all steps on a device lie within e^width of the prediction."""

    def sure(job: Job, plan: Plan, value: float) -> Interval:
        if job.cluster.device.name != device:
            return interval(job, plan, value)
        return Interval(low=value * exp(-width), high=value * exp(width))

    return sure


def test_two_alike_have_even_chances_and_their_quotes_are_worth_asking_for() -> None:
    loose, points = alike()
    found = judged(loose, points, draws=6000)  # of 1,500 draws a worth errs by a seventh, more than these two differ by
    assert all(0.35 < item.chance < 0.65 for item in found.probabilities)
    asked = {(item.name, item.about) for item in found.questions}
    assert {("rent", "H100"), ("rent", "B200"), ("mfu", "H100"), ("mfu", "B200")} <= asked
    # The stack was fitted to many runs on H100.
    rates = {item.about: item.worth for item in found.questions if item.name == "mfu"}
    assert rates["B200"] > rates["H100"]
    assert all(item.worth > 0 and 0 < item.changes <= 1 for item in found.questions)


def test_a_rate_is_worth_asking_for_the_more_the_less_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    loose, (h100, b200) = alike()
    # Rates that have nothing in common: else the one tells of the other.
    monkeypatch.setattr(win_probability, "alikeness", lambda predictions: np.eye(len(predictions)))
    worth = []
    for width in (0.01, 0.12, 0.4):
        monkeypatch.setattr(inputs, "interval", as_sure_as(width, "h100"))
        questions = judged(loose, (h100, b200), draws=600, shared=0.0).questions
        worth.append(sum(item.worth for item in questions if (item.name, item.about) == ("mfu", "H100")))
    assert worth[0] == 0.0 < worth[1] < worth[2]


def test_a_limit_that_is_often_missed_lowers_the_chance() -> None:
    question = campaign()
    points = best(question)
    dear = max(points, key=lambda point: point.figures.time_to_train)
    late = replace(question, bounds=Requirements(deadline=0.8 * dear.figures.time_to_train))
    probabilities = {item.point.design.kind: item for item in judged(late, points, draws=FEW).probabilities}
    assert probabilities[dear.design.kind].in_limits < 0.5
    assert max(item.in_limits for item in probabilities.values()) > 0.5


def test_at_the_price_or_the_mfu_to_win_a_machine_costs_what_its_alternative_does() -> None:
    for buy in (False, True):
        question = campaign(buy=buy, assumptions=assumptions(buy))
        found = alternatives(question, best(question))
        assert [alternative.winner for alternative in found] == [True, *[False] * (len(found) - 1)]
        for alternative in found:
            name = "capex" if buy else "rent"
            assert alternative.price is not None
            at = question.scenario(alternative.point.design, **{name: alternative.price / alternative.price_now})
            assert figures(question, alternative.point.design, alternative.point.planned, at).cost == pytest.approx(
                alternative.target
            )
            assert (alternative.price > alternative.price_now) == alternative.winner
            if alternative.mfu is not None:
                faster = question.scenario(
                    alternative.point.design, mfu=alternative.mfu / alternative.point.figures.mfu
                )
                assert figures(
                    question, alternative.point.design, alternative.point.planned, faster
                ).cost == pytest.approx(alternative.target)


def test_a_machine_beyond_the_limits_stands_in_the_tables_with_what_it_misses() -> None:
    found = pareto(campaign(), grid(gpus=(4096,)), planner=quick_planner)
    times = sorted(point.figures.time_to_train for point in found.points)
    late = campaign(bounds=Requirements(deadline=(times[0] + times[1]) / 2))
    answer = dossier(pareto(late, grid(gpus=(4096,)), planner=quick_planner), kinds(), planner=quick_planner)
    winner, *others = answer.alternatives
    assert winner.point.feasible
    assert winner.price is None
    assert len(others) == 2
    assert not any(alternative.point.feasible or alternative.price for alternative in others)
    for alternative in others:
        if alternative.mfu is not None:
            faster = late.scenario(alternative.point.design, mfu=alternative.mfu / alternative.point.figures.mfu)
            reached = figures_in(late, alternative.point, faster)
            assert reached.time_to_train <= late.bounds.deadline * (1 + 1e-6)
            assert reached.cost <= alternative.target * (1 + 1e-6)
    (across, *vendors) = machine_tables(answer)
    assert across[0] == "across vendors"
    assert sorted(name for name, _ in vendors) == ["AMD", "NVIDIA"]
    assert sum("(misses the deadline)" in row[0] for row in across[1].rows) == 2
    # A vendor with one machine has its table too, with software, price and power.
    (amd,) = (table.rows for name, table in vendors if name == "AMD")
    assert [str(row[0]).split(" ")[0] for row in amd] == ["MI300X"]
    page = report_page(purchase_report(answer))
    assert all(str(cell) in page for row in amd for cell in row)


def test_a_machine_of_which_too_few_are_on_hand_wins_in_no_case_and_at_no_price() -> None:
    few = campaign(bounds=Requirements(on_hand={"b200": 8}))
    answer = dossier(pareto(few, grid(gpus=(4096,)), planner=quick_planner), kinds(), planner=quick_planner)
    probabilities = {item.point.design.kind: item for item in answer.decision.probabilities}
    assert (probabilities["b200"].in_limits, probabilities["b200"].chance) == (0.0, 0.0)
    machines = {alternative.point.design.kind: alternative for alternative in answer.alternatives}
    assert (machines["b200"].price, machines["b200"].mfu) == (None, None)
    assert machines["h100"].price
    assert not any(break_even.then.design.kind == "b200" for break_even in answer.break_evens)


def test_a_run_that_ends_after_its_date_in_no_case_is_within_the_limits() -> None:
    question = campaign()
    late = replace(question, runs=tuple(replace(run, by=1.0) for run in question.runs))
    assert [item.in_limits for item in judged(late, best(question), draws=FEW).probabilities] == [0.0] * 3


def test_machines_are_grouped_by_vendor() -> None:
    found = pareto(campaign(), grid(), planner=quick_planner)
    across, *groups = machine_tables(dossier(found, kinds(), planner=quick_planner))
    assert across[0] == "across vendors"
    assert {vendor: {str(row[0]) for row in table.rows} for vendor, table in groups} == {
        "NVIDIA": {"H100", "B200"},
        "AMD": {"MI300X"},
    }


def test_the_report_says_the_chances_and_what_to_find_out_first() -> None:
    found = pareto(campaign(), grid(gpus=(4096,)), planner=quick_planner)
    text = " ".join(probability_sentences(dossier(found, kinds(), planner=quick_planner)))
    assert "Chance to be the cheapest within the limits, over 1,500 draws" in text
    assert "Fitted on other hardware" in text
    assert "B200 (megatron-core was fitted on b300, gb200, h100)" in text
    assert "Find out first:" in text or "No single measurement" in text


def test_every_word_of_a_plan_is_in_the_glossary() -> None:
    words = words_in(["TP 4 SP, CP 2, EP 8, PP 8 x VPP 8, DP 256, micro-batch 1, ZeRO-1"])
    assert {"TP", "SP", "CP", "EP", "PP", "VPP", "DP", "ZeRO", "micro-batch"} == set(words)
    assert words_in(["nothing of the kind, TPU, stEPs"]) == {}


def test_what_machines_have_in_common_cancels_in_their_ranking() -> None:
    question = campaign()
    points = [point for point in best(question) if point.design.kind in ("h100", "b200")]
    apart, half, alike = (judged(question, points, draws=FEW, shared=share) for share in (0.0, 0.5, 1.0))
    assert apart.probabilities[0].chance < half.probabilities[0].chance < alike.probabilities[0].chance
    assert judged(question, points, draws=FEW) == half


def test_the_least_regret_is_advised_and_a_question_that_is_worth_more_than_the_rest_makes_a_tie() -> None:
    loose, points = alike()
    found = judged(loose, points)
    first, other = least_regret(found, points)
    assert first is min(found.probabilities, key=lambda item: item.regret).point
    assert other in points
    assert other is not first
    firm = replace(found, questions=())
    assert least_regret(firm, points) == (first, None)
    assert least_regret(found, [other]) == (other, None)
    assert least_regret(Decision(), points) == (None, None)


@pytest.mark.parametrize(("pue", "counts"), [(1.3, 1.3), (1.0, 1.0), (0.5, 1.0)])
def test_no_building_takes_less_than_its_machines(pue: float, counts: float) -> None:
    question = campaign(buy=True, assumptions=assumptions(True))
    point = best(question)[0]
    scenario = dict(question.scenario(point.design))
    drawn = {name: np.full(1, value) for name, value in (scenario | {"pue": pue}).items()}
    costs, _ = win_probability._outcomes(question, point, drawn, 1)
    assert costs[0] == pytest.approx(figures_in(question, point, scenario | {"pue": counts}).cost)
