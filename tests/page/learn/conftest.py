"""Visitors of the Learn tab with a real Chromium; skipped where it is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.page.conftest import Served


@dataclass
class Student:
    """A visitor with a browser of their own."""

    page: Any

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

    def lock(self, question: str, key: str) -> None:
        """Pick the choice and make it final."""
        form = self.page.locator(f"form.ask[data-question={question}]")
        form.locator(f"input[value={key}]").check()
        form.get_by_role("button", name="Lock my").click()
        self.page.locator(f"#{question}-reveal").wait_for()

    def put(self, act: int, name: str, value: object) -> None:
        """Type a value, or choose one."""
        field = self.page.locator(f"#act{act}-in-{name}")
        if field.evaluate("each => each.tagName") == "SELECT":
            field.select_option(f"{value}")
        else:
            field.fill(f"{value}")


@pytest.fixture
def enter(visit: Any, served: Served) -> Callable[[], Student]:
    """Open the tab as another visitor."""

    def student() -> Student:
        page = visit().page
        page.goto(served.room("/learn/"))
        page.locator("#footer-tier", has_text="developing").wait_for()
        return Student(page=page)

    return student
