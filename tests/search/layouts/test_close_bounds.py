"""The floors of a step are below every even split and close to it, and each way to read them agrees with the others."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import KnobColumns, Knobs, Plans
from optimizer.job.stack import Features
from optimizer.objectives.arrays import raised
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.price import price
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.layouts.bounds.step_floor import StepFloor, joined, step_floor
from tests.search.jobs import LATENT, MIXTURE, ZERO_BUBBLE, small_job

ZERO = Features(schedules=("1f1b", "interleaved", *ZERO_BUBBLE))
# A job, and the least and the median share of an even split's time that its floor is.
JOBS: dict[str, tuple[Job, float, float]] = {
    "dense": (small_job(16, bubble=1.0), 0.65, 0.82),
    "mixture": (small_job(16, model=MIXTURE, bubble=1.0), 0.65, 0.81),
    "latent": (small_job(8, model=LATENT, bubble=1.0, max_vpp=1), 0.74, 0.96),
    "prediction": (small_job(8, model=replace(MIXTURE, mtp_layers=1), bubble=1.0), 0.59, 0.84),
    "zero bubble": (small_job(8, features=ZERO, bubble=1.0), 0.64, 0.79),
    "all recomputed": (small_job(8, features=Features(recompute=("full",)), bubble=1.0), 0.64, 0.76),
    "tight": (small_job(8, bubble=1.0, hbm=6e9), 0.74, 0.94),
    "on the host": (
        small_job(8, features=Features(zero_stages=(1,)), bubble=1.0, hbm=5e9).with_host_memory(2e12),
        0.74,
        0.94,
    ),
}


def plans_of(job: Job) -> Plans:
    """Some 300 plans that keep every rule but memory."""
    plans = Plans.joined(list(lattice(job, structural(job))))
    return plans.take(slice(0, None, max(1, len(plans) // 300)))


@pytest.mark.parametrize("name", JOBS)
def test_floors_are_below_even_splits_and_close(name: str) -> None:
    job, least, median = JOBS[name]
    plans = plans_of(job)
    floor = step_floor(layer_costs_of(job, plans))
    seconds = price(job, plans).step_time
    shares = floor.bound() / seconds
    assert shares.max() <= 1.0
    assert shares.min() >= least
    assert np.median(shares) >= median
    alone = (plans.pp == 1) & (plans.recompute == 0) & (plans.activation_offload == 0)
    assert shares[alone] == pytest.approx(np.ones(alone.sum()), abs=1e-6)
    kept = (plans.pp > 1) & (plans.recompute == 0)
    few = kept & (plans.num_microbatches <= plans.pp)  # where stages run ahead while they wait
    many = kept & ~few
    if name != "all recomputed":
        assert shares[few].min() >= (0.62 if name == "prediction" else 0.78)
        assert np.median(shares[few]) >= 0.82
        assert np.median(shares[many]) >= 0.84
    free = floor.bound(any_knobs=True)
    if name not in ("tight", "on the host"):  # where some of the states must be there, which takes time
        assert np.all(free <= raised(floor.bound()))
        assert np.median(free / seconds) >= median - 0.02


@pytest.mark.parametrize("name", JOBS)
def test_what_is_solved_for_a_limit_reaches_it(name: str) -> None:
    job = JOBS[name][0]
    plans = plans_of(job)
    floor = step_floor(layer_costs_of(job, plans))
    limit = float(np.median(price(job, plans).step_time))
    for any_knobs in (False, True):
        slowest = floor.slowest_within(limit, any_knobs)
        reached = floor.value(slowest, any_knobs=any_knobs)
        assert np.all(reached >= limit)
        usual = np.isfinite(slowest) & (slowest > floor.slowest())
        assert np.median(reached[usual]) <= 1.05 * limit
        steady = usual & (floor.alternates > 0) & (plans.num_microbatches > plans.pp)
        assert np.median(reached[steady]) == pytest.approx(limit, rel=1e-9)
    assert floor.values_of(floor.pipelines_within(limit)) == pytest.approx(limit, rel=1e-9)
    for index in range(0, len(plans), 40):
        assert floor.value_of(floor.within(limit, index), index) == pytest.approx(limit, rel=1e-9)


def same(one: StepFloor, other: StepFloor) -> list[str]:
    """The columns that differ."""
    names = [field.name for field in fields(StepFloor) if field.name not in ("job", "plans")]
    return [n for n in names if not np.allclose(getattr(one, n), getattr(other, n), rtol=1e-9, atol=1e-12)]


@pytest.mark.parametrize("name", ["dense", "mixture", "on the host"])
def test_floors_that_are_changed_are_those_that_are_made_anew(name: str) -> None:
    job = JOBS[name][0]
    plans = plans_of(job)
    costs = layer_costs_of(job, plans)
    floor = step_floor(costs)
    knobs = Knobs(bucket=5e8, comm_sm_share=0.05)
    columns = KnobColumns(**{n: np.full(len(plans), getattr(knobs, n)) for n in ("bucket", "comm_sm_share", "offload")})
    assert same(floor.at(costs, columns), step_floor(costs, knobs)) == []
    hosted = np.full(len(plans), 0.5)
    there = replace(columns, bucket=np.full(len(plans), Knobs().bucket), offload=hosted)
    there = replace(there, comm_sm_share=np.full(len(plans), Knobs().comm_sm_share))
    assert set(same(floor.offloaded(hosted), step_floor(costs, there))) <= {"tuned", "per_step"}
    roomy = costs.changed(job=job.with_limits(hbm=60e9))
    assert same(floor.of(roomy), step_floor(roomy)) == []
    cheap = costs.changed(job=replace(job, minimize="energy"))
    energy = step_floor(cheap)
    assert same(floor.by(cheap), energy) == []
    joules = float(np.median(energy.bound()))
    assert energy.values_of(energy.pipelines_within(joules)) == pytest.approx(joules, rel=1e-9)
    half = len(plans) // 2
    parts = [step_floor(costs.take(np.arange(len(plans))[part])) for part in (slice(half), slice(half, None))]
    assert same(joined(parts, plans), floor) == []
    assert joined([floor], plans).job is job
