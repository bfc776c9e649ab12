"""The README's table of searches is what the program finds; only its times may differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimizer.errors import InputError
from optimizer.tools.layout_readme import END, START, TIMES, searches_section
from optimizer.tools.readme import replaced

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def without_times(block: str) -> list[list[str]]:
    return [line.split(" | ")[: -len(TIMES)] for line in block.splitlines() if line.startswith("| ")]


def test_the_table_is_what_the_searches_find() -> None:
    block = README[README.index(START) : README.index(END)]
    assert without_times(block) == without_times(searches_section())


def test_a_text_without_the_markers_is_refused() -> None:
    with pytest.raises(InputError, match="lacks the lines"):
        replaced("nothing", "block")
