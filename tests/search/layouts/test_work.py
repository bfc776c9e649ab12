"""A search looks at few plans: bounds that loosen would not change what it answers, but how much it looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.fields import EXPECTED
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.job.stack import BY_VIRTUAL_STAGE, Features
from optimizer.search.lattice.enumerate import Space, lattice
from optimizer.search.layouts import candidates
from optimizer.search.layouts.candidates import lay_out, place
from optimizer.search.layouts.solve import layout
from tests.search.jobs import DENSE, MIXTURE, small_job

RECOMPUTES = Features(recompute=("none", "full"), zero_stages=(0, 1, 3))
# A job, and how many of its plans have a bound below the best even split, are bounded by shapes of virtual stages, are
# visited, have a bound of their cuts, are solved, and how many layouts are compared for that.
JOBS: dict[str, tuple[Job, dict[str, int]]] = {
    "recomputed by stage": (
        small_job(8, bubble=1.0, hbm=5e9, features=RECOMPUTES),
        {"band": 2016, "shaped_bounds": 67, "_solve": 2, "best_assignment": 2, "fastest": 40},
    ),
    "recomputed alike": (
        small_job(8, model=MIXTURE, hbm=5e9, features=replace(RECOMPUTES, recompute_by=BY_VIRTUAL_STAGE)),
        {"band": 4350, "shaped_bounds": 82, "_solve": 6, "cut_bound": 4, "best_assignment": 2, "fastest": 40},
    ),
    "predicting": (
        small_job(8, model=replace(MIXTURE, mtp_layers=1), bubble=1.0, hbm=9e9),
        {"band": 3756, "shaped_bounds": 67, "_solve": 4, "cut_bound": 1, "best_assignment": 3, "fastest": 16},
    ),
    "on the host": (
        small_job(8, hbm=4e9, features=Features(zero_stages=(1,))).with_host_memory(2e12),
        {"band": 480, "shaped_bounds": 24, "_solve": 4, "best_assignment": 3, "fastest": 181},
    ),
    "expected": (
        replace(small_job(12, model=replace(DENSE, layers=11), hbm=4.5e9), prefer=EXPECTED),
        {"band": 356, "shaped_bounds": 48, "_solve": 6, "best_assignment": 6, "fastest": 182},
    ),
}
WORK: dict[str, tuple[Any, Callable[..., int]]] = {
    "shaped_bounds": (candidates, lambda _, some, limit: len(some)),
    "_solve": (candidates, lambda *_: 1),
    "cut_bound": (candidates, lambda *_: 1),
    "best_assignment": (layout, lambda *_, **__: 1),
    "fastest": (layout, lambda _, shapes, *__: len(shapes)),
}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How much was asked of each of these functions."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., Any]:
        module, size = WORK[name]
        function = getattr(module, name)

        def asked(*args: Any, **options: Any) -> Any:
            counts[name] += size(*args, **options)
            return function(*args, **options)

        return asked

    for name, (module, _) in WORK.items():
        monkeypatch.setattr(module, name, counted(name))
    return counts


@pytest.mark.parametrize("name", JOBS)
def test_no_more_is_looked_at_than_bounds_leave(name: str, work: Counter[str]) -> None:
    job, most = JOBS[name]
    found = lay_out(job, Space(job, structural(job)))
    done = {"band": found.band, **work}
    assert {what: count for what, count in done.items() if count > most.get(what, 0)} == {}


@pytest.mark.parametrize(("prefer", "most"), [("fast", 2), (EXPECTED, 2)])
def test_runners_up_are_visited_where_they_may_fit(prefer: str, most: int, work: Counter[str]) -> None:
    job = replace(small_job(8, features=RECOMPUTES, hbm=4.5e9), prefer=prefer)
    plans = Plans.joined(list(lattice(job, structural(job))))
    some = plans.take(np.arange(0, len(plans), max(1, len(plans) // 24)))
    place(job, some)
    assert work["_solve"] <= most
