"""Pins, ranges and lists of values: what they allow, how far others are from them, and what drops them."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.base.errors import InputError
from optimizer.constraints.pins import pins
from optimizer.constraints.rules.every import structural
from optimizer.job.plan import Plan, Plans
from optimizer.job.recomputation import RECOMPUTE
from optimizer.job.stack import Features
from optimizer.search.infeasible.conflict import conflict
from optimizer.search.lattice.enumerate import lattice
from tests.search.jobs import small_job


def test_a_list_allows_its_values_and_measures_the_distance_to_the_nearest() -> None:
    job = small_job(8, choices={"tp": (2, 8)})
    (rule,) = pins(job)
    plans = Plans.of([Plan(tp=tp) for tp in (1, 2, 4, 8)])
    assert rule.check(job, plans).tolist() == [False, True, False, True]
    assert rule.required(job, plans).tolist() == [1.0, 0.0, 2.0, 0.0]
    assert rule.explain(job) == "you asked for tp=2,8"
    relaxed, text = rule.relax(job, 1.0)
    assert (relaxed.limits.choices, text) == ({}, "drop fix tp=2,8")


def test_the_lattice_holds_the_listed_values_only() -> None:
    lists = {"tp": (1, 4), "recompute": ("none", "selective"), "dp": (1, 2)}
    unfused = Features(attention="unfused")  # with flash attention selective recomputation frees nothing
    job = small_job(8, features=unfused, bubble=1.0, choices=lists)
    found = Plans.joined(list(lattice(job, structural(job))))
    free = small_job(8, features=unfused, bubble=1.0)
    every = Plans.joined(list(lattice(free, structural(free))))
    kept = np.isin(every.tp, (1, 4)) & (every.recompute != RECOMPUTE.index("full")) & np.isin(every.dp, (1, 2))
    assert len(found) == int(kept.sum()) > 0
    assert set(np.unique(found.tp)) == {1, 4}
    assert set(np.unique(found.dp)) == {1, 2}


def test_a_list_that_leaves_nothing_is_named_with_its_relaxation() -> None:
    clashes = {clash.rule: clash.relaxation for clash in conflict(small_job(8, choices={"tp": (3, 5)}))}
    assert clashes["fix tp=3,5"] == "drop fix tp=3,5"


def test_lists_are_checked_where_they_are_read() -> None:
    for choices, message in (
        ({"tq": (1, 2)}, "no such variable"),
        ({"tp": (0, 2)}, "at least 1"),
        ({"recompute": ("none", "some")}, "none, selective, full"),
        ({"tp": ()}, "the list of its values is empty"),
    ):
        with pytest.raises(InputError, match=message):
            structural(small_job(choices=choices))


def test_a_job_without_some_pins() -> None:
    job = small_job(fixed={"tp": 2, "pp": 1}, ranges={"cp": (1, 2)}, choices={"vpp": (1, 2)})
    limits = job.without_pin("pp", "cp", "vpp").limits
    assert (limits.fixed, limits.ranges, limits.choices) == ({"tp": 2}, {}, {})
