"""What the report says of a purchase in round numbers: every sentence by each of its readings, to the number."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from optimizer.catalog.offers import OLD, Offer
from optimizer.purchase.alternatives import AlternativeDesign
from optimizer.purchase.as_json import _staged, machine_rows, point_row, purchase_json
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.campaign import Requirements
from optimizer.purchase.designs.inverse import Fewest, Parity, RentOrBuy, Standby
from optimizer.purchase.designs.points import Excess, Rejected
from optimizer.purchase.dossier import Dossier
from optimizer.purchase.ranges import Range
from optimizer.purchase.report import machine_tables, purchase_report
from optimizer.purchase.since import SAME, changes
from optimizer.purchase.staged import Course, Delivery, Staged, Stretch
from optimizer.purchase.uncertainty.sensitivity import Swing
from optimizer.purchase.uncertainty.win_probability import BreakEven, Decision, OpenQuestion, WinProbability
from optimizer.purchase.units import tonnes
from optimizer.purchase.words import (
    _against,
    _confidence,
    _dates,
    checkpoint_sentence,
    fewest_sentence,
    infeasible,
    old,
    parity_sentence,
    probability_sentences,
    question,
    rent_or_buy_sentence,
    spares_sentence,
    staged_sentences,
    summary,
    to_win,
    vendor_questions,
)
from optimizer.reports.report import Table
from tests.purchase.by_hand import DAY, MWH, around, by_hand, machine
from tests.purchase.campaigns import campaign

YEAR = 365.25 * DAY


def rows_of(dossier: Dossier, heading: str) -> list[tuple[str, ...]]:
    """The rows of a table of the report, by the heading of its section."""
    report = purchase_report(dossier)
    (found,) = [part for part in report.sections if part.heading == heading]
    return [tuple(map(str, row)) for block in found.blocks if isinstance(block, Table) for row in block.rows]


@pytest.mark.parametrize(
    ("name", "limit", "said"),
    [
        ("deadline", 90 * DAY, ", within 90 days"),
        ("budget", 5e6, ", for at most $5.00 M"),
        ("power", 2e6, ", on at most 2.0 MW"),
        ("racks", 12, ", in at most 12 racks"),
    ],
)
def test_a_question_names_the_limits_that_there_are(name: str, limit: float, said: str) -> None:
    run = "Train Llama-3.1 405B on 15.6 trillion tokens"
    assert question(campaign()) == f"{run}, on machines that are rented."
    assert question(campaign(bounds=Requirements(**{name: limit}))) == f"{run}{said}, on machines that are rented."


def test_offers_of_several_terms_are_said_to_be_unlike() -> None:
    first, second = (machine_rows_offer(term) for term in ("on_demand", "reserved_1y"))
    assert "rented (on demand)." in question(campaign(), [first, first])
    assert question(campaign(), [first, first]).endswith("(on demand).")
    both = question(campaign(), [first, second])
    assert "rented (on demand, reserved 1y). " in both
    assert not both.endswith("reserved 1y).")
    bought = question(campaign(buy=True, assumptions=assumptions(True)), [first, second])
    assert bought.endswith("on machines that are bought.")


def machine_rows_offer(term: str, **values: Any) -> Offer:
    return Offer(provider="A", offer="a", device="h100", term=term, value=1.0, low=1.0, high=1.0, row="r", **values)


@pytest.mark.parametrize(
    ("limit", "value", "allowed", "said"),
    [
        ("deadline", 40 * DAY, 30 * DAY, "40 days against 30 days"),
        ("date of Llama", 40 * DAY, 30 * DAY, "40 days against 30 days"),
        ("budget", 2e6, 1e6, "$2.00 M against $1.00 M"),
        ("power", 3e6, 2e6, "3.0 MW against 2.0 MW"),
        ("host memory", 3e11, 2e11, "300 GB against 200 GB"),
        ("racks", 1200, 12, "1,200 against 12"),
    ],
)
def test_a_missed_limit_is_told_in_its_unit(limit: str, value: float, allowed: float, said: str) -> None:
    assert _against(Excess(limit=limit, value=value, allowed=allowed)) == said


def test_a_missed_limit_is_told_with_how_many_miss_it_and_how_many_it_stops_alone() -> None:
    made = by_hand()
    late, dear = Excess(limit="deadline", value=30 * DAY, allowed=20 * DAY), Excess(limit="budget", value=3, allowed=2)
    second, first = made.purchase.points
    points = (replace(second, excesses=(late,)), replace(first, excesses=(replace(late, value=24 * DAY), dear)))
    missed = replace(made.purchase, points=points, front=(), nearest=points[1:])
    found = replace(made, purchase=missed, shown=(), ranges=(), advised=None)
    none, budget, deadline, nearest = infeasible(found)
    assert none == "No design meets every limit."
    assert budget == "Budget: 1 of 2 designs miss it, by at least 50% ($3 against $2)."
    assert deadline == "Deadline: 2 of 2 designs miss it, by at least 20% (24 days against 20 days); it alone stops 1."
    rejected = tuple(Rejected(design=first.design, reason=reason) for reason in "dcba")
    assert infeasible(replace(found, purchase=replace(missed, points=(), rejected=rejected))) == [
        "No design has a plan at all: a; b; c."
    ]
    assert nearest.startswith("Nearest with H100: 4,096 × H100, 100 days, $50.0 M, ")
    assert nearest.endswith("; beyond the deadline 24 days against 20 days, budget $3 against $2.")
    assert summary(found) == [none, budget, deadline, nearest]
    broken = [row[-1] for row in rows_of(found, "Designs examined")]
    assert broken == ["deadline", "deadline, budget"]


def test_a_price_is_old_after_half_a_year() -> None:
    today = date(2026, 7, 1)
    for age, said in ((OLD, ""), (OLD + 1, "181 days old")):
        assert old(machine_rows_offer("on_demand", date=str(today - timedelta(days=age))), today) == said
    assert old(machine_rows_offer("on_demand"), today) == ""


def test_a_limit_holds_over_a_range_that_ends_at_it() -> None:
    point = machine("h100", time_to_train=100 * DAY, cost=50e6)
    limits = campaign(bounds=Requirements(deadline=120 * DAY, budget=59e6))
    assert _confidence(limits, around(point)) == (
        "The deadline of 120 days holds over the whole range. "
        "The budget of $59.0 M is missed at the far end of the range."
    )
    assert _confidence(campaign(), around(point)) == ""


def test_a_checkpoint_takes_all_of_the_storage_where_it_is_busy_with_nothing_else() -> None:
    base = machine("h100")
    checkpoint = replace(base.figures.checkpoint, size=2e12, bandwidth=1e11)
    for share, said in ((1.0, "100% of the time (no slower storage would do)."), (0.99, "99% of the time.")):
        figures = replace(base.figures, checkpoint=checkpoint, checkpoint_interval=80.0, storage_share=share)
        assert checkpoint_sentence(replace(base, figures=figures)) == (
            "A checkpoint of 2 TB every 1.33 min; storage that takes 100 GB a second has it after 20 s, "
            f"and is busy with it for {said}"
        )


def spared(own: int | None, best: int, repairs: tuple[tuple[float, int], ...] = (), grade: str = "C") -> Dossier:
    """The advised design with `own` spare nodes where `best` pay."""
    made = by_hand()
    assert made.advised is not None
    figures = made.advised.figures
    rows = [
        Standby(spares=count, figures=replace(figures, cost=cost, waiting=waiting), pays=count == best)
        for count, cost, waiting in {0: (0, 60e6, 0.125), best: (best, 55e6, 0.01)}.values()
    ]
    items = [
        replace(item, value=Range(low=3600.0, mid=DAY, high=7 * DAY), grade=grade) if item.name == "repair" else item
        for item in made.purchase.campaign.assumptions
    ]
    asked = replace(made.purchase, campaign=replace(made.purchase.campaign, assumptions=tuple(items)))
    advised = replace(made.advised, design=replace(made.advised.design, spares=own))
    return replace(made, purchase=asked, advised=advised, standby=tuple(rows), repairs=repairs)


SAVED = "of 8 GPUs {pay}: without them the run would wait for repairs 12.5% of the time and cost $5.00 M more"


def test_spare_nodes_are_told_with_what_they_save() -> None:
    two, one = (f"{n} spare node{s} {SAVED.format(pay=p)}" for n, s, p in ((2, "s", "pay"), (1, "", "pays")))
    assert spares_sentence(spared(2, 2)) == f"Spares: {two}."
    assert spares_sentence(spared(1, 1)) == f"Spares: {one}."
    assert spares_sentence(spared(5, 2)) == f"Spares: {two}. The figures are those with 5, as asked."
    provider = "Spares: the provider's are taken to stand in. If you keep your own, "
    assert spares_sentence(spared(None, 2)) == f"{provider}{two} (--spares auto)."
    assert spares_sentence(by_hand()) == ""
    assert spares_sentence(spared(0, 0)) == "Spare nodes of your own do not pay for themselves."
    rack = spared(0, 0)
    none = rack.standby[0]
    reports = (purchase_report(by_hand(standby=rows)) for rows in (spared(2, 2).standby, rack.standby))
    heading = "How many spare nodes pay"
    assert [heading in {part.heading for part in report.sections} for report in reports] == [True, False]
    lot = replace(none.figures.lot, size=72, count=57, used=4072)
    none = replace(none, figures=replace(none.figures, lot=lot))
    assert lot.spare == 32
    said = "What is sold whole leaves 4 nodes over, which stand by; more of your own do not pay for themselves."
    assert spares_sentence(replace(rack, standby=(none,))) == said


def test_the_time_of_a_repair_is_told_with_what_it_decides() -> None:
    times = (3600.0, DAY, 7 * DAY)
    turns = tuple(zip(times, (1, 2, 9), strict=True))
    rest = "at 1 h it is 1, at 7 days it is 9."
    found = spares_sentence(spared(2, 2, turns))
    assert found.endswith(f" The time of a repair decides that: 1 day here (assumed: have it guaranteed); {rest}")
    assert spares_sentence(spared(2, 2, turns, grade="user")).endswith(f"1 day here (given); {rest}")
    assert spares_sentence(spared(2, 2, turns[:2])).endswith("; at 1 h it is 1.")
    assert "repair decides" not in spares_sentence(spared(2, 2, turns[:1]))
    same = spares_sentence(spared(2, 2, tuple((time, 2) for time in times)))
    assert same.endswith(" That holds for any time of a repair from 1 h to 7 days (assumed).")


def test_deliveries_are_told_by_machine_and_what_they_miss() -> None:
    made = by_hand()
    second, first = made.purchase.points
    deliveries = (Delivery(gpus=64, at=0), Delivery(gpus=32, at=9 * DAY), Delivery(gpus=32, at=20 * DAY))

    def stage(point: Any, last: int, in_limits: bool) -> Staged:
        stretches = (Stretch(run=0, gpus=last, start=0.0, end=30 * DAY),)
        course = Course(stretches=stretches, time_to_train=30 * DAY, cost=2e6, energy=3 * MWH)
        few = replace(point, figures=replace(point.figures, time_to_train=40 * DAY, cost=3e6))
        spans = {"time_to_train": (27, 30, 36), "cost": (1.8e6, 2e6, 2.4e6), "energy": (2 * MWH, 3 * MWH, 4 * MWH)}
        ranges = {
            name: Range(low=a, mid=b, high=c)
            for name, (a, b, c) in (spans | {"time_to_train": (27 * DAY, 30 * DAY, 36 * DAY)}).items()
        }
        return Staged(deliveries=deliveries, points=(few, point), course=course, ranges=ranges, in_limits=in_limits)

    come = "64 GPUs now, 32 more after 9.0 days, 32 more after 20 days"
    ends = "Training ends after 30 days (27 days to 36 days) and costs $2.00 M ($1.80 M to $2.40 M)"
    alone = "the first delivery alone after 40 days for $3.00 M."
    staged = (stage(first, 128, True), stage(second, 96, False))
    assert staged_sentences(replace(made, staged=staged)) == [
        f"In deliveries take H100: {come}. {ends}. All at once would end after 100 days for $50.0 M, {alone}",
        f"MI300X: {come}. {ends}; the last comes too late; it misses a limit. "
        f"All at once would end after 80 days for $60.0 M, {alone}",
        "Below, the GPUs of each stage as if all were there from the first day.",
    ]
    assert {_staged(replace(item, points=item.points[1:]))["device"] for item in staged} == {"h100", "mi300x"}
    (single,) = (replace(item, deliveries=deliveries[:1], points=item.points[1:]) for item in staged[1:])
    assert "Nearest in cost is MI300X: 64 GPUs now." in staged_sentences(replace(made, staged=(single,)))[0]
    tiles = purchase_report(replace(made, staged=(single,))).sections[0].blocks[0].tiles
    assert [tile.value for tile in tiles[:1]] == ["MI300X"]
    assert tiles[1].about == "misses a limit"
    missed = staged_sentences(replace(made, staged=staged[1:]))
    assert missed[0].startswith("No machine meets every limit in these deliveries. Nearest in cost is MI300X: ")
    assert staged_sentences(made) == []
    (run,) = made.purchase.campaign.runs
    two = replace(made.purchase.campaign, runs=(run, run))
    both = replace(
        staged[0].course, stretches=(staged[0].course.stretches[0], Stretch(run=1, gpus=128, start=0, end=50 * DAY))
    )
    jobs = replace(made, purchase=replace(made.purchase, campaign=two), staged=(replace(staged[0], course=both),))
    assert "(Llama-3.1 405B by day 30, Llama-3.1 405B by day 50)" in staged_sentences(jobs)[0]
    tiles = purchase_report(replace(made, staged=staged)).sections[0].blocks[0].tiles
    assert [tile.value for tile in tiles[:3]] == ["H100", "30 days", "$2.00 M"]
    assert tiles[0].about == come.replace(" more", " GPUs more")
    assert tiles[1].about == "within the limits"


@pytest.mark.parametrize(
    ("winner", "price", "mfu", "bandwidth", "said"),
    [
        (True, 3.0, 0.3, None, ("up to $3.00/h (+50%)", "down to 30%", "")),
        (False, 1.5, 0.6, 1e11, ("below $1.50/h (-25%)", "from 60%", "800 Gb/s")),
        (True, None, None, None, ("any price", "any", "")),
        (False, None, None, None, ("no price", "none", "none")),
    ],
)
def test_what_it_takes_to_win(
    winner: bool, price: float | None, mfu: float | None, bandwidth: float | None, said: tuple[str, str, str]
) -> None:
    made = by_hand()
    point = replace(made.purchase.points[1], figures=replace(made.purchase.points[1].figures, mfu=0.4))
    found = AlternativeDesign(
        point=point,
        winner=winner,
        target=1.0,
        price=None if price is None else price / 3600,
        price_now=2.0 / 3600,
        mfu=mfu,
        bandwidth=bandwidth,
    )
    chances = (WinProbability(point=point, chance=0.25, in_limits=1.0, regret=0.0),)
    words = to_win(replace(made, decision=Decision(probabilities=chances)), found)
    assert (words["price"], words["mfu"], words["network"]) == (said[0], f"{said[1]} (planned 40%)", said[2])
    assert (words["price_now"], words["chance"]) == ("$2.00/h", "25%")
    assert to_win(made, found)["chance"] == ""
    (row,) = machine_rows(replace(made, alternatives=(found,)))
    assert (row["price_now"], row["price_to_win"]) == (pytest.approx(2.0), price and pytest.approx(price))
    asked = replace(made.purchase.campaign, buy=True, assumptions=assumptions(True))
    bought = replace(made, purchase=replace(made.purchase, campaign=asked))
    owned = replace(found, price_now=40_000.0, price=price and 10_000.0 * price)
    assert to_win(bought, owned)["price_now"] == "$40.0 k"
    (row,) = machine_rows(replace(bought, alternatives=(owned,)))
    assert (row["price_now"], row["price_to_win"]) == (40_000.0, price and pytest.approx(10_000 * price))


def beaten(point: Any, winner: bool) -> AlternativeDesign:
    return AlternativeDesign(
        point=point, winner=winner, target=1.0, price=None, price_now=1.0, mfu=None, bandwidth=None
    )


def test_machines_are_compared_where_there_are_two() -> None:
    made = by_hand()
    second, first = (replace(point, excesses=()) for point in made.purchase.points)
    second = replace(second, excesses=(Excess(limit="power", value=2, allowed=1),))
    assert machine_tables(replace(made, alternatives=(beaten(first, True),))) == []
    tables = machine_tables(replace(made, alternatives=(beaten(first, True), beaten(second, False))))
    assert [name for name, _ in tables] == ["across vendors", "NVIDIA", "AMD"]
    assert [row[0] for row in tables[0][1].rows] == ["H100", "MI300X (misses the power)"]
    assert tables[0][1].strong == [0]
    alike = machine_tables(replace(made, alternatives=(beaten(first, True), beaten(first, False))))
    assert [name for name, _ in alike] == ["by tokens per dollar", "NVIDIA"]


@pytest.mark.parametrize(
    ("name", "value", "end", "said"),
    [
        ("mfu", 0.5, 0.4, "below an MFU of 20.0% take MI300X"),
        ("mfu", 1.5, 1.6, "above an MFU of 60.0% take MI300X"),
        ("rent", 2.0, 3.0, "above ${twice:.2f}/h take MI300X"),
        ("failure_rate", 0.5 / DAY, 1 / DAY, "above 0.5 a day take MI300X"),
        ("repair", 3600.0, 60.0, "below 1 h take MI300X"),
    ],
)
def test_a_question_is_told_with_where_its_answer_turns_the_choice(
    name: str, value: float, end: float, said: str
) -> None:
    made = by_hand()
    second, first = made.purchase.points
    first = replace(first, figures=replace(first.figures, mfu=0.4))
    asked = OpenQuestion(name=name, title="the time of a repair", about="H100", worth=2e6, changes=0.25)
    turn = BreakEven(question=asked, value=value, end=end, now=first, then=second)
    decision = Decision(
        probabilities=(WinProbability(point=first, chance=0.75, in_limits=1.0, regret=0.0),),
        questions=(asked,),
        draws=1500,
    )
    decided = replace(made, decision=decision, break_evens=(turn,))
    *_, last = probability_sentences(decided)
    (told,) = json.loads(purchase_json(decided))["find_out_first"]
    assert (told["name"], len(told["turns"])) == (name, 1)
    from optimizer.purchase.price.catalogue import price_row

    hourly = 2 * 3600 * price_row(made.purchase.campaign, first.design).value
    what = {
        "mfu": "the rate of H100, by a trial on a few nodes",
        "rent": "a firm quote for H100",
        "failure_rate": "the failure rate of H100, guaranteed",
        "repair": "the time of a repair",
    }[name]
    worth = "changes the choice in 25% of the cases, worth $2.00 M on average"
    assert last == f"Find out first: {what} ({worth}: {said.format(twice=hourly)})."
    several = replace(decision, questions=(asked, replace(asked, name="x"), replace(asked, name="y"), asked))
    *_, last = probability_sentences(replace(made, decision=several))
    assert last.count(worth) == 3
    assert f"{what} ({worth}). Then: " in last


def test_machines_outside_of_what_was_measured_are_named() -> None:
    made = by_hand()
    chances = tuple(
        WinProbability(point=point, chance=chance, in_limits=1.0, regret=0.0)
        for point, chance in zip(made.purchase.points, (0.002, 0.998), strict=True)
    )
    lines = probability_sentences(replace(made, decision=Decision(probabilities=chances, draws=1500)))
    assert lines[0].endswith("over 1,500 draws of rates, prices and failures together: MI300X <1%, H100 >99%.")
    (fitted,) = [line for line in lines if line.startswith("Fitted on other hardware")]
    devices = made.purchase.points[0].answers[0].job.stack.devices
    assert f"MI300X (megatron-core was fitted on {', '.join(devices)})." in fitted
    assert "H100 (" not in fitted
    (beyond,) = [line for line in lines if line.startswith("Larger or other")]
    assert beyond.endswith(": H100.")
    assert any(line.startswith("No failure rate is published for MI300X:") for line in lines)
    assert lines[-1] == "No single measurement or quote is likely to change the choice."
    assert probability_sentences(made) == []


def test_the_advice_is_a_tie_where_one_question_decides() -> None:
    made = by_hand()
    second, first = made.purchase.points
    chances = (
        WinProbability(point=first, chance=0.5, in_limits=1.0, regret=1e6),
        WinProbability(point=second, chance=0.5, in_limits=1.0, regret=3e6),
    )
    asked = OpenQuestion(name="rent", title="rent", about="MI300X", worth=5e6, changes=0.5)
    tie, either, *_ = summary(replace(made, tie=second, decision=Decision(probabilities=chances, questions=(asked,))))
    assert tie == (
        "A tie: 4,096 × H100 or 4,096 × MI300X. The first is expected to cost $2.00 M less than the second: "
        "a firm quote for MI300X is worth $5.00 M, and decides."
    )
    assert either.startswith("With 4,096 × H100 training ends after 100 days")


def test_a_contract_that_outlasts_the_run_is_told() -> None:
    made = by_hand(campaign())
    assert made.advised is not None
    for days in (0, 50, 80):  # no contract, or none that outlasts a run
        assert "of a contract" not in " ".join(summary(bound_for(made, days * DAY)))
        assert "of their contracts" not in " ".join(summary(bound_for(made, days * DAY)))
    for days, binds in ((100, False), (200, True)):
        bound = bound_for(made, days * DAY)
        text = " ".join(summary(bound))
        assert ("the run uses 50% of a contract" in text) is ("of a contract" in text) is binds
        others = "1 of the other choices, which use 40% to 40% of their contracts"
        assert (others in text) is binds
        if not binds:
            assert "1 of the other choices, which use 80% to 80%" in text


def swing(name: str, *, uncertain: bool = True) -> Swing:
    ends = {"cost": (60e6, 40e6)}
    return Swing(name=name, title=name, low=1.0, high=2.0, unit="1", results=ends, uncertain=uncertain)


def test_a_summary_is_told_to_the_number() -> None:
    bought = campaign(buy=True, assumptions=assumptions(True))
    figures = {"capex": 90e6, "running": 5e6 / (100 * DAY), "goodput": 0.9, "mfu": 0.45, "peak_power": 4.5e6}
    swings = tuple(swing(name, uncertain=name != "b") for name in "abcde")
    made = by_hand(bought, figures, swings=swings)
    lines, co2 = summary(made), tonnes(made.purchase.points[0].figures.co2)
    spread = "1 to 2): $40.0 M to $60.0 M"
    assert [line for line in lines if not line.startswith(("To order", "A checkpoint"))] == [
        "Take 4,096 × H100. Training ends after 100 days (90 days to 120 days) and costs $50.0 M ($45.0 M to $60.0 M); "
        "it uses 10,000 MWh (9,000 MWh to 12,000 MWh) and draws up to 4.5 MW at the site.",
        "The machines with their network cost $90.0 M; the cost above is this run's share of their life, "
        "with $5.00 M to run them. A budget is held against that share.",
        f"Fastest: 4,096 × MI300X, 80 days, $60.0 M, 12,000 MWh, {co2} of CO2.",
        "The machines train 90% of the time; failures, restarts and checkpoints take the rest. While they train they "
        "reach 45% of their peak (MFU); besides matrix products, most of a step is communication (21% of the step).",
        f"What moves the cost most: a ({spread}; c ({spread}; d ({spread}.",
        "Designs examined: 2; within every limit: 2; of those beaten by none in time, cost and energy together: 2.",
    ]
    assert len(summary(by_hand(bought, figures | {"capex": 0.0}, swings=swings))) == len(lines) - 1


def bound_for(made: Dossier, commitment: float) -> Dossier:
    """The same where every offer binds for so long [s]."""
    book = made.purchase.campaign.book
    offers = tuple(replace(offer, commitment=commitment) for offer in book.offers)
    asked = replace(made.purchase.campaign, book=replace(book, offers=offers))
    return replace(made, purchase=replace(made.purchase, campaign=asked))


@pytest.mark.parametrize(
    ("time", "said"),
    [
        (float("inf"), "4,096 × H100: owning never costs less than renting."),
        (5 * YEAR, "4,096 × H100: buying for $90.0 M beats renting after 5.0 years of continuous use, "),
        (5.01 * YEAR, "4,096 × H100: rent. At this rent, buying for $90.0 M would not pay within"),
    ],
)
def test_buying_pays_within_the_life_of_the_machines(time: float, said: str) -> None:
    item = RentOrBuy(point=machine("h100"), capex=90e6, running=1.0, rent=2.0, time=time, lifetime=5 * YEAR)
    assert rent_or_buy_sentence(item).startswith(said)


def test_the_fewest_gpus_or_the_fastest_tried_are_told() -> None:
    point = machine("h100", time_to_train=100 * DAY, cost=50e6)
    item = Fewest(kind="h100", title="H100", deadline=120 * DAY, point=point, tried=7)
    assert fewest_sentence(item) == "H100: 4,096 GPUs end in 100 days for $50.0 M (7 counts tried)."
    none = replace(item, point=None, fastest=point)
    missed = "H100: no count tried ends within 120 days"
    assert fewest_sentence(none) == f"{missed}; the fastest tried, 4,096, takes 100 days."
    assert fewest_sentence(replace(none, fastest=None)) == f"{missed}."


def test_what_vendors_are_asked_for_has_its_number() -> None:
    made = by_hand()
    assert made.advised is not None
    point = replace(made.advised, figures=replace(made.advised.figures, mfu=0.4, racks=128, peak_power=5e6))
    usual = {"unit": "1/s", "title": "t"}
    results = {"cost": (48e6, 53e6), "time_to_train": (104 * DAY, 97 * DAY)}
    swings = (
        Swing(name="failure_rate", low=0.001 / DAY, high=0.004 / DAY, results=results, **usual),
        Swing(name="nic", low=25e9, high=100e9, results=results, title="t", unit="B/s"),
    )
    parity = Parity(device=made.purchase.points[0], alternative=point, price=3 / 3600, now=2 / 3600)
    own = replace(parity, device=point)
    found = replace(made, advised=point, swings=swings, parities=(own, parity, parity, parity, parity), shown=(point,))
    acceptance, failures, faster, network, *parities, space = vendor_questions(found)
    assert acceptance == "Acceptance test: at least 38% MFU on 4,096 GPUs with this plan."
    assert failures == (
        "A guaranteed failure rate: 0.004 a day per 8-GPU node instead of 0.001 a day costs $5.00 M more."
    )
    assert faster == "Network: 800 Gb/s per GPU would save 3.0 days, 200 Gb/s would cost 4.0 days."
    assert network.startswith("The network that the rent must include: ")
    assert network.endswith(".")
    assert parities == [parity_sentence(parity)] * 3
    assert "stays cheapest up to $3.00/h per GPU, 50% above today's $2.00/h" in parities[0]
    assert space == "Room for 128 racks and 5.0 MW, cooling included."
    assert vendor_questions(replace(found, advised=None)) == []


def test_what_changed_is_told_beyond_half_a_percent() -> None:
    made = by_hand()
    assert made.advised is not None

    def row(device: str, price: float, cost: float, chance: float | None) -> dict[str, Any]:
        return {"device": device, "gpus": 4096, "price_now": price, "cost_usd": cost, "chance": chance}

    then = {"machines": [row("h100", 2.0, 50e6, 0.5)], "advised": {"device": "h100", "gpus": 4096}}
    for price, cost, chance, said in (
        (2.0, 50e6, 0.5, "Nothing has changed."),
        (2.0 * (1 + 0.9 * SAME), 50e6 * (1 - 0.9 * SAME), 0.5 + 0.9 * SAME, "Nothing has changed."),
        (3.0, 50e6, 0.5, "H100: price $3.00/h (was $2.00/h)."),
        (2.0, 25e6, 0.5, "H100: cost $25.0 M (was $50.0 M)."),
        (2.0, 50e6, 0.25, "H100: chance to be the cheapest 25% (was 50%)."),
        (2.0, 50e6, None, "Nothing has changed."),
        (1.0, 25e6, 0.75, "H100: price $1.00/h (was $2.00/h); cost $25.0 M (was $50.0 M); "
         "chance to be the cheapest 75% (was 50%)."),
    ):  # fmt: skip
        assert changes(made, then, [row("h100", price, cost, chance)]) == [said]
    came = changes(made, then, [row("gb200-nvl72", 2.0, 1.0, None)])
    assert came == ["GB200 NVL72 is new.", "H100 is gone."]
    assert changes(made, then | {"advised": {"device": "h100", "gpus": 64}}, then["machines"]) == [
        "The advice was 64 × H100; now it is 4,096 × H100."
    ]
    gone = changes(replace(made, advised=None), then, then["machines"])
    assert gone == ["The advice was 4,096 × H100; now it is none."]
    nothing = then | {"advised": None}
    assert changes(replace(made, advised=None), nothing, then["machines"]) == ["Nothing has changed."]
    asked = replace(made.purchase.campaign, buy=True)
    bought = replace(made, purchase=replace(made.purchase, campaign=asked))
    assert changes(bought, then, [row("h100", 3.0, 50e6, 0.5)]) == ["H100: price $3 (was $2)."]


def test_a_portfolio_names_the_model_of_each_plan() -> None:
    made = by_hand()
    second, first = made.purchase.points
    alone = next(part for part in purchase_report(made).sections if part.heading == "Plans")
    assert all("Llama" not in str(block) for block in alone.blocks)
    twice = tuple(replace(point, answers=point.answers * 2) for point in (second, first))
    both = replace(made, shown=twice, advised=None, purchase=replace(made.purchase, points=twice, front=twice))
    plans = next(part for part in purchase_report(both).sections if part.heading == "Plans")
    assert sum(str(block).count(", Llama-3.1 405B: ") for block in plans.blocks) == 4


def test_rows_are_in_days_dollars_megawatt_hours_and_tonnes() -> None:
    point = machine("h100", time_to_train=100 * DAY, cost=50e6, energy=10_000 * MWH, co2=4e6, peak_power=5e6)
    row = point_row(point)
    assert (row["time_to_train_days"], row["cost_usd"], row["gpus"]) == (100.0, 50e6, 4096)
    assert (row["energy_mwh"], row["co2_t"]) == (pytest.approx(10_000), pytest.approx(4000))


def test_the_price_at_which_the_choice_turns_is_that_of_a_machine() -> None:
    made = by_hand(campaign(buy=True, assumptions=assumptions(True)))
    second, first = made.purchase.points
    asked = OpenQuestion(name="capex", title="", about="H100", worth=2e6, changes=0.25)
    turn = BreakEven(question=asked, value=2.0, end=3.0, now=first, then=second)
    chances = (WinProbability(point=first, chance=0.75, in_limits=1.0, regret=0.0),)
    decision = Decision(probabilities=chances, questions=(asked,), draws=1500)
    *_, last = probability_sentences(replace(made, decision=decision, break_evens=(turn,)))
    # An H100 is an eighth of a node of 270,000 USD.
    assert last.endswith(": above $67.5 k a GPU take MI300X).")
    assert "a firm quote for H100" in last


def test_runs_are_told_with_the_days_on_which_they_start_and_end() -> None:
    (run,) = campaign().runs
    asked = campaign(runs=(replace(run, by=40 * DAY), replace(run, start=50 * DAY)))
    figures = replace(machine("h100").figures, walls=(30 * DAY, 20 * DAY), ends=(30 * DAY, 70 * DAY))
    point = replace(machine("h100"), figures=figures)
    model = "Llama-3.1 405B"
    assert _dates(asked, point) == (
        f"One after the other: {model} from day 0 to day 30 (by day 40); {model} from day 50 to day 70."
    )
    assert _dates(campaign(), point) == ""


def test_what_has_no_plan_is_listed_last_with_why() -> None:
    made = by_hand()
    rejected = tuple(Rejected(design=made.purchase.points[0].design, reason=reason) for reason in "ab")
    *points, first, second = rows_of(
        replace(made, purchase=replace(made.purchase, rejected=rejected)), "Designs examined"
    )
    assert len(points) == 2
    assert [first, second] == [("4,096 MI300X", *("",) * 6, f"no plan: {reason}") for reason in "ab"]
    assert {len(row) for row in points} == {8}


def test_spare_nodes_of_ones_own_are_told_on_the_screen_too() -> None:
    for own, place, said in ((None, "page", True), (2, "", False)):
        found = spared(own, 2)
        shown = replace(found, shown=found.purchase.front)
        ranged = replace(shown, purchase=replace(shown.purchase, front=(*shown.purchase.front, shown.advised)))
        report = purchase_report(replace(ranged, ranges=(*ranged.ranges, ranged.ranges[0])))
        (part,) = [part for part in report.sections if part.heading == "How many spare nodes pay"]
        assert part.on == place
        assert ("take the provider's spares" in str(part.blocks)) is said


def test_a_stack_that_was_fitted_on_nothing_says_so() -> None:
    made = by_hand()
    assert made.advised is not None
    (answer,) = made.advised.answers
    bare = replace(answer, job=replace(answer.job, stack=replace(answer.job.stack, devices=())))
    point = replace(made.advised, answers=(bare,))
    chances = (WinProbability(point=point, chance=1.0, in_limits=1.0, regret=0.0),)
    text = " ".join(probability_sentences(replace(made, decision=Decision(probabilities=chances))))
    assert "H100 (megatron-core was fitted on none)." in text
