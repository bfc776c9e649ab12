"""Visitors of the Learn room with a real Chromium; skipped where it is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.browser import outside
from tests.page.conftest import PATIENCE_MS, Served


@dataclass
class Student:
    """A visitor with a page of their own, everything that went wrong on it and every address it asked for."""

    page: Any
    outside: list[str]
    errors: list[str] = field(default_factory=list)

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


@pytest.fixture
def enter(window: Callable[[], Any], served: Served) -> Iterator[Callable[[], Student]]:
    """Open the room as another visitor."""
    students: list[Student] = []

    def student() -> Student:
        page = window()
        page.set_default_timeout(PATIENCE_MS)
        found = Student(page=page, outside=outside(page))
        students.append(found)
        page.on("pageerror", lambda error: found.errors.append(str(error)))
        page.on("console", lambda said: found.errors.append(said.text) if said.type == "error" else None)
        page.goto(served.room("/learn/"))
        page.get_by_role("radio", name="B. TP 8, PP 4").wait_for()
        return found

    yield student
    for each in students:
        each.page.close()
