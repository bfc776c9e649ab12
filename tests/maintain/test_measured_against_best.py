"""Runs of one job are told together, and the default's answer is held to the fastest of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from maintain.measured_against_best import compared, measured_jobs, report
from optimizer.calibration.runs import Run
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan


@pytest.fixture
def run() -> Run:
    """Llama 3 8B on 64 H100, slower than it need be."""
    job = Job(
        model=load_model("llama3-8b"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("nemo-2024"),
        gpus=64,
        seq_len=8192,
        global_batch=512,
    )
    return Run(
        id="a", row={}, stack_name="nemo-2024", job=job, plan=Plan(tp=8, dp=8, num_microbatches=64), step_time=60.0
    )


def test_a_job_is_told_by_its_fastest_run(run: Run) -> None:
    faster = replace(run, id="b", step_time=50.0)
    other = replace(run, id="c", job=replace(run.job, seq_len=4096) if run.job else None)
    doubted = replace(run, id="d", step_time=1.0, row={"quality": "suspect"})
    unknown = replace(run, id="e", step_time=None)
    jobs = measured_jobs([run, faster, other, doubted, unknown])
    assert [[member.id for member in members] for members in jobs] == [["b", "a"], ["c"]]


def test_the_default_is_held_to_what_was_measured(run: Run) -> None:
    slow = compared([run])
    assert slow.plan
    assert slow.bound == pytest.approx(slow.fastest)
    assert slow.fastest <= slow.default < slow.as_run
    assert slow.run_bound < slow.bound
    assert slow.its_bound < slow.as_read
    assert slow.slower(slow.default) < 0
    assert slow.below(slow.bound) < 0
    assert slow.why == ""
    fast = compared([replace(run, step_time=slow.default / 1.2)])
    assert fast.slower(fast.default) == pytest.approx(0.2)
    assert fast.below(fast.bound) == pytest.approx(1 - 1.2**-1 * fast.default / fast.bound)
    lines = list(report([slow, fast], worst=1))
    assert lines[:8] == [
        "2 jobs of 2 runs",
        "default more than 5% slower than the best measured: 1, 50.0%",
        "default more than 15% slower than the best measured: 1, 50.0%",
        "fastest more than 5% slower than the best measured: 1, 50.0%",
        "fastest more than 15% slower than the best measured: 1, 50.0%",
        "measured more than 3% below the bound of the default stack: 1, 50.0%",
        "measured more than 3% below the bound of any run: 1, 50.0%",
        "measured more than 3% below the bound of its own software: 1, 50.0%",
    ]
    assert lines[-1].startswith("| a nemo-2024 | llama3-8b | 64 h100 | 8192 | 512 | bf16 |")
    assert "+20.0%" in lines[-1]


def test_a_loss_is_told_by_its_parts(run: Run) -> None:
    """What the run's software is priced too slow, and a plan that the default has no memory for."""
    assert run.job is not None
    job = replace(run.job, model=load_model("llama3-70b"), stack=load_stack("megatron-core"))
    whole = compared([replace(run, job=job, plan=Plan(dp=64, num_microbatches=8), step_time=1.0)])
    assert whole.as_run == whole.as_read < whole.fastest
    row = replace(whole, run=replace(whole.run, step_time=whole.as_read / 1.1))
    lost = row.default / row.measured - 1.1
    assert row.why.startswith("model +10%, no plan of the default (memory ")
    assert f"{lost:+.0%}" in row.why
    assert "software" not in row.why
    fits = replace(row, reserved=0.0)
    assert "no plan" not in fits.why


def test_a_ceiling_on_the_bubble_rules_no_measured_job_out(run: Run) -> None:
    assert run.job is not None
    few = replace(run.job, model=load_model("gpt3-13b"), seq_len=2048, global_batch=4, gpus=64)
    assert compared([replace(run, job=few, plan=Plan(tp=8, pp=8, dp=1, num_microbatches=4))]).plan
