"""Whole training runs whose length or GPU-hours were published."""

from __future__ import annotations

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.campaign import Campaign, Design, TrainingRun
from optimizer.purchase.designs.points import Point, Workshop
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.plan.best import best_plan

DAY = 86400.0


def trained(run: TrainingRun, kind: str, gpus: int, stack: str, **fixed: int | str) -> Point:
    usual = assumptions(False)
    # Meta's pipeline of 16 stages waits 10.5 % of the time.
    campaign = Campaign(runs=(run,), stack=load_stack(stack), assumptions=usual, fixed=fixed, bubble=1.0)
    found = Workshop(campaign=campaign).point(Design(kind=kind, cluster=load_cluster(kind), gpus=gpus))
    assert isinstance(found, Point)
    return found


def test_gpt3_on_1024_a100_near_the_formula_of_sc21() -> None:
    # Narayanan et al., arXiv 2104.04473: 8 T P / (n X) = 33.9 days at 140 TFLOP/s, recomputing everything, with
    # TP 8 by the paper's rule (takeaway 1); the search finds TP 4 faster.
    run = TrainingRun(model=load_model("gpt3"), tokens=300e9, seq_len=2048, global_batch=1536)
    found = trained(run, "dgx-a100-80", 1024, "megatron-2021", recompute="full", tp=8)
    assert found.figures.training_time / DAY == pytest.approx(33.9, rel=0.12)


def test_llama_3_405b_lies_around_the_published_gpu_hours() -> None:
    # Llama 3.1 model card: 30.84 M GPU-hours, all stages of training; more than 90 % effective time.
    run = TrainingRun(model=load_model("llama3.1-405b"), tokens=15.6e12, seq_len=8192, global_batch=2048)
    best = trained(run, "h100", 16384, "megatron-core")
    theirs = trained(run, "h100", 16384, "megatron-core", tp=8, cp=1, pp=16, dp=128)
    assert best.figures.goodput > 0.9
    assert best.figures.gpu_seconds / 3.6e9 == pytest.approx(30.84, rel=0.25)
    assert theirs.figures.gpu_seconds / 3.6e9 == pytest.approx(30.84, rel=0.25)


def test_deepseek_v3_lies_around_the_published_gpu_hours() -> None:
    # DeepSeek-V3, arXiv 2412.19437, table 1: 2,664 thousand H800 hours for the 14.8 T tokens of pre-training on 2,048
    # H800, in fp8 and sequences of 4,096, 15,360 of them in a step. Its DualPipe schedule is not among ours.
    job = Job(
        model=load_model("deepseek-v3"),
        cluster=load_cluster("dgx-h800"),
        stack=load_stack("megatron-core"),
        gpus=2048,
        seq_len=4096,
        global_batch=15360,
        dtype="fp8",
    )
    answer = best_plan(job, Tuning(trials=0))
    assert answer is not None
    steps = 14.8e12 / (15360 * 4096)
    assert steps * answer.estimate.step_time * 2048 / 3600 == pytest.approx(2664e3, rel=0.25)
