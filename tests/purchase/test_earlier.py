"""An earlier report: which files are one, and from which change on something is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optimizer.base.errors import InvalidFile
from optimizer.purchase.since import NEEDED, changes, earlier_report
from tests.purchase.by_hand import by_hand

ROW = {"device": "h100", "gpus": 4096, "price_now": 2.0, "cost_usd": 50e6, "chance": 0.5}
ADVISED = {"device": "h100", "gpus": 4096}
REPORT: dict[str, Any] = {"machines": [ROW], "advised": ADVISED}


@pytest.mark.parametrize(
    "report",
    [
        REPORT,
        REPORT | {"advised": None},
        REPORT | {"machines": []},
        REPORT | {"machines": [ROW | {"vendor": "NVIDIA"}]},
    ],
)
def test_a_report_has_the_machines_and_what_was_advised(tmp_path: Path, report: dict[str, Any]) -> None:
    path = tmp_path / "before.json"
    path.write_text(json.dumps(report))
    assert earlier_report(path) == report


@pytest.mark.parametrize(
    "report",
    [
        *({"machines": [ROW, {key: ROW[key] for key in NEEDED if key != name}], "advised": None} for name in NEEDED),
        {"machines": [ROW], "advised": {"gpus": 4096}},
        {"machines": [ROW]},
        {"advised": ADVISED},
        {"machines": {"h100": ROW}, "advised": ADVISED},
        [],
        None,
    ],
)
def test_what_lacks_a_part_is_no_report(tmp_path: Path, report: Any) -> None:
    path = tmp_path / "before.json"
    path.write_text(json.dumps(report))
    with pytest.raises(InvalidFile, match="is no report"):
        earlier_report(path)


@pytest.mark.parametrize("buy", [False, True])
@pytest.mark.parametrize(
    ("key", "before", "same", "other", "what", "write"),
    [
        ("price_now", 200.0, 201.0, 201.1, "price", lambda price, buy: f"${price:.0f}" if buy else f"${price:.2f}/h"),
        ("price_now", 200.0, 199.0, 198.9, "price", lambda price, buy: f"${price:.0f}" if buy else f"${price:.2f}/h"),
        ("cost_usd", 200.0, 201.0, 201.01, "cost", lambda cost, _: f"${cost:.0f}"),
        ("cost_usd", 200.0, 199.0, 198.99, "cost", lambda cost, _: f"${cost:.0f}"),
        ("chance", 0.0, 0.005, 0.0051, "chance to be the cheapest", lambda chance, _: "1%" if chance else "<1%"),
        ("chance", 0.0051, 0.0001, 0.0, "chance to be the cheapest", lambda chance, _: "1%" if chance else "<1%"),
    ],
)
def test_a_change_is_told_beyond_half_a_percent(
    key: str, before: float, same: float, other: float, what: str, write: Callable[[float, bool], str], buy: bool
) -> None:
    made = by_hand()
    made = replace(made, purchase=replace(made.purchase, campaign=replace(made.purchase.campaign, buy=buy)))
    then = REPORT | {"machines": [ROW | {key: before}]}
    assert changes(made, then, [ROW | {key: same}]) == ["Nothing has changed."]
    assert changes(made, then, [ROW | {key: other}]) == [
        f"H100: {what} {write(other, buy)} (was {write(before, buy)})."
    ]


@pytest.mark.parametrize(("then", "now"), [(None, 0.5), (0.5, None), (None, None)])
def test_a_chance_that_is_not_known_is_no_change(then: float | None, now: float | None) -> None:
    assert changes(by_hand(), REPORT | {"machines": [ROW | {"chance": then}]}, [ROW | {"chance": now}]) == [
        "Nothing has changed."
    ]


@pytest.mark.parametrize(
    ("old", "advised", "said"),
    [
        (ADVISED, True, "Nothing has changed."),
        ({"device": "h100", "gpus": 2048}, True, "The advice was 2,048 × H100; now it is 4,096 × H100."),
        ({"device": "b200", "gpus": 4096}, True, "The advice was 4,096 × B200; now it is 4,096 × H100."),
        (None, True, "The advice was none; now it is 4,096 × H100."),
        (ADVISED, False, "The advice was 4,096 × H100; now it is none."),
        (None, False, "Nothing has changed."),
    ],
)
def test_another_advice_is_told(old: dict[str, Any] | None, advised: bool, said: str) -> None:
    made = by_hand()
    today = made if advised else replace(made, advised=None)
    assert changes(today, REPORT | {"advised": old}, [ROW]) == [said]


def test_machines_that_came_and_went_are_told_last() -> None:
    then = REPORT | {"machines": [ROW | {"device": name} for name in ("a100", "h100", "gb200-nvl72")]}
    now = [ROW | {"device": name} for name in ("mi300x", "h100", "b200")]
    now[1]["price_now"] = 4.0
    assert changes(by_hand(), then, now) == [
        "H100: price $4.00/h (was $2.00/h).",
        *("MI300X is new.", "B200 is new.", "A100 is gone.", "GB200 NVL72 is gone."),
    ]
