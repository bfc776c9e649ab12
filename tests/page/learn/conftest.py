"""The Learn room on a server of its own, and visitors with a real Chromium; skipped where either is missing."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
NEEDED = ("marimo", "uvicorn", "playwright", "axe_core_python")
PATIENCE_MS = 30_000  # the machine of a test may be busy


@dataclass(frozen=True, kw_only=True)
class Room:
    """Where the room is, and the instructor's sheet."""

    address: str
    sheet: Path

    def rows(self) -> list[dict[str, str]]:
        with self.sheet.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """The lab as `optimize page` mounts it, told of a sheet."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    sheet = tmp_path_factory.mktemp("learn") / "answers.csv"
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("alone.py")), str(sheet)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        port = int(process.stdout.readline())
        yield Room(address=f"http://127.0.0.1:{port}/learn/", sheet=sheet)
        process.kill()


@dataclass
class Student:
    """A visitor with a page of their own, everything that went wrong on it and every address it asked for."""

    page: Any
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        """What an element of this id says."""
        return str(self.page.locator(f"#{name}").inner_text())

    def becomes(self, name: str, text: str) -> None:
        """Wait until it says so."""
        self.page.wait_for_function(
            "([id, text]) => document.getElementById(id)?.innerText.includes(text)", arg=[name, text]
        )

    def seen(self, name: str) -> bool:
        return bool(self.page.locator(f"#{name}").count())

    def lock(self, question: str, choice: str) -> None:
        """Pick the choice that begins so and make it final."""
        self.page.get_by_role("radio", name=choice).click()
        act = self.page.locator(".marimo-cell", has=self.page.get_by_role("radio", name=choice))
        act.get_by_role("button", name="Lock my").click()
        self.page.locator(f"#{question}-locked").wait_for()

    def slide(self, label: str, value: int) -> None:
        """Type a value beside a slider."""
        box = self.page.locator("marimo-slider", has_text=label).locator("input")
        box.fill(str(value))
        box.press("Enter")

    def steps(self, label: str, key: str) -> None:
        """Press a key on the thumb of a slider of steps."""
        self.page.locator("marimo-slider", has_text=label).get_by_role("slider").press(key)

    def choose(self, label: str, option: str) -> None:
        self.page.locator("marimo-dropdown", has_text=label).locator("select").select_option(label=option)

    def findings(self) -> list[tuple[str, str]]:
        """Findings of axe-core that keep people from using the page."""
        from axe_core_python.sync_playwright import Axe

        found = Axe().run(self.page)["violations"]
        return [
            (each["id"], each["nodes"][0]["html"][:200]) for each in found if each["impact"] in ("serious", "critical")
        ]


@pytest.fixture
def enter(chromium: Any, room: Room) -> Iterator[Callable[[], Student]]:
    """Open the room as another visitor; all that leaves the machine is blocked."""
    contexts = []

    def student() -> Student:
        context = chromium.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        found = Student(page=context.new_page())

        def outside(route: Any) -> None:
            found.outside.append(route.request.url)
            route.abort()

        context.route(lambda address: not address.startswith(("http://127.0.0.1", "data:", "blob:")), outside)
        found.page.on("pageerror", lambda error: found.errors.append(str(error)))
        found.page.on("console", lambda said: found.errors.append(said.text) if said.type == "error" else None)
        found.page.goto(room.address)
        found.page.get_by_role("radio", name="B. TP 8, PP 4").wait_for()
        return found

    yield student
    for context in contexts:
        context.close()
