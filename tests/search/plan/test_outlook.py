"""What a sweep says of a job: never more than its best plan, which bounds may spare."""

from __future__ import annotations

import pytest

from optimizer.job import Job, Limits
from optimizer.presets import load_cluster, load_model, load_stack
from optimizer.search.plan.best import best_plan, outlook


def job(gpus: int, limits: Limits = Limits()) -> Job:
    return Job(
        model=load_model("llama3-8b"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=gpus,
        seq_len=8192,
        global_batch=256,
        limits=limits,
    )


@pytest.mark.parametrize("limits", [Limits(), Limits(fixed={"pp": 5}), Limits(fixed={"pp": 8, "layout": "even"})])
def test_the_outlook_never_exceeds_the_best_plan_and_finds_it(limits: Limits) -> None:
    asked = job(80, limits)
    found, best = outlook(asked), best_plan(asked)
    rate = best.throughput if best else 0.0
    assert found.throughput <= rate * (1 + 1e-9)
    assert found.throughput_beyond() == pytest.approx(rate, rel=2e-3)
    assert found.throughput_beyond(0.9 * rate) == pytest.approx(rate, rel=2e-3)
    assert found.throughput_beyond(2.0 * rate + 1.0) <= rate * (1 + 1e-9)


def test_a_count_without_a_plan_has_none() -> None:
    found = outlook(job(8 * 127, Limits(fixed={"tp": 8, "dp": 1})))
    assert (found.throughput, found.throughput_beyond()) == (0.0, 0.0)
