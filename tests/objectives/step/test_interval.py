"""Intervals of predictions, and what is told of jobs outside of the fitted runs."""

from collections.abc import Callable
from dataclasses import replace
from math import exp, log
from typing import Any

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.job.stack import Features, Stack
from optimizer.objectives.belief.places import place
from optimizer.objectives.step.interval import interval, mfu, outside

FITTED = Stack(name="mine", devices=("h100",), ranges={"hidden": (4096, 12288), "seq_len": (2048, 8192), "fp8": (0, 0)})
PLAN = Plan(tp=8, pp=8)


def job(stack: Stack = FITTED, cluster: str = "dgx-h100", **changes: Any) -> Job:
    base = Job(
        model=load_model("gpt3"), cluster=load_cluster(cluster), stack=stack, gpus=64, seq_len=2048, global_batch=64
    )
    return replace(base, **changes)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (job(cluster="dgx-b200"), "device b200 is not among the fitted h100"),
        (job(seq_len=32768), "seq_len 32,768 is outside of the fitted 2,048 to 8,192"),
        (job(model=load_model("llama3.1-405b")), "hidden 16,384 is outside"),
        (job(dtype="fp8"), "no run with fp8 is among the fitted"),
        (job(stack=Stack(name="new")), "stack new is not fitted"),
    ],
)
def test_what_lies_outside_of_the_fit_says_why(changed: Job, reason: str) -> None:
    assert interval(job(), PLAN, 5.0).kind == "interpolated"
    found = interval(changed, PLAN, 5.0)
    assert found.kind == "extrapolated"
    assert any(text.startswith(reason) for text in found.reasons)


def test_an_unfitted_job_lists_one_reason() -> None:
    assert outside(job(stack=Stack(name="new"))) == ("stack new is not fitted to measured runs",)


@pytest.mark.parametrize(
    "farther",
    [
        lambda known: replace(known, stack=Stack(name="mine")),
        lambda known: replace(known, cluster=load_cluster("v100-32"), dtype="fp16"),
        lambda known: replace(known, dtype="fp4", cluster=load_cluster("dgx-b200")),
        lambda known: replace(known, model=load_model("mixtral-8x7b"), stack=load_stack("nemo-2024")),
        lambda known: replace(known, train="lora:16"),
    ],
    ids=["software", "generation", "format", "kind", "training"],
)
def test_the_farther_from_the_published_runs_the_wider(farther: Callable[[Job], Job]) -> None:
    known = job(stack=load_stack("nemo-2024"))
    near, far = (interval(each, PLAN, 5.0) for each in (known, farther(known)))
    assert far.high / far.low > 1.02 * near.high / near.low


def test_slow_steps_are_less_certain() -> None:
    fast, slow = interval(job(), PLAN, 5.0), interval(job(), PLAN, 50.0)
    assert mfu(job(), 50.0) < 0.1 < mfu(job(), 5.0)
    assert slow.high / 50.0 > fast.high / 5.0


@pytest.mark.parametrize("routing", ["trained", "fresh"])
def test_a_router_of_ones_own_is_less_sure(routing: str) -> None:
    stack = load_stack("megatron-core-2025")
    routed = replace(stack, features=replace(stack.features, routing=routing))
    even, own = (interval(job(each, model=load_model("deepseek-v3")), PLAN, 5.0) for each in (stack, routed))
    assert own.high > even.high
    assert "balanced routing" in own.reasons[-1]
    assert interval(job(replace(FITTED, features=Features(routing=routing))), PLAN, 5.0).kind == "interpolated"


def test_memory_of_plans_that_recompute_is_less_sure() -> None:
    """Flash attention keeps no scores that selective recomputation could drop."""
    question = job(stack=load_stack("megatron-core"))
    none, selective, full = (
        interval(question, replace(PLAN, recompute=mode), 1.0, "memory").high for mode in ("none", "selective", "full")
    )
    assert none == pytest.approx(selective, rel=0.03)
    assert full > 1.02 * none


def test_a_run_of_ones_own_moves_the_interval_to_it_and_narrows_it() -> None:
    """10 % slower than predicted: as it was for this plan, less for another model, hardly for other software.

    A single run may be odd: of another model nothing is believed that runs differ by anyway.
    """
    before = job(stack=load_stack("megatron-core"))
    row = replace(place(before, PLAN, mfu(before, 5.0)), error=log(1.1))
    own = replace(before, stack=replace(before.stack, known=(row,)))
    was, same = interval(before, PLAN, 5.0), interval(own, PLAN, 5.0)
    assert same.high / same.low < was.high / was.low
    assert (same.low * same.high) ** 0.5 == pytest.approx(5.5, rel=0.03)
    twice = replace(before, stack=replace(before.stack, known=(row, row)))
    once, other = (interval(replace(each, model=load_model("llama3-8b")), PLAN, 0.25) for each in (own, twice))
    assert once.middle == pytest.approx(0.25)
    assert 0.25 * 1.02 < other.middle < 0.25 * 1.07
    foreign = interval(replace(own, stack=replace(load_stack("torchtitan-2024"), known=(row,))), PLAN, 5.0)
    assert (foreign.low * foreign.high) ** 0.5 == pytest.approx(5.0, rel=0.03)


def test_without_runs_of_ones_own_the_prediction_is_the_middle() -> None:
    found = interval(job(stack=load_stack("megatron-core")), PLAN, 5.0)
    assert (found.low * found.high) ** 0.5 == pytest.approx(5.0)
    assert exp(0.05) < found.high / 5.0 < exp(0.3)


def test_a_machine_slower_than_any_known_is_believed_of_two_runs_and_one_odd_run_of_three_is_not() -> None:
    """Half as slow again: one run may be a mistake, so that other plans are in doubt, two show the machine."""
    before = job(stack=load_stack("megatron-core"))
    other = Plan(tp=4, pp=8, dp=2)
    row = replace(place(before, PLAN, mfu(before, 5.0)), error=log(1.5))
    again = replace(place(before, Plan(tp=4, pp=4, dp=4), mfu(before, 5.0)), error=log(1.5))
    usual = [replace(place(before, Plan(tp=tp, pp=8), mfu(before, 5.0)), error=0.0) for tp in (2, 4)]
    for rows, slower in (((row, again), 1.5), ((row, *usual), 1.0)):
        own = replace(before, stack=replace(before.stack, known=tuple(rows)))
        found = interval(own, other, 5.0)
        assert (found.low * found.high) ** 0.5 == pytest.approx(5.0 * slower, rel=0.08)
    alone = interval(replace(before, stack=replace(before.stack, known=(row,))), other, 5.0)
    assert alone.low < 5.0 < 5.0 * 1.5 < alone.high
    assert 5.0 * 1.05 < (alone.low * alone.high) ** 0.5 < 5.0 * 1.45
