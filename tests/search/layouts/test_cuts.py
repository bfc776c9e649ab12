"""Bounds of hybrid models, whose kinds of layers alternate, against layouts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest

from optimizer.base.errors import Infeasible, TimeLimit
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.model import Model
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.job.stack import BY_VIRTUAL_STAGE, Features
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.pipeline.stages import moe_pattern
from optimizer.search.layouts.bounds.cuts import bounded, cut_bound
from optimizer.search.layouts.bounds.shares import plan_floors
from optimizer.search.layouts.bounds.stage_needs import apart, common
from optimizer.search.layouts.problem import LayoutProblem, layout_problem
from optimizer.search.layouts.solve.layout import best_assignment
from tests.search.jobs import MIXTURE, small_job
from tests.thorough import THOROUGH

HYBRIDS = ("nemotron-3-super-120b-a12b", "llama4-maverick", "deepseek-v3")
PLANS = [
    Plan(pp=pp, ep=8, dp=64 // pp, num_microbatches=microbatches, recompute=recompute, zero_stage=1)
    for pp, microbatches, recompute in product((4, 8), (3, 32), ("none", "full"))
    if THOROUGH or (pp == 8) ^ (microbatches == 32) ^ (recompute == "full")  # any two of the three in every pair
]


def job_of(model: Model) -> Job:
    cluster, stack = load_cluster("dgx-h100"), load_stack("megatron-core")
    return Job(model=model, cluster=cluster, stack=stack, gpus=64, seq_len=4096, global_batch=512)


@pytest.mark.parametrize("name", HYBRIDS)
def test_consecutive_layers_hold_the_share_of_moe_layers_but_for_so_many(name: str) -> None:
    model = load_model(name)
    usual, before = common(model), np.cumsum([0, *moe_pattern(model)])
    if usual.count != model.layers:
        assert usual.apart == 0
        return
    beyond = [
        abs(before[end] - before[start] - usual.share * (end - start))
        for start in range(model.layers)
        for end in range(start + 1, model.layers + 1)
    ]
    assert max(beyond) == pytest.approx(usual.apart)
    interleaved = apart(job_of(model), Plans.of([Plan(pp=4, vpp=vpp) for vpp in (1, 2, 4)]))
    assert (interleaved <= usual.apart * np.array([1, 2, 4]) + 1e-9).all()


@pytest.mark.parametrize(
    ("name", "room"),
    [
        (name, room)
        for number, name in enumerate(HYBRIDS)
        for room in ((1.1, 3.0) if THOROUGH else ((1.1, 3.0)[number % 2],))
    ],
)
def test_no_layout_beats_the_bound_of_its_cuts(name: str, room: float) -> None:
    job = job_of(load_model(name))
    floors, solved = plan_floors(layer_costs_of(job, Plans.of(PLANS)), Knobs()), 0
    for index, plan in enumerate(PLANS):
        problem = layout_problem(job, plan)
        if not bounded(problem):
            continue
        problem = replace(problem, usable=room * _mean_need(problem))
        try:
            layout = best_assignment(problem, effort=0.1)
        except (Infeasible, TimeLimit):
            continue
        value, floor = floors.floor.value_of(layout.objective, index), floors.floor_at(index, 0.0)
        for limit in (inf, value * (1 + 1e-6)):
            assert cut_bound(problem, floor, limit) <= value * (1 + 1e-9)
        assert cut_bound(problem, floor, value / 100) == inf
        solved += 1
    assert solved


@pytest.mark.parametrize(
    ("recompute", "usable", "microbatches"),
    [
        *(("none", 6e9, 48), ("full", 6e9, 48), ("full", 4.5e9, 48), ("full", 4e9, 48), ("full", 3.6e9, 48)),
        *(("none", 6e9, 8), ("full", 3.6e9, 8)),
    ],
)
def test_the_bound_of_cuts_is_close_whatever_is_recomputed(recompute: str, usable: float, microbatches: int) -> None:
    """No layer of twelve; one of each stage, two, all but one of the fullest, or all of them."""
    job = small_job(4, model=MIXTURE, features=Features(recompute_by=BY_VIRTUAL_STAGE), bubble=1.0)
    some = Plan(pp=4, num_microbatches=microbatches, recompute=recompute)
    floors = plan_floors(layer_costs_of(job, Plans.of([some])), Knobs())
    problem = replace(layout_problem(job, some), usable=usable)
    value = floors.floor.value_of(best_assignment(problem).objective, 0)
    close = 0.96 if microbatches > 8 else 0.87  # where much of a step is its ends, which are bounded less closely
    assert close * value <= cut_bound(problem, floors.floor_at(0, 0.0), inf) <= value


def _mean_need(problem: LayoutProblem) -> float:
    """What a stage needs in the mean with all of its micro-batches in flight, nothing recomputed [B]."""
    memory, flying = problem.memory, float(np.mean(problem.in_flight))
    return memory.fixed + sum(n * memory.of(kind, flying) for kind, n in problem.sequence) / problem.pp
