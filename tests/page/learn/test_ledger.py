"""The ledger: what is kept, how it is written, and many who write at once."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.base.errors import InputError
from optimizer.page.learn.acts import ACTS
from optimizer.page.learn.ledger import (
    COLUMNS,
    LONGEST,
    LedgerEntry,
    Visitor,
    answered,
    as_csv,
    class_page,
    designed,
    entry_view,
    gather,
)
from optimizer.page.learn.panel import ask, panel_view, reveal_view
from optimizer.page.learn.question import TEXT, LearnQuestion, _value, asked
from optimizer.studies.textbook import LabDesign

ANNA = Visitor(key="k", name="Anna", context="data parallel")


def test_what_is_kept_of_an_answer_and_a_design() -> None:
    entry = answered(ANNA, ACTS[1].question("act-1"), "A")
    assert (entry.name, entry.act, entry.kind, entry.question, entry.answer) == (
        "Anna",
        "I",
        "prediction",
        "act-1",
        "A",
    )
    assert (entry.right, answered(ANNA, ACTS[1].question("act-1"), "B").right) == ("no", "yes")
    design = designed(ANNA, LabDesign(tp=8, pp=4, microbatches=8))
    assert (design.memory_gb, design.bubble_percent, design.mfu_percent) == ("118.69", "9.375", "36.05")
    assert (design.dp, design.failures, design.right) == ("32", "out of memory", "no")
    assert designed(ANNA, LabDesign(tp=3)).dp == ""
    assert designed(ANNA, LabDesign(tp=4, pp=16, microbatches=64)).right == "yes"


@pytest.mark.parametrize(
    ("control", "text", "value"),
    [
        ({"kind": TEXT}, "no", "pasted"),
        ({"kind": "switch"}, "yes", True),
        ({"kind": "switch"}, "perhaps", False),
        ({"kind": "switch", "value": True}, None, True),
        ({"kind": "switch"}, None, False),
        ({"kind": "dropdown", "options": {"a": 8, "b": 4}}, None, 8),
        ({"kind": "dropdown", "options": {"a": 8, "b": 4}}, "4", 4),
        ({"kind": "dropdown", "options": {"a": 8, "b": 4}}, "5", "TP must be one of 8, 4, but got '5'"),
        ({"kind": "steps", "steps": [1, 2, 4], "value": 2}, None, 2),
        ({"kind": "steps", "steps": [1, 2, 4]}, "3", "TP must be from 1 to 4, but got '3'"),
        ({"kind": "slider", "range": [2, 9, 1]}, "9", 9),
        ({"kind": "slider", "range": [2, 9, 1]}, "10", "TP must be from 2 to 9, but got '10'"),
    ],
)
def test_a_control_has_what_was_written_or_its_usual_value(
    control: dict[str, Any], text: str | None, value: object
) -> None:
    try:
        found: object = _value({"label": "TP", **control}, text, "pasted")
    except InputError as error:
        found = str(error)
    assert found == value
    assert type(found) is type(value)


def test_a_question_is_locked_as_a_prediction_or_an_answer() -> None:
    kinds = {question.kind: (question, number) for number, act in ACTS.items() for question in act.questions}
    for kind, (question, number) in kinds.items():
        word = "prediction" if kind == "prediction" else "answer"
        assert f"my {word}" in ask(question, number)


@given(st.text())
def test_no_cell_begins_like_a_formula_and_every_row_is_read_again(name: str) -> None:
    entry = answered(Visitor(key="k", name=name), ACTS[1].question("act-1"), "A")
    (row,) = csv.DictReader(io.StringIO(as_csv([entry], header=True)))
    assert not row["name"].startswith(("=", "+", "-", "@", "\t", "\r"))
    assert row["name"].removeprefix("'") == entry.name.removeprefix("'")
    assert len(entry.name) <= LONGEST
    assert "\n" not in entry.name


def test_many_write_whole_lines_under_one_head(tmp_path: Path) -> None:
    sheet = tmp_path / "answers.csv"

    def write(number: int) -> None:
        for _ in range(20):
            gather([LedgerEntry(time="t", visitor=str(number), name="x" * 60)], sheet)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(10)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    lines = sheet.read_text(encoding="utf-8").splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert len(lines) == 1 + 10 * 20
    assert {line.count(",") for line in lines} == {len(COLUMNS) - 1}
    assert ",".join(COLUMNS) not in lines[1:]


@pytest.mark.parametrize("content", [b"my diary\nof today\n", b"\xff\xfe\x00 not text"])
def test_another_file_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    other = tmp_path / "diary.txt"
    other.write_bytes(content)
    with pytest.raises(InputError):
        gather([LedgerEntry(time="t", visitor="k")], other)
    assert other.read_bytes() == content


def sent(**values: Any) -> bytes:
    return json.dumps({"key": "k", "name": "Bea", "context": "3-D parallel", **values}).encode()


def test_a_locked_choice_and_a_design_are_entries_and_on_the_sheet(tmp_path: Path) -> None:
    sheet = tmp_path / "answers.csv"
    asks = LearnQuestion(act=1, question="act-1", key="B", sheet=str(sheet))
    found = entry_view(asks, sent())
    assert (found["entry"]["right"], found["entry"]["name"], found["trouble"]) == ("yes", "Bea", "")
    design = entry_view(replace(asks, act=2), sent(design={"tp": 8, "pp": 4, "microbatches": 8}))["entry"]
    assert (design["kind"], design["memory_gb"]) == ("design", "118.69")
    rows = list(csv.DictReader(io.StringIO(sheet.read_text(encoding="utf-8"))))
    assert [row["kind"] for row in rows] == ["prediction", "design"]
    lost = entry_view(replace(asks, sheet=str(tmp_path / "no" / "sheet.csv")), sent())
    assert "cannot be written" in lost["trouble"]
    assert lost["entry"]["answer"] == "B"


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{" * 10_000, b'{"design": {"tp": 0}}', b'{"design": 3}', b'{"answers": 1, "design": 0}'],
)
def test_damaged_progress_is_one_message(body: bytes) -> None:
    asks = LearnQuestion(act=2, question="act-2", key="Z")
    with pytest.raises(InputError):
        entry_view(asks, body)


def test_choices_of_a_class_are_counted_once_a_student(tmp_path: Path) -> None:
    sheet = tmp_path / "answers.csv"
    for key, letter in (("a", "B"), ("b", "B"), ("b", "B"), ("c", "A")):
        entry_view(LearnQuestion(act=1, question="act-1", key=letter, sheet=str(sheet)), sent(key=key))
    text = class_page(LearnQuestion(sheet=str(sheet))).decode()
    assert "3 students" in text
    assert "2 *" in text
    assert "67%" in text
    assert len(re.findall(r"<tr><th scope=.row.>Bea</th><td[^>]*>3</td><td[^>]*>3</td><td[^>]*>66.7%</td>", text)) == 1
    sheet.write_text(2 * sheet.read_text(encoding="utf-8"), encoding="utf-8")  # as `cat` joins ledgers, heads and all
    assert class_page(LearnQuestion(sheet=str(sheet))).decode() == text
    sheet.write_text("question,visitor\nact-1,a\n", encoding="utf-8")
    with pytest.raises(InputError, match="another file than a sheet"):
        class_page(LearnQuestion(sheet=str(sheet)))
    with pytest.raises(InputError, match="nothing is gathered"):
        class_page(LearnQuestion())


@pytest.mark.parametrize(
    "pairs", [[("act", "99")], [("context", "x")], [("act", "2"), ("tp", "65")], [("fabric", "x")]]
)
def test_an_act_a_context_or_a_value_that_there_is_not_is_one_message(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(InputError, match=r"must be|is none of"):
        panel_view(asked("", pairs))


def test_a_question_that_there_is_not_is_one_message() -> None:
    for view in (reveal_view, lambda asks: entry_view(asks, sent())):
        with pytest.raises(InputError, match="act 1 has no question 'act-9'; it has act-1"):
            view(LearnQuestion(act=1, question="act-9", key="A"))
