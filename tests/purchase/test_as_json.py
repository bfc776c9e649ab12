"""The JSON of a purchase, by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from optimizer.purchase.alternatives import AlternativeDesign
from optimizer.purchase.as_json import machine_rows, purchase_json, range_row
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.designs.points import Rejected
from optimizer.purchase.uncertainty.win_probability import Decision, WinProbability
from tests.purchase.by_hand import DAY, MWH, around, by_hand
from tests.purchase.campaigns import campaign


def test_what_was_evaluated_is_what_has_a_plan_and_what_has_none() -> None:
    made = by_hand()
    rejected = tuple(Rejected(design=made.purchase.points[0].design, reason=reason) for reason in "abc")
    text = purchase_json(replace(made, purchase=replace(made.purchase, rejected=rejected)), "optimize", ["said"])
    assert text.startswith('{\n  "schema_version": 1,\n  "status": "feasible",\n')
    found = json.loads(text)
    assert (found["evaluated"], len(found["points"])) == (5, 2)
    assert found["rejected"] == [{"design": "4,096 MI300X", "reason": reason} for reason in "abc"]
    assert (found["command"], found["notes"]) == ("optimize", ["said"])
    reference = found["hypervolume_reference"]
    assert list(reference.values()) == pytest.approx([110.0, 66e6, 13_200.0])


def test_a_machine_is_told_with_its_own_chance_and_its_failures() -> None:
    made = by_hand(campaign(assumptions=assumptions(False, {"failure_rate": "0.01:0.02:0.04"})))
    chances = tuple(
        WinProbability(point=point, chance=chance, in_limits=1.0, regret=1e6)
        for point, chance in zip(made.purchase.points, (0.25, 0.75), strict=True)
    )
    machines = tuple(
        AlternativeDesign(point=point, winner=False, target=1.0, price=None, price_now=1.0, mfu=None, bandwidth=None)
        for point in made.purchase.points
    )
    rows = machine_rows(replace(made, alternatives=machines, decision=Decision(probabilities=chances)))
    assert [(row["device"], row["chance"]) for row in rows] == [("mi300x", 0.25), ("h100", 0.75)]
    for row in rows:
        ends = {end: row["failures"][end] for end in ("low", "mid", "high")}
        assert ends == pytest.approx({"low": 0.01, "mid": 0.02, "high": 0.04})
        assert row["failures"]["grade"] == "user"
        assert row["price_to_win"] is None


def test_ranges_are_in_days_dollars_megawatt_hours_and_tonnes_where_there_are_any() -> None:
    (point, _) = by_hand().purchase.points
    spans = around(replace(point, figures=replace(point.figures, time_to_train=DAY, cost=1.0, energy=MWH, co2=1e3)))
    every = {"time_to_train_days": [0.9, 1.2], "cost_usd": [0.9, 1.2], "energy_mwh": [0.9, 1.2], "co2_t": [0.9, 1.2]}
    found = range_row(spans)
    assert list(found) == list(every)
    assert list(found.values()) == [pytest.approx(ends) for ends in every.values()]
    without = range_row({name: span for name, span in spans.items() if name != "co2"})
    assert list(without) == [name for name in every if name != "co2_t"]
