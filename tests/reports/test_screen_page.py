"""A report as a page: the words of the terminal, nothing of a name that means anything, nothing fetched."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner

from optimizer.cli import cli
from optimizer.reports.render.html import report_page
from optimizer.reports.report import BulletPoints, Pairs, Report, Table, Tile, Tiles, columns, section

ROOT = Path(__file__).resolve().parents[2]


def words(page: str) -> str:
    """The texts of a page without what the browser does not show."""
    return unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<(style|svg).*?</\1>", " ", page, flags=re.DOTALL)))


def test_hostile_names_are_texts() -> None:
    name = "[red]x[/] <script>alert(1)</script> \x1b]0;title\x07 <img src=//evil>"
    blocks = (
        BulletPoints([name]),
        Pairs([(name, name)]),
        Table(columns("a"), [[name]]),
        Tiles([Tile(name=name, value=name)]),
    )
    page = report_page(Report(title=f"Check {name}", command=f"optimize '{name}'", sections=(section(name, *blocks),)))
    assert "<script" not in page
    assert "<img" not in page
    assert "\x1b" not in page
    assert "\x07" not in page
    assert "[red]x[/]" in words(page)
    assert "script-src 'none'" in page


@pytest.mark.parametrize(
    ("command", "title"),
    [
        (["improve", str(ROOT / "examples" / "llama3-8b.sh")], "llama3-8b.sh: Llama-3 8B"),
        (["read", str(ROOT / "examples" / "slow-run.log")], "slow-run.log"),
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
    assert title in page[page.index("<title>") : page.index("</title>")]
    if not more:
        printed = re.sub("[█░•]", " ", done.stdout).split()
        assert set(printed) - set(words(page).split()) == set()
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


def test_a_log_that_is_read_is_not_overwritten(tmp_path: Path) -> None:
    log = tmp_path / "run.html"
    log.write_text((ROOT / "examples" / "slow-run.log").read_text(encoding="utf-8"))
    before = log.read_text()
    done = CliRunner().invoke(cli, ["read", str(log), "--html", str(log)])
    assert done.exit_code == 2
    assert log.read_text() == before
