"""Time, money and energy of a design, rented and bought, and the uncertain inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.base.errors import InputError
from optimizer.catalog.offers import PriceBook
from optimizer.objectives.network.fabric import fabric
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.campaign import Campaign
from optimizer.purchase.designs.front import non_dominated
from optimizer.purchase.designs.inverse import rent_or_buy
from optimizer.purchase.designs.points import Point, Workshop, host_bytes
from optimizer.purchase.price.catalogue import (
    bought,
    power_curve,
    provisioned_power,
    purchase_price,
    racks,
    rent_offer,
    rented,
)
from optimizer.purchase.ranges import Range, combined
from optimizer.purchase.uncertainty.inputs import own_assumptions
from optimizer.purchase.uncertainty.sensitivity import intervals, tornado
from tests.purchase.campaigns import campaign, kinds, quick_planner, rented_at

DAY = 86400.0


def point(question: Campaign, kind: str = "h100", gpus: int = 4096) -> Point:
    found = Workshop(campaign=question, planner=quick_planner).point(replace(kinds(kind)[0], gpus=gpus))
    assert isinstance(found, Point)
    return found


def test_rented_cost_is_gpu_hours_times_price() -> None:
    found = point(campaign(book=rented_at(h100=2.0 / 3600))).figures
    assert found.cost == pytest.approx(found.gpu_seconds / 3600 * 2.0)
    assert found.gpu_seconds == pytest.approx(4096 * found.time_to_train)
    assert found.time_to_train == pytest.approx(found.training_time / found.goodput)
    assert found.tokens == pytest.approx(15.6e12)
    assert found.cost_per_token * found.tokens == pytest.approx(found.cost)
    assert found.tokens_per_joule * found.energy == pytest.approx(found.tokens)


def test_carbon_dioxide_is_the_energy_times_what_a_kilowatt_hour_emits() -> None:
    question = campaign(assumptions=assumptions(False, {"carbon_intensity": "0.25"}))
    found = point(question).figures
    assert found.co2 == pytest.approx(found.energy / 1000 / 3600 * 0.25)


def test_training_time_is_operations_over_rate() -> None:
    found = point(campaign())
    answer = found.answers[0]
    assert answer.estimate is not None
    rate = answer.estimate.tokens_per_s_per_gpu * 4096
    assert found.figures.training_time == pytest.approx(15.6e12 / rate)
    assert found.figures.mfu == pytest.approx(answer.estimate.mfu)


def test_buying_counts_whole_racks_and_the_network() -> None:
    question = campaign(buy=True, assumptions=assumptions(True))
    rack = point(question, "gb200-nvl72", 1024)
    assert rack.figures.racks == 15
    assert rack.figures.paid_gpus == 15 * 72
    assert rack.figures.capex == pytest.approx(15 * 3.0e6 + 1.4 * fabric(1080, 4, 1.0).price())
    node = point(question, "h100", 1024)
    assert node.figures.racks == 32
    assert node.figures.capex == pytest.approx(128 * 270_000 + 1.4 * 4_349_440)


def test_a_place_in_a_data_centre_is_paid_by_the_rated_power_of_every_gpu_bought() -> None:
    free, paid = (
        point(campaign(buy=True, assumptions=assumptions(True, {"colocation": price})), "h100", 1024)
        for price in ("0", f"{365.25 / 12}")  # a dollar a day for a kilowatt
    )
    added = (paid.figures.running - free.figures.running) * DAY
    assert added == pytest.approx(1024 * provisioned_power(paid.design) / 1e3)


def test_what_owned_machines_cost_to_run_is_told_alike() -> None:
    found = point(campaign(buy=True, assumptions=assumptions(True)))
    known = rent_or_buy(campaign(buy=True, assumptions=assumptions(True)), found)
    assert (known.capex, known.running) == pytest.approx((found.figures.capex, found.figures.running))


def test_of_equal_points_the_first_is_on_the_front_and_none_beside_it() -> None:
    found = point(campaign())
    dearer = replace(found, figures=replace(found.figures, cost=2 * found.figures.cost))
    longer = replace(dearer, figures=replace(dearer.figures, time_to_train=2 * dearer.figures.time_to_train))
    assert non_dominated((longer, found, dearer, replace(found))) == (found,)


def test_prices_come_with_their_source() -> None:
    design = kinds("h100")[0]
    offer = rent_offer(campaign(), design)
    assert offer.term == "on_demand"
    assert "presets/offers.csv line" in offer.trace()
    assert "2026" in offer.trace()
    own = rent_offer(campaign(book=rented_at(h100=1.0)), design)
    assert (own.value, own.row, own.own) == (1.0, "a test", True)
    year = rent_offer(campaign(book=PriceBook(term="reserved_1y", provider="market")), design)
    assert year.value * 3600 == pytest.approx(2.8)
    assert year.commitment == pytest.approx(365.25 * DAY)
    assert purchase_price(campaign(), design)[0] == pytest.approx(270_000 / 8)
    # Baseboards are raised by the server's share: 206,000 / 8 x 1.64.
    assert purchase_price(campaign(), kinds("mi300x")[0])[0] == pytest.approx(206_000 / 8 * 1.64)
    assert provisioned_power(design) == pytest.approx(10_200 / 8)


def test_a_device_without_a_purchase_price_says_how_to_give_one() -> None:
    with pytest.raises(InputError, match="--purchase b300=USD_PER_GPU"):
        purchase_price(campaign(), kinds("b300")[0])


def test_power_curves_say_whether_they_were_measured() -> None:
    values = campaign().scenario()
    assert power_curve(kinds("h200")[0], values).measured
    assert not power_curve(kinds("h100")[0], values).measured


def test_nodes_and_racks_are_rounded_up() -> None:
    design = replace(kinds("gb200-nvl72")[0], gpus=1000)
    assert (rented(campaign(), design).gpus, bought(campaign(), design).gpus) == (1008, 1008)
    assert bought(campaign(), design).words() == "14 racks of 72 GPUs, 1,000 of 1,008 GPUs used"
    assert racks(design) == 14
    offers = tuple(replace(offer, sold=()) for offer in campaign().book.offers)  # whose sizes nobody says
    assert bought(campaign(book=replace(campaign().book, offers=offers)), design).gpus == 1008
    node = replace(kinds("h100")[0], gpus=1001)
    assert (rented(campaign(), node).gpus, bought(campaign(), node).gpus) == (1008, 1008)
    assert rented(campaign(), replace(kinds("tpu-v5e")[0], gpus=1000)).words() == (
        "4 slices of 256 GPUs, 1,000 of 1,024 GPUs used"
    )


def test_a_rate_that_binds_longer_than_the_run_says_what_the_contract_costs() -> None:
    question = campaign(book=PriceBook(term="reserved_1y", provider="market"))
    found = point(question, gpus=16384).figures
    assert found.time_to_train < 365 * DAY
    assert found.committed == pytest.approx(16384 * 365.25 * 24 * 2.8)
    assert point(campaign(), gpus=4096).figures.committed == pytest.approx(point(campaign(), gpus=4096).figures.cost)


def test_a_network_beyond_the_rented_one_is_paid_with_the_machine() -> None:
    workshop = Workshop(campaign=campaign(book=rented_at(h100=2.0 / 3600)), planner=quick_planner)
    usual, wide = (workshop.point(replace(kinds("h100")[0], gpus=4096, nic=nic)).figures for nic in (0.0, 100e9))
    assert usual.network == 0.0 < wide.network
    assert wide.cost > wide.gpu_seconds / 3600 * 2.0
    assert (wide.committed, usual.committed) == (pytest.approx(wide.cost), pytest.approx(usual.cost))


def test_a_plan_is_proven_where_that_of_every_run_is() -> None:
    found = point(campaign())
    answer = found.answers[0]
    assert found.proven
    assert host_bytes(replace(answer, plan=None)) == host_bytes(replace(answer, estimate=None)) == 0.0
    (rent,) = (
        item for item in own_assumptions(campaign(book=rented_at(h100=2.0 / 3600)), found) if item.name == "rent"
    )
    assert rent.source == "a test"  # the row, of an offer without a source
    assert not replace(found, answers=(answer, replace(answer, status="feasible"))).proven


def test_a_provider_s_own_pue_moves_with_the_assumption() -> None:
    aws = campaign(book=PriceBook(provider="aws"))
    oci = campaign(book=PriceBook(provider="oci"))
    assert point(aws).figures.energy == pytest.approx(point(oci).figures.energy)
    lambda_ = campaign(book=PriceBook(provider="lambda"))
    assert point(aws).figures.energy / point(lambda_).figures.energy == pytest.approx(1.15 / 1.25)
    given = campaign(assumptions=assumptions(False, {"pue": "1.3"}), book=PriceBook(provider="aws"))
    assert point(given).figures.energy / point(aws).figures.energy == pytest.approx(1.3 / 1.15)


def test_a_bigger_batch_needs_more_tokens() -> None:
    workshop = Workshop(campaign=campaign(), planner=quick_planner)
    base = replace(kinds("h100")[0], gpus=4096)
    usual, bigger = (workshop.point(replace(base, batch_factor=factor)) for factor in (1.0, 2.0))
    assert isinstance(usual, Point)
    assert isinstance(bigger, Point)
    assert bigger.figures.tokens > usual.figures.tokens == pytest.approx(15.6e12)


def test_a_portfolio_adds_up_its_runs() -> None:
    one = campaign()
    both = point(replace(one, runs=one.runs * 2)).figures
    single = point(one).figures
    assert both.time_to_train == pytest.approx(2 * single.time_to_train)
    assert both.cost == pytest.approx(2 * single.cost)
    assert both.energy == pytest.approx(2 * single.energy)


def test_intervals_hold_the_middle_and_come_from_the_swings() -> None:
    question = campaign()
    found = point(question)
    every = tornado(question, found)
    nic, bandwidth = next(swing for swing in every if swing.name == "nic"), found.design.network_bandwidth
    assert (nic.low, nic.high) == (bandwidth / 2, 2 * bandwidth)
    swings = [swing for swing in every if swing is not nic]
    ranges = intervals(found, swings)
    assert ranges["cost"].low < found.figures.cost < ranges["cost"].high
    rent = next(swing for swing in swings if swing.name == "rent")
    assert rent.results["cost"][0] == pytest.approx(0.7 * found.figures.cost)
    assert rent.results["time_to_train"] == (found.figures.time_to_train,) * 2
    assert [swing.width("cost") for swing in swings] == sorted((s.width("cost") for s in swings), reverse=True)


def test_independent_swings_add_in_squares() -> None:
    assert combined(10.0, [(7.0, 13.0), (14.0, 6.0)]) == Range(low=5.0, mid=10.0, high=15.0)
    assert combined(10.0, []) == Range.exact(10.0)
    assert combined(10.0, [(8.0, 9.0)]) == Range(low=8.0, mid=10.0, high=10.0)  # a swing to one side only
    assert combined(10.0, [(12.0, 11.0)]) == Range(low=10.0, mid=10.0, high=12.0)
    assert combined(0.5, [(0.5, 0.5), (0.25, 0.75)]) == Range(low=0.25, mid=0.5, high=0.75)


def test_assumptions_can_be_given_with_and_without_a_range() -> None:
    values = {item.name: item for item in assumptions(True, {"pue": "1.1", "electricity": "0.05:0.06:0.09 USD/kWh"})}
    assert values["pue"].value == Range.exact(1.1)
    assert values["pue"].grade == "user"
    assert values["electricity"].value.high * 3.6e6 == pytest.approx(0.09)
    bare = {item.name: item.value.mid for item in assumptions(True, {"electricity": "0.06", "failure_rate": "0.01"})}
    assert bare["electricity"] * 3.6e6 == pytest.approx(0.06)
    assert bare["failure_rate"] * DAY == pytest.approx(0.01)
    assert values["failure_rate"].value.mid * DAY == pytest.approx(4e-3)
    assert "rent" not in values


@pytest.mark.parametrize(
    ("given", "message"),
    [({"pu": "1"}, "did you mean pue"), ({"pue": "1:2"}, "LOW:MIDDLE:HIGH"), ({"pue": "3:2:1"}, "rising order")],
)
def test_wrong_assumptions_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        assumptions(False, given)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"pue": "0.99"}, "at least 1$"),
        ({"replaced_share": "1.01"}, "at least 0 and at most 1$"),
        ({"lifetime": "0"}, "above 0$"),
        ({"repair": "-1"}, "at least 0$"),
    ],
)
def test_an_assumption_that_cannot_be_is_refused_with_what_can(given: dict[str, str], wanted: str) -> None:
    with pytest.raises(InputError, match=f"must be a finite number {wanted}"):
        assumptions(True, given)
