"""The lattice is the same however its rules are asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import FIELDS, Placement, Plan, Plans
from optimizer.search.lattice import enumerate as enumerated
from optimizer.search.lattice.enumerate import Space, alike, lattice, plans_of
from tests.search.jobs import MIXTURE, small_job


@pytest.mark.parametrize("job", [small_job(24), small_job(64, model=MIXTURE)], ids=["dense", "mixture"])
def test_rules_asked_of_pairs_of_values_leave_the_same_plans_in_the_same_order(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(tabled: int) -> list[tuple[int, ...]]:
        monkeypatch.setattr(enumerated, "TABLED", tabled)
        plans = Plans.joined(list(lattice(job, structural(job))))
        return [*zip(*(getattr(plans, name).tolist() for name in FIELDS), strict=True)]

    asked = rows(2**40)
    assert len(asked) > 50
    assert rows(0) == asked


def test_columns_that_are_not_there_are_neutral() -> None:
    plans = plans_of({"tp": np.array([1, 2, 4])})
    assert [plans.plan(index) for index in range(3)] == [Plan(), Plan(tp=2), Plan(tp=4)]


def test_plans_are_alike_wherever_their_layers_lie() -> None:
    mine = Plan(tp=2, pp=2, dp=2, num_microbatches=12, sequence_parallel=True)
    changes: list[dict[str, Any]] = [{name: 3} for name in ("tp", "vpp", "dp", "zero_stage", "shard")]
    changes += [
        {},
        {"sequence_parallel": False},
        {"layers_per_stage": (7, 5)},
        {"recompute": "full"},
        {"schedule": "interleaved"},
    ]
    others = [replace(mine, **change) for change in changes]
    found = alike(Plans.of(others), replace(mine, layers_per_stage=(6, 6)))
    assert found.tolist() == [other.lying(Placement()) == mine for other in others]


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_space_that_is_small_enough_is_priced_once(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    job = small_job(16)
    size = sum(map(len, lattice(job, structural(job))))
    monkeypatch.setattr(enumerated, "MOST_PRICED_ONCE", size - beyond)
    space = Space(job, structural(job))
    first, again = list(space), list(space)
    assert sum(map(len, first)) == sum(map(len, again)) == size
    assert all(one is other for one, other in zip(first, again, strict=True)) is not bool(beyond)


def test_the_same_plans_come_whatever_is_joined_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    job = small_job(24)
    rules = structural(job)

    def rows(**of_walk: int) -> set[Plan]:
        return {plan for plans in lattice(job, rules, **of_walk) for plan in plans.plans()}

    whole = rows()
    for most, chunk in ((1, 1000), (10**9, 7)):
        monkeypatch.setattr(enumerated, "MOST_SHAPES", most)
        assert rows(chunk=chunk) == whole
    assert len(list(lattice(job, rules, chunk=100))) > len(list(lattice(job, rules)))


def test_numbers_are_shared_among_rows_that_divide_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 12 and 13 the rows 1, 4 and 6 make 12, 13, 3 and 2, but for what is more than twelve parts."""
    for pairs in (1, 100):
        monkeypatch.setattr(enumerated, "PAIRS", pairs)
        taken, parts = enumerated._shares(np.array([12, 13]), 12, np.array([1, 4, 6]))
        assert (taken.tolist(), parts.tolist()) == ([0, 1, 2], [12, 3, 2])
