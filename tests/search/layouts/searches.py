"""A search for layouts that has found nothing yet, and a plan that it visits."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

from optimizer.job.plan import Knobs, Plan
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.layouts.candidates import _Search
from tests.search.jobs import small_job

PLAN = Plan(pp=2, dp=4, num_microbatches=12)


def search_of(limit: float = inf, *, fixed: Knobs | None = None, layouts: Any = None, **rest: Any) -> _Search:
    deadline: Any = SimpleNamespace(left=9.0)
    own: Any = None
    tuning: Any = replace(Tuning(), fixed=fixed)
    return _Search(job=small_job(8), tuning=tuning, deadline=deadline, layouts=layouts, own=own, limit=limit, **rest)
