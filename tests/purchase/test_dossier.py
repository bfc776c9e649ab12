"""What a dossier advises, shows and holds against each other, on points in round numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from optimizer.purchase import dossier as module
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.campaign import Requirements
from optimizer.purchase.designs.pareto import Purchase
from optimizer.purchase.designs.points import Point
from optimizer.purchase.dossier import Dossier, _quote, dossier
from optimizer.purchase.uncertainty.win_probability import Decision
from tests.purchase.by_hand import DAY, MWH, around, by_hand, machine
from tests.purchase.campaigns import campaign, kinds, quick_planner


def point(days: float, millions: float, gigawatt_hours: float) -> Point:
    return machine("h100", time_to_train=days * DAY, cost=millions * 1e6, energy=gigawatt_hours * 1e3 * MWH)


CHEAPEST, SAFE, FASTEST, FRUGAL = point(100, 50, 10), point(80, 55, 12), point(60, 90, 13), point(110, 60, 9)
FRONT = (FASTEST, SAFE, CHEAPEST, FRUGAL)


class Judge:
    """Stands in for all that is worked out from a front, and remembers which points were judged."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, choice: tuple[Point | None, Point | None]) -> None:
        self.judged: Sequence[Point] = ()
        none = ("tornado", "standby", "by_repair", "resale", "parities", "rent_or_buy_known", "alternatives")
        for name in none:
            monkeypatch.setattr(module, name, lambda *_: ())
        monkeypatch.setattr(module, "intervals", lambda found, _: around(found))
        monkeypatch.setattr(module, "judged", self.judge)
        monkeypatch.setattr(module, "least_regret", lambda *_: choice)
        monkeypatch.setattr(module, "shortlist", lambda front, wanted, _: tuple(wanted))

    def judge(self, _: Any, points: Sequence[Point], **__: Any) -> Decision:
        self.judged = points
        return Decision()


def found(points: Sequence[Point], front: Sequence[Point], **limits: float) -> Purchase:
    question = campaign(bounds=Requirements(deadline=limits.get("deadline", 1e9), budget=limits.get("budget", 1e9)))
    return replace(by_hand().purchase, campaign=question, points=tuple(points), front=tuple(front))


def made(purchase: Purchase) -> Dossier:
    return dossier(purchase, kinds("h100"), planner=quick_planner)


@pytest.mark.parametrize(
    ("deadline", "budget", "best"),
    [
        (1.2 * 80, 1.2 * 55, SAFE),
        (1.2 * 80 - 1e-6, 1.2 * 55, CHEAPEST),
        (1.2 * 80, 1.2 * 55 - 1e-6, CHEAPEST),
        (1.2 * 60, 1.2 * 90, FASTEST),
        (1.2 * 100, 1.2 * 50, CHEAPEST),
    ],
)
def test_the_best_of_a_machine_is_the_cheapest_within_the_limits_over_all_its_ranges(
    monkeypatch: pytest.MonkeyPatch, deadline: float, budget: float, best: Point
) -> None:
    judge = Judge(monkeypatch, (None, None))
    purchase = found(FRONT, FRONT, deadline=deadline * DAY * (1 + 1e-12), budget=budget * 1e6 * (1 + 1e-12))
    assert made(purchase).advised is best
    assert judge.judged == (best,)


def test_limits_hold_at_the_very_end_of_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    Judge(monkeypatch, (None, None))
    ends = around(SAFE)
    purchase = found(FRONT, FRONT, deadline=ends["time_to_train"].high, budget=ends["cost"].high)
    assert made(purchase).advised is SAFE


def test_the_least_regret_is_advised_and_every_extreme_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    Judge(monkeypatch, (FRUGAL, SAFE))
    answer = made(found(FRONT, FRONT, deadline=1.2 * 80 * DAY * (1 + 1e-12)))
    assert (answer.advised, answer.tie) == (FRUGAL, SAFE)
    assert (answer.cheapest, answer.fastest, answer.frugal) == (CHEAPEST, FASTEST, FRUGAL)
    assert answer.shown == (FRUGAL, CHEAPEST, FASTEST, FRUGAL)
    assert answer.fewest == ()
    assert [quote.kind for quote in answer.quotes] == ["h100"]


def test_without_a_front_nothing_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    Judge(monkeypatch, (None, None))
    answer = made(found((), ()))
    assert (answer.advised, answer.tie, answer.shown, answer.ranges) == (None, None, (), ())


def test_what_is_beaten_is_held_against_what_beats_it_by_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worst of three ratios: of 125 days the cheapest takes 0.8 of all, of 78 million the safe one 0.71."""
    Judge(monkeypatch, (CHEAPEST, None))
    slow, dear, equal = point(125, 62.5, 12.5), point(125, 78, 17), replace(CHEAPEST)
    answer = made(found((slow, *FRONT, dear, equal), FRONT))
    assert [(item.point, item.by) for item in answer.dominated] == [(slow, CHEAPEST), (dear, SAFE), (equal, CHEAPEST)]


def test_a_quote_has_the_price_of_a_gpu_or_its_rent() -> None:
    (kind,) = kinds("h100")
    assert _quote(campaign(buy=True, assumptions=assumptions(True)), kind).price == pytest.approx(270_000 / 8)
    rent = _quote(campaign(), kind)
    assert rent.price == rent.offer.value
