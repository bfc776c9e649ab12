"""What holds for every test: those of tests/slow.txt are marked slow, all others quick; doctests are those of the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent
SLOW = frozenset((ROOT / "tests" / "slow.txt").read_text(encoding="utf-8").split())


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Any:
    """Leave out the doctests of test files, which have none: to look for them takes longer than to import them."""
    found = yield
    if not file_path.is_relative_to(ROOT / "tests"):
        return found
    return [collector for collector in found if type(collector) is pytest.Module]
