"""The ledger: what is kept, how it is written, and many who write at once."""

from __future__ import annotations

import csv
import io
import json
import threading
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
    MOST,
    Desk,
    LedgerEntry,
    Visitor,
    answered,
    as_csv,
    as_json,
    designed,
    footer,
    gather,
    new_key,
    sheet_named,
    tier,
    with_entry,
)
from optimizer.page.learn.textbook import LabDesign

ANNA = Visitor(key="k", name="Anna", context="data parallel")


class State:
    """What marimo's state is to the desk: a value that is changed by functions."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def change(self, update: Any) -> None:
        self.value = update(self.value)


def desk(sheet: Path | None = None) -> tuple[Desk, dict[str, State]]:
    states = {"entries": State(()), "designs": State(()), "trouble": State("")}
    changes = {name: state.change for name, state in states.items()}
    states["answers"] = State({})
    return Desk(visitor=ANNA, sheet=sheet, answers={"act-1": states["answers"].change}, **changes), states


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


@given(st.text())
def test_no_cell_begins_like_a_formula_and_every_row_is_read_again(name: str) -> None:
    entry = answered(Visitor(key="k", name=name), ACTS[1].question("act-1"), "A")
    (row,) = csv.DictReader(io.StringIO(as_csv([entry])))
    assert not row["name"].startswith(("=", "+", "-", "@", "\t", "\r"))
    assert row["name"].removeprefix("'") == entry.name.removeprefix("'")
    assert len(entry.name) <= LONGEST
    assert "\n" not in entry.name
    assert json.loads(as_json([entry]))[0]["answer"] == "A"


def test_a_ledger_keeps_its_last_entries() -> None:
    entries: tuple[LedgerEntry, ...] = ()
    for number in range(MOST + 2):
        entries = with_entry(entries, LedgerEntry(time=str(number), visitor="k"))
    assert (len(entries), entries[0].time, entries[-1].time) == (MOST, "2", str(MOST + 1))


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


def test_a_sheet_that_cannot_be_written_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    one, states = desk(tmp_path / "no" / "sheet.csv")
    one.answer(ACTS[1].question("act-1"), "B")
    assert "cannot be written" in states["trouble"].value
    assert states["answers"].value == {"act-1": "B"}
    assert len(states["entries"].value) == 1


def test_the_first_answer_stays() -> None:
    one, states = desk()
    one.answer(ACTS[1].question("act-1"), "C")
    one.answer(ACTS[1].question("act-1"), "B")
    assert states["answers"].value == {"act-1": "C"}
    assert [entry.answer for entry in states["entries"].value] == ["C"]


def test_a_desk_writes_under_the_name_that_its_visitor_has_now(tmp_path: Path) -> None:
    one, states = desk(tmp_path / "answers.csv")
    one.visitor = Visitor(key="k", name="Bea", context="3-D parallel")
    one.save(LabDesign())
    assert states["designs"].value == (LabDesign(),)
    (row,) = csv.DictReader(io.StringIO((tmp_path / "answers.csv").read_text(encoding="utf-8")))
    assert (row["name"], row["context"], row["kind"]) == ("Bea", "3-D parallel", "design")


def test_sessions_have_names_of_their_own() -> None:
    assert len({new_key() for _ in range(100)}) == 100


def test_the_sheet_is_what_the_server_names() -> None:
    assert sheet_named({"learn_out": "/x/answers.csv"}) == Path("/x/answers.csv")


@pytest.mark.parametrize(
    ("right", "saved", "expected"),
    [
        ({}, [], "developing"),
        ({"act-1": False, "act-2": False}, [LabDesign(tp=4, pp=16, microbatches=64)], "developing"),
        ({"act-1": False, "act-2": True}, [], "partial"),
        ({"act-1": True, "act-2": True}, [LabDesign()], "partial"),
        ({"act-1": True, "act-2": True}, [LabDesign(), LabDesign(tp=4, pp=16, microbatches=64)], "optimal"),
        ({"act-1": True, "act-2": True, "act-6": False}, [LabDesign(tp=4, pp=16, microbatches=64)], "partial"),
        ({"act-1": True, "act-2": True, "act-6": True}, [LabDesign(tp=4, pp=16, microbatches=64)], "optimal"),
        ({"act-4": True}, [], "partial"),
    ],
)
def test_tier(right: dict[str, bool], saved: list[LabDesign], expected: str) -> None:
    assert tier(right, saved) == expected
    assert f'id="footer-tier">{expected}<' in footer("data parallel", right, LabDesign(), saved)
