"""CP-SAT and the oracle find the same optimum on random jobs, CP-SAT also among plans that break rules."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings

from optimizer.constraints.rules.batch import Batch
from optimizer.constraints.rules.every import structural
from optimizer.constraints.rules.gpu_product import GpuProduct
from optimizer.constraints.rules.memory import Memory
from optimizer.job.fields import EXPECTED
from optimizer.job.job import Job
from optimizer.job.plan import FIELDS, Knobs, Plans
from optimizer.job.stack import Features
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.price import price, price_layer_costs
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice import oracle
from optimizer.search.lattice.enumerate import Space, lattice
from optimizer.search.lattice.knobs import tuned
from optimizer.search.lattice.oracle import STRUCTURE, Tuning, firsts, fold, sweep
from optimizer.search.lattice.proof import prove
from tests.search.jobs import MIXTURE, jobs, small_job
from tests.thorough import cases

MOST = 300
SMALL = small_job(8)
DEFAULTS = Tuning(fixed=Knobs())


@pytest.mark.parametrize(
    "job", [small_job(8), small_job(8, model=MIXTURE), small_job(8, hbm=6e9), small_job(1, hbm=22e9)]
)
def test_the_best_even_split_is_the_fastest_of_all_each_at_its_own_settings(job: Job) -> None:
    """Whatever the sweep leaves untuned because of its bound could not have been the best, and the first of equals is
    taken.
    """
    layer_costs = layer_costs_of(job, Plans.joined(list(lattice(job, structural(job)))))
    every = tuned(layer_costs)
    costs = price_layer_costs(layer_costs, every.knobs)
    fits = costs.reserved <= safe_memory(job)
    assert every.values.tolist() == pytest.approx(costs.step_time.tolist(), rel=1e-12)
    assert every.fits.tolist() == fits.tolist()
    swept = sweep(job, structural(job))
    assert swept.points is not None
    assert (swept.space, swept.fitting) == (len(layer_costs), int(fits.sum()))
    first = int(np.argmin(np.where(fits, costs.step_time, np.inf)))
    assert swept.points.plans.plan(swept.best) == layer_costs.plans.plan(first)
    assert swept.points.values[swept.best] == pytest.approx(costs.step_time[first], rel=1e-12)
    assert swept.knob_bound <= costs.step_time[fits].min()


def test_memory_forces_the_state_to_the_host_or_the_model_to_be_split() -> None:
    """On one GPU of 10 GB, of which 2 GB are the context, the state of this model does not fit without the host; on
    eight its shards do.
    """
    both = [small_job(gpus, hbm=10e9, oom_risk=0.5) for gpus in (1, 8)]
    alone, several = (sweep(job, structural(job)) for job in both)
    assert alone.points is not None
    assert several.points is not None
    assert 0 < alone.points.knobs.offload[alone.best] <= 1
    assert several.points.knobs.offload[several.best] == 0
    none = sweep(both[0], structural(both[0]), DEFAULTS)
    assert (none.best, none.fitting) == (-1, 0)


@settings(max_examples=cases(200, sample=12), deadline=None)
@given(jobs())
def test_cp_sat_finds_the_optimum_of_the_oracle(job: Job) -> None:
    candidates = sample(job)
    assume(candidates is not None)
    assert candidates is not None
    costs = price(job, candidates)
    rules = (*structural(job), Memory())
    proof = prove(job, rules, candidates, costs.step_time)
    allowed = np.logical_and.reduce([rule.check(job, candidates) for rule in rules])
    swept = sweep(job, structural(job), DEFAULTS)
    assert proof.proven
    if swept.best < 0:
        assert not allowed.any()
        assert proof.point == -1
    else:
        assert swept.points is not None
        best = swept.points.values[swept.best]
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
    every = Plans.joined(universe)
    others = every.take(np.arange(0, len(every), max(1, len(every) // MOST)))
    joined = Plans.joined([*valid, others])
    rows = np.column_stack([np.asarray(getattr(joined, name), dtype=np.int64) for name in FIELDS])
    _, first = np.unique(rows, axis=0, return_index=True)
    return joined.take(np.sort(first))


def test_the_lattice_is_exactly_what_the_rules_leave_of_the_whole() -> None:
    """Joining variable by variable loses nothing: the same plans as filtering the whole product at the end."""
    job = small_job(12, max_micro_batch=2)
    rules = structural(job)
    whole = Plans.joined(list(lattice(job, [])))
    kept = whole.take(np.logical_and.reduce([rule.check(job, whole) for rule in rules]))
    joined = Plans.joined(list(lattice(job, rules)))
    for name in FIELDS:
        assert getattr(joined, name).tolist() == getattr(kept, name).tolist()


def test_the_first_plan_of_every_structure_is_found_in_the_order_of_structures() -> None:
    job = small_job(8)
    plans = Plans.joined(list(lattice(job, structural(job))))
    columns = np.column_stack([np.asarray(getattr(plans, name), dtype=np.int64) for name in STRUCTURE])
    assert firsts(plans).tolist() == np.unique(columns, axis=0, return_index=True)[1].tolist()


def test_chunks_do_not_change_the_sweep() -> None:
    job = small_job(8)
    whole = sweep(job, structural(job))
    parts = fold(job, (layer_costs_of(job, plans) for plans in lattice(job, structural(job), chunk=100)))
    assert whole.points is not None
    assert parts.points is not None
    assert parts.space == whole.space
    assert parts.fitting == whole.fitting
    assert parts.points.plans.plan(parts.best) == whole.points.plans.plan(whole.best)
    assert parts.knob_bound == whole.knob_bound


@pytest.mark.parametrize("beyond", [0, 1])
def test_all_plans_stay_for_cp_sat_of_a_lattice_that_it_is_given_whole(
    beyond: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = small_job(8, fixed={"layout": "even"})
    space = Space(job, structural(job))
    monkeypatch.setattr(oracle, "FASTEST", 10)
    monkeypatch.setattr(oracle, "PROVEN_WHOLE", sum(map(len, space)) - beyond)
    swept = fold(job, space)
    assert swept.points is not None
    assert (len(swept.points.plans) < swept.space) is bool(beyond)


HOSTED = replace(small_job(2, hbm=12e9, features=Features(zero_stages=(0, 1))), prefer=EXPECTED).with_host_memory(2e12)


@pytest.mark.parametrize(
    ("job", "below", "near"),
    [(small_job(8), 1, 11), (small_job(8, model=MIXTURE), 1, 9), (small_job(16), 2, 6), (HOSTED, 1, 3)],
    ids=["dense", "mixture", "two", "on the host"],
)
def test_no_more_plans_are_tuned_than_may_be_best_or_near(
    job: Job, below: int, near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those whose bound is below the best, and as many as may be of those within 5 % of it."""
    monkeypatch.setattr(oracle, "SLICE", 1)
    for most in (0, 5, 1000):
        monkeypatch.setattr(oracle, "MOST_TUNED", most)
        with mock.patch.object(oracle, "tuned", wraps=tuned) as found:
            swept = sweep(job, structural(job))
        assert swept.points is not None
        points, best = swept.points, swept.points.values[swept.best]
        lower = [int(np.sum(points.fits & (points.least < best * share))) for share in (1.0, 1.05)]
        assert lower == [below, near]
        assert found.call_count == max(below, min(near, most))


def test_a_space_lists_its_plans_alike_each_time_it_is_walked() -> None:
    job = small_job(16)
    space = Space(job, structural(job))
    first, second = (Plans.joined([layer_costs.plans for layer_costs in space]) for _ in range(2))
    fresh = Plans.joined(list(lattice(job, structural(job))))
    assert len(first) > 0
    for name in FIELDS:
        assert np.array_equal(getattr(first, name), getattr(second, name))
        assert np.array_equal(getattr(first, name), getattr(fresh, name))
    assert all(before is after for before, after in zip(space, space, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_may_be_best_or_is_among_the_fastest_or_first_of_its_structure(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at one by one, with bounds that are just within 5 % of the best value and just beyond."""
    monkeypatch.setattr(oracle, "FASTEST", 3)
    random = np.random.default_rng(seed)
    plans = Plans.joined(list(lattice(SMALL, structural(SMALL))))
    points = oracle._points(layer_costs_of(SMALL, plans.take(random.permutation(len(plans))[:40])), Knobs())
    values = random.integers(10, 20, 40) / 10.0
    fits = random.random(40) < (0.6 if seed else 0.0)
    limit = 1.05 * values[fits].min(initial=np.inf)
    least = np.where(random.random(40) < 0.5, limit, np.nextafter(limit, np.inf))
    left = oracle._trimmed(replace(points, values=values, least=least, fits=fits))
    fitting = sorted(np.flatnonzero(fits).tolist(), key=lambda place: (values[place], place))
    firsts_: dict[object, int] = {}
    for place in fitting:
        plan = points.plans.plan(place)
        firsts_.setdefault(tuple(getattr(plan, name) for name in STRUCTURE), place)
    kept = {*fitting[:3], *firsts_.values(), *(place for place in fitting if least[place] <= limit)}
    assert len(kept) < len(fitting) or not fitting
    assert list(left.plans.plans()) == [points.plans.plan(place) for place in sorted(kept)]
