"""Reports of hostile names, opened in a real browser: they draw their charts, run nothing and request nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner

from optimizer.cli import cli
from tests.readers.test_damage import MODEL, RUNS, written

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
EVERY = "OPTIMIZE_TEST_EVERY_ATTACK"  # set: each kind of page meets every attack, which takes some minutes
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
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
    "batch": ("batch", "study.toml", "--workers", "1"),
    "answer": (*JOB, "--trials", "0"),
}

PROGRAMS = ("pareto", "batch")  # whose charts a program draws


@pytest.fixture(scope="module")
def requests() -> Iterator[tuple[str, list[str]]]:
    """A server on this machine and what was asked of it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def opened(page: Path, profile: Path) -> str:
    """What the page has become in the browser."""
    assert BROWSER is not None
    command = [BROWSER, *OPTIONS, f"--user-data-dir={profile}", "--virtual-time-budget=4000", "--dump-dom", str(page)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def hostile(folder: Path, attack: str) -> None:
    """Files in which every name is an attack."""
    from optimizer.names import toml_string

    name = toml_string(attack)
    (folder / "model.toml").write_text(written("model.toml", {**MODEL, "max_seq_len": 2048, "name": attack}))
    (folder / "cluster.toml").write_text(CLUSTER.format(name=name))
    quoted = '"' + attack.replace('"', '""') + '"'
    header, row = RUNS.splitlines()
    (folder / "runs.csv").write_text(f"id,source,table,{header}\n{quoted},{quoted},{quoted},{row}\n")
    (folder / "study.toml").write_text(
        f'name = {name}\nmodels = "model.toml"\nclusters = "cluster.toml"\ngpus = 16\nglobal_batches = 64\ntrials = 0\n'
        f"[scenarios.{name}]\n"
    )


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_the_browser_and_the_server_would_notice(tmp_path: Path, requests: tuple[str, list[str]]) -> None:
    url, asked = requests
    page = tmp_path / "page.html"
    page.write_text(f"<title>x</title><script>document.title='RUN'</script><img src={url}/control>")
    assert "RUN" in opened(page, tmp_path / "profile")
    assert "/control" in asked
    asked.clear()


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("kind", PAGES)
def test_a_page_runs_and_requests_nothing(
    kind: str, tmp_path: Path, requests: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = requests
    monkeypatch.chdir(tmp_path)
    attacks = [attack.format(url=url) for attack in ATTACKS]
    number = list(PAGES).index(kind)
    chosen = [(attack, policy) for attack in attacks for policy in (True, False)]
    # Each kind of page meets some of the attacks, and one of them without its policy, when only escapes protect it.
    for attack, policy in chosen if os.environ.get(EVERY) else (chosen[2 * number], chosen[2 * number + 3]):
        hostile(tmp_path, attack)
        found = CliRunner().invoke(cli, [*PAGES[kind], "--html", "page.html"], prog_name="optimize")
        assert found.exit_code in (0, 3), found.output
        text = Path("page.html").read_text(encoding="utf-8")
        assert len(re.findall("Content-Security-Policy", text)) == 1
        if not policy:
            text = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
            Path("page.html").write_text(text, encoding="utf-8")
        dom = opened(tmp_path / "page.html", tmp_path / "profile")
        title = re.search("<title>(.*?)</title>", dom, re.DOTALL)
        assert title is not None
        assert title[1] != "RUN"
        assert ("main-svg" if kind in PROGRAMS else 'class="drawn"') in dom, "the chart was not drawn"
        assert asked == []
        for path in tmp_path.glob("*.html"):
            path.unlink()
        for path in tmp_path.glob("*.csv"):
            path.unlink()
        for path in tmp_path.glob("study.db*"):
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
