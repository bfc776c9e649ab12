"""DeepSeek-V3's own training: 15,360 sequences of 4,096 tokens a step on 2,048 H800 in fp8, PP 16, EP 64, ZeRO-1.

14.8 T tokens took 2.664 million H800 hours, 180,000 for a trillion (DeepSeek-V3, arXiv 2412.19437, section 1): 62.9 M
tokens a step / 14.8 T x 2.664 M h x 3,600 s / 2,048 = 19.9 s.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.step.price import price

STEP = 15360 * 4096 / 14.8e12 * 2.664e6 * 3600 / 2048
# The output head costs as much as a layer of the last kind, the prediction layer and its head as two: the last stage
# has one layer beside them.
LAYERS = (*(4,) * 15, 1)
PUBLISHED = Plan(
    pp=16,
    dp=128,
    ep=64,
    micro_batch=1,
    num_microbatches=120,
    recompute="layernorm+moe_act+mla_up_proj",
    schedule="dualpipe",
    dispatcher="deepep",
    overlap_exchange=True,
    layers_per_stage=LAYERS,
)


def asked(stack: str = "deepseek-2024", **features: Any) -> Job:
    used = load_stack(stack)
    return Job(
        model=load_model("deepseek-v3"),
        cluster=load_cluster("h800"),
        stack=replace(used, features=replace(used.features, **features)),
        gpus=2048,
        seq_len=4096,
        global_batch=15360,
        dtype="fp8",
    )


def seconds(plan: Plan, stack: str = "deepseek-2024", **features: Any) -> float:
    return float(price(asked(stack, **features), Plans.of([plan])).step_time[0])


def test_the_published_time_is_what_the_paper_says() -> None:
    assert pytest.approx(19.9, abs=0.05) == STEP


def test_the_published_plan_is_priced_within_a_fifth() -> None:
    """Measured 19.9 s; priced 20.3 s with its own schedule, dispatch and routing, kernels as Megatron-Core's.

    Of what is assumed, uneven routing (1.1 times the mean) adds 0.9 s, dispatch in two bytes 0.4 s, and hiding 0.7
    instead of 0.906 of the exchange 1.3 s; nothing recomputed saves 0.5 s.
    """
    assert abs(seconds(PUBLISHED) / STEP - 1) < 0.1
    assumed = (
        seconds(PUBLISHED, balanced_experts=False),
        seconds(PUBLISHED, fp8_dispatch=False),
        seconds(replace(PUBLISHED, recompute="none")),
    )
    assert [other - seconds(PUBLISHED) for other in assumed] == pytest.approx([0.9, 0.4, -0.5], abs=0.2)
    assert all(abs(other / STEP - 1) < 0.2 for other in assumed)


def test_the_published_plan_needs_little_more_than_a_gpu_has() -> None:
    """It ran in 80 GB. Its last stage holds the head and the prediction layer twice, as DualPipe asks; they were shared
    with the first, which no layout of ours says.
    """
    assert float(price(asked(), Plans.of([PUBLISHED])).reserved[0]) == pytest.approx(80e9, rel=0.15)


def test_without_its_schedule_the_exchange_shows_and_the_bubble_is_twice_as_long() -> None:
    plain = seconds(replace(PUBLISHED, schedule="1f1b", overlap_exchange=False))
    assert 1.25 < plain / seconds(PUBLISHED) < 1.45


def test_limited_routing_and_one_copy_a_node_are_why() -> None:
    """With a copy for every expert the network alone would take most of the step."""
    hidden = replace(PUBLISHED, schedule="1f1b", overlap_exchange=False)
    assert seconds(replace(hidden, dispatcher="alltoall")) > 1.6 * seconds(hidden)
