"""A report as a page: the words of the terminal, nothing of a name that means anything, nothing fetched."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.text import Text

from optimizer.cli import cli
from optimizer.reports.render.screen_page import screen_page

ROOT = Path(__file__).resolve().parents[2]


def words(page: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page[page.index('<pre class="report"') :]))


def test_hostile_names_are_texts() -> None:
    name = "[red]x[/] <script>alert(1)</script> \x1b]0;title\x07 <img src=//evil>"
    page = screen_page(f"Check {name}", f"optimize '{name}'", Text(name))
    assert "<script" not in page
    assert "<img" not in page
    assert "\x1b" not in page
    assert "\x07" not in page
    assert "[red]x[/]" in words(page)
    assert "script-src 'none'" in page


@pytest.mark.parametrize(
    ("command", "title"),
    [
        (["improve", str(ROOT / "examples" / "llama3-8b.sh")], "What to change"),
        (["read", str(ROOT / "examples" / "slow-run.log")], "What the log says"),
        (["prices", "--device", "h100"], "Prices"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_commands_write_what_they_print(
    command: list[str], title: str, more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    path = tmp_path / "report.html"
    done = CliRunner().invoke(cli, [*command, *more, "--html", str(path)])
    assert done.exit_code == 0, done.stderr
    page = path.read_text(encoding="utf-8")
    assert f"<title>{title}</title>" in page
    if not more:
        printed = [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
        assert [line.rstrip() for line in words(page).splitlines() if line.strip()] == printed
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


def test_a_log_that_is_read_is_not_overwritten(tmp_path: Path) -> None:
    log = tmp_path / "run.html"
    log.write_text((ROOT / "examples" / "slow-run.log").read_text(encoding="utf-8"))
    before = log.read_text()
    done = CliRunner().invoke(cli, ["read", str(log), "--html", str(log)])
    assert done.exit_code == 2
    assert log.read_text() == before
