"""The copy that opens without a server: what it holds, and that a browser can play it from files."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.base.errors import InputError
from optimizer.cli import cli
from optimizer.page import offline
from optimizer.page.learn.acts import ACTS
from optimizer.page.learn.panel import panel_view, reveal_view
from optimizer.page.learn.question import LearnQuestion, asked
from optimizer.page.offline import files, offered_by, pack, questions, write_offline
from tests.browser import axe, outside

FEW = {
    "of_context": [5],
    "questions": {"cluster": "dgx-h100", "model": ["llama3-8b"], "gpus": [8]},
    "stops": {"2": {"tp": [4, 8], "pp": [4, 16], "microbatches": [8, 64]}},
}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small copy: two acts, one answer."""
    monkeypatch.setattr(offline, "offline", lambda: FEW)
    monkeypatch.setattr(offline, "ACTS", {number: ACTS[number] for number in (2, 9)})
    FEW["stops"]["9"] = {"microbatches": [2, 8], "stages": [8]}  # type: ignore[index]


def opened(text: str) -> Any:
    """What the file of an act holds."""
    return json.loads(zlib.decompress(base64.b64decode(re.fullmatch(r'packed\(\d, "(.+)"\);\n', text)[1])))


def blocks_of(html: str) -> list[str]:
    """The blocks of a panel but for its controls, of which a copy has selects where the server has sliders."""
    return [each for each in html.split('<div class="block" ') if 'data-kind="controls"' not in each]


@pytest.mark.parametrize("number", ACTS)
def test_every_stop_of_a_copy_is_one_that_its_control_has(number: int) -> None:
    act = ACTS[number]
    stops = offline.offline()["stops"].get(str(number), {})
    offered = offered_by(act, "data parallel")
    assert stops.keys() <= offered.keys()
    for name, each in offered.items():
        assert each["value"] in each["steps"]
        for value in each["steps"]:
            asks = asked("", [("act", str(number)), (name, offline.written(value))])
            assert offline.controls(asks, "")[name]["value"] == value


@pytest.mark.usefixtures("few")
def test_a_copy_holds_what_the_server_says_and_equal_bytes_twice(tmp_path: Path) -> None:
    assert write_offline(tmp_path / "copy") == sum(each.stat().st_size for each in (tmp_path / "copy").iterdir())
    found = {each.name: each.read_bytes() for each in (tmp_path / "copy").iterdir()}
    assert found == files(questions())
    act = opened(found["act-2.js"].decode())
    shown = "".join(act["blocks"][at] for at in act["panels"]["8,16,8,no"])
    served = panel_view(asked("", [("act", "2"), ("tp", "8"), ("pp", "16"), ("microbatches", "8")]))["html"]
    assert "77.67 GB" in shown
    assert blocks_of(shown) == blocks_of(served)
    assert act["reveal"]["act-2,B"] == reveal_view(LearnQuestion(act=2, question="act-2", key="B"))
    assert act["entry"]["8,4,8"]["entry"]["memory_gb"] == "118.69"
    assert "time" not in act["entry"]["8,4,8"]["entry"]
    assert "in rounds of pp = 8, but got 2" in pack(ACTS[9])["panels"]["2,8,interleaved"]
    page = found["index.html"].decode()
    assert "36.05" not in page
    assert 'src="/' not in page
    assert 'href="/' not in page
    assert "llama3-8b-8.html" in found["answers.html"].decode()
    write_offline(tmp_path / "copy")  # over an earlier one
    (tmp_path / "copy" / "mine.txt").touch()
    with pytest.raises(InputError, match=r"mine\.txt is there already"):
        write_offline(tmp_path / "copy")
    with pytest.raises(InputError, match="cannot be written"):
        write_offline(tmp_path / "copy" / "mine.txt")


def test_a_grid_is_of_the_models_and_counts_that_are_named(tmp_path: Path) -> None:
    assert [each.name for each in questions(["llama3-8b", "gpt3"], (8, 64, 8))] == [
        *("llama3-8b-8", "llama3-8b-64"),
        *("gpt3-8", "gpt3-64"),
    ]
    assert {each.gpus for each in questions(["gpt3"])} == set(offline.offline()["questions"]["gpus"])
    for options, told in (
        (["--static", str(tmp_path / "x"), "--static-models", "llama3-8bb"], "did you mean llama3-8b"),
        (["--static-gpus", "8"], "--static DIR, which is missing"),
    ):
        result = CliRunner().invoke(cli, ["page", *options])
        assert (result.exit_code, told in result.output) == (2, True)


@pytest.mark.usefixtures("few")
def test_a_copy_is_played_from_files(browser: Any, tmp_path: Path) -> None:
    write_offline(tmp_path)
    context = browser.new_context()
    page = context.new_page()
    elsewhere, wrong = outside(page), list[str]()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(f"file://{tmp_path}/index.html")
    for question, key in (("act-2", "B"), ("act-9", "A"), ("act-9", "C")):
        form = page.locator(f"form.ask[data-question={question}]")
        if key == "C":
            assert form.locator("input[value=C]").is_disabled()
            continue
        form.locator(f"input[value={key}]").check()
        form.get_by_role("button", name="Lock my").click()
        page.locator(f"#{question}-reveal").wait_for()
    page.locator("#act2-out-of-memory", has_text="118.69 GB").wait_for()
    for name, value in (("tp", "4"), ("pp", "16"), ("microbatches", "64")):
        page.select_option(f"#act2-in-{name}", value)
    page.locator("#act2-passes").wait_for()
    page.get_by_role("button", name="Save this design").click()
    page.locator("#footer-saved", has_text="1").wait_for()
    page.select_option("#act9-in-microbatches", "2")
    page.select_option("#act9-in-schedule", "interleaved")
    page.locator("#problem", has_text="in rounds of pp = 8").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.locator("#act9-bubble", has_text="%").wait_for()
    page.reload()
    page.locator("#act-2-reveal").wait_for()
    assert page.locator("#footer-tier").inner_text() == "partial"
    assert axe(page) == []
    page.get_by_role("link", name="Answers").click()
    page.get_by_role("link", name="Llama").click()
    assert "MFU" in page.title()
    assert (elsewhere, wrong) == ([], [])
    context.close()
