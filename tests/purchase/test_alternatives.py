"""What it takes to win: from which price, rate and network on."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.base.errors import InputError
from optimizer.purchase import alternatives as module
from optimizer.purchase.alternatives import _bandwidth, break_even_factor
from optimizer.purchase.campaign import Requirements
from tests.purchase.by_hand import machine
from tests.purchase.campaigns import campaign, rented_at

RENTED = rented_at(h100=2.0 / 3600)


@pytest.mark.parametrize(
    ("target", "missed", "factor"),
    [
        (99.0, 0, 2),
        (98.0, 0, 2),
        (97.0, 0, 4),
        (94.0, 0, 4),
        (93.0, 0, 8),
        (87.0, 0, None),
        (99.0, 2, 4),
        (99.0, 8, None),
    ],
)
def test_the_slowest_network_within_the_target_and_the_limits_wins(
    monkeypatch: pytest.MonkeyPatch, target: float, missed: int, factor: int | None
) -> None:
    """Cost 98, 94 and 88 with networks 2, 4 and 8 times as fast; up to `missed` times a limit is broken."""
    question = campaign()
    point = machine("h100", question=question)
    usual = point.design.network_bandwidth

    def times(design: Any) -> int:
        return int(design.nic / usual)

    costs = {2: 98.0, 4: 94.0, 8: 88.0}
    monkeypatch.setattr(module, "repriced", lambda *_: ())
    monkeypatch.setattr(module, "figures", lambda _, design, *__: SimpleNamespace(cost=costs[times(design)]))
    monkeypatch.setattr(module, "excesses", lambda _, design, *__: (1,) * (times(design) <= missed))
    assert _bandwidth(question, point, target) == (factor and factor * usual)


def test_no_network_is_told_where_there_is_none_or_it_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    question = campaign()
    point = machine("h100", question=question)
    design = replace(point.design, cluster=replace(point.design.cluster, tiers=point.design.cluster.tiers[:1]))
    assert _bandwidth(question, replace(point, design=design), 1e30) is None

    def refused(*_: Any) -> None:
        raise InputError("no such network")

    monkeypatch.setattr(module, "repriced", refused)
    assert _bandwidth(question, point, 1e30) is None


@pytest.mark.parametrize("share", [0.5, 0.999, 1.0, 1.001, 2.0])
def test_a_price_breaks_even_where_the_budget_or_the_target_ends_whichever_is_less(share: float) -> None:
    question = campaign(book=RENTED)
    point = machine("h100", question=question)
    cost = point.figures.cost
    bounded = replace(question, bounds=Requirements(budget=1.5 * cost))
    found = break_even_factor(bounded, point, "rent", 1.5 * share * cost)
    assert found == pytest.approx(1.5 * min(share, 1.0), rel=1e-9)


def test_no_price_breaks_even_where_another_limit_is_missed() -> None:
    question = campaign(book=RENTED)
    point = machine("h100", question=question)
    late = replace(question, bounds=Requirements(deadline=0.5 * point.figures.time_to_train))
    assert break_even_factor(late, point, "rent", point.figures.cost) is None
    rate = break_even_factor(late, point, "mfu", point.figures.cost)
    assert rate is not None
    assert rate > 2.0  # twice as fast, with a restart now and then
