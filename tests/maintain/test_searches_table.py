"""The table of searches of the documentation is what the program finds; only its times may differ."""

from __future__ import annotations

import pytest

from maintain.docs.marked import replaced
from maintain.docs.site import DOCS
from maintain.searches_table import END, PAGE, START, TIMES, searches_section
from optimizer.base.errors import InputError

TEXT = (DOCS / PAGE).read_text(encoding="utf-8")


def without_times(block: str) -> list[list[str]]:
    return [line.split(" | ")[: -len(TIMES)] for line in block.splitlines() if line.startswith("| ")]


def test_the_table_is_what_the_searches_find() -> None:
    block = TEXT[TEXT.index(START) : TEXT.index(END)]
    assert without_times(block) == without_times(searches_section(top=0))


def test_a_text_without_the_markers_is_refused() -> None:
    with pytest.raises(InputError, match="lacks the lines"):
        replaced("nothing", "block")
