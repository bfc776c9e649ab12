"""Stores to test against: SQLite always, PostgreSQL where a server is named."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

from optimizer.base.interruption import start_server
from optimizer.base.processes import FORKING
from optimizer.sweep.local import PRELOADED
from tests.sweep.backends import STORES


@pytest.fixture(scope="session", autouse=True)
def forking() -> None:
    """Fork the workers of every test from one process that has imported what any of them needs."""
    if FORKING in multiprocessing.get_all_start_methods():
        multiprocessing.get_context(FORKING).set_forkserver_preload([*PRELOADED, "tests.sweep.fakes"])
        start_server()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where an empty store can be made."""
    with STORES[request.param](tmp_path) as found:
        yield found
