"""What layouts are compared by is the value of a step, whatever is minimised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.job.stack import Features
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.price import price
from optimizer.search.layouts.costs import FREE, stage_costs
from optimizer.search.layouts.problem import layout_problem
from optimizer.search.layouts.solve.layout import placed_layout
from optimizer.search.plan.alternatives import estimate_of, value_of
from tests.search.jobs import MIXTURE, small_job

PLAN = Plan(pp=4, ep=2, dp=4, num_microbatches=12, recompute="full", layers_per_stage=(3, 3, 3, 3), zero_stage=1)
NONE = replace(PLAN, recompute_layers=(0, 0, 0, 0))
LAID = [
    (NONE, 0.0),
    (replace(NONE, layers_per_stage=(4, 4, 2, 2)), 0.0),
    (replace(NONE, recompute_layers=(3, 1, 3, 2)), 0.0),
    (replace(NONE, recompute_layers=(3, 0, 1, 0)), 1.0),
]


@pytest.mark.parametrize("minimize", ["time", "cost", "energy"])
def test_the_objective_of_layouts_grows_as_their_value_does(minimize: str) -> None:
    """On several nodes that wait for the slowest: as much for what is recomputed and on the host as for seconds."""
    job = small_job(16, model=MIXTURE, features=Features(recompute_by="stage", offers_overlap=True), hbm=1e12)
    job = replace(job, minimize=minimize, stack=replace(job.stack, parameters={"straggler": 0.05}))
    found = []
    for plan, offload in LAID:
        knobs = Knobs(bucket=2e8, comm_sm_share=0.1, offload=offload)
        value = value_of(job, plan, knobs, estimate_of(job, price(job, Plans.of([plan]), knobs), 0))
        found.append((placed_layout(layout_problem(job, plan, knobs), plan.placement).objective, value))
    (objective, value), (other, dearer), *rest = found
    slope = (dearer - value) / (other - objective)
    assert slope >= 1.05 if minimize == "time" else slope > 0
    for seconds, worth in rest:
        assert seconds > objective
        assert worth == pytest.approx(value + slope * (seconds - objective), rel=1e-9)


def test_costs_with_more_on_the_host_are_those_made_there() -> None:
    job = small_job(16, model=MIXTURE)
    layer_costs = layer_costs_of(job, Plans.of([replace(PLAN, layers_per_stage=()), Plan(dp=16, zero_stage=3)]))
    some, more = (stage_costs(layer_costs, Knobs(offload=share)) for share in (0.25, 0.75))
    moved = some.offloaded(np.full(2, 0.5))
    for row in range(2):
        one, other = moved.row(row), more.row(row)
        for kind, layer in other.kinds.items():
            assert vars(one.kinds[kind]) == pytest.approx(vars(layer)), kind
        assert vars(one.memory.layers["moe"]) == pytest.approx(vars(other.memory.layers["moe"]))
        assert (one.memory.offload, one.hides) == pytest.approx((0.75, other.hides))


def test_what_is_free_takes_no_time() -> None:
    assert FREE.seconds == sum(vars(FREE).values()) == 0.0
