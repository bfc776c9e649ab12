"""The page of a batch: complete, offline, small, and deaf to anything a study may say."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from math import nan
from pathlib import Path
from typing import Any

import pytest

from optimizer.base.errors import InputError
from optimizer.reports.render.html import source_hash
from optimizer.sweep.page import conclusion, embedded, page, write_page
from tests.browser import axe
from tests.sweep.test_results import results

ATTACK = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'


class Reader(HTMLParser):
    """Elements, attributes that fetch or run, and the data block."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.active: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.active += [
            (name, value)
            for name, value in attrs
            if name.startswith("on") or (name in ("src", "href") and not (value or "").startswith("#"))
        ]
        self.inside = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.scripts.append(data)


def wicked() -> list[dict[str, Any]]:
    found = results()
    found[0]["scenario"] = found[0]["job"]["model"] = found[0]["job"]["cluster"] = found[0]["job"]["family"] = ATTACK
    found[0]["job"]["limits"] = {"fixed": {ATTACK: ATTACK}}
    found[2]["error"] = ATTACK
    return found


def test_the_page_holds_every_job_and_fetches_nothing() -> None:
    reader = Reader(page("families", results()))
    data = json.loads(reader.scripts[0])
    assert data["count"] == 4
    assert data["columns"]["model"] == {"values": ["llama3-8b"], "codes": [0, 0, 0, 0]}
    assert data["columns"]["gpus"] == [8, 16, 24, 32]
    assert data["columns"]["tp"] == [8, 8, None, None]
    assert data["time"]["gemm"][0] == pytest.approx(results()[0]["estimate"]["time_s"]["gemm"], rel=1e-4)
    assert "peak_reserved" not in data["memory"]
    assert reader.active == []
    assert "link" not in reader.tags


def test_a_thousand_jobs_stay_under_half_a_megabyte(tmp_path: Path) -> None:
    path, table = write_page("families", results() * 250, tmp_path / "report.html")
    assert path.stat().st_size < 5e5
    assert table.read_text().count("\n") == 1001


def test_nothing_from_a_study_can_become_markup_or_script() -> None:
    text = page(ATTACK, wicked())
    harmless = Reader(page("name", results()))
    reader = Reader(text)
    assert set(reader.tags) == set(harmless.tags)
    assert reader.tags.count("script") == harmless.tags.count("script") == 2
    assert reader.active == []
    assert ATTACK not in text
    assert "<img" not in text
    assert json.loads(reader.scripts[0])["columns"]["model"]["values"][0] == ATTACK


def test_only_our_own_script_may_run_and_nothing_may_be_fetched() -> None:
    text = page("families", results())
    program = Reader(text).scripts[1]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert f"script-src '{source_hash(program)}';" in policy[1]
    assert "unsafe-eval" not in policy[1]


def test_json_in_a_page_has_no_markup() -> None:
    assert embedded({"a": "<&>\u2028"}) == '{"a":"\\u003c\\u0026\\u003e\\u2028"}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded([nan])


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_page("families", results(), tmp_path / "none" / "report.html")


def test_a_browser_draws_it_filters_by_the_address_and_runs_no_foreign_script(tmp_path: Path, browser: Any) -> None:
    path, _ = write_page(ATTACK, wicked(), tmp_path / "report.html")
    visited = browser.new_page()
    said: list[str] = []
    visited.on("console", lambda message: said.append(message.text))
    visited.on("pageerror", lambda error: said.append(str(error)))
    visited.on("dialog", lambda dialog: said.append(dialog.message))
    visited.goto(f"{path.as_uri()}#gpus=16&metric=step_time_s")
    assert visited.locator("#count").inner_text() == "1 of 4 jobs"
    assert visited.locator("#scatter .point").count() == 1
    visited.click("#reset")
    assert visited.locator("#count").inner_text() == "4 of 4 jobs"
    assert visited.locator("#scatter .point").count() == visited.locator("#heat td button").count() == 2
    assert visited.locator("#heat td:empty").count() == 6  # of the other model, and without a plan
    assert visited.locator("script").count() == 2
    assert visited.locator("img").count() == 0
    assert said == []
    visited.close()


def test_every_job_opens_and_sorts_by_the_keyboard(tmp_path: Path, browser: Any) -> None:
    path, _ = write_page("families", results(), tmp_path / "report.html")
    visited = browser.new_page()
    visited.goto(path.as_uri())
    assert axe(visited) == []
    opener = visited.locator("#jobs tbody button").first
    opener.focus()
    visited.keyboard.press("Enter")
    assert "Where the time goes" in visited.locator("#detail").inner_text()
    assert axe(visited) == []
    visited.keyboard.press("Escape")
    assert visited.locator("#detail").is_hidden()
    assert visited.evaluate("document.activeElement.closest('#jobs tbody') !== null")
    visited.locator("#jobs th button", has_text="GPUs").focus()
    for order, first in (("ascending", "8"), ("descending", "32")):
        visited.keyboard.press("Enter")
        assert visited.locator(f"#jobs th[aria-sort={order}]").inner_text().startswith("GPUs")
        assert visited.locator("#jobs tbody tr").first.locator("td").nth(1).inner_text() == first
    visited.close()


def test_where_nothing_has_a_plan_the_tables_say_why(tmp_path: Path, browser: Any) -> None:
    path, _ = write_page("families", results()[2:], tmp_path / "report.html")
    visited = browser.new_page()
    visited.goto(path.as_uri())
    assert "the tables below say why" in visited.locator("#trouble").inner_text()
    assert visited.locator("#scatter").is_hidden()
    assert visited.locator("#jobs tbody tr").count() == 2
    visited.close()


def test_a_conclusion_names_the_best_of_each_and_what_has_no_plan() -> None:
    none = {"best_mfu": None, "most_tokens_per_usd": None, "jobs": 3, "planned": 0}
    fast = {"best_mfu": 0.5, "best_at": "A", "most_tokens_per_usd": 4e5, "most_tokens_at": "A", "jobs": 2, "planned": 2}
    cheap = fast | {"best_mfu": 0.4, "most_tokens_per_usd": 2.5e6, "most_tokens_at": "B", "planned": 1}
    rates = [
        "Most tokens per dollar: 2,500,000 with B.",
        "Highest MFU, of the device's own peak: 50.0% with A.",
    ]
    for families, said in (
        ((none, fast, cheap), [*rates, "4 of 9 jobs have no plan."]),
        ((fast, cheap | {"planned": 2}), rates),
        (
            (none, fast | {"most_tokens_per_usd": 0.5}),
            ["Most tokens per dollar: 0 with A.", rates[1], "3 of 9 jobs have no plan."],
        ),
        ((none,), ["No job has a plan.", "3 of 9 jobs have no plan."]),
        ((), ["No job has a plan."]),
    ):
        assert conclusion({"families": dict(enumerate(families)), "jobs": 9}) == said
