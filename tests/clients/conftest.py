"""The clients of all tests of this folder, each started once in a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.accepted import TOOLS, Clients


@pytest.fixture(scope="session")
def clients() -> Iterator[Clients]:
    with Clients(Path(TOOLS)) as found:
        yield found
