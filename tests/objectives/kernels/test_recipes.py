"""What scales of narrow operands cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.kernels.recipes import NVFP4, RECIPES, ROWWISE, recipe_of
from optimizer.objectives.step.price import price

PLAN = Plan(dp=8, zero_stage=3, num_microbatches=1, recompute="selective")


def job_of(dtype: str, **features: Any) -> Job:
    stack = load_stack("torchtitan-2024")
    return Job(
        model=load_model("llama3.1-8b"),
        cluster=load_cluster("dgx-b200" if dtype == "fp4" else "dgx-h100"),
        stack=replace(stack, features=replace(stack.features, **features)),
        gpus=8,
        seq_len=8192,
        global_batch=8,
        dtype=dtype,
    )


def terms(dtype: str = "fp8", **features: Any) -> dict[str, float]:
    costs = price(job_of(dtype, **features), Plans.of([PLAN]))
    return {name: float(costs.time[name][0]) for name in costs.time} | {"step": float(costs.step_time[0])}


def test_one_scale_a_row_costs_a_tenth_of_a_step() -> None:
    """8 H100: 7,690 tokens/s with one scale an operand, 6,768 with one a row (README of torchao): 13.6 %."""
    whole, rows = terms(fp8_recipe="tensorwise"), terms(fp8_recipe="rowwise")
    assert rows["step"] / whole["step"] == pytest.approx(7690 / 6768, rel=0.05)
    assert whole["gemm"] / rows["gemm"] == pytest.approx(ROWWISE.rate)


def test_blocks_of_8_bits_move_their_scales_besides() -> None:
    """4 B for 128 elements, 1 B for 32: 1.6 % more than two copies of 8 bits."""
    usual = terms()
    for name in ("blockwise", "mxfp8"):
        assert RECIPES[name].traffic == pytest.approx(1 + 2 / 32 / 4)
        assert terms(fp8_recipe="blockwise")["gemm"] == usual["gemm"]
    assert usual["elementwise"] < terms(fp8_recipe="blockwise")["elementwise"] < 1.02 * usual["elementwise"]
    assert terms(fp8_recipe="delayed") == usual


def test_four_bits_are_read_three_times() -> None:
    """Largest values, rows, and rotated columns: 3 x 2 B read, 2 x (1/2 + 1/16) written, against 2 and 2."""
    assert NVFP4.traffic == pytest.approx((6 + 1.125) / 4)
    job = job_of("fp4", fp8_recipe="rowwise")
    assert recipe_of(job) is NVFP4
    assert recipe_of(replace(job, dtype="fp8")) is RECIPES["rowwise"]


def test_microscaling_needs_units_of_four_bits() -> None:
    job = job_of("fp4", fp8_recipe="")
    stack = replace(job.stack, features=replace(job.stack.features, fp8_recipe="mxfp8"))
    assert replace(job, stack=stack, dtype="fp8").stack.features.fp8_recipe == "mxfp8"
    with pytest.raises(InputError, match="4-bit units, which h100 has not"):
        replace(job, stack=stack, dtype="fp8", cluster=load_cluster("dgx-h100"))


def test_wide_products_have_no_recipe() -> None:
    assert terms("bf16", fp8_recipe="rowwise") == terms("bf16")


def test_a_narrow_format_for_experts_only_leaves_a_dense_model_wide() -> None:
    mine, wide = terms(narrow_products="experts"), terms("bf16")
    assert (mine["gemm"], mine["elementwise"]) == pytest.approx((wide["gemm"], wide["elementwise"]))
    assert terms(narrow_products="linears") == terms()
