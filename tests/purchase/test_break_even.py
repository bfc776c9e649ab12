"""What a report tells to find out first is put to the test: the answer is set, and the choice changes where it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.cli import cli
from optimizer.purchase.designs.inverse import cheapest_by_kind
from optimizer.purchase.designs.pareto import pareto
from optimizer.purchase.uncertainty.win_probability import OpenQuestion, break_evens, choice, judged
from tests.purchase.campaigns import campaign, grid, quick_planner

ASKED = ["pareto", "--model", "llama3-8b", "--tokens", "15T", "--gpus", "64", "--hardware", "h100,b200"]


def ask(path: Path, *rows: str, words: bool = False) -> Any:
    path.write_text("\n".join(["device,term,value,low,high,unit", *rows, ""]), encoding="utf-8")
    result = CliRunner().invoke(cli, [*ASKED, "--prices", str(path), *([] if words else ["--json"])])
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split()) if words else json.loads(result.stdout)


@pytest.mark.usefixtures("planned_once")
def test_a_quote_beyond_the_value_that_is_told_changes_the_choice(tmp_path: Path) -> None:
    path = tmp_path / "quotes.csv"
    firm = "b200,on_demand,5,5,5,USD/h"
    first = ask(path, "h100,on_demand,3,1.5,6,USD/h", firm)
    question = next(item for item in first["find_out_first"] if item["name"] == "rent" and item["about"] == "H100")
    (break_even,) = question["turns"]
    assert break_even["now"] == first["advised"]["device"] != break_even["then"]
    price = 3 * break_even["value"]
    back, beyond = (1.002, 0.998) if break_even["side"] == "below" else (0.998, 1.002)
    for factor, device in ((back, break_even["now"]), (beyond, break_even["then"])):
        firm_h100 = f"h100,on_demand,{price * factor!r},,,USD/h"
        assert ask(path, firm_h100, firm)["advised"]["device"] == device
    said = ask(path, "h100,on_demand,3,1.5,6,USD/h", firm, words=True)
    assert f"{break_even['side']} ${price:.2f}/h take {break_even['then'].upper()}" in said


def test_the_choice_changes_at_every_turn_and_not_before() -> None:
    question = campaign()
    points = list(cheapest_by_kind(pareto(question, grid(gpus=(4096,)), planner=quick_planner).points).values())
    found = 0
    for item in judged(question, points).questions:
        for break_even in break_evens(question, points, item):
            found += 1
            step = 1e-6 * (break_even.end - break_even.value or break_even.value)
            assert choice(question, points, item, break_even.value + step) is break_even.then
            elsewhere = replace(item, about="nothing of the kind")
            assert choice(question, points, elsewhere, break_even.value + step) is break_even.now
            assert choice(question, points, item, break_even.value - step - 1e-9 * break_even.value) is break_even.now
    assert found
    unknown = OpenQuestion(name="mfu", title="", about="nothing of the kind", worth=0.0, changes=0.0)
    assert break_evens(question, points, unknown) == ()


@pytest.mark.parametrize("name", ["mfu", "rent"])
def test_where_no_answer_changes_the_choice_none_is_told(name: str) -> None:
    question = campaign()
    (point,) = pareto(question, grid("h100", gpus=(4096,)), planner=quick_planner).points
    assert break_evens(question, [point], OpenQuestion(name=name, title="", about="H100", worth=0.0, changes=0.0)) == ()
