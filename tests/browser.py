"""A real Chromium, Debian's own; tests that need it are skipped where it is not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import pytest

# The first has no window of its own to draw beside a page, and takes four fifths as long.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # nothing leaves this machine, and no page waits for it
)


@contextmanager
def chromium_here(*needed: str) -> Iterator[Any]:
    """A browser, driven by playwright, whose loop runs meanwhile: asyncio.run works in other threads only."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    missing = [name for name in ("playwright", *needed) if find_spec(name) is None] + ["chromium"] * (path is None)
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


def outside(page: Any) -> list[str]:
    """Every address elsewhere that a page asks for from now on: the list grows."""
    asked: list[str] = []

    def look(address: str) -> None:
        where = urlsplit(address)
        if where.scheme in ("http", "https", "ws", "wss") and where.hostname != "127.0.0.1":
            asked.append(address)

    page.on("request", lambda request: look(request.url))
    page.on("websocket", lambda socket: look(socket.url))
    return asked


def axe(page: Any) -> list[tuple[str, str, str]]:
    """Every finding of axe-core, however slight."""
    from axe_core_python.sync_playwright import Axe

    found = Axe().run(page, options={"resultTypes": ["violations"]})["violations"]  # nothing is told of what is fine
    return [(finding["impact"], finding["id"], finding["nodes"][0]["html"][:200]) for finding in found]
