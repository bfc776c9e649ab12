"""What is asked about first, how old prices spread, and spare nodes that come in steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.base.errors import InputError
from optimizer.catalog.offers import PriceBook
from optimizer.purchase.campaign import Campaign
from optimizer.purchase.designs.points import Point
from optimizer.purchase.price import run_cost
from optimizer.purchase.price.goodput import cheapest_count, waiting
from optimizer.purchase.ranges import Range
from optimizer.purchase.uncertainty import win_probability
from optimizer.purchase.uncertainty.inputs import aged
from optimizer.purchase.uncertainty.sensitivity import repriced
from optimizer.purchase.uncertainty.win_probability import (
    CHEAP,
    RARE,
    Decision,
    OpenQuestion,
    break_evens,
    judged,
)
from tests.purchase.by_hand import machine
from tests.purchase.campaigns import campaign, rented_at


def test_a_question_at_the_border_is_asked_where_it_changes_and_not_where_it_saves_as_much_as_is_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 50 cases the second machine wins one, which is RARE; the first always costs 100."""
    points = [machine("h100"), machine("b200")]
    dear = np.full(50, 200.0)
    dear[7] = 50.0
    least = 100.0

    def outcomes(_: Campaign, point: Point, values: Any, draws: int) -> tuple[Any, Any]:
        return (np.full(draws, least) if point is points[0] else dear), np.ones(draws, dtype=bool)

    def question(key: tuple[str, str], title: str, *_: Any) -> OpenQuestion:
        worth = CHEAP * least * (1.0 if key[0] == "mfu" else 2.0)
        return OpenQuestion(name=key[0], about=key[1], title=title, worth=worth, changes=RARE)

    monkeypatch.setattr(win_probability, "_outcomes", outcomes)
    monkeypatch.setattr(win_probability, "_question", question)
    found = judged(campaign(), points, draws=50)
    assert [item.chance for item in found.probabilities] == [1 - RARE, RARE]
    asked = {(item.name, item.about) for item in found.questions}
    assert ("failure_rate", points[1].design.title) in asked
    assert not any(name == "mfu" for name, _ in asked)
    assert Decision().draws == 0


def test_cases_are_drawn_from_seed_0() -> None:
    points = [machine("h100"), machine("b200")]
    usual, first, second = (judged(campaign(), points, draws=200, **seed) for seed in ({}, {"seed": 0}, {"seed": 1}))
    assert usual == first != second


def test_a_question_about_one_machine_has_the_range_of_its_own_price() -> None:
    """The rent of the first is quoted, that of the second is not; both cost the same."""
    other = machine("b200").figures
    mine = machine("h100").figures
    question = campaign(book=rented_at(h100=1.001 * other.cost / mine.paid_gpus / mine.time_to_train))
    points = (machine("h100", question=question), machine("b200", question=question))
    asked = OpenQuestion(name="rent", title="", about=points[1].design.title, worth=0.0, changes=0.0)
    (turn,) = break_evens(question, points, asked)
    assert (turn.now, turn.then, turn.side) == (points[1], points[0], "above")
    assert break_evens(question, points, replace(asked, about=points[0].design.title)) == ()


def test_a_price_without_a_date_is_as_old_as_a_year() -> None:
    span = Range(low=0.7, mid=1.0, high=1.3)
    assert aged(span, None) == aged(span, 365.25) != aged(span, 366)


@pytest.mark.parametrize("lacking", [{"plan": None}, {"estimate": None}])
def test_what_has_no_plan_has_no_price_on_another_design(lacking: dict[str, Any]) -> None:
    point = machine("h100")
    bare = replace(point, answers=(replace(point.answers[0], **lacking),))
    with pytest.raises(InputError, match="without a plan"):
        repriced(campaign(), point.design, bare)


def test_half_of_the_failures_take_no_node_out() -> None:
    values = {"failure_rate": 2e-3, "replaced_share": 0.5, "repair": 1.0}
    assert waiting(0, 1000, values) == pytest.approx(0.5)  # one busy on average


def test_spares_are_added_as_long_as_a_few_more_gain() -> None:
    assert cheapest_count(lambda spares: -(min(spares, 24) // 8)) == 24


@pytest.mark.parametrize(("gpus", "alone"), [(4, True), (8, True), (16, False)])
def test_a_node_alone_needs_no_network(gpus: int, alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Book(PriceBook):
        def rent(self, device: str, cluster: str = "", *, alone: bool = False) -> None:
            asked.append(alone)

    asked: list[bool] = []
    monkeypatch.setattr(run_cost, "book_of", Book)
    run_cost.whole_run(replace(machine("h100").answers[0].job, gpus=gpus), 1e9)
    assert asked == [alone]
