"""What jobs are filed under: their values as one line."""

from __future__ import annotations

from math import nan

import pytest

from optimizer.job.job import Limits
from optimizer.sweep.study import Effort
from optimizer.sweep.task import canonical, content, key_of


def test_equal_values_are_one_line() -> None:
    assert canonical({"b": [1, "x"], "a": {"d": 2.5, "c": None}}) == '{"a":{"c":null,"d":2.5},"b":[1,"x"]}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"a": nan})


def test_a_key_is_of_half_a_hash() -> None:
    assert len({len(key_of(Effort(seed=seed), Effort(), "v1")) for seed in range(9)} | {32}) == 1


def test_sets_are_sorted_and_fields_have_their_names() -> None:
    found = content({1: frozenset({"b", "a"}), "limits": Limits(hbm=80e9)})
    assert (found["1"], found["limits"]["hbm"]) == (["a", "b"], 80e9)
