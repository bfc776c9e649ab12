"""The lab played to its end in a real browser: every number of the documents behind it, read from the page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser import axe
from tests.page.conftest import Served
from tests.page.learn.conftest import Student

HOPS = (
    *("73.400 MB", "1.634 ms", "46.976 mJ", "78.643 MB", "6.713 ms", "176.161 mJ"),
    *("205.521 MB", "4.570 ms", "131.533 mJ", "220.201 MB", "18.667 ms", "493.250 mJ"),
    *("33.554 MB", "0.373 ms", "1.342 mJ", "16.777 MB", "0.187 ms", "0.671 mJ", "0.711 ms", "4.698 mJ"),
)
CLOSED = """[...document.querySelectorAll('main details table')]
    .filter(e => !e.checkVisibility({contentVisibilityAuto: true})).length"""


def rows_of(served: Served) -> list[dict[str, str]]:
    """The instructor's sheet."""
    assert served.sheet
    with served.sheet.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def downloaded(tmp_path: Path) -> Callable[[Student, str], str]:
    def take(student: Student, label: str) -> str:
        with student.page.expect_download() as found:
            student.page.get_by_text(label).click()
        target = tmp_path / label
        found.value.save_as(target)
        return target.read_text(encoding="utf-8")

    return take


def act_one(student: Student) -> None:
    """Numbers of the data-parallel wall, first the document's, then with the datasheets' constants."""
    assert not student.seen("act1-mfu")
    assert not student.seen("act1-slips")
    student.lock("act-1", "B")
    student.becomes("act1-compute", "5,349.")
    student.becomes("act1-runs", "measured runs")
    student.put(1, "constants", "document")
    student.becomes("act1-all-reduce", "27.222 ms")
    assert (student.text("act1-compute"), student.text("act1-ratio")) == ("1.306 ms", "20.844")
    assert (student.text("act1-gradients"), student.text("act1-sent")) == ("14.0 GB", "24.500 GB")
    assert "52, 38 and 19 %" in student.text("act1-chart")
    for gpus, seconds, mfu in ((64, "68.906 ms", "0.97 %"), (512, "69.863 ms", "0.95 %")):
        student.put(1, "gpus", gpus)
        student.becomes("act1-all-reduce", seconds)
        assert student.text("act1-mfu") == mfu
        assert "InfiniBand" in student.text("act1-forced")
    assert (
        "2 x 511 / 512 x 14.0 GB" in student.page.locator("table", has=student.page.locator("#act1-sent")).inner_text()
    )
    assert "B is right" in student.text("act-1-reveal")
    assert "sparsity" in student.text("act1-slips")
    student.lock("act-1-reflection", "B")


def act_two(student: Student) -> None:
    """The designs of the document, every failure, and one that passes."""
    assert not student.seen("act2-memory")
    assert "36.05" not in student.page.content()
    assert "TP ends where" not in student.page.content()
    student.lock("act-2", "B")
    student.becomes("takeaways", "TP ends where")
    student.becomes("act2-memory", "118.69 GB")
    assert student.text("act2-bubble") == "9.375 %"
    assert student.text("act2-mfu") == "36.05 %"
    parts = [student.text(f"act2-{name}") for name in ("replicas", "shard", "weights", "states", "activations")]
    assert parts == ["32", "5.469e9", "10.94 GB", "43.75 GB", "64.00 GB"]
    assert "118.69 GB of 80 GB" in student.text("act2-out-of-memory")
    assert "does not fit" in student.text("act-2-reveal")
    others = student.page.locator("#act-2-others").text_content()
    assert all(text in others for text in ("16 nodes", "99.9 %", "1.6 %", "12.5 %"))
    student.put(2, "microbatches", 16)
    student.becomes("act2-t-exact", "15.8 %")
    student.put(2, "microbatches", 8)
    student.put(2, "pp", 16)
    student.becomes("act2-memory", "77.67 GB")
    assert student.text("act2-bubble") == "11.719 %"
    assert "10%" in student.text("act2-bubble-over-its-ceiling")
    student.put(2, "tp", 16)
    student.becomes("act2-tensor-parallelism-crosses-nodes", "2.25 times")
    student.put(2, "tp", 3)
    student.becomes("act2-product-does-not-divide", "3 x 16 = 48")
    assert student.text("act2-dp") == "none"
    student.put(2, "tp", 4)
    student.put(2, "microbatches", 64)
    student.becomes("act2-passes", "Nothing wrong")
    student.page.get_by_role("button", name="Save this design").click()
    student.becomes("footer-saved", "1")
    student.lock("act-2-reflection", "B")


def priced(student: Student) -> None:
    """The cost model beside measured runs, with their rows."""
    student.page.locator("#act2-in-priced").check()
    student.becomes("act2-runs", "all ran")
    assert "torchtitan-paper-8b-128-0" in student.page.locator("#act1-runs").text_content()
    assert student.text("act2-priced-memory").endswith("GB")
    assert "proven best" in student.text("act2-best")


def further_acts(student: Student) -> None:
    """Roofline, hops, scaling and nccl-tests: predicted, then read."""
    student.lock("act-3", "A")
    student.becomes("act3-time", "32.554 us")
    assert student.text("act3-gradients") == "27.088 us"
    student.page.locator("#act3-in-one_way").check()
    student.becomes("act3-time", "34.486 us")
    student.lock("act-4", "A")
    student.becomes("act-4-reveal", "700 GB")
    others = student.page.locator("#act-4-others").text_content()
    assert all(text in others for text in ("1050 GB", "5.25 s", "1,237 GB", "448", "45 GB"))
    assert "3.50 s" in student.text("act-4-reveal")
    hops = student.page.locator("#act4-hops").text_content()
    assert [number for number in HOPS if number not in hops] == []
    assert [student.text(f"act4-{name}") for name in ("dp", "fsdp", "tp")] == ["612.5 GB", "918.8 GB", "1,082.3 GB"]
    assert student.text("act4-t-messages") == "448"
    student.put(4, "ranks", 4)
    student.becomes("act4-dp", "525.0 GB")  # 2 P (N - 1) / N with N = 4: 1.5 times what is summed
    student.lock("act-5", "B")
    student.becomes("act5-efficiency", "%")
    student.lock("act-6", "C")
    student.becomes("act6-busbw", "234.61 GB/s")
    assert student.text("act6-network") == "0.0533 s"
    assert student.text("act6-t-flops") == "65.536 TFLOP"
    assert student.text("act6-bound") == "0.420 s"
    student.put(6, "rate", 450)
    student.becomes("act6-network", "0.0356 s")
    student.put(6, "rate", 25)
    student.becomes("act6-network", "0.6400 s")  # both passes; the document counts one
    student.lock("act-7", "B")
    student.becomes("act7-held", "106.5 GB")
    student.put(7, "stage", 1)
    student.becomes("act7-held", "27.9 GB")
    student.lock("act-8", "B")
    student.put(8, "way", "lora")
    student.becomes("act8-trained", "42 million")
    student.lock("act-9", "C")
    student.becomes("act9-exact", "46.7 %")
    student.put(9, "microbatches", 63)
    student.becomes("act9-exact", "10.0 %")


def usable(student: Student) -> None:
    """Nobody is kept out, nothing sticks out of a phone or a sheet of paper."""
    page = student.page
    assert axe(page) == []
    page.set_viewport_size({"width": 420, "height": 900})
    page.wait_for_function("document.documentElement.scrollWidth === 420")
    assert axe(page) == []
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 690, "height": 900})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function("document.documentElement.scrollWidth <= 690")
    assert page.evaluate(CLOSED) == 0


def test_the_whole_lab_with_one_prediction_wrong(
    enter: Callable[[], Student], served: Served, downloaded: Callable[[Student, str], str]
) -> None:
    student = enter()
    act_one(student)
    act_two(student)
    assert student.text("footer-tier") == "optimal"
    priced(student)
    further_acts(student)
    acts = [student.text(f"footer-act{act}") for act in range(1, 10)]
    assert acts == ["right", "right", "right", "review", "right", "right", "right", "right", "right"]
    assert student.text("footer-tier") == "partial"
    rows = list(csv.DictReader(io.StringIO(downloaded(student, "Ledger as CSV"))))
    assert [row["kind"] for row in rows].count("prediction") == 9
    assert [row["kind"] for row in rows].count("reflection") == 2
    (design,) = [row for row in rows if row["kind"] == "design"]
    assert (design["tp"], design["pp"], design["dp"], design["microbatches"]) == ("4", "16", "16", "64")
    kept = json.loads(downloaded(student, "Ledger as JSON"))
    assert [each["time"] for each in kept] == [row["time"] for row in rows]
    assert [row for row in rows_of(served) if row["visitor"] == rows[0]["visitor"]] == rows
    usable(student)


def test_a_reload_unlocks_nothing_and_locks_nothing_new(enter: Callable[[], Student]) -> None:
    student = enter()
    student.lock("act-2", "A")
    student.put(2, "tp", 4)
    student.becomes("act2-memory", "GB")
    student.page.reload()
    student.becomes("act-2-reveal", "16 nodes")
    form = student.page.locator("form.ask[data-question=act-2]")
    assert form.locator("input[value=B]").is_disabled()
    assert form.locator("input[value=A]").is_checked()
    assert student.page.input_value("#act2-in-tp") == "4"
    assert not student.seen("act1-mfu")
    assert "B is right" not in student.page.content()
    student.page.once("dialog", lambda dialog: dialog.accept())
    student.page.click("#restart")
    student.page.wait_for_function("!document.getElementById('act-2-reveal')")
    student.becomes("footer-act2", "open")


LOCKED = {"kind": "prediction", "time": "t"}
SAVED = {"kind": "design", "right": "yes"}


@pytest.mark.parametrize(
    ("right", "saved", "expected"),
    [
        ({}, [], "developing"),
        ({"act-1": "no", "act-2": "no"}, [SAVED], "developing"),
        ({"act-1": "no", "act-2": "yes"}, [], "partial"),
        ({"act-1": "yes", "act-2": "yes"}, [{**SAVED, "right": "no"}], "partial"),
        ({"act-1": "yes", "act-2": "yes"}, [{**SAVED, "right": "no"}, SAVED], "optimal"),
        ({"act-1": "yes", "act-2": "yes", "act-6": "no"}, [SAVED], "partial"),
        ({"act-1": "yes", "act-2": "yes", "act-6": "yes"}, [SAVED], "optimal"),
        ({"act-4": "yes"}, [], "partial"),
    ],
)
def test_tier(enter: Callable[[], Student], right: dict[str, str], saved: list[dict[str, str]], expected: str) -> None:
    student = enter()
    entries = [{**LOCKED, "question": name, "right": said} for name, said in right.items()] + saved
    kept = json.dumps({"entries": entries, "answers": dict.fromkeys(right, "A")})
    student.page.evaluate("kept => localStorage.setItem('optimize-learn', kept)", kept)
    student.page.reload()
    student.becomes("footer-tier", expected)
    assert student.text("footer-saved") == str(len(saved))
    assert ("TP ends where" in student.page.content()) <= ({"act-1", "act-2"} <= right.keys())
    assert student.page.locator("#ledger-rows tr").count() == len(entries)


def test_an_address_holds_what_is_set_and_undo_goes_back(enter: Callable[[], Student], served: Served) -> None:
    student = enter()
    student.lock("act-2", "A")
    student.put(2, "pp", 16)
    student.becomes("footer-design", "TP 8 x PP 16 x DP 8")
    student.page.locator("#act2-in-pp").press("Tab")
    student.put(2, "tp", 4)
    student.page.locator("#act2-in-tp").press("Tab")
    student.becomes("footer-design", "TP 4 x PP 16 x DP 16")
    address = student.page.url
    assert "2.tp=4" in address
    student.page.get_by_role("button", name="Undo").click()
    student.becomes("footer-design", "TP 8 x PP 16 x DP 8")
    assert student.page.locator("form.ask[data-question=act-2] input").first.is_disabled()
    other = enter()
    other.page.goto(f"{served.room('/learn/')}#{address.partition('#')[2]}")
    assert not other.seen("act2-memory")
    other.lock("act-2", "B")
    other.becomes("footer-design", "TP 4 x PP 16 x DP 16")


def test_a_teacher_sees_the_choices_of_the_class(enter: Callable[[], Student]) -> None:
    student = enter()
    student.lock("act-3", "C")
    student.becomes("ledger", "III")
    student.page.get_by_text("Choices of the class").click()
    student.page.wait_for_selector("h1:has-text('student')")
    text = student.page.locator("body").inner_text()
    assert "Choices by question" in text
    assert "What bounds an H100 in it?" in text
    hidden = "() => [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
    assert student.page.evaluate(hidden) == 0  # the counts are seen beside their questions


def test_two_students_with_wrong_predictions_do_not_meet(enter: Callable[[], Student], served: Served) -> None:
    one, two = enter(), enter()
    name = one.page.get_by_label("Name or group")
    name.fill('=HYPERLINK("x")')
    name.press("Tab")
    one.page.get_by_role("radio", name="B. 3-D parallel").check()
    one.becomes("footer-context", "3-D parallel")
    one.lock("act-1", "C")
    one.becomes("act-1-reveal", "C is not it; B is")
    one.lock("act-2", "D")
    one.becomes("act-2-reveal", "96 layers")
    one.becomes("footer-act2", "review")
    assert one.text("footer-tier") == "developing"
    assert (two.text("footer-act1"), two.text("footer-context")) == ("open", "data parallel")
    assert not two.seen("act1-mfu")
    two.lock("act-2", "A")
    two.becomes("act-2-reveal", "16 nodes")
    assert not two.seen("act1-mfu")
    mine = [row for row in rows_of(served) if row["answer"] in ("C", "D") and row["act"] in ("I", "II")]
    assert [(row["answer"], row["right"], row["context"]) for row in mine] == [
        ("C", "no", "3-D parallel"),
        ("D", "no", "3-D parallel"),
    ]
    assert {row["name"] for row in mine} == {'\'=HYPERLINK("x")'}
