"""No limit and no pin beats the answer that is free to leave it out, on random jobs of the presets."""

from __future__ import annotations

from dataclasses import asdict
from random import Random

import pytest

from optimizer.answer import Answer
from optimizer.job import Job
from optimizer.presets import load_cluster, load_model, load_stack
from optimizer.search.plan.planner import plan
from tests.invariants.jobs import random_job

SHARE = 1e-6  # of a step: what may be lost to rounding and to trials that gain no more
PINNED = ("tp", "cp", "pp", "ep", "micro_batch", "vpp", "sequence_parallel", "zero_stage", "recompute")
Restriction = dict[str, object]


def restrictions(answer: Answer, random: Random) -> list[Restriction]:
    """Limits and pins near an answer: one of each kind."""
    assert answer.plan
    values, features = asdict(answer.plan), answer.job.stack.features
    name = random.choice(PINNED)
    value = {
        "zero_stage": random.choice(features.zero_stages),
        "recompute": random.choice(features.recompute),
        "sequence_parallel": random.random() < 0.5,
    }.get(name)
    if value is None:
        value = random.choice((values[name], 2 * values[name], max(1, values[name] // 2)))
    most = random.choice(("max_tp", "max_micro_batch", "max_vpp"))
    limit = max(1, values[most.removeprefix("max_")] // random.choice((1, 2)))
    return [{"fixed": {name: value}}, {most: limit}, {"fixed": {"layout": "even"}}]


def seconds(answer: Answer) -> float:
    """The step of an answer, infinite where nothing fits [s]."""
    return answer.estimate.step_time if answer.estimate else float("inf")


@pytest.mark.parametrize("seed", range(8))
def test_no_restriction_beats_the_free_answer(seed: int) -> None:
    random = Random(seed)
    answer = plan(random_job(random), top=0)
    assert answer.plan
    for limits in restrictions(answer, random):
        restricted = plan(answer.job.with_limits(**limits), top=0, time_limit=5.0)
        assert seconds(restricted) >= seconds(answer) * (1 - SHARE), limits


def test_a_smaller_micro_batch_does_not_beat_a_free_one_where_the_optimizer_is_on_the_host() -> None:
    """Four H200s hold Mixtral's optimizer state in part: what lies on the host differs by plan."""
    job = Job(
        model=load_model("mixtral-8x7b"),
        cluster=load_cluster("dgx-h200"),
        stack=load_stack("megatron-core"),
        gpus=4,
        seq_len=4096,
        global_batch=12,
    )
    free, restricted = plan(job, top=0), plan(job.with_limits(max_micro_batch=2), top=0)
    assert seconds(restricted) >= seconds(free) * (1 - SHARE)
