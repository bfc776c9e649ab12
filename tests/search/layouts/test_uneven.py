"""Where pp divides the layers, no layout whose stages differ beats the bound for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.price import price
from optimizer.search.layouts.bounds.step_floor import step_floor
from optimizer.search.layouts.problem import layout_problem
from optimizer.search.layouts.solve.layout import best_assignment

PLAN = Plan(tp=4, pp=8, dp=32, num_microbatches=48, sequence_parallel=True)


@pytest.mark.parametrize("vpp", [1, 6])
@pytest.mark.parametrize("pp", [4, 16, 32])
def test_layouts_whose_stages_differ_take_as_long_as_their_bound_or_longer(gpt3_job: Job, pp: int, vpp: int) -> None:
    plan = replace(PLAN, pp=pp, dp=256 // pp, num_microbatches=6 * pp, vpp=vpp if pp * vpp <= 96 else 3)
    plan = replace(plan, schedule="interleaved" if plan.vpp > 1 else "1f1b")
    bound = step_floor(layer_costs_of(gpt3_job, Plans.of([plan]))).uneven()[0]
    share, uneven = 96 // pp, []
    random = np.random.default_rng(pp)
    for _ in range(40):
        counts = np.full(pp, share)
        taken, given = random.choice(pp, 2, replace=False)
        moved = int(random.integers(1, share))
        counts[taken] -= moved
        counts[given] += moved
        uneven.append(replace(plan, layers_per_stage=tuple(counts.tolist())))
    seconds = price(gpt3_job, Plans.of([plan, *uneven])).step_time
    assert bound <= seconds[1:].min()
    assert bound > seconds[0]


def test_an_even_split_below_that_bound_is_the_best_layout(gpt3_job: Job) -> None:
    roomy = gpt3_job.with_limits(hbm=1e12)
    layout = best_assignment(layout_problem(roomy, PLAN))
    assert set(layout.layers_per_stage) == {12}


@pytest.mark.parametrize("pp", [5, 7])
def test_there_is_no_such_bound_where_pp_does_not_divide_the_layers(gpt3_job: Job, pp: int) -> None:
    assert step_floor(layer_costs_of(gpt3_job, Plans.of([replace(PLAN, pp=pp)]))).uneven()[0] == 0.0
