"""Rows that are taken lazily are those that would have been copied at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.job.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Inner(Rows):
    size: Any


@dataclass(frozen=True, kw_only=True)
class Outer(Rows):
    WHOLE = ("name",)

    name: str
    one: Any
    two: Any
    inner: Inner
    by_kind: Mapping[str, Any]


def outer(count: int = 6) -> Outer:
    numbers = np.arange(count)
    return Outer(
        name="all", one=numbers, two=10 * numbers, inner=Inner(size=-numbers), by_kind={"a": (numbers, numbers)}
    )


def columns(rows: Outer) -> list[list[int]]:
    parts = (rows.one, rows.two // 10, -rows.inner.size, *rows.by_kind["a"])
    return [part.tolist() for part in parts]


@given(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=5), max_size=4), st.lists(st.booleans(), max_size=4))
def test_taking_again_and_again_is_taking_of_what_was_taken(steps: list[list[int]], read: list[bool]) -> None:
    rows, numbers = outer(), np.arange(6)
    for place, index in enumerate(steps):
        if place < len(read) and read[place]:
            assert rows.one.tolist() == numbers.tolist()
        rows, numbers = rows.take(np.array(index)), numbers[index]
    assert columns(rows) == [numbers.tolist()] * 5


@pytest.mark.parametrize("index", [np.array([True, False] * 3), slice(0, 6, 2), [0, 2, 4], np.array([0, 2, 4])])
def test_masks_slices_and_lists_name_the_same_rows(index: Any) -> None:
    assert columns(outer().take(index)) == [[0, 2, 4]] * 5
    assert columns(outer().take(index).take([2])) == [[4]] * 5


def test_what_is_changed_stays_so_in_rows_that_are_taken_of_it() -> None:
    some = outer().take([5, 3, 1]).changed(name="some").take([1, 2])
    assert (some.name, columns(some)) == ("some", [[3, 1]] * 5)
    other = outer().take([5, 3, 1]).changed(one=np.array([7, 8, 9])).take([2])
    assert (other.one.tolist(), other.two.tolist()) == ([9], [10])


def test_rows_that_are_copied_hold_on_to_nothing() -> None:
    copied = outer().take([4, 2]).copied()
    assert set(vars(copied)) == {"name", "one", "two", "inner", "by_kind"}
    assert set(vars(copied.inner)) == {"size"}
    assert columns(copied) == [[4, 2]] * 5


def test_a_name_that_is_no_field_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="three"):
        _ = outer().take([0]).three  # type: ignore[attr-defined]
