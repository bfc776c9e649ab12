"""How long the search takes: `python -m pytest tests/bench/bench_search.py --benchmark-enable`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.search.lattice.oracle import sweep
from optimizer.search.plan.planner import plan


def test_plan_of_gpt3_on_1024_gpus(benchmark: BenchmarkFixture, gpt3_job: Job) -> None:
    """The whole search in a warm process; the goal is 0.15 s, the limit 0.4 s."""
    answer = benchmark(plan, gpt3_job)
    assert answer.status == "optimal"


@pytest.mark.parametrize("gpus", [8, 64, 1024, 16384, 131072])
def test_sweep_over_clusters(benchmark: BenchmarkFixture, gpt3_job: Job, gpus: int) -> None:
    """Pricing the lattice for 8 to 131,072 GPUs: it grows with the divisors of the GPU count, not with the count."""
    job = replace(gpt3_job, gpus=gpus, global_batch=max(1536, 16 * gpus))
    swept = benchmark(sweep, job, structural(job))
    assert swept.complete
