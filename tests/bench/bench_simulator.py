"""Speed of simulating schedules (target: 1e5 passes per second) and of laying out layers (target: 0.2 s)."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.objectives.pipeline.schedules import schedule_order
from optimizer.objectives.pipeline.simulator import PassTimes, simulate
from optimizer.search.layouts.problem import layout_problem
from optimizer.search.layouts.solve.layout import best_assignment

SHAPES = {"1f1b": (64, 1, 1024), "interleaved": (16, 4, 256), "zero-bubble": (32, 1, 512)}
PLANS = {
    "llama3.1-405b": (16384, 8192, 2048, Plan(tp=8, pp=16, dp=128, num_microbatches=16, sequence_parallel=True)),
    "deepseek-v3": (2048, 4096, 15360, Plan(tp=1, pp=16, ep=64, dp=128, num_microbatches=120)),
    "qwen3-235b-a22b": (384, 4096, 1536, Plan(tp=4, pp=12, ep=8, dp=8, num_microbatches=192, sequence_parallel=True)),
}


@pytest.mark.parametrize("schedule", SHAPES)
def test_simulate_a_schedule(benchmark: BenchmarkFixture, schedule: str) -> None:
    pp, vpp, microbatches = SHAPES[schedule]
    order = schedule_order(schedule, pp, vpp, microbatches)
    seconds = [[1.0] * vpp] * pp
    times = PassTimes(forward=seconds, backward=seconds, weight=seconds)
    benchmark.extra_info["passes"] = sum(len(stage) for stage in order)
    assert benchmark(simulate, order, times).makespan > 0


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("model", PLANS)
def test_lay_out_layers(benchmark: BenchmarkFixture, model: str, recompute: str) -> None:
    gpus, seq_len, batch, plan = PLANS[model]
    job = Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h200"),
        stack=load_stack("megatron-core"),
        gpus=gpus,
        seq_len=seq_len,
        global_batch=batch,
    )
    values = {name: getattr(plan, name) for name in ("tp", "pp", "ep", "dp", "num_microbatches", "sequence_parallel")}
    problem = layout_problem(job, Plan(**values, recompute=recompute))
    assert benchmark(best_assignment, problem).proven
