"""How long CP-SAT takes over a whole lattice: `python -m pytest tests/bench/bench_proof.py --benchmark-enable`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from optimizer.constraints.rules.every import structural
from optimizer.constraints.rules.memory import Memory
from optimizer.job.job import Job
from optimizer.job.plan import Plans
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.lattice.proof import prove


@pytest.mark.parametrize(("gpus", "bubble"), [(1024, 0.1), (1536, 1.0)], ids=["about-1800", "about-5000"])
def test_proof_over_the_lattice_of_gpt3(benchmark: BenchmarkFixture, gpt3_job: Job, gpus: int, bubble: float) -> None:
    """Posting the rules, comparing both readings, and the solver: some 0.04 and 0.05 s."""
    job = replace(gpt3_job, gpus=gpus).with_limits(bubble=bubble)
    rules = (*structural(job), Memory())
    plans = Plans.joined(list(lattice(job, rules)))
    costs = price(job, plans)
    fits = costs.reserved <= safe_memory(job)
    best = int(np.argmin(np.where(fits, costs.step_time, np.inf)))
    proof = benchmark(prove, job, rules, plans, costs.step_time, fits=fits, hint=best)
    assert proof.proven
    assert best in proof.ties
