"""Reports of hostile names, opened in a real browser: they draw their charts, run nothing and request nothing."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.cli import cli
from tests.catalog.readers.test_damage import MODEL, RUNS, written

URL = "http://attacker.invalid"
SETTLED_MS = 300
EVERY = "OPTIMIZE_TEST_EVERY_ATTACK"  # set: each kind of page meets every attack, which takes some minutes
CLUSTER = """name = {name}
device = "h100"
gpus_per_node = 8
[[tiers]]
name = {name}
link = "nvlink4"
size = 8
[[tiers]]
name = "network"
bandwidth_one_way = "400 Gb/s"
"""
# Each asks the server for something, or says so in the page's title, wherever markup is taken for markup.
ATTACKS = (
    "<img src={url}/1 onerror=\"document.title='RUN'\">",
    "</script><script>document.title='RUN';fetch('{url}/2')</script>",
    '<span style="background:url({url}/3)">x</span>',
    "<span style='background:url({url}/4)'><a href='{url}/5'>",
    "</title></style><link rel=stylesheet href={url}/6>",
    "<iframe src={url}/7></iframe><base href={url}/>",
    "<svg onload=\"document.title='RUN'\"><image href={url}/8>",
    '"><meta http-equiv=refresh content=0;url={url}/9>',
    "$\\href{{{url}/10}}{{x}}$ %{{x}} {{{{7*7}}}}",
    '<a href="javascript:document.title=1">x</a> [/] [link={url}/11]x[/link]',
    "\"'`onmouseover=alert(1) style=background:url({url}/12)",
)
JOB = ("--gpus", "16", "--global-batch", "64", "--cluster", "./cluster.toml", "--model", "./model.toml")
PAGES = {
    "timeline": ("timeline", *JOB, "--fix", "pp=2", "--fix", "tp=1", "--fix", "micro-batch=1"),
    "communication": ("communication", *JOB),
    "plan": ("communication", *JOB, "--best"),
    "scaling": ("scaling", *JOB[2:], "--gpus", "8,16"),
    "validation": ("validate", "--runs", "runs.csv"),
    "pareto": (
        *("pareto", *JOB[2:4], "--model", "./model.toml", "--tokens", "1e10", "--hardware", "./cluster.toml"),
        *("--gpus", "16", "--rent", "./cluster.toml=2"),
    ),
    "portfolio": (
        *("pareto", *JOB[2:4], "--portfolio", "portfolio.csv", "--hardware", "./cluster.toml"),
        *("--gpus", "16", "--rent", "./cluster.toml=2"),
    ),
    "networks": ("communication", *JOB, "--fix", "pp=2", "--network", "infiniband-ndr", "--network", "roce-100"),
    "pinned": ("communication", *JOB, "--fix", "pp=2", "--fix", "tp=1"),
    "batch": ("batch", "study.toml", "--workers", "1"),
    "show": ("batch", "show", "--store", "study.db"),
    "answer": (*JOB, "--trials", "0"),
}
BEFORE = {"show": (("batch", "study.toml", "--workers", "1"),)}


@dataclass
class Seen:
    """What came of a page: its title, whether a chart was drawn, and all that it asked for or complained about."""

    title: str = ""
    drawn: bool = False
    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


def opened(browser: Any, *paths: Path) -> list[Seen]:
    """Open pages side by side, look at every link that may be a name's, and see what each does; nothing reaches a
    network.
    """
    context = browser.new_context()
    tabs = [_tab(context, path) for path in paths]
    tabs[-1][0].wait_for_timeout(SETTLED_MS)
    for page, seen in tabs:
        for link in page.query_selector_all("a"):  # of SVG too
            target = link.get_attribute("href") or link.get_attribute("xlink:href") or "#"
            if not target.startswith("#") and not link.get_attribute("download"):
                seen.requests.append(f"a link to {target}")
        seen.title, seen.drawn = page.title(), page.query_selector(".drawn svg") is not None
    context.close()
    return [seen for _, seen in tabs]


def _tab(context: Any, path: Path) -> tuple[Any, Seen]:
    """A page that has begun, and what is seen of it from its first request on."""
    seen, page = Seen(), context.new_page()
    page.on("console", lambda message: seen.messages.append(message.text))
    page.on("pageerror", lambda error: seen.messages.append(str(error)))
    page.on("dialog", lambda dialog: (seen.messages.append(dialog.message), dialog.dismiss()))

    def intercepted(route: Any) -> None:
        if route.request.url.split("#")[0] == path.as_uri():
            route.continue_()
            return
        seen.requests.append(route.request.url)
        route.abort()

    page.route("**/*", intercepted)
    page.goto(path.as_uri())
    return page, seen


def hostile(folder: Path, attack: str) -> None:
    """Files in which every name is an attack."""
    from optimizer.base.names import toml_string

    name = toml_string(attack)
    (folder / "model.toml").write_text(written("model.toml", {**MODEL, "max_seq_len": 2048, "name": attack}))
    (folder / "cluster.toml").write_text(CLUSTER.format(name=name))
    quoted = '"' + attack.replace('"', '""') + '"'
    header, row = RUNS.splitlines()
    (folder / "runs.csv").write_text(f"id,source,table,{header}\n{quoted},{quoted},{quoted},{row}\n")
    (folder / "portfolio.csv").write_text("model,tokens\n./model.toml,1e10\n./model.toml,2e10\n")
    (folder / "study.toml").write_text(
        f'name = {name}\nmodels = "model.toml"\nclusters = "cluster.toml"\ngpus = 16\nglobal_batches = 64\ntrials = 0\n'
        f"[scenarios.{name}]\n"
    )


def test_the_browser_would_notice(tmp_path: Path, browser: Any) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<title>x</title><script>document.title='RUN';console.log('said')</script>"
        f"<img src={URL}/control><a href=javascript:alert(1)>x</a>"
    )
    (seen,) = opened(browser, page)
    assert seen.title == "RUN"
    assert seen.requests == [f"{URL}/control", "a link to javascript:alert(1)"]
    assert "said" in seen.messages


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_runs_and_requests_nothing(
    kind: str, tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    number = list(PAGES).index(kind)
    for attack in ATTACKS if os.environ.get(EVERY) else (ATTACKS[number % len(ATTACKS)],):
        hostile(tmp_path, attack.format(url=URL))
        for words in (*BEFORE.get(kind, ()), (*PAGES[kind], "--html", "page.html")):
            found = CliRunner().invoke(cli, list(words), prog_name="optimize")
            assert found.exit_code in (0, 3), found.output
        text = Path("page.html").read_text(encoding="utf-8")
        bare, policies = re.subn('<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
        assert policies == 1
        Path("bare.html").write_text(bare, encoding="utf-8")  # without its policy, only escapes protect it
        for seen in opened(browser, tmp_path / "page.html", tmp_path / "bare.html"):
            assert seen.requests == []
            assert seen.messages == []
            assert seen.title != "RUN"
            assert seen.drawn, "the chart was not drawn"
        for pattern in ("*.html", "page.csv", "study.db*"):
            for path in tmp_path.glob(pattern):
                path.unlink()


def test_a_page_is_the_same_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hostile(tmp_path, "plain")
    for kind in ("timeline", "communication", "validation"):
        pages = []
        for name in ("1.html", "2.html"):
            assert CliRunner().invoke(cli, [*PAGES[kind], "--html", name]).exit_code in (0, 3)
            pages.append(Path(name).read_text(encoding="utf-8"))
        assert pages[0] == pages[1]
