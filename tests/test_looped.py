"""Looped tests run every case, and name those that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.looped import looped


@looped(name=["a", "b"], number=range(3))
def test_a_loop_takes_fixtures(tmp_path: Path, name: str, number: int) -> None:
    (tmp_path / f"{name}{number}").touch(exist_ok=False)


def test_every_combination_runs() -> None:
    seen = []
    looped(name=["a", "b"], number=range(3))(lambda name, number: seen.append((name, number)))()
    assert seen == [(name, number) for name in "ab" for number in range(3)]


def test_all_that_fail_are_named() -> None:
    @looped(number=range(5))
    def odd(number: int) -> None:
        assert number % 2, f"{number} is even"

    with pytest.raises(AssertionError, match="3 cases fail") as caught:
        odd()
    text = str(caught.value)
    assert [number for number in range(5) if f"\n{number}: AssertionError: {number} is even" in text] == [0, 2, 4]


def test_no_case_is_no_test() -> None:
    with pytest.raises(AssertionError, match="tests nothing"):
        looped(number=[])
