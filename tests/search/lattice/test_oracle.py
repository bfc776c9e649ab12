"""CP-SAT and the oracle find the same optimum on random jobs, CP-SAT also among plans that break rules."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings

from optimizer.constraints.batch import Batch
from optimizer.constraints.gpu_product import GpuProduct
from optimizer.constraints.memory import Memory
from optimizer.constraints.rules import structural
from optimizer.job import Job
from optimizer.objectives.step.price import price
from optimizer.plan import FIELDS, Plans
from optimizer.search.lattice.enumerate import Space, concatenate, lattice
from optimizer.search.lattice.oracle import fold, sweep
from optimizer.search.lattice.proof import prove
from tests.search.jobs import jobs, simple_price, small_job

MOST = 300


def test_the_best_plan_of_a_job_checked_by_hand() -> None:
    """8 GPUs: 100 / 8 s of work, no tp, pp or cp: 12.5 + 0.1 s; 40 GB of state and 1 GB of activations fit."""
    swept = sweep(small_job(8), structural(small_job(8)), price=simple_price)
    assert swept.points is not None
    assert swept.points.seconds[swept.best] == 12.6
    plan = swept.points.plans.plan(swept.best)
    assert (plan.tp, plan.cp, plan.pp, plan.dp, plan.recompute) == (1, 1, 1, 8, "none")


def test_memory_forces_the_cheapest_split() -> None:
    """21 GB less 2 GB of context: 40 GB of state must be halved and more, so pp = 4 beats tp = 4: 12.5 + 3/m + 0.1."""
    job = small_job(8, hbm=14e9)
    swept = sweep(job, structural(job), price=simple_price)
    assert swept.points is not None
    plan = swept.points.plans.plan(swept.best)
    assert (plan.tp, plan.pp) == (1, 4)
    assert swept.points.seconds[swept.best] == 12.5 + 3 / plan.num_microbatches + 0.1


@settings(max_examples=200, deadline=None)
@given(jobs())
def test_cp_sat_finds_the_optimum_of_the_oracle(job: Job) -> None:
    candidates = sample(job)
    assume(candidates is not None)
    assert candidates is not None
    costs = price(job, candidates)
    rules = (*structural(job), Memory(price=price))
    proof = prove(job, rules, candidates, costs.step_time)
    allowed = np.logical_and.reduce([rule.check(job, candidates) for rule in rules])
    swept = sweep(job, structural(job))
    assert proof.proven
    if swept.best < 0:
        assert not allowed.any()
        assert proof.point == -1
    else:
        assert swept.points is not None
        best = swept.points.seconds[swept.best]
        assert np.isclose(costs.step_time[proof.point], best, rtol=1e-7)
        assert allowed[proof.point]
        assert costs.step_time[allowed].min() == best


def sample(job: Job) -> Plans | None:
    """Every plan of the lattice, and as many that break some rule; None when there are none or too many."""
    valid = list(lattice(job, structural(job)))
    count = sum(map(len, valid))
    universe = list(lattice(job, [GpuProduct(), Batch()]))
    if not 0 < count <= MOST:
        return None
    every = concatenate(universe)
    others = every.take(np.arange(0, len(every), max(1, len(every) // MOST)))
    joined = concatenate([*valid, others])
    rows = np.column_stack([np.asarray(getattr(joined, name), dtype=np.int64) for name in FIELDS])
    _, first = np.unique(rows, axis=0, return_index=True)
    return joined.take(np.sort(first))


def test_the_lattice_is_exactly_what_the_rules_leave_of_the_whole() -> None:
    """Joining variable by variable loses nothing: the same plans as filtering the whole product at the end."""
    job = small_job(12, max_micro_batch=2)
    rules = structural(job)
    whole = concatenate(list(lattice(job, [])))
    kept = whole.take(np.logical_and.reduce([rule.check(job, whole) for rule in rules]))
    joined = concatenate(list(lattice(job, rules)))
    for name in FIELDS:
        assert getattr(joined, name).tolist() == getattr(kept, name).tolist()


def test_chunks_do_not_change_the_sweep() -> None:
    job = small_job(8)
    whole = sweep(job, structural(job))
    parts = fold(job, lattice(job, structural(job), chunk=100), price)
    assert whole.points is not None
    assert parts.points is not None
    assert parts.space == whole.space
    assert parts.fitting == whole.fitting
    assert parts.points.plans.plan(parts.best) == whole.points.plans.plan(whole.best)
    assert parts.knob_bound == whole.knob_bound


def test_a_space_lists_its_plans_alike_each_time_it_is_walked() -> None:
    job = small_job(16)
    space = Space(job, structural(job))
    first, second, fresh = (concatenate(list(chunks)) for chunks in (space, space, lattice(job, structural(job))))
    assert len(first) > 0
    for name in FIELDS:
        assert np.array_equal(getattr(first, name), getattr(second, name))
        assert np.array_equal(getattr(first, name), getattr(fresh, name))
    assert all(before is after for before, after in zip(space, space, strict=True))
