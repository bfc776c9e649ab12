"""A server of `optimize page` and a real Chromium; tests that need what is not here are skipped."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.browser import outside

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("starlette", "axe_core_python")
PATIENCE_MS = 90_000  # the machine of a test may be busy


@dataclass(frozen=True, kw_only=True)
class Served:
    """A running server: where it is, the token that opens it, its process, and the sheet that students write on."""

    home: str
    token: str
    process: subprocess.Popen[str]
    sheet: Path | None = None

    def room(self, path: str = "/plan/", question: str = "") -> str:
        """The address of a room, with the token."""
        return f"{self.home}{path}?access_token={self.token}{'&' * bool(question)}{question}"


def started(*arguments: str) -> Served:
    """A server on a free port."""
    if missing := [name for name in ("starlette", "uvicorn") if find_spec(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}: pip install 'mfu-optimizer[page]'")
    process = subprocess.Popen(
        [sys.executable, "-m", "optimizer", "page", "--no-browser", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    first = process.stdout.readline()
    found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?access_token=([\w-]+)\n", first)
    assert found, (first, process.stderr.read())
    return Served(home=found[1], token=found[2], process=process)


def ended(served: Served, how: int = signal.SIGTERM) -> int:
    """The exit code of a server after a signal."""
    served.process.send_signal(how)
    code = served.process.wait(timeout=60)
    served.process.stdout.close()
    served.process.stderr.close()
    return code


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests."""
    sheet = tmp_path_factory.mktemp("learn") / "answers.csv"
    found = replace(started("--learn-out", str(sheet)), sheet=sheet)
    yield found
    ended(found)


@pytest.fixture(scope="session")
def chromium(browser: Any) -> Any:
    """The browser, where all else is here that the tabs and their tests need."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    return browser


@dataclass
class Visitor:
    """A page of a visitor of its own, with everything that went wrong and every address it asked for."""

    page: Any
    outside: list[str]
    errors: list[str] = field(default_factory=list)

    def answers(self) -> int:
        """How many answers were shown so far."""
        return int(self.page.locator("#answer").get_attribute("data-answered") or 0)

    def answered(self, before: int) -> None:
        """Wait for another answer and its proof."""
        self.page.wait_for_function(
            "before => Number(document.getElementById('answer').dataset.answered || 0) > before", arg=before
        )
        self.page.wait_for_selector("#answer:not([data-pending])")

    def open(self, address: str) -> None:
        """Go to an address and wait for the answer, its charts and its proof."""
        self.page.goto(address)
        self.page.wait_for_selector("#answer[data-answered]:not([data-pending]) .drawn")

    @property
    def headline(self) -> str:
        """What the answer says first."""
        return str(self.page.locator(".headline").inner_text())

    @property
    def plan(self) -> str:
        """The plan in the answer."""
        return str(self.page.locator("#answer b", has_text="TP").first.inner_text())


@pytest.fixture
def visit(chromium: Any) -> Iterator[Any]:
    """Makes visitors, each with a browser of their own; none may meet an error or ask for anything elsewhere."""
    visitors: list[Visitor] = []
    contexts: list[Any] = []

    def enter(width: int = 1440, *, strict: bool = False, scheme: str = "light") -> Visitor:
        """`strict` keeps the page's own policy, under which playwright can wait for selectors but for no function."""
        context = chromium.new_context(
            viewport={"width": width, "height": 1000},
            accept_downloads=True,
            bypass_csp=not strict,
            color_scheme=scheme,
        )
        contexts.append(context)
        page = context.new_page()
        visitor = Visitor(page=page, outside=outside(page))
        visitor.page.set_default_timeout(PATIENCE_MS)
        visitor.page.on("console", lambda said: visitor.errors.append(said.text) if said.type == "error" else None)
        visitor.page.on("pageerror", lambda error: visitor.errors.append(str(error)))
        visitors.append(visitor)
        return visitor

    yield enter
    for context in contexts:
        context.close()
    assert [visitor.outside for visitor in visitors] == [[]] * len(visitors)
    assert [visitor.errors for visitor in visitors] == [[]] * len(visitors)
