"""Stores to test against: SQLite always, PostgreSQL where a server is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sweep.backends import STORES


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where an empty store can be made."""
    with STORES[request.param](tmp_path) as found:
        yield found
