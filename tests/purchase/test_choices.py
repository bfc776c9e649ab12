"""What a purchase chooses and counts, in round numbers: turns, ties, parities, resale, rows and charts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.base.errors import InputError
from optimizer.base.units import YEAR
from optimizer.catalog.economics import default_price
from optimizer.catalog.offers import PriceBook, quote
from optimizer.catalog.usual_batch import usual_tokens
from optimizer.catalog.whole import Lot
from optimizer.objectives.power import BusySeconds, step_energy
from optimizer.purchase import alternatives as found_alternatives
from optimizer.purchase.alternatives import alternatives, break_even_factor
from optimizer.purchase.as_json import _quote as quote_row
from optimizer.purchase.as_json import purchase_csv, purchase_json
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.campaign import Campaign, Design, Requirements
from optimizer.purchase.charts import (
    COST,
    TIME,
    _end,
    _log_axis,
    _spans,
    cost_energy,
    phase_chart,
    time_cost,
    tornado_chart,
    trace_chart,
)
from optimizer.purchase.designs.figures import figures, ownership, tokens_of, usual_tokens_per_joule
from optimizer.purchase.designs.front import reference_point, shortlist
from optimizer.purchase.designs.inverse import best_by_kind, parities, rent_or_buy, resale
from optimizer.purchase.designs.outer import STEPS
from optimizer.purchase.designs.pareto import purchase
from optimizer.purchase.designs.points import Excess, Point, Workshop, figures_in
from optimizer.purchase.dossier import Dominance, Quote, _margin, _quote
from optimizer.purchase.price.batch_size import critical_batch
from optimizer.purchase.price.catalogue import (
    added_network,
    host_memory,
    idle_power,
    power_curve,
    power_limit,
    price_row,
    purchase_price,
)
from optimizer.purchase.ranges import Range, own_price, own_range
from optimizer.purchase.report import _front, purchase_report
from optimizer.purchase.staged import Delivery, by_kind, staged
from optimizer.purchase.uncertainty import win_probability
from optimizer.purchase.uncertainty.sensitivity import Swing, repriced, tornado
from optimizer.purchase.uncertainty.win_probability import (
    CHEAP,
    Decision,
    DrawnErrors,
    OpenQuestion,
    WinProbability,
    _question,
    break_evens,
    choice,
    judged,
    least_regret,
    spread,
)
from optimizer.purchase.units import FACTORS, days, dollars, megawatt_hours, megawatts, percent, quantity, tonnes
from optimizer.purchase.words import summary
from optimizer.reports.report import Heading, Pairs, Table
from tests.purchase.by_hand import DAY, MWH, by_hand, machine
from tests.purchase.campaigns import campaign, kinds, quick_planner, rented_at

BUYER: dict[str, Any] = {"buy": True, "assumptions": assumptions(True)}


@pytest.mark.parametrize(
    ("show", "value", "said"),
    [
        (dollars, 9.994e3, "$9.99 k"),
        (dollars, 10e3, "$10.0 k"),
        (dollars, 99.94e6, "$99.9 M"),
        (dollars, 100e6, "$100 M"),
        (dollars, 2500e9, "$2,500 B"),
        (dollars, 999.4, "$999"),
        (dollars, -2e6, "$-2.00 M"),
        (percent, 0.0051, "1%"),
        (percent, 0.9949, "99%"),
        (days, 9.99 * DAY, "10.0 days"),
        (days, 10 * DAY, "10 days"),
        (days, 729 * DAY, "729 days"),
        (days, 730 * DAY, "2.0 years"),
        (megawatt_hours, 9.99 * MWH, "9.99 MWh"),
        (megawatt_hours, 10 * MWH, "10 MWh"),
        (megawatts, 1e6, "1.0 MW"),
        (megawatts, 0.999e6, "999 kW"),
        (tonnes, 99.9e3, "99.9 t"),
        (tonnes, 100e3, "100 t"),
    ],
)
def test_amounts_change_their_digits_and_units_at_whole_numbers(show: Any, value: float, said: str) -> None:
    assert show(value) == said


@pytest.mark.parametrize(
    ("value", "unit", "name", "said"),
    [
        (59.0, "s", "", "59 s"),
        (59.969, "s", "", "60 s"),
        (0.9995 * 60, "s", "", "1 min"),
        (60.0, "s", "", "1 min"),
        (3600.0, "s", "", "1 h"),
        (DAY, "s", "", "1 day"),
        (2 * DAY, "s", "", "2 days"),
        (YEAR, "s", "", "1 year"),
        (0.02 / YEAR, "1/s", "support", "0.02 of the price a year"),
        (0.03 / YEAR, "1/s", "staff", "0.03 of the price a year"),
        (120 / 1e3 / (YEAR / 12), "USD/J", "colocation", "120 USD/kW-month"),
        (0.4, "kg/kWh", "carbon_intensity", "0.4 kg/kWh"),
        (2e9, "B/s", "storage", "2 GB/s"),
        (0.09 / 3.6e6, "USD/J", "electricity", "0.09 USD/kWh"),
        (1000 / YEAR, "USD/s", "software", "1e+03 USD a year"),
        (1 / DAY, "1/s", "", "1 a day"),
        (1.25, "1", "pue", "1.25"),
        (3.0, "W", "", "3 W"),
    ],
)
def test_an_assumption_is_told_in_the_unit_that_people_use(value: float, unit: str, name: str, said: str) -> None:
    assert quantity(value, unit, name) == said
    assert set(FACTORS) >= {name} - {"", "pue", "electricity", "software"}


def test_orders_come_in_the_steps_of_what_is_sold() -> None:
    """NICs of 100 Gb/s, memory by 8 GB, a percent of the power limit."""
    assert STEPS == {"nic": 100e9 / 8, "oversubscription": 0.25, "power_cap": 0.01, "batch_factor": 0.25, "hbm": 8e9}


def test_an_error_beyond_the_middle_goes_to_its_own_end() -> None:
    errors = np.array([-1.6449, -0.8, 0.0, 0.8, 1.6449])
    assert spread(Range(low=0.0, mid=1.0, high=4.0), errors) == pytest.approx(
        [0.0, 1 - 0.8 / 1.6449, 1.0, 1 + 3 * 0.8 / 1.6449, 4.0]
    )
    assert spread(Range(low=0.0, mid=1.0, high=4.0), np.array([-9.0]))[0] == 0.0
    low, high = spread(Range(low=0.5, mid=1.0, high=4.0), np.array([-0.82245, 0.82245]))
    assert (low, high) == (pytest.approx(0.5**0.5), pytest.approx(2.0))


def test_the_least_regret_on_the_front_is_advised_and_a_dearer_question_makes_a_tie() -> None:
    first, second, off = machine("h100"), machine("b200"), machine("mi300x")
    chances = tuple(
        WinProbability(point=point, chance=0.3, in_limits=1.0, regret=regret)
        for point, regret in ((off, 0.0), (second, 3e6), (first, 1e6))
    )
    asked = OpenQuestion(name="rent", title="", about="", worth=2e6, changes=0.5)
    dearer = replace(asked, worth=2.1e6)
    front = (first, second)
    assert least_regret(Decision(probabilities=chances), front) == (first, None)
    assert least_regret(Decision(probabilities=chances, questions=(asked,)), front) == (first, None)
    assert least_regret(Decision(probabilities=chances, questions=(asked, dearer)), front) == (first, second)
    assert least_regret(Decision(probabilities=chances, questions=(dearer,)), (first,)) == (first, None)
    assert least_regret(Decision(probabilities=chances), ()) == (None, None)
    even = tuple(replace(item, regret=0.5) if item.point is first else item for item in chances)
    assert least_regret(Decision(probabilities=(even[0], even[2], replace(even[1], regret=0.9))), front)[1] is None


def test_a_choice_is_the_cheapest_within_the_limits_at_the_value_that_is_asked_about() -> None:
    question = campaign(book=rented_at(h100=2.0 / 3600, b200=5.0 / 3600))
    points = (machine("h100", question=question), machine("b200", question=question))
    costs = {point.design.kind: point.figures.cost for point in points}
    now, other = sorted(points, key=lambda point: point.figures.cost)
    gap = costs[other.design.kind] / costs[now.design.kind]
    asked = OpenQuestion(name="rent", title="", about=now.design.title, worth=0.0, changes=0.0)
    assert choice(question, points, asked, None) is now
    assert choice(question, points, asked, 0.99 * gap) is now
    assert choice(question, points, asked, 1.01 * gap) is other
    elsewhere = replace(asked, about=other.design.title)
    assert choice(question, points, elsewhere, 0.99 / gap) is other
    assert choice(question, points, elsewhere, 1.01 / gap) is now
    tight = replace(question, bounds=Requirements(deadline=other.figures.time_to_train))
    late = now.figures.time_to_train > other.figures.time_to_train
    assert choice(tight, points, asked, None) is (other if late else now)
    assert choice(replace(question, bounds=Requirements(deadline=1.0)), points, asked, None) is None


def test_a_choice_turns_where_the_costs_are_equal() -> None:
    question = campaign(
        book=rented_at(h100=2.0 / 3600, b200=5.0 / 3600),
        assumptions=tuple(
            replace(item, value=Range(low=0.2, mid=1.0, high=5.0), grade="user") if item.name == "rent" else item
            for item in assumptions(False)
        ),
    )
    points = (machine("h100", question=question), machine("b200", question=question))
    now, other = sorted(points, key=lambda point: point.figures.cost)
    gap = other.figures.cost / now.figures.cost
    asked = OpenQuestion(name="rent", title="", about=now.design.title, worth=0.0, changes=0.0)
    (turn,) = break_evens(question, points, asked)
    assert (turn.now, turn.then, turn.side, turn.end) == (now, other, "above", 5.0)
    assert turn.value == pytest.approx(gap, rel=1e-9)
    (back,) = break_evens(question, points, replace(asked, about=other.design.title))
    assert (back.side, back.end) == ("below", 0.2)
    assert back.value == pytest.approx(1 / gap, rel=1e-9)
    assert break_evens(question, points, replace(asked, about="none of them")) == ()
    # What is the same for both turns nothing.
    assert break_evens(question, points, replace(asked, name="mfu", about="none")) == ()


@pytest.mark.parametrize("between", ["third", "none"])
def test_what_is_chosen_beyond_a_turn_is_what_is_chosen_right_after_it(
    between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to 2 the first machine, up to 3 a third one or none within the limits, then another."""
    question = campaign(
        book=rented_at(h100=2.0 / 3600, b200=5.0 / 3600),
        assumptions=tuple(
            replace(item, value=Range(low=1.0, mid=1.0, high=5.0), grade="user") if item.name == "rent" else item
            for item in assumptions(False)
        ),
    )
    now, last = machine("h100", question=question), machine("b200", question=question)
    third = replace(last) if between == "third" else None

    def chosen(_: Campaign, points: Sequence[Point], asked: OpenQuestion, value: float | None) -> Point | None:
        return now if value is None or value < 2 else third if value < 3 else last

    monkeypatch.setattr(win_probability, "choice", chosen)
    asked = OpenQuestion(name="rent", title="", about=now.design.title, worth=0.0, changes=0.0)
    (turn,) = break_evens(question, (now, last), asked)
    assert turn.value == pytest.approx(2.0)
    assert turn.then is (third or last)


def test_a_single_machine_is_not_judged_and_two_are() -> None:
    question = campaign(book=rented_at(h100=2.0 / 3600, b200=2.0 / 3600))
    points = (machine("h100", question=question), machine("b200", question=question))
    assert judged(question, points[:1], draws=200) == Decision()
    found = judged(question, points, draws=200)
    assert found.draws == 200
    assert sum(item.chance for item in found.probabilities) == pytest.approx(1.0)
    assert found.probabilities[0].chance >= found.probabilities[1].chance
    # Twice the rate for the same rent: it always wins, so it loses nothing, and no question is worth asking.
    first, second = found.probabilities
    assert (first.point.design.kind, first.chance, first.regret) == ("b200", 1.0, 0.0)
    costs = {point.design.kind: point.figures.cost for point in points}
    assert second.regret == pytest.approx(costs["h100"] - costs["b200"], rel=0.3)
    assert (second.in_limits, found.questions) == (1.0, ())
    assert 0 < CHEAP < 0.01


def test_what_an_answer_is_worth_is_what_it_saves_on_average() -> None:
    """The second costs k e more, e standard normal: to know e saves E max(0, -k e) = k / sqrt(2 pi), in half the cases.

    What has nothing to do with the costs is worth nothing, for one half of the cases chooses for the other.
    """
    random = np.random.default_rng(0)
    error, other = random.standard_normal((2, 40_000))
    costs = np.array([np.full(error.size, 100.0), 100.0 + 5.0 * error + 1e-3])
    known, unknown = (_question(("rent", "H100"), "the rent", each, costs) for each in (error, other))
    assert (known.name, known.about, known.title) == ("rent", "H100", "the rent")
    assert known.worth == pytest.approx(5.0 / np.sqrt(2 * np.pi), rel=0.03)
    assert known.changes == pytest.approx(0.5, abs=0.01)
    dearer = _question(("rent", "H100"), "the rent", error, costs + np.array([[0.0], [5.0]]))
    assert dearer.changes == pytest.approx(0.2)  # in the two tenths whose means are below -1
    assert abs(unknown.worth) < 0.05


def test_only_what_may_win_is_asked_about_and_errors_share_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    question = campaign(book=rented_at(h100=2.0 / 3600, b200=2.0 / 3600, mi300x=2.0 / 3600))
    points = [machine(kind, question=question) for kind in ("h100", "b200", "mi300x")]
    costs = {"h100": lambda rate: 100.0 / rate, "b200": lambda rate: 101.0 / rate, "mi300x": lambda rate: 900.0 / rate}

    def outcomes(_: Campaign, point: Point, values: Any, draws: int) -> tuple[Any, Any]:
        return costs[point.design.kind](values["mfu"]), np.ones(draws, dtype=bool)

    monkeypatch.setattr(win_probability, "_outcomes", outcomes)
    monkeypatch.setattr(win_probability, "alikeness", lambda predictions: np.eye(len(predictions)))
    found = judged(question, points, draws=400)
    asked = {(item.name, item.about) for item in found.questions}
    assert {("mfu", points[0].design.title), ("mfu", points[1].design.title)} <= asked
    assert not any(about == points[2].design.title for _, about in asked)
    rows = DrawnErrors(5, np.random.default_rng(0), 0.5), dict[tuple[str, str], Any]()
    win_probability._values(question, points[0], rows[0]("rate"), *rows)
    about = points[0].design.title
    assert {key for key in rows[1] if key[1]} == {("mfu", about), ("failure_rate", about)}  # the rent is quoted
    assert ("critical_batch", "") in rows[1]
    # What hardly matters is not asked about: of costs of 100 a ten-thousandth.
    costs.update(h100=lambda rate: 100.0 + 0.001 * rate, b200=lambda rate: 100.0 + 0.001 * rate)
    assert judged(question, points, draws=400).questions == ()
    errors = DrawnErrors(5, np.random.default_rng(0), 0.36)
    assert errors.partly("all", "own") == pytest.approx(0.6 * errors("all") + 0.8 * errors("own"))


def test_a_factor_is_on_what_the_user_assumes() -> None:
    """A rent of twice the list: twice as much again costs twice as much."""
    twice = tuple(
        replace(item, value=Range(low=2.0, mid=2.0, high=2.0), grade="user") if item.name == "rent" else item
        for item in assumptions(False)
    )
    question = campaign(book=rented_at(h100=2.0 / 3600), assumptions=twice)
    point = machine("h100", question=question)
    assert break_even_factor(question, point, "rent", 2 * point.figures.cost) == pytest.approx(2.0)


def test_power_price_and_tokens_of_a_design_by_hand() -> None:
    """Shares of the host come on top of the GPU's; a price factor is on the machines and not on the network."""
    asked = campaign(**BUYER)
    point = machine("h100", question=asked)
    design, limit = point.design, power_limit(point.design)
    values = {**asked.scenario(design), "host_share": 0.5, "gpu_power": 0.9}
    curve = power_curve(design, values)
    assert (curve.limit, curve.host) == (pytest.approx(0.9 * limit), pytest.approx(0.5 * limit))
    rack = kinds("mi300x")[0]
    assert idle_power(rack, values) == pytest.approx(default_price("idle_share").value * power_limit(rack) * 1.5)
    dear, usual = (ownership(asked, design, {**values, "capex": factor}, 64)[1] for factor in (3.0, 1.0))
    assert dear - usual == pytest.approx(2 * 64 * purchase_price(asked, design)[0])
    run = asked.runs[0]
    assert point.figures.tokens == tokens_of(design, run, asked.scenario(design)["critical_batch"])


def test_break_even_factors_are_where_the_cost_is_the_target() -> None:
    question = campaign(book=rented_at(h100=2.0 / 3600))
    point = machine("h100", question=question)
    cost = point.figures.cost
    for target in (0.5 * cost, cost, 1.75 * cost):
        assert break_even_factor(question, point, "rent", target) == pytest.approx(target / cost, rel=1e-9)
        rate = break_even_factor(question, point, "mfu", target)
        assert rate is not None
        again = figures_in(question, point, question.scenario(point.design, mfu=rate))
        assert again.cost == pytest.approx(target, rel=1e-6)
    for target in (0.0101 * cost, 99.0 * cost):
        assert break_even_factor(question, point, "rent", target) is not None
    most = figures_in(question, point, question.scenario(point.design, rent=100.0)).cost
    for target in (0.0099 * cost, most, 100.1 * cost):  # looked for is from a hundredth to a hundredfold
        assert break_even_factor(question, point, "rent", target) is None


def test_each_machine_is_held_against_the_best_of_the_others() -> None:
    question = campaign(book=rented_at(h100=2.0 / 3600, b200=5.0 / 3600, mi300x=2.0 / 3600))
    points = [machine(kind, question=question) for kind in ("h100", "b200", "mi300x")]
    first, second, third = sorted(points, key=lambda point: point.figures.cost)
    costs = [point.figures.cost for point in (first, second, third)]
    found = alternatives(question, points)
    assert [item.point for item in found] == [first, second, third]
    assert [item.winner for item in found] == [True, False, False]
    assert [item.target for item in found] == [costs[1], costs[0], costs[0]]
    for item, cost in zip(found, costs, strict=True):
        assert item.price == pytest.approx(item.price_now * item.target / cost, rel=1e-6)
    assert found[0].bandwidth is None
    missed = replace(second, excesses=(Excess(limit="power", value=2.0, allowed=1.0),))
    again = alternatives(question, [missed, third, first])
    assert [item.point for item in again] == [first, third, missed]
    assert again[0].target == costs[2]
    assert alternatives(question, [first])[0].target == float("inf")
    assert alternatives(question, ()) == ()
    asked = campaign(**BUYER)
    (owned,) = alternatives(asked, [machine("h100", question=asked)])
    assert owned.price_now == purchase_price(asked, owned.point.design)[0]


def test_a_rate_of_the_whole_peak_may_win_and_one_beyond_it_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    question = campaign()
    point = machine("h100", question=question, mfu=0.5)
    for factor, mfu in ((2.0, 1.0), (2.01, None), (None, None)):
        monkeypatch.setattr(found_alternatives, "break_even_factor", lambda *_, factor=factor: factor)
        assert alternatives(question, [point])[0].mfu == mfu


def test_a_rent_at_parity_costs_what_the_best_other_machine_does() -> None:
    question = campaign(book=rented_at(h100=2.0 / 3600, b200=9.0 / 3600, mi300x=2.0 / 3600))
    points = [machine(kind, question=question) for kind in ("h100", "b200", "mi300x")]
    ranked = sorted(points, key=lambda point: point.figures.cost)
    found = parities(question, points)
    assert [item.device for item in found] == ranked
    assert [item.alternative for item in found] == [ranked[1], ranked[0], ranked[0]]
    for item in found:
        paid = item.price * item.device.figures.paid_gpus * item.device.figures.time_to_train
        assert paid == pytest.approx(item.alternative.figures.cost)
    assert parities(question, points[:1]) == ()
    assert len(parities(question, points[:2])) == 2
    assert parities(replace(question, **BUYER), points) == ()


@pytest.mark.parametrize("left", [0.0, 0.25])
def test_resale_writes_off_by_years_and_shares_the_loss_over_them(left: float) -> None:
    asked = tuple(
        replace(item, value=Range(low=left, mid=left, high=left)) if item.name == "residual" else item
        for item in assumptions(True)
    )
    question = campaign(assumptions=(*asked, *(item for item in assumptions(False) if item.name == "rent")))
    point = machine("h100", question=question)
    owned = rent_or_buy(question, point)
    values = {item.name: item.value.mid for item in asked}
    own, capex = ownership(question, point.design, values, 4096, point.on_host)
    assert capex == owned.capex
    known = {"lifetime": 3 * YEAR, "residual": 0.0, "electricity": 0.0}  # what an offer says, and no price of power
    offers = tuple(replace(offer, **known) for offer in question.book.offers)
    theirs, _ = ownership(replace(question, book=replace(question.book, offers=offers)), point.design, values, 4096)
    assert theirs == replace(own, lifetime=3 * YEAR, residual=0.0)
    found = resale(question, point)
    assert len(found) == int(own.lifetime / YEAR)
    for item in found:
        written = item.years / (own.lifetime / YEAR)
        assert item.book == pytest.approx(capex * (1 - written) + capex * own.residual * written)
        assert item.value == pytest.approx(capex * 10 ** (-0.14 * item.years), rel=1e-6)
        assert item.yearly == pytest.approx((capex - item.value) / item.years + owned.running * YEAR)
        assert item.rent == pytest.approx(owned.rent * YEAR)


def test_the_best_of_a_kind_is_the_cheapest_within_the_limits_or_the_one_that_misses_them_by_least() -> None:
    def missing(point: Any, value: float) -> Any:
        return replace(point, excesses=(Excess(limit="power", value=value, allowed=1.0),))

    cheap, dear = machine("h100", cost=1.0), machine("h100", cost=2.0)
    near, far = (missing(machine("b200", cost=cost), value) for cost, value in ((2.0, 1.5), (1.0, 2.0)))
    assert best_by_kind([dear, cheap, far, near]) == {"h100": cheap, "b200": near}
    assert best_by_kind([missing(cheap, 2.0), dear]) == {"h100": dear}
    assert best_by_kind([far, near]) == {}


def test_deliveries_need_a_design_of_each_total() -> None:
    question = campaign()
    workshop = Workshop(campaign=question, planner=quick_planner)
    points = [workshop.point(replace(kind, gpus=gpus)) for kind in kinds("h100", "b200") for gpus in (1024, 2048)]
    deliveries = (Delivery(gpus=1024, at=0), Delivery(gpus=1024, at=10 * DAY))
    every = by_kind(question, deliveries, points)
    assert [[point.design.gpus for point in item.points] for item in every] == [[1024, 2048]] * 2
    assert every[0].course.cost <= every[1].course.cost
    (alone,) = by_kind(question, deliveries, points[:3])
    assert alone.points[0].design.kind == "h100"
    assert by_kind(question, (), points) == ()


def test_what_nobody_says_of_a_purchase_is_nothing() -> None:
    """No seed but 0, no memory on the host, no box without a point."""
    workshop = Workshop(campaign=campaign(), planner=quick_planner)
    assert purchase(workshop).seed == 0
    assert reference_point([]) == (1.0, 1.0, 1.0)
    point = machine("h100", question=campaign(**BUYER))
    values = campaign(**BUYER).scenario(point.design)
    bare, none = (ownership(campaign(**BUYER), point.design, values, 4096, *given)[1] for given in ((), (0.0,)))
    assert bare == none
    there = host_memory(point.design)
    assert there is not None
    more = ownership(campaign(**BUYER), point.design, values, 4096, there + 10e9)[1]
    assert more - none == pytest.approx(4096 * 10 * default_price("memory_price").value)
    assert ownership(campaign(**BUYER), point.design, values, 4096, there)[1] == none
    assert figures(campaign(), point.design, point.planned, campaign().scenario()).cost == pytest.approx(
        figures(campaign(), point.design, point.planned, campaign().scenario(), 0.0).cost
    )


def test_a_cluster_of_one_tier_has_no_network_and_a_given_nic_is_its_own() -> None:
    design = kinds("h100")[0]
    first, second, *_ = design.cluster.tiers
    alone = replace(design, cluster=replace(design.cluster, tiers=(first,)))
    assert alone.network_bandwidth == 0.0
    assert design.network_bandwidth == second.link.bandwidth
    assert replace(alone, nic=1e9).network_bandwidth == 1e9
    tapered = replace(second, oversubscription=3.0)
    last = replace(
        design, cluster=replace(design.cluster, tiers=(first, tapered, replace(second, oversubscription=2.0)))
    )
    assert (design.taper, last.taper) == (design.cluster.tiers[-1].oversubscription, 2.0)
    assert replace(design, cluster=replace(design.cluster, tiers=(first, second))).network_bandwidth > 0
    assert replace(last, oversubscription=4.0).built().tiers == (
        *(first, tapered),
        replace(second, oversubscription=4.0),
    )
    assert replace(design, oversubscription=3.0).taper == 3.0
    assert Design(kind="x", cluster=design.cluster, gpus=1).batch_factor == 1.0
    assert replace(design, batch_factor=0.1).batch(replace(campaign().runs[0], global_batch=1)) == 1


def test_a_network_beyond_the_usual_one_is_added_and_a_smaller_one_gives_nothing_back() -> None:
    design = replace(kinds("h100")[0], gpus=4096)
    usual = design.network_bandwidth
    assert added_network(design, 4096, 1.4) == 0.0
    more = added_network(replace(design, nic=2 * usual), 4096, 1.4)
    assert added_network(replace(design, nic=4 * usual), 4096, 1.4) > more > 0.0
    assert added_network(replace(design, nic=usual / 2), 4096, 1.4) == 0.0
    assert added_network(replace(design, nic=2 * usual), 4096, 2.8) > more


def test_tokens_a_joule_are_the_tokens_over_all_that_a_node_draws_and_what_idles() -> None:
    design = replace(kinds("h100")[0], gpus=12)
    offer = replace(price_row(campaign(), design), pue=1.5, sold=(), sold_as="")
    time, busy = {"gemm": 2.0}, BusySeconds(compute=2.0, stream=0.0, utilisation=0.5)
    values = {name: default_price(row).value for name, row in (("gpu_power", "power_spread"), ("host_share",) * 2)}
    used = step_energy(time, busy, power_curve(design, values), 1.0)
    lot = Lot(size=8, count=2, name="node", used=12)
    idle = lot.spare / 12 * idle_power(design, values) * used.step_time
    found = usual_tokens_per_joule(design, offer, time, busy, 1000.0, 0.5)
    assert lot.spare == 4
    assert found == pytest.approx(0.5 * 1000.0 / (1.5 * (used.total + idle)))


def test_a_row_without_a_range_is_as_wide_as_the_usual_one() -> None:
    usual = default_price("storage")
    own = own_price("storage", "h100", "dgx-h100")
    assert own is not None
    firm = replace(own, low=own.value, high=own.value)
    found, scale = own_range(firm), own.value / usual.value
    assert (found.low, found.mid, found.high) == pytest.approx((usual.low * scale, own.value, usual.high * scale))
    wide = own_range(replace(own, low=0.5 * own.value, high=3 * own.value))
    assert (wide.low, wide.high) == (0.5 * own.value, 3 * own.value)
    assert own_price("pue", "h100", "dgx-h100") is None


def test_quotes_have_the_least_and_the_most_of_their_term() -> None:
    made = by_hand()
    offer = price_row(made.purchase.campaign, made.purchase.points[1].design)
    low, high = (replace(offer, provider=name, value=price / 3600) for name, price in (("A", 1.0), ("B", 9.0)))
    item = Quote(
        kind="h100",
        title="H100",
        price=2.0 / 3600,
        offer=replace(offer, date=""),
        others=(low, high),
        power_limit=700.0,
        power_measured=True,
    )
    texts = [
        str(block)
        for quote in (item, replace(item, others=None, power_measured=False))
        for part in purchase_report(replace(made, quotes=(quote,))).sections
        if part.heading == "Assumptions"
        for block in part.blocks
    ]
    with_others, without = "".join(texts[: len(texts) // 2]), "".join(texts[len(texts) // 2 :])
    assert "; others $1.00/h (A) to $9.00/h (B)" in with_others
    assert "$2.00/h" in with_others
    assert "; others" not in without
    assert "measured" in with_others
    assert "assumed: the H200's" in without


def test_long_tables_are_cut_and_say_so() -> None:
    made = by_hand()
    point = made.purchase.points[1]
    for count, cut in ((60, False), (61, True)):
        many = replace(made.purchase, points=(point,) * count)
        (part,) = [
            part
            for part in purchase_report(replace(made, purchase=many)).sections
            if part.heading == "Designs examined"
        ]
        tables = [block for block in part.blocks if isinstance(block, Table)]
        assert [len(block.rows) for block in tables] == [60]
        assert all(len(row) == len(tables[0].columns) for row in tables[0].rows)
        assert (f"The first 60 of {count};" in str(part.blocks)) is cut


def test_each_mark_stands_at_its_figures_with_its_range_and_its_number() -> None:
    made = by_hand(campaign(bounds=Requirements(deadline=90 * DAY, budget=70e6)))
    for chart, values in (
        (time_cost(made), {"MI300X": (80, 60), "H100": (100, 50)}),
        (cost_energy(made), {"MI300X": (60, 12), "H100": (50, 10)}),
    ):
        marks = {mark["name"]: mark for mark in chart.figure["data"]}
        assert [mark["text"] for mark in marks.values()] == [["1"], ["2"]]
        assert all(mark["showlegend"] for mark in marks.values())
        assert len({mark["marker"]["symbol"] for mark in marks.values()}) == 2
        for name, (x, y) in values.items():
            mark = marks[name]
            assert (mark["x"], mark["y"]) == (pytest.approx([x]), pytest.approx([y]))
            for axis, value in (("error_x", x), ("error_y", y)):
                assert mark[axis]["array"] == pytest.approx([0.2 * value])
                assert mark[axis]["arrayminus"] == pytest.approx([0.1 * value])
    shapes = time_cost(made).figure["layout"]["shapes"]
    assert [shape.get("x0", shape.get("y0")) for shape in shapes] == [90, 70]
    assert [shape["label"]["text"] for shape in shapes] == ["deadline: 90 days", "budget: $70.0 M"]
    assert time_cost(made).columns == ("design", "time", "from", "to", "cost", "from", "to")
    assert [row[0] for row in time_cost(made).rows] == ["1 4,096 MI300X", "2 4,096 H100"]
    assert time_cost(made).rows[1][1:] == ("100 days", "90 days", "120 days", "$50.0 M", "$45.0 M", "$60.0 M")


def test_what_is_beaten_is_drawn_faintly_without_a_number() -> None:
    made = by_hand()
    second, first = made.purchase.points
    beaten = replace(first, figures=replace(first.figures, time_to_train=200 * DAY))
    found = replace(made, purchase=replace(made.purchase, points=(second, first, beaten)))
    marks = [mark for mark in time_cost(found).figure["data"] if mark["name"] == "H100"]
    assert [mark["x"] for mark in marks] == [[200.0], [100.0]]
    assert [mark["mode"] for mark in marks] == ["markers", "markers+text"]
    assert (marks[0]["showlegend"], marks[1]["showlegend"]) == (False, True)
    assert marks[0]["error_x"]["array"] == marks[0]["error_x"]["arrayminus"] == [0.0]


def test_a_logarithmic_axis_holds_values_ranges_and_limits_with_room() -> None:
    made = by_hand()
    for limit, least, most in ((None, 72, 120), (400 * DAY, 72, 400), (10 * DAY, 10, 120)):
        axis = _log_axis(made, TIME, limit)
        low, high = (10**end for end in axis["range"])
        assert 0.8 * least < low < least
        assert most < high < 1.25 * most
        assert axis["tickvals"] == [t for t in (5, 7, 10, 20, 30, 50, 70, 100, 200, 300, 500) if low <= t <= high]
    none = replace(made, purchase=replace(made.purchase, points=()), ranges=())
    assert set(_log_axis(none, COST, None)) == {"title"}
    for least, low in ((0.0, 2.0), (-1.0, 2.0), (0.5, 0.5)):  # what no logarithm reaches is left out
        found = replace(made, ranges=({"cost": Range(low=least, mid=1.0, high=2.0)},))
        assert 0.8 * low < 1e6 * 10 ** _log_axis(found, COST, None)["range"][0] < low


def test_a_swing_is_drawn_from_the_middle_to_either_end() -> None:
    def swing(name: str, low: float, high: float) -> Swing:
        return Swing(name=name, title=name, low=1.0, high=2.0, unit="1", results={"cost": (low, high)})

    swings = (swing("a", 40e6, 65e6), swing("b", 52e6, 55e6), swing("c", 50e6, 50.04e6))
    made = by_hand(swings=swings)
    assert made.advised is not None
    chart = tornado_chart(made, made.advised)
    assert chart.words.startswith("a moves it most, from $40.0 M to $65.0 M. ")
    assert [row[0] for row in chart.rows] == ["a", "b"]  # the third moves less than a thousandth
    lows, highs = chart.figure["data"]
    assert lows["base"] == highs["base"] == [50.0, 50.0]
    assert (lows["x"], highs["x"]) == (pytest.approx([-10.0, 2.0]), pytest.approx([15.0, 5.0]))
    assert (lows["text"], highs["text"]) == (["$40.0 M", ""], ["$65.0 M", "$55.0 M"])
    assert (lows["marker"]["pattern"]["shape"], highs["marker"]["pattern"]["shape"]) == ("", "/")
    (line,) = chart.figure["layout"]["shapes"]
    assert line["x0"] == pytest.approx(50.0, abs=1e-9)
    assert chart.figure["layout"]["xaxis"]["range"] == pytest.approx([40 - 12.5, 65 + 12.5])
    unmoved = tornado_chart(replace(made, swings=()), made.advised)
    assert unmoved.words.startswith("Nothing moves it. ")
    assert unmoved.figure["layout"]["xaxis"]["range"] == pytest.approx([48.75, 51.25])  # a fortieth either way
    taller = (
        chart.figure["layout"]["height"]
        - tornado_chart(replace(made, swings=swings[:1]), made.advised).figure["layout"]["height"]
    )
    assert taller > 30  # [px], for two lines of label


@pytest.mark.parametrize(
    ("low", "high", "at_low", "at_high"),
    [
        (40.0, 60.0, "$40", "$60"),
        (52.0, 55.0, "", "$55"),
        (48.0, 45.0, "", "$45"),
        (50.0, 55.0, "$50", "$55"),
        (50.5, 50.75, "", "$51"),
        (55.0, 55.0, "$55", "$55"),
        (55.0, 52.0, "$55", ""),
        (55.0, 50.0, "$55", "$50"),
    ],
)
def test_of_two_ends_on_one_side_the_further_one_is_written(low: float, high: float, at_low: str, at_high: str) -> None:
    assert (_end((low, high), 0, 50.0), _end((low, high), 1, 50.0)) == (at_low, at_high)


def test_shares_of_a_step_are_drawn_in_percent() -> None:
    made = by_hand()
    for shown in (made.shown, made.shown[:1]):
        chart = phase_chart(shown)
        assert [sum(values) for values in zip(*(bar["x"] for bar in chart.figure["data"]), strict=True)] == (
            pytest.approx([100.0] * len(shown))
        )
        assert chart.figure["layout"]["xaxis"]["range"] == [0, 100]
        assert [row[0] for row in chart.rows] == [
            f"{number} {point.design.label()}" for number, point in enumerate(shown, 1)
        ]
        for column, bar in enumerate(chart.figure["data"], 1):
            assert [row[column] for row in chart.rows] == [f"{value:.1f}%" for value in bar["x"]]
            assert bar["text"] == [f"{value:.0f}%" for value in bar["x"]]
    heights = [phase_chart(shown).figure["layout"]["height"] for shown in (made.shown, made.shown[:1])]
    assert heights[0] - heights[1] > 30


def test_inputs_swing_by_their_own_ends_and_the_network_by_half_and_twice() -> None:
    question = campaign()
    point = Workshop(campaign=question, planner=quick_planner).point(replace(kinds("h100")[0], gpus=1024))
    swings = {swing.name: swing for swing in tornado(question, point)}
    rent = swings["rent"]
    middle = point.figures.cost
    assert rent.results["cost"] == pytest.approx((rent.low * middle, rent.high * middle))
    assert rent.width("cost") == pytest.approx((rent.high - rent.low) * middle)
    widths = [swing.width("cost") for swing in tornado(question, point)]
    assert widths == sorted(widths, reverse=True)
    bandwidth = kinds("h100")[0].network_bandwidth
    assert (swings["nic"].low, swings["nic"].high) == (bandwidth / 2, 2 * bandwidth)
    halved, doubled = (replace(point.design, nic=factor * bandwidth) for factor in (0.5, 2.0))
    assert swings["nic"].results["time_to_train"] == pytest.approx(
        tuple(
            figures(question, design, repriced(question, design, point), question.scenario(design)).time_to_train
            for design in (halved, doubled)
        )
    )
    assert not swings["nic"].uncertain
    assert rent.uncertain


def test_a_shortlist_has_eight_points_and_all_that_are_wanted() -> None:
    points = [machine("h100", time_to_train=(1 + at) * DAY, cost=(30 - at) * 1e6) for at in range(14)]
    reference = (20 * DAY, 40e6, 1e20)
    assert len(shortlist(points, points[3:5], reference)) == 8
    assert len(shortlist(points, points[:10], reference)) == 10
    assert shortlist(points[:3], [], reference) == tuple(points[:3])
    assert {id(point) for point in points[3:5]} <= {id(point) for point in shortlist(points, points[3:5], reference)}


def test_a_point_dominates_by_its_worst_figure() -> None:
    point = machine("h100", time_to_train=100.0, cost=4.0, energy=10.0)
    for changes, margin in (
        ({"time_to_train": 80.0, "cost": 3.0, "energy": 5.0}, 0.8),
        ({"time_to_train": 50.0, "cost": 3.0, "energy": 5.0}, 0.75),
        ({"time_to_train": 50.0, "cost": 2.0, "energy": 9.0}, 0.9),
    ):
        assert _margin(replace(point, figures=replace(point.figures, **changes)), point) == pytest.approx(margin)


def test_what_is_advised_and_what_is_on_the_front_is_marked() -> None:
    made = by_hand()
    first = made.purchase.points[1]
    (front,) = (block for section in _front(made) for block in section.blocks if isinstance(block, Table))
    marked = [any(str(cell).endswith(" *") for cell in row) for row in front.rows]
    assert marked == [point is made.advised for point in made.shown] == [row in front.strong for row in range(2)]
    alone = replace(made, purchase=replace(made.purchase, front=(first,)))
    header, *rows = (line.split(",") for line in purchase_csv(alone).splitlines())
    place = header.index("front")
    assert [row[place] for row in rows] == ["False", "True"]
    assert len(summary(alone)) == len(summary(replace(alone, fastest=None))) + 1


def test_cards_are_numbered_and_the_advised_one_is_named() -> None:
    made = by_hand(figures={"gpu_seconds": 7.2e10})
    (part,) = [part for part in purchase_report(made).sections if part.heading == "What each choice runs"]
    assert [block.text for block in part.blocks if isinstance(block, Heading)] == [
        "1 4,096 MI300X",
        "2 4,096 H100 — advised",
    ]
    _, card = (dict(block.rows) for block in part.blocks if isinstance(block, Pairs))
    assert card == {
        "Plan": "TP 8 SP, PP 8, DP 64, micro-batch 1, ZeRO-1; 16 micro-batches of 1, 19.95 s a step of 2,048 sequences",
        "Bottleneck": "communication (21% of the step)",
        "Memory": "60 of 84 GB per GPU",
        "To order": "512 nodes of 8 GPUs",
        "Network": "400 Gb/s per GPU, 1:1",
        "Per token": "3.21 USD a million, 0.43 tokens a joule",
        "Tokens": "15.6 trillion",
        "Checkpoint every": "11.1 min",
        "GPU-hours": "20.00 M",
    }
    twice = purchase_report(by_hand(campaign(runs=campaign().runs * 2)))
    (part,) = [part for part in twice.sections if part.heading == "What each choice runs"]
    named = [row[0] for block in part.blocks if isinstance(block, Pairs) for row in block.rows if row[0] != "Plan"]
    assert named.count("Plan, llama3.1-405b") == 4


def test_what_comes_nearest_is_in_the_json_with_what_it_misses() -> None:
    made = by_hand()
    (point, _) = made.purchase.points
    late = replace(point, excesses=(Excess(limit="deadline", value=30 * DAY, allowed=20 * DAY),))
    missed = replace(made.purchase, points=(late,), front=(), nearest=(late,))
    text = purchase_json(replace(made, purchase=missed, shown=(), ranges=(), advised=None))
    found = json.loads(text)
    (nearest,) = found["nearest"]
    assert (nearest["device"], nearest["limits_broken"]) == ("mi300x", ["deadline"])
    (excess,) = nearest["excesses"]
    assert excess["limit"] == "deadline"
    assert (found["status"], found["front"], found["advised"]) == ("infeasible", [], None)
    repaired = json.loads(purchase_json(replace(made, repairs=((7200.0, 4), (DAY, 9)))))
    assert repaired["spares_by_repair"] == [{"repair_hours": 2.0, "nodes": 4}, {"repair_hours": 24.0, "nodes": 9}]


def test_charts_are_as_high_as_a_page_shows_at_once() -> None:
    made = by_hand()
    for chart in (time_cost(made), cost_energy(made), trace_chart([0.1, 0.2])):
        assert 300 <= chart.figure["layout"]["height"] <= 600  # [px]


def test_an_assumption_has_its_three_values() -> None:
    def given(text: str) -> Range:
        return next(item.value for item in assumptions(False, {"electricity": text}) if item.name == "electricity")

    for text, ends in (("0.06:0.09:0.15 USD/kWh", (0.06, 0.09, 0.15)), ("0.09", (0.09, 0.09, 0.09))):
        found = given(text)
        assert [3.6e6 * end for end in (found.low, found.mid, found.high)] == pytest.approx(ends)
    for wrong in ("0.09:0.06:0.15", "0.06:0.09", "0.01:0.02:0.03:0.04"):
        with pytest.raises(InputError, match="LOW:MIDDLE:HIGH"):
            given(wrong)


def test_a_larger_critical_batch_needs_fewer_tokens() -> None:
    """Of four times the batch: D (1 + 4 B / c) / (1 + B / c)."""
    (run,) = campaign().runs
    design = replace(kinds("h100")[0], gpus=4096, batch_factor=4.0)
    critical = float(critical_batch(run.model.active_params, run.tokens))
    base = run.sequences(4096) * run.seq_len
    for spread_of in (0.5, 1.0, 2.0):
        share = base / (spread_of * critical)
        assert tokens_of(design, run, spread_of) == pytest.approx(run.tokens * (1 + 4 * share) / (1 + share))


def test_deliveries_exactly_on_the_budget_and_the_deadline_are_within_them() -> None:
    question = campaign()
    points = [machine("h100", question=question)]
    deliveries = (Delivery(gpus=4096, at=0),)
    course = staged(question, deliveries, points).course
    for budget, deadline, within in ((1.0, 1.0, True), (1 - 1e-9, 1.0, False), (1.0, 1 - 1e-9, False)):
        bounds = Requirements(deadline=deadline * course.time_to_train, budget=budget * course.cost)
        assert staged(replace(question, bounds=bounds), deliveries, points).in_limits is within
    for share, within in ((1.0, True), (1 - 1e-9, False)):
        run = replace(question.runs[0], by=share * course.time_to_train)
        assert staged(replace(question, runs=(run,)), deliveries, points).in_limits is within


def test_machines_come_in_deliveries_where_each_stage_has_a_plan_of_theirs() -> None:
    question = campaign()
    workshop = Workshop(campaign=question, planner=quick_planner)
    counts = {"h100": (1024, 2048), "b200": (1024, 2048), "mi300x": (1024,)}
    points = [workshop.point(replace(kinds(kind)[0], gpus=gpus)) for kind, own in counts.items() for gpus in own]
    deliveries = (Delivery(gpus=1024, at=0), Delivery(gpus=1024, at=9 * DAY))
    found = by_kind(question, deliveries, points)
    gpus = {item.points[0].design.kind: [each.design.gpus for each in item.points] for item in found}
    assert gpus == {"h100": [1024, 2048], "b200": [1024, 2048]}
    assert [item.course.cost for item in found] == sorted(item.course.cost for item in found)
    assert by_kind(question, (), points) == ()


def test_the_front_is_in_the_json_with_its_ranges() -> None:
    made = by_hand()
    first, second = json.loads(purchase_json(made))["front"]
    assert (first["device"], second["device"]) == ("mi300x", "h100")
    assert second["ranges"]["cost_usd"] == pytest.approx([45e6, 60e6])
    assert second["ranges"]["time_to_train_days"] == pytest.approx([90, 120])
    assert [each["tp"] for each in second["plan_detail"]] == [8]


def test_what_is_beaten_is_told_with_how_much_less_the_other_takes() -> None:
    made = by_hand()
    second, first = made.purchase.points
    item = Dominance(point=second, by=replace(first, figures=replace(first.figures, time_to_train=60 * DAY)))
    sections = {part.heading: part for part in purchase_report(replace(made, dominated=(item,))).sections}
    (table,) = [block for block in sections["What is beaten, and by what"].blocks if isinstance(block, Table)]
    assert table.rows[0][2:] == ("-25%", "-17%", "-17%")  # 60 of 80 days, 50 of 60 million, 10 of 12 GWh


def test_a_front_that_is_shown_in_part_says_so() -> None:
    made = by_hand()
    for shown, said in ((made.shown, False), (made.shown[1:], True)):
        (part,) = [
            part
            for part in purchase_report(replace(made, shown=shown)).sections
            if part.heading.startswith("The choices that nothing beats")
        ]
        assert any(not isinstance(block, Table) for block in part.blocks) is said


def test_a_run_that_is_slower_by_the_users_own_takes_so_much_longer() -> None:
    question = campaign()
    point = machine("h100", question=question)
    slow = [replace(plan, slower=1.25) for plan in point.planned]
    values = question.scenario(point.design)
    usual, slower = (figures(question, point.design, planned, values) for planned in (point.planned, slow))
    assert slower.training_time == pytest.approx(1.25 * usual.training_time)


def test_an_assumed_batch_is_one_that_the_gpus_can_share_and_ones_own_is_kept() -> None:
    (run,) = campaign().runs
    assert [run.sequences(gpus) for gpus in (1024, 1000)] == [2048, 2048]
    assumed = replace(run, assumed=True)
    assert [assumed.sequences(gpus) for gpus in (1024, 1000)] == [2048, 2000]
    growing = replace(assumed, grows=True)
    assert growing.sequences(1024) * run.seq_len == pytest.approx(usual_tokens(1024), rel=0.1)


def test_error_bars_reach_to_the_ends_of_a_range_and_are_none_without_one() -> None:
    drawn = _spans([{COST.name: Range(low=1e6, mid=2e6, high=5e6)}, None], COST, "red")
    assert [size * COST.size for size in drawn["array"]] == [3e6, 0.0]
    assert [size * COST.size for size in drawn["arrayminus"]] == [1e6, 0.0]


def test_a_quote_stands_beside_the_cheapest_and_the_dearest_other_rent() -> None:
    def others(*rents: float) -> tuple[float, float] | None:
        offers = [quote("h100", "on_demand", rent / 3600, row=f"{rent:g}") for rent in rents]
        asked = campaign(book=PriceBook(offers=tuple(replace(each, grade="A") for each in offers), term="on_demand"))
        known = _quote(asked, kinds("h100")[0])
        found, row = known.others, quote_row(known)
        ends = zip(("low", "high"), found, strict=True) if found else ()
        assert row["others"] == {end: {"value": offer.value, "row": offer.row} for end, offer in ends}
        return found and (round(3600 * found[0].value, 6), round(3600 * found[1].value, 6))

    assert (others(3.0), others(3.0, 1.0), others(3.0, 1.0, 2.0)) == (None, (1.0, 3.0), (1.0, 3.0))
    assert _quote(campaign(**BUYER), kinds("h100")[0]).others is None
