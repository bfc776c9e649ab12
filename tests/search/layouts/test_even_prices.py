"""The even layout of any plan takes the time and the memory of its price: two ways to add up the same layers."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.price import price
from optimizer.search.layouts.costs import pass_times
from optimizer.search.layouts.problem import layer_costs, layout_problem, memory_problem
from optimizer.search.layouts.solve.layout import even_layout
from tests.search.layouts.test_close_bounds import JOBS, plans_of
from tests.thorough import cases

KNOBS = (Knobs(), Knobs(bucket=3e8), Knobs(offload=0.5), Knobs(comm_sm_share=0.05, offload=1.0))
BESIDE = ("overhead", "stragglers")  # in no pipeline


@pytest.mark.parametrize("name", JOBS)
def test_an_even_layout_is_priced_as_its_plan(name: str) -> None:
    job = JOBS[name][0]
    if name in ("tight", "on the host"):
        job = job.with_limits(hbm=60e9)
    plans, random = plans_of(job), Random(0)
    for number in range(cases(60, sample=16)):
        plan = plans.plan(random.randrange(len(plans)))
        if job.model.layers % (plan.pp * plan.vpp) or plan.activation_offload:
            continue
        knobs = KNOBS[number % len(KNOBS)]
        knobs = knobs if plan.zero_stage else replace(knobs, offload=0.0)
        costs = price(job, Plans.of([plan]), knobs)
        layout = even_layout(layout_problem(job, plan, knobs))
        seconds = sum(float(values[0]) for term, values in costs.time.items() if term not in BESIDE)
        assert layout.objective == pytest.approx(seconds, rel=1e-9), plan
        assert max(layout.memory) == pytest.approx(float(costs.reserved[0]), rel=1e-9), plan
        assert len(layout.stage_seconds) == plan.pp


def test_where_only_memory_is_asked_nothing_takes_time(gpt3_job: Job) -> None:
    plan = Plan(tp=8, pp=8, dp=16, num_microbatches=96, sequence_parallel=True)
    problem = memory_problem(gpt3_job, plan, layer_costs(gpt3_job, plan).memory)
    assert (problem.whole, problem.seconds, problem.hides, problem.hosted_price) == (0.0, 0.0, 0.0, 0.0)
    assert problem.more == 0
    layout = even_layout(problem)
    assert (layout.objective, layout.pipeline, layout.slowest) == (0.0, 0.0, 0.0)
    assert layout.memory == even_layout(layout_problem(gpt3_job, plan)).memory


@pytest.mark.parametrize("vpp", [1, 6])
def test_passes_are_spread_over_virtual_stages(gpt3_job: Job, vpp: int) -> None:
    """Half of what is beside the layers goes with each direction; all together is the time of the stages."""
    plan = Plan(tp=8, pp=8, vpp=vpp, dp=16, num_microbatches=96, recompute="full")
    plan = replace(plan, schedule="interleaved" if vpp > 1 else "1f1b")
    costs, layout = layer_costs(gpt3_job, plan), even_layout(layout_problem(gpt3_job, plan))
    whole, split = (pass_times(costs, layout.kinds, layout.recomputed, pp=8, split=each) for each in (False, True))
    assert all(len(stage) == vpp for stage in (*whole.forward, *whole.backward, *whole.recompute))
    seconds = [
        sum(map(sum, (whole.forward[stage], whole.backward[stage], whole.recompute[stage]))) for stage in range(8)
    ]
    assert seconds == pytest.approx(list(layout.stage_seconds))
    assert np.array(split.backward) + np.array(split.weight) == pytest.approx(np.array(whole.backward))
    assert min(map(min, whole.recompute)) > 0
