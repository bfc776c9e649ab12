"""Launches that show in mixtures whose host waits for the sizes of each exchange."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import GRAPHED
from optimizer.job.variables import DISPATCHERS
from optimizer.objectives.kernels.operators import layer_operators
from optimizer.objectives.kernels.shapes import Shapes
from optimizer.objectives.layer.drained_host import UNBOUND, call_seconds, expert_calls, shown_launches
from optimizer.objectives.step.price import price


def job(dtype: str = "fp8", **features: Any) -> Job:
    stack = load_stack("megatron-core-2025")
    return Job(
        model=load_model("deepseek-v3"),
        cluster=load_cluster("gb200-nvl72"),
        stack=replace(stack, features=replace(stack.features, **features)),
        gpus=256,
        seq_len=4096,
        global_batch=2048,
        dtype=dtype,
    )


def shapes(dispatcher: str = "alltoall", ep: float = 32.0) -> Shapes:
    one = np.ones(1)
    return Shapes(
        tp=one,
        cp=one,
        ep=ep * one,
        etp=one,
        micro_batch=one,
        sequence_parallel=one > 2,
        seq_len=4096,
        dispatcher=np.array([DISPATCHERS.index(dispatcher)]),
    )


def shown(dispatcher: str = "alltoall", dtype: str = "fp8", **features: Any) -> float:
    some, where = job(dtype, **features), shapes(dispatcher)
    return float(shown_launches(some, layer_operators(some.model, where, some.stack, True), where, 1.6)[0])


def test_calls_of_experts_by_hand() -> None:
    # 8 experts of a rank: 2 products x (3 calls x 8 experts + 6 for buffer and swizzle) + 3 x (40 + 2) kernels.
    some, where = job(), shapes()
    layer = layer_operators(some.model, where, some.stack, True)
    assert expert_calls(some, layer, where).tolist() == [2 * (3 * 8 + 6) + 3 * 42]
    # What no release since fuses: 6 calls of scales and 4 of swizzles for each expert and product.
    old = job(unfused=("scales", "swizzle"))
    assert expert_calls(old, layer, where)[0] - expert_calls(some, layer, where)[0] == 2 * 8 * (6 + 4)


def test_grouped_products_of_bf16_take_no_calls_for_each_expert() -> None:
    some, few, many = job("bf16"), shapes(ep=64.0), shapes(ep=8.0)
    layers = [layer_operators(some.model, where, some.stack, True) for where in (few, many)]
    assert expert_calls(some, layers[0], few) == expert_calls(some, layers[1], many)


@pytest.mark.parametrize("part", GRAPHED)
def test_every_graph_saves_launches(part: str) -> None:
    assert shown(graphed=(part,)) < shown()


def test_experts_that_apply_the_gate_are_one_product_again() -> None:
    # Permutation in 4 kernels, 2 more, and 3 calls for each of two products, however many experts.
    some, where = job(fused_experts=True), shapes()
    assert expert_calls(some, layer_operators(some.model, where, some.stack, True), where).tolist() == [3 * 6 + 2 * 3]


def test_what_makes_launches_cheaper() -> None:
    assert shown("hybridep") == shown("deepep") < shown("alltoall")
    assert shown(bound_host=False) == pytest.approx(UNBOUND * shown())
    assert shown(cuda_graphs=True) == shown(synchronised=False) == 0.0
    assert call_seconds(job(bound_host=False)) == pytest.approx(UNBOUND * job().stack["launch"])


def test_they_show_in_a_step() -> None:
    plan = Plan(ep=32, pp=8, vpp=4, dp=32, num_microbatches=64, schedule="interleaved", dispatcher="deepep")
    busy, drained = (price(job(synchronised=wait), Plans.of([plan])) for wait in (False, True))
    # 1,271 us less 20 kernels of permuting and 14 / 2.6 of the router, in both passes of 58 mixtures of 61 layers on 8
    # stages; the pipeline's bubble and stragglers come on top.
    assert drained.step_time[0] - busy.step_time[0] > 64 * 7 * 2.6 * 0.9e-3


def test_arm_hosts_launch_slower_unless_the_launch_was_fitted_on_one() -> None:
    """PyTorch's Linear takes that of GH200 2.46 times as long as an x86 server's; fits on GB200 know such hosts."""
    on_x86 = replace(job(), cluster=load_cluster("dgx-h100"), stack=load_stack("hf-2026"))
    on_arm = replace(on_x86, cluster=load_cluster("gh200"))
    assert call_seconds(on_arm) == pytest.approx(2.46 * call_seconds(on_x86))
    known = [replace(each, stack=load_stack("megatron-core-2025")) for each in (on_x86, on_arm)]
    assert call_seconds(known[0]) == call_seconds(known[1])
