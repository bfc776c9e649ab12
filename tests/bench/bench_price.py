"""How many plans a second the objective prices on one core: `pytest tests/bench/bench_price.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.step.price import price

COUNT = 100_000


def job() -> Job:
    return Job(
        model=load_model("gpt3"),
        cluster=load_cluster("h100"),
        stack=load_stack("megatron-core"),
        gpus=1024,
        seq_len=2048,
        global_batch=1536,
    )


def lattice(count: int) -> Plans:
    """Plans drawn over the whole GPT-3 lattice, dense and without sharded weights."""
    random = np.random.default_rng(0)
    tp, pp = 2 ** random.integers(0, 4, count), 2 ** random.integers(0, 6, count)
    micro, one = 2 ** random.integers(0, 4, count), np.ones(count, dtype=np.int64)
    dp = 1024 // (tp * pp)
    return Plans(
        tp=tp,
        cp=one,
        ep=one,
        etp=one,
        pp=pp,
        vpp=random.integers(1, 7, count),
        dp=dp,
        micro_batch=micro,
        num_microbatches=np.maximum(1, 1536 // (dp * micro)),
        sequence_parallel=(tp > 1) & (random.random(count) < 0.5),
        zero_stage=random.integers(0, 2, count),
        shard=0 * one,
        recompute=random.integers(0, 3, count),
        schedule=0 * one,
        activation_offload=0 * one,
        dispatcher=0 * one,
        overlap_exchange=one < 0,
    )


@pytest.mark.parametrize("count", [1, COUNT])
def test_price(benchmark: Any, count: int) -> None:
    """Plans per second = count / median, each round on plans that have not been priced before."""
    where = job()
    costs = benchmark.pedantic(price, setup=lambda: ((where, lattice(count)), {}), rounds=9, warmup_rounds=1)
    assert len(costs.step_time) == count


def test_one_plan(benchmark: Any) -> None:
    """One plan with its whole breakdown, as the report shows it."""
    where, plans = job(), Plans.of([Plan(tp=8, pp=8, dp=16, micro_batch=1, num_microbatches=96)])
    assert benchmark(price, where, plans).time["gemm"][0] > 0
