"""What scales of narrow operands cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.kernels.recipes import ROWWISE
from optimizer.objectives.step.price import price

PLAN = Plan(dp=8, zero_stage=3, num_microbatches=1, recompute="selective")


def terms(dtype: str = "fp8", **features: Any) -> dict[str, float]:
    stack = load_stack("torchtitan-2024")
    question = Job(
        model=load_model("llama3.1-8b"),
        cluster=load_cluster("dgx-h100"),
        stack=replace(stack, features=replace(stack.features, **features)),
        gpus=8,
        seq_len=8192,
        global_batch=8,
        dtype=dtype,
    )
    costs = price(question, Plans.of([PLAN]))
    return {name: float(costs.time[name][0]) for name in costs.time} | {"step": float(costs.step_time[0])}


def test_one_scale_a_row_costs_a_tenth_of_a_step() -> None:
    """8 H100: 7,690 tokens/s with one scale an operand, 6,768 with one a row (README of torchao): 13.6 %."""
    whole, rows = terms(fp8_recipe="tensorwise"), terms(fp8_recipe="rowwise")
    assert rows["step"] / whole["step"] == pytest.approx(7690 / 6768, rel=0.05)
    assert whole["gemm"] / rows["gemm"] == pytest.approx(ROWWISE.rate)


def test_wide_products_have_no_recipe() -> None:
    assert terms("bf16", fp8_recipe="rowwise") == terms("bf16")


def test_a_narrow_format_for_experts_only_leaves_a_dense_model_wide() -> None:
    mine, wide = terms(narrow_products="experts"), terms("bf16")
    assert (mine["gemm"], mine["elementwise"]) == pytest.approx((wide["gemm"], wide["elementwise"]))
    assert terms(narrow_products="linears") == terms()
