"""How close bounds of layouts are: what loosens in them costs time alone, and what tightens may cut off the best.

After a wanted change: `python -m tests.search.layouts.test_tightness` prints the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.model import Experts
from optimizer.job.plan import Knobs, Plans
from optimizer.job.stack import BY_VIRTUAL_STAGE, Features
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.pipeline.stages import stages_of
from optimizer.objectives.step.host_memory import OFFLOAD_STEP, most_offload
from optimizer.objectives.step.price import price_layer_costs
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.lattice.knobs import valued
from optimizer.search.layouts.bounds.cuts import bounded, cut_bound
from optimizer.search.layouts.bounds.shaped import shaped_bounds
from optimizer.search.layouts.bounds.shares import (
    ROUNDS,
    PlanFloors,
    Prospects,
    _cut,
    least_share,
    plan_floors,
    prospects_at,
    some_on_host,
)
from optimizer.search.layouts.bounds.stage_needs import needs_of
from tests.search.jobs import DENSE, MIXTURE, ZERO_BUBBLE, small_job
from tests.thorough import sampled

MOST = 120  # plans of a job
RECOMPUTES = Features(recompute=("none", "full"))
ALIKE = replace(RECOMPUTES, recompute_by=BY_VIRTUAL_STAGE)
LEADING = Experts(count=8, top_k=2, ffn_hidden=1024, first_dense_layers=2)
IN_TURN = Experts(count=8, top_k=2, ffn_hidden=1024, every=2)
JOBS: Mapping[str, Job] = {
    "dense": small_job(16, bubble=1.0, hbm=4.2e9, features=RECOMPUTES),
    "alike": small_job(8, model=replace(DENSE, layers=11), bubble=1.0, hbm=5.5e9, features=ALIKE),
    "mixture": small_job(8, model=replace(MIXTURE, experts=LEADING), bubble=1.0, hbm=6e9, features=RECOMPUTES),
    "predicting": small_job(
        8, model=replace(MIXTURE, experts=LEADING, mtp_layers=1), bubble=1.0, hbm=6.5e9, features=ALIKE
    ),
    "in turn": small_job(8, model=replace(MIXTURE, experts=IN_TURN), bubble=1.0, hbm=5.5e9, features=ALIKE),
    "on the host": replace(
        small_job(8, bubble=1.0, hbm=4.6e9, features=Features(zero_stages=(1,))), minimize="energy"
    ).with_host_memory(2e12),
    "zero bubble": small_job(8, bubble=1.0, hbm=5e9, features=Features(schedules=("1f1b", *ZERO_BUBBLE))),
}


def told(values: FloatArray) -> str:
    """How many are finite, and their geometric mean."""
    finite = values[np.isfinite(values)]
    return f"{len(finite)}: {np.exp(np.log(finite).mean()) if len(finite) else 0.0:.4f}"


def tightness(job: Job) -> str:
    """Of each bound of some plans, how many of them may have a layout, and its mean over what the even split has."""
    plans = Plans.joined(list(lattice(job, structural(job))))
    plans = plans.take(np.unique(np.linspace(0, len(plans) - 1, MOST).astype(np.int64)))
    layer_costs = layer_costs_of(job, plans)
    even, reserved = (
        valued(layer_costs, stages_of(job.model, plans), Knobs()),
        price_layer_costs(layer_costs, Knobs()).reserved,
    )
    floors = plan_floors(layer_costs, Knobs())
    floor, some = floors.floor, prospects_at(floors, np.zeros(len(plans)), inf)
    hosted = some_on_host(floors, inf)
    uneven = floor.uneven()
    bounds = {
        "step": told(floor.bound() / even),
        "any knobs": told(floor.bound(any_knobs=True) / even),
        "uneven": told((uneven / even)[uneven > 0]),
        "memory": told(needs_of(job, plans, floors.costs.memory).bound() / reserved),
        "room": told(some.bounds / even),
        "shapes": told(shaped_bounds(some, np.arange(len(plans)), inf) / even),
        "cuts": told(np.array([_cut_bound(some, row) for row in range(len(plans))]) / even),
        "on the host": told(hosted.bounds / even[hosted.plan]),
        "shares there": told(np.concatenate([hosted.low, hosted.high])),
    }
    return ", ".join(f"{name} {value}" for name, value in bounds.items())


def _cut_bound(some: Prospects, row: int) -> float:
    problem = some.problem(row, some.floors.layer_costs.plans.plan(row))
    return cut_bound(problem, some.floors.floor_at(row, 0.0), inf) if bounded(problem) else inf


CLOSE: Mapping[str, str] = {
    "dense": "step 120: 0.8612, any knobs 120: 0.8950, uneven 110: 0.8671, memory 120: 0.8442, room 14: "
    "0.9294, shapes 12: 0.9163, cuts 2: 1.0449, on the host 14: 0.8897, shares there 28: 0.0324",
    "alike": "step 120: 0.8947, any knobs 120: 0.9143, uneven 32: 0.8805, memory 120: 0.8873, room 22: "
    "0.9264, shapes 22: 0.9376, cuts 13: 0.9630, on the host 22: 0.9623, shares there 44: 0.0267",
    "mixture": "step 120: 0.8209, any knobs 120: 0.8316, uneven 0: 0.0000, memory 120: 0.8056, room 41: "
    "0.8532, shapes 37: 0.8415, cuts 5: 0.9959, on the host 41: 0.8754, shares there 82: 0.0181",
    "predicting": "step 120: 0.7868, any knobs 120: 0.7987, uneven 0: 0.0000, memory 120: 0.7404, room 27: "
    "0.8149, shapes 24: 0.8201, cuts 13: 0.8367, on the host 32: 0.8097, shares there 64: 0.0291",
    "in turn": "step 120: 0.8566, any knobs 120: 0.8720, uneven 62: 0.8335, memory 120: 0.8524, room 37: "
    "0.9334, shapes 32: 0.9094, cuts 16: 0.8990, on the host 38: 0.9222, shares there 76: 0.0196",
    "on the host": "step 120: 0.8632, any knobs 120: 0.8817, uneven 117: 0.8637, memory 120: 0.8608, room 7: "
    "0.9544, shapes 6: 0.9064, cuts 1: 1.0000, on the host 17: 0.9621, shares there 34: 0.1038",
    "zero bubble": "step 120: 0.8475, any knobs 120: 0.8725, uneven 112: 0.8554, memory 120: 0.8355, room 15: "
    "0.9212, shapes 15: 0.9212, cuts 1: 1.0000, on the host 24: 0.9029, shares there 48: 0.0473",
}


@pytest.mark.parametrize("name", JOBS)
def test_bounds_are_as_close_as_they_were(name: str) -> None:
    assert tightness(JOBS[name]) == CLOSE[name]


if __name__ == "__main__":
    for name, job in JOBS.items():
        print(f'    "{name}": "{tightness(job)}",')


def every_part(floors: PlanFloors, plan: int, limit: float) -> tuple[float, float, float] | None:
    """Lowest and highest share and least bound of a plan of which every part is cut as often as any."""
    last = np.round(most_offload(floors.layer_costs)[[plan]] / OFFLOAD_STEP).astype(np.int64)
    first = np.maximum(np.floor(least_share(floors)[[plan]] / OFFLOAD_STEP).astype(np.int64), 1)
    open_, bounds = first <= last, np.zeros(1)
    for _ in range(ROUNDS):
        rows, first, last = _cut(np.full(open_.sum(), plan), first[open_], last[open_])
        bounds = floors.bounds(rows, first * OFFLOAD_STEP, last * OFFLOAD_STEP, limit)
        open_ = bounds < limit
    return (first[open_].min() * OFFLOAD_STEP, last[open_].max() * OFFLOAD_STEP, bounds.min()) if open_.any() else None


@pytest.mark.parametrize("name", JOBS)
def test_shares_on_the_host_are_those_of_all_parts(name: str) -> None:
    plans = Plans.joined(list(lattice(JOBS[name], structural(JOBS[name]))))
    floors = plan_floors(layer_costs_of(JOBS[name], plans), Knobs())
    for limit in (inf, float(np.median(some_on_host(floors, inf).bounds))):
        found = some_on_host(floors, limit)
        rows = dict(zip(found.plan.tolist(), zip(found.low, found.high, found.bounds, strict=True), strict=True))
        assert rows
        for plan in sampled(np.flatnonzero(floors.least < limit)[::31].tolist(), 3):
            parts, shares = every_part(floors, plan, limit), rows.get(plan)
            assert (shares and shares[:2]) == (parts and parts[:2])
            # A bound of a whole part holds for its parts too, whose own may be lower.
            assert not shares or not parts or parts[2] <= shares[2] <= parts[2] * 1.001
