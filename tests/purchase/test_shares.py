"""What a design comes to per token, and what of it is nothing, in round numbers."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import Any

import pytest

from optimizer.catalog.economics import default_price
from optimizer.job.known import TIME, RunError
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.designs import figures as designs_figures
from optimizer.purchase.designs.figures import PlannedRun, ownership, usual_tokens_per_joule
from optimizer.purchase.price.catalogue import host_memory, network_price, price_row, purchase_price
from tests.purchase.by_hand import machine
from tests.purchase.campaigns import campaign, kinds, rented_at

A_RUN = RunError(
    quantity=TIME,
    root="",
    software="",
    generation="",
    device="",
    kind="",
    model="",
    format="",
    site="",
    size=(),
    plan=(),
    hardness=0.0,
    error=0.0,
)
BUYER: dict[str, Any] = {"buy": True, "assumptions": assumptions(True)}


def test_tokens_for_a_dollar_a_joule_and_dollars_for_a_token() -> None:
    found = machine("h100", tokens=12e12, cost=3e6, energy=6e12).figures
    assert (found.tokens_per_dollar, found.cost_per_token, found.tokens_per_joule) == (4e6, 0.25e-6, 2.0)


def test_what_is_rented_has_no_price_and_what_is_bought_binds_to_no_rent() -> None:
    rented, bought = (machine("h100", question=asked).figures for asked in (campaign(), campaign(**BUYER)))
    assert (rented.capex, rented.running) == (0.0, 0.0)
    assert (bought.committed, min(bought.capex, bought.running) > 0) == (0.0, True)


@pytest.mark.parametrize(("known", "slower"), [(False, 1.0), (True, 1.25)])
def test_a_step_is_as_slow_as_the_users_runs_say_on_average(
    known: bool, slower: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of log(measured / predicted) the mean counts, and not its spread."""
    (answer,) = machine("h100").answers
    assert answer.plan is not None
    assert answer.estimate is not None
    stack = replace(answer.job.stack, known=(A_RUN,) if known else ())
    monkeypatch.setattr(designs_figures, "error_of", lambda *_: (log(1.25), 9.0))
    monkeypatch.setattr(designs_figures, "busy_seconds", lambda *_: None)
    found = PlannedRun.of(replace(answer.job, stack=stack), answer.plan, answer.knobs, answer.estimate)
    assert found.slower == pytest.approx(slower)


@pytest.mark.parametrize("lacking", [-1e9, 0.0, 1e9])
def test_bought_machines_get_the_memory_that_their_hosts_lack(lacking: float) -> None:
    asked = campaign(**BUYER)
    design = machine("h100", question=asked).design
    there = host_memory(design)
    assert there is not None
    values = asked.scenario(design)
    without = 64 * purchase_price(asked, design)[0] + network_price(design, 64, values["network"])
    added = 64 * max(lacking, 0.0) / 1e9 * default_price("memory_price").value
    found = ownership(asked, design, values, 64, there + lacking)[1]
    assert found == pytest.approx(without + added, rel=1e-14)


def test_a_site_that_nobody_names_cools_as_the_usual_one() -> None:
    design = replace(kinds("h100")[0], gpus=16)
    (plan,) = machine("h100").planned
    offer = replace(price_row(campaign(book=rented_at(h100=1.0)), design), pue=None)
    usual = next(item.value.mid for item in assumptions(False) if item.name == "pue")
    nobody, named = (
        usual_tokens_per_joule(design, replace(offer, pue=pue), plan.estimate.time, plan.busy, 1000.0, 0.5)
        for pue in (None, 2 * usual)
    )
    assert nobody == pytest.approx(2 * named)
