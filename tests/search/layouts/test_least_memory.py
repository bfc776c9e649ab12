"""Whether plans fit, to the last byte, and the least that any of them reserves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.job.stack import Features
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.host_memory import most_offload
from optimizer.objectives.step.linear_stage import reserved_memory
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.layouts import least_memory as module
from optimizer.search.layouts.bounds.even_splits import even_memory
from optimizer.search.layouts.least_memory import LeastMemory
from tests.search.jobs import MIXTURE, small_job

EVEN = Features(uneven_stages=False)
GIVEN = {"layout": "even", "micro_batch": 1}


def evenly(kind: str) -> tuple[Job, Plans]:
    """Jobs of which every plan has one cut, by the software or by the user."""
    limits: dict[str, Any] = {"fixed": GIVEN} if kind == "given" else {"features": EVEN, "fixed": {"micro_batch": 1}}
    job = small_job(4, model=MIXTURE, bubble=1.0, **limits)
    plans = Plans.joined(list(lattice(job, structural(job))))
    return job, plans.take(slice(0, None, max(1, len(plans) // 12)))


def held(job: Job, plans: Plans) -> np.ndarray[Any, Any]:
    layer_costs = layer_costs_of(job, plans)
    memory = LeastMemory()
    if job.layout_given:
        return reserved_memory(job, plans, memory.at(layer_costs))
    return even_memory(layer_costs, most_offload(layer_costs))


@pytest.mark.parametrize("kind", ["given", "even"])
def test_plans_fit_to_the_last_byte(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job, plans = evenly(kind)
    memory, sizes = LeastMemory(), held(job, plans)
    for size in np.unique(sizes)[1:10:5]:
        for usable in (float(size), float(np.nextafter(size, 0.0))):
            monkeypatch.setattr(module, "safe_memory", lambda _, usable=usable: usable)
            right = list(plans.take(sizes <= usable).plans())
            assert list(plans.take(memory.possible(job, plans)).plans()) == right
            assert [plan for some in memory.fitting(job, [plans]) for plan in some.plans()] == right
            assert memory.fits(job, [plans]) is bool(right)


@pytest.mark.parametrize("kind", ["given", "even"])
def test_the_least_of_plans_with_one_cut_is_that_of_the_leanest(kind: str) -> None:
    """In whatever parts they come; the first of those that reserve as little."""
    job, plans = evenly(kind)
    sizes = held(job, plans)
    for parts in (1, 2, 3):
        chunks = [plans.take(part) for part in np.array_split(np.arange(len(plans)), parts)]
        least, plan = LeastMemory().least(job, chunks)
        assert least == sizes.min()
        assert plan is not None
        leanest = plans.plan(int(np.argmin(sizes)))
        assert (plan.tp, plan.pp, plan.dp, plan.zero_stage) == (leanest.tp, leanest.pp, leanest.dp, leanest.zero_stage)
    assert LeastMemory().least(job, []) == (np.inf, None)
    bounds = LeastMemory().bounds(job, plans, float(np.median(sizes)))
    assert (bounds[np.isfinite(bounds)] <= sizes[np.isfinite(bounds)] * (1 + 1e-12)).all()
    assert np.isfinite(bounds[sizes <= np.median(sizes)]).all()
