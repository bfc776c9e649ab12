"""What the functions of each module of layouts return for some small jobs: how often, and a sum of the numbers in it.

What loosens in a bound costs time alone, and no answer tells. `returned.txt` holds them. After a wanted change:
`python -m tests.search.layouts.test_returned`, and read the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.model import Experts
from optimizer.job.plan import Knobs, Plans
from optimizer.job.stack import BY_VIRTUAL_STAGE, Features
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.lattice.knobs import columns
from optimizer.search.layouts.bounds.cuts import bounded, cut_bound
from optimizer.search.layouts.bounds.shaped import shaped_bounds
from optimizer.search.layouts.bounds.shares import plan_floors, prospects_at, some_on_host
from optimizer.search.layouts.bounds.stage_capacity import stage_capacity
from optimizer.search.layouts.bounds.stage_needs import mean_need, needs_of
from optimizer.search.layouts.solve.fastest_shape import fastest, least_memory_shape
from optimizer.search.layouts.solve.layout import shaped_layout
from optimizer.search.layouts.solve.least import least_objective
from optimizer.search.layouts.solve.least_memory import filled
from optimizer.search.layouts.solve.program import LayoutProgram
from optimizer.search.layouts.solve.shapes import near_cuts, shapes_of
from optimizer.search.plan.planner import plan
from tests.search.jobs import DENSE, small_job
from tests.search.layouts.returned import returned
from tests.search.layouts.test_least import of_two_kinds, uniform
from tests.search.layouts.test_program import problem_of
from tests.search.layouts.test_shapes import interleaved
from tests.search.layouts.test_tightness import JOBS as BOUNDED

HELD = Path(__file__).parent / "returned.txt"
SMALL = replace(DENSE, layers=7)
RECOMPUTES = Features(recompute=("none", "full"))
ALIKE = replace(RECOMPUTES, recompute_by=BY_VIRTUAL_STAGE)
LEADING = Experts(count=8, top_k=2, ffn_hidden=1024, first_dense_layers=2)
IN_TURN = Experts(count=8, top_k=2, ffn_hidden=1024, every=2)


def job(hbm: float, features: Features = RECOMPUTES, layers: int = 7, **changes: Any) -> Job:
    """Few plans on four GPUs."""
    asked = small_job(4, bubble=1.0, hbm=hbm, features=features, fixed={"micro_batch": 1, "tp": 1, "cp": 1})
    return replace(asked, model=replace(SMALL, layers=layers, **changes))


JOBS: Mapping[str, Job] = {
    "mixture": job(9e9, layers=6, experts=LEADING).with_limits(max_vpp=2),
    "predicting": job(9e9, ALIKE, layers=6, experts=LEADING, mtp_layers=1),
    "in-turn": job(8.5e9, ALIKE, layers=6, experts=IN_TURN),
}
SEEDS = range(20, 24)
PLANS = 40


def bounds() -> None:
    """Of some plans of jobs that differ in what bounds them, by all that bounds some."""
    for asked in BOUNDED.values():
        plans = Plans.joined(list(lattice(asked, structural(asked))))
        plans = plans.take(np.unique(np.linspace(0, len(plans) - 1, PLANS).astype(np.int64)))
        layer_costs = layer_costs_of(asked, plans)
        floors = plan_floors(layer_costs, Knobs())
        floor, costs = floors.floor, floors.costs
        limit = float(np.median(floor.bound()))
        for any_knobs in (False, True):
            floor.bound(any_knobs=any_knobs)
            slowest = floor.slowest_within(limit, any_knobs)
        floor.uneven()
        floor.value_of(floor.within(limit, 0), 0)
        floor.values_of(floor.pipelines_within(limit))
        floor.by(layer_costs.changed(job=replace(asked, minimize="cost")))
        floor.at(layer_costs, columns(Knobs(bucket=5e8, comm_sm_share=0.05), len(plans)))
        needs = needs_of(asked, plans, costs.memory)
        needs.have_capacity(float(np.median(needs.bound())))
        mean_need(asked, plans, costs.memory)
        capacity = stage_capacity(asked, costs, plans)
        for share in (0.5, 1.0, 2.0):
            capacity.layers(share * slowest)
        some = prospects_at(floors, np.zeros(len(plans)), inf)
        some_on_host(floors, 1.1 * limit)
        shaped_bounds(some, np.arange(len(plans)), inf)
        for row in range(0, len(plans), 9):
            if bounded(problem := some.problem(row, plans.plan(row))):
                cut_bound(problem, floors.floor_at(row, 0.0), inf)


def problems() -> None:
    """Layouts of problems that are no plans, by all that finds some."""
    for seed in SEEDS:
        for problem in (uniform(seed), of_two_kinds(seed), interleaved(seed), problem_of(seed)):
            best = shaped_layout(problem, fastest(problem, shapes_of(problem)))
            if problem.vpp == 1:
                least_objective(problem, best.objective if best else inf)
                near_cuts(problem)
                LayoutProgram(problem, best.objective if best else inf)
                filled(problem)
            least_memory_shape(problem)


RUNS: Mapping[str, Callable[[], object]] = {
    **{name: lambda asked=asked: plan(asked, top=2, trials=0) for name, asked in JOBS.items()},
    "bounds": bounds,
    "problems": problems,
}


def lines(name: str) -> list[str]:
    return [f"{name} {file} {count} {total:.12g}" for file, (count, total) in returned(RUNS[name]).items()]


@pytest.mark.parametrize("name", RUNS)
def test_functions_return_what_they_did(name: str) -> None:
    held = [line for line in HELD.read_text(encoding="utf-8").splitlines() if line.startswith(f"{name} ")]
    found, right = ([line.rsplit(" ", 1) for line in some] for some in (lines(name), held))
    assert [calls for calls, _ in found] == [calls for calls, _ in right]
    sums, were = ([float(total) for _, total in some] for some in (found, right))
    assert sums == pytest.approx(were, rel=1e-9)


if __name__ == "__main__":
    HELD.write_text("".join(f"{line}\n" for name in RUNS for line in lines(name)), encoding="utf-8")
