"""The page of a batch: complete, offline, small, and deaf to anything a study may say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from optimizer.errors import InputError
from optimizer.sweep.report.page import TEMPLATES, embedded, page, source_hash, write_page
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


def test_a_thousand_jobs_stay_under_six_megabytes(tmp_path: Path) -> None:
    path, table = write_page("families", results() * 250, tmp_path / "report.html")
    assert path.stat().st_size < 6e6
    assert table.read_text().count("\n") == 1001


def test_nothing_from_a_study_can_become_markup_or_script() -> None:
    text = page(ATTACK, wicked())
    harmless = Reader(page("name", results()))
    reader = Reader(text)
    assert set(reader.tags) == set(harmless.tags)
    assert reader.tags.count("script") == harmless.tags.count("script") == 3
    assert reader.active == []
    assert ATTACK not in text
    assert "<img" not in text
    assert json.loads(reader.scripts[0])["columns"]["model"]["values"][0] == ATTACK


def test_only_our_own_scripts_may_run_and_nothing_may_be_fetched() -> None:
    text = page("families", results())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert source_hash((TEMPLATES / "batch.js").read_text(encoding="utf-8")) in policy[1]
    assert policy[1].count("sha256-") == 2
    assert "unsafe-eval" not in policy[1]


def test_json_in_a_page_has_no_markup() -> None:
    assert embedded({"a": "<&>\u2028"}) == '{"a":"\\u003c\\u0026\\u003e\\u2028"}'


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_page("families", results(), tmp_path / "none" / "report.html")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_draws_it_filters_by_the_address_and_runs_no_foreign_script(tmp_path: Path) -> None:
    path, _ = write_page(ATTACK, wicked(), tmp_path / "report.html")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", f"{path.as_uri()}#gpus=16&metric=step_time_s"]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    count = re.search(r'id="count">([^<]*)<', dom)
    assert count is not None
    assert count[1] == "1 of 4 jobs"
    assert "heatmaplayer" in dom
    assert "<img" not in dom
    assert dom.count("<script") == 4  # ours three, and Plotly unpacked
