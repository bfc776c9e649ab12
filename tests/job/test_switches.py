"""Every state of every switch can be set, read and pinned."""

from __future__ import annotations

import pytest

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.settings import Asked, with_settings
from optimizer.commands.pins import pins, switched
from optimizer.job.stack import Stack
from optimizer.job.switches import Switch, switched_to, switches, within_reach
from tests.looped import looped


@looped(switch=tuple(switches().values()))
def test_a_state_is_read_as_it_was_set(switch: Switch) -> None:
    asked = Asked(model=load_model("llama3-8b"), cluster=load_cluster("h100"), stack=Stack(name="mine"))
    for state in switch.states:
        assert switch.state(switched_to(Stack(name="mine"), {switch.name: state})) == state
        typed = with_settings(asked, switched(pins(f"{switch.name}={state}")))
        assert switch.state(typed.stack) == state


def test_a_state_that_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match="graphs must be one of off, parts, layers, but got 'some'"):
        pins("graphs=some")


def test_gated_experts_are_fused_in_mxfp8_alone() -> None:
    fused, gb200 = switched_to(Stack(name="mine"), {"fused_experts": "on"}), load_cluster("gb200-nvl72").device
    gated, plain = load_model("deepseek-v3"), load_model("nemotron-3-nano")
    for recipe, holds in (("usual", True), ("mxfp8", True), ("blockwise", False), ("tensorwise", False)):
        stack = switched_to(fused, {"fp8_recipe": recipe})
        assert within_reach(stack, gb200, "fp8", gated).features.fused_experts == holds
    assert not within_reach(fused, gb200, "bf16", gated).features.fused_experts
    assert not within_reach(fused, gb200, "fp8", plain).features.fused_experts


def test_graphs_of_parts_hide_launches_where_no_layer_is_recomputed_whole() -> None:
    import numpy as np

    from optimizer.job.job import Job
    from optimizer.job.plan import Plan, Plans
    from optimizer.objectives.step.price import price

    job = Job(
        model=load_model("deepseek-v3"),
        cluster=load_cluster("gb200-nvl72"),
        stack=load_stack("megatron-core-2025"),
        gpus=256,
        seq_len=4096,
        global_batch=2048,
        dtype="fp8",
    )
    plan = {"ep": 32, "pp": 8, "vpp": 4, "dp": 32, "num_microbatches": 64, "schedule": "interleaved"}
    plans = Plans.of([Plan(**plan, recompute=mode) for mode in ("none", "full")])
    seconds = [
        price(Job(**{**vars_of(job), "stack": switched_to(job.stack, {"graphs": state})}), plans).step_time
        for state in ("off", "parts")
    ]
    assert seconds[1][0] < 0.95 * seconds[0][0]
    assert np.isclose(seconds[1][1], seconds[0][1], rtol=1e-12)


def vars_of(job: object) -> dict[str, object]:
    from dataclasses import fields

    return {f.name: getattr(job, f.name) for f in fields(job)}  # type: ignore[arg-type]
