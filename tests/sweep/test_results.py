"""Results for people and programs: nested, flat, filtered, exported; costs checked by hand."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import fields, replace
from math import nan
from typing import Any

import pytest

from optimizer.base.errors import InputError
from optimizer.catalog.files import presets_folder
from optimizer.catalog.offers import PriceBook
from optimizer.job.job import Limits
from optimizer.job.plan import Knobs, Plan
from optimizer.sweep.money import with_own
from optimizer.sweep.progress import GUESSED, forecast
from optimizer.sweep.results import COLUMNS, _column, chosen, condition, exported, flat, nested
from optimizer.sweep.store import StoredRow
from optimizer.sweep.task import canonical, content
from tests.sweep.fakes import answer, tasks


def row(number: int, **changes: Any) -> StoredRow:
    task = tasks(20)[number]
    plain = StoredRow(
        key=task.key,
        version="v1",
        status="optimal",
        scenario="",
        asked=canonical(task.asked),
        result=answer(task.key),
        error="",
        attempts=1,
        seconds=0.5,
        memory=1e8,
        host="here",
        finished="2026-01-01T00:00:00+00:00",
    )
    return replace(plain, **changes)


def results() -> list[dict[str, Any]]:
    failed = row(2, status="failed", result="", error="bad luck")
    clash = canonical({"conflict": [{"rule": "memory", "reason": "410 GB of 80 GB", "relaxation": ""}]})
    return [nested(found) for found in (row(0), row(1), failed, row(3, status="infeasible", result=clash))]


def test_a_result_is_the_answer_with_its_key_and_the_reason_of_a_failure() -> None:
    good, _, bad, impossible = results()
    assert (good["status"], good["job"]["model"], good["plan"]["tp"], good["error"]) == (
        "optimal",
        "llama3-8b",
        8,
        None,
    )
    assert (bad["status"], bad["plan"], bad["estimate"], bad["error"]) == ("failed", None, None, "bad luck")
    assert impossible["conflict"][0]["rule"] == "memory"
    assert good.keys() == bad.keys() == impossible.keys()


def test_nothing_in_a_result_depends_on_the_run() -> None:
    other = row(0, seconds=9.0, host="there", attempts=3, memory=2e9, finished="2027-01-01T00:00:00+00:00")
    assert nested(row(0)) == nested(other)


def test_costs_by_hand() -> None:
    result = canonical({"estimate": {"tokens_per_s_per_gpu": 1000.0}})
    # 8 GPUs at 1,000 tokens/s each train 6.912e8 tokens a day; one GPU-second costs 0.001 USD, a million tokens 1 USD.
    # Failures, restarts and checkpoints stretch all of them by 1 / goodput, which is 0.998 on one node.
    found = nested(row(0, result=result), token_budget=6.912e9, book=with_own(PriceBook(), {"h100": 0.001}))["costs"]
    assert 0.99 < found["goodput"] < 1.0
    assert found["usd_per_gpu_hour"] == pytest.approx(3.6)
    assert found["usd_per_mtoken"] * found["goodput"] == pytest.approx(1.0)
    assert found["train_days"] * found["goodput"] == pytest.approx(10.0)
    assert found["gpu_hours"] * found["goodput"] == pytest.approx(10 * 24 * 8)
    assert found["train_usd"] * found["goodput"] == pytest.approx(6912.0)
    assert found["price_row"] == "the study's prices, h100"


def test_a_price_of_the_book_is_traced_to_its_row() -> None:
    result = canonical({"estimate": {"tokens_per_s_per_gpu": 1000.0}})
    found = nested(row(0, result=result))["costs"]
    line = int(found["price_row"].removeprefix("presets/offers.csv line "))
    text = (presets_folder() / "offers.csv").read_text(encoding="utf-8").splitlines()[line - 1]
    assert f",on_demand,{found['usd_per_gpu_hour']:g}," in text
    assert found["train_usd"] is None


@pytest.mark.parametrize(
    ("conditions", "keys"),
    [
        ([], ["job-0000", "job-0001", "job-0002", "job-0003"]),
        (["status=failed,infeasible"], ["job-0002", "job-0003"]),
        (["status!=failed", "gpus>=16"], ["job-0001", "job-0003"]),
        (["model=LLAMA*"], ["job-0000", "job-0001", "job-0002", "job-0003"]),
        (["gpus=8"], ["job-0000"]),
        (["mfu>0%"], ["job-0000", "job-0001"]),
        (["reason=*410*"], ["job-0003"]),
    ],
)
def test_conditions_choose_jobs(conditions: list[str], keys: list[str]) -> None:
    assert [found["key"] for found in chosen(results(), conditions)] == keys


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("modell=x", "unknown column 'modell'; did you mean model"),
        ("mfu>high", "'high' is not a number"),
        ("mfu", "not of the form column=value"),
    ],
)
def test_conditions_that_mean_nothing_are_told(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        chosen(results(), [text])


def test_json_is_a_list_with_one_object_per_job() -> None:
    found = json.loads(exported(results(), "json"))
    assert [job["key"] for job in found] == ["job-0000", "job-0001", "job-0002", "job-0003"]
    assert exported([{"b": 1, "a": [2]}], "json") == b'[\n {\n  "a": [\n   2\n  ],\n  "b": 1\n }\n]\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        exported([{"a": nan}], "json")


@pytest.mark.parametrize(("share", "holds"), [(0.5, True), (0.4999, False), (None, False)])
def test_a_condition_may_be_in_percent(share: float | None, holds: bool) -> None:
    assert condition("gap>=50%", ["gap"])({"gap": share}) is holds
    assert [found["key"] for found in chosen(results()[:1], ["gpus>=8"])] == ["job-0000"]


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([1, None, 2.5], [1.0, None, 2.5]),
        ([1, 2, None], [1, 2, None]),
        ([1, "a", None], ["1", "a", None]),
        ([1, True], ["1", "True"]),
        ([None], [None]),
        (["a", "b"], ["a", "b"]),
    ],
)
def test_a_column_has_one_type(values: list[object], column: list[object]) -> None:
    assert [(type(value), value) for value in _column(values)] == [(type(value), value) for value in column]


def test_csv_has_a_line_per_job_and_no_formulas() -> None:
    wicked = results()
    wicked[0]["scenario"] = "=cmd|' /C calc'!A0"
    lines = list(csv.DictReader(io.StringIO(exported(wicked, "csv").decode())))
    assert len(lines) == 4
    assert lines[0]["scenario"].startswith("'=")
    assert (lines[1]["tp"], lines[1]["sequence_parallel"], lines[1]["layers_per_stage"]) == ("8", "True", "32")
    assert lines[3]["reason"] == "memory: 410 GB of 80 GB"
    assert exported([], "csv") == b""


@pytest.mark.parametrize(
    ("kind", "prefix", "place"),
    [(Limits, "limit_", ("job", "limits")), (Plan, "", ("plan",)), (Knobs, "knob_", ("knobs",))],
)
def test_every_field_is_a_column_so_that_no_two_rows_look_alike(
    kind: type, prefix: str, place: tuple[str, ...]
) -> None:
    other = {int: 7, float: 0.7, bool: True, str: "other", tuple: [3, 4]}
    plain = canonical({"plan": content(Plan()), "knobs": content(Knobs()), "job": {"limits": content(Limits())}})
    for item in fields(kind):
        (found,), (changed,) = ([nested(row(0, result=plain))] for _ in range(2))
        table = changed
        for key in place:
            table = table[key]
        table[item.name] = other.get(type(item.default), {"tp": [8, 9]})
        name = prefix + item.name
        before, after = (
            next(csv.DictReader(io.StringIO(exported([whole], "csv").decode()))) for whole in (found, changed)
        )
        assert {column for column in before if before[column] != after[column]} == {name}
        assert name in COLUMNS


def test_parquet_reads_back() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(exported(results(), "parquet")))
    assert (table.num_rows, table.schema.names) == (4, list(flat(results()[0])))
    assert table.column("tp").to_pylist() == [8, 8, None, None]
    assert table.column("mfu").to_pylist()[0] == flat(results()[0])["mfu"]


def test_the_forecast_takes_what_the_store_measured_and_says_so() -> None:
    guess = forecast(tasks(20), [], workers=2)
    assert (guess.jobs, guess.measured, guess.seconds) == (20, 0, pytest.approx(20 * GUESSED["dense"] / 2))
    known = forecast(tasks(20), [row(0, seconds=2.0), row(1, seconds=4.0)], workers=2)
    # 18 jobs are left, 3 s each on average, on two workers
    assert (known.answered, known.measured, known.seconds) == (2, 2, pytest.approx(27.0))
