"""The table of mechanisms: neutral means neutral, and nothing stays switched off."""

from __future__ import annotations

from pathlib import Path

import pytest

from maintain.mechanisms import (
    ALL,
    DENSE_MECHANISMS,
    MECHANISMS,
    dense_runs,
    errors_without,
    main,
    mechanisms_table,
    parameters_table,
)
from optimizer.base.errors import InputError
from optimizer.calibration.runs import Run
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.kernels import routed_rows
from optimizer.objectives.layer import dispatchers, drained_host
from optimizer.objectives.step.price import price

PLAN = Plan(tp=1, ep=32, pp=8, vpp=4, dp=32, num_microbatches=64, schedule="interleaved", dispatcher="hybridep")


@pytest.fixture
def run() -> Run:
    """DeepSeek-V3 on 256 GB200, measured as it is predicted."""
    job = Job(
        model=load_model("deepseek-v3"),
        cluster=load_cluster("gb200-nvl72"),
        stack=load_stack("megatron-core-2025"),
        gpus=256,
        seq_len=4096,
        global_batch=2048,
        dtype="fp8",
    )
    seconds = float(price(job, Plans.of([PLAN])).step_time[0])
    row = {"micro_batch": "1", "global_batch": "2048"}
    return Run(id="1", row=row, stack_name="its", job=job, plan=PLAN, step_time=seconds)


def test_without_a_mechanism_a_run_that_needs_it_is_missed(run: Run) -> None:
    assert errors_without([run], None)[0] == pytest.approx(0.0, abs=1e-9)
    missed = {mechanism.name: errors_without([run], mechanism)[0] for mechanism in MECHANISMS}
    for name in ("wait for the sizes of the all-to-all", "rate of grouped products", "launches"):
        assert missed[name] > 0.01, name
    assert missed["start of each expert's product"] > 1e-3
    # This plan overlaps nothing, this stack is not eager and this release fuses what it can.
    for name in ("all-to-all overlapped with other micro-batches", "host time of eager MoE layers"):
        assert missed[name] == pytest.approx(0.0, abs=1e-9)


def test_constants_are_as_they_were(run: Run) -> None:
    before = routed_rows.GROUP_ROWS, routed_rows.GATHERED, drained_host.QUANTISED, dispatchers.KINDS
    for mechanism in MECHANISMS:
        errors_without([run], mechanism)
    assert before == (routed_rows.GROUP_ROWS, routed_rows.GATHERED, drained_host.QUANTISED, dispatchers.KINDS)


def test_dense_runs_are_of_software_that_has_one_of_the_mechanisms() -> None:
    slicing, other = (dense_run(stack) for stack in ("nanotron-2024", "nemo-2024"))
    assert dense_runs([slicing, other]) == [slicing]
    missed = {mechanism.name: errors_without([slicing], mechanism)[0] for mechanism in DENSE_MECHANISMS}
    assert missed["ZeRO-1 slices each tensor for each rank"] > 0.01
    assert missed["TP groups of several nodes wait"] == pytest.approx(0.0, abs=1e-9)
    assert len(mechanisms_table([slicing], DENSE_MECHANISMS)) == 4 + len(DENSE_MECHANISMS)


def dense_run(stack: str) -> Run:
    """Llama 3 8B on 256 H100, measured as it is predicted."""
    job = Job(
        model=load_model("llama3-8b"),
        cluster=load_cluster("h100"),
        stack=load_stack(stack),
        gpus=256,
        seq_len=4096,
        global_batch=256,
    )
    plan = Plan(dp=256, zero_stage=1)
    seconds = float(price(job, Plans.of([plan])).step_time[0])
    row = {"micro_batch": "1", "global_batch": "256"}
    return Run(id="1", row=row, stack_name=stack, job=job, plan=plan, step_time=seconds)


def test_the_tables_have_a_line_for_each(run: Run) -> None:
    lines = mechanisms_table([run])
    assert len(lines) == 4 + len(MECHANISMS)
    assert lines[3] == f"| {ALL} | 0.0% | 0.0% |"
    assert parameters_table(["megatron-core-2025"])[2].startswith("| megatron-core-2025 | 23 | 1 |")


@pytest.mark.parametrize("arguments", [[], ["runs.csv"], ["--runs"], ["--stack", "x"]])
def test_other_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(InputError, match="usage"):
        main(arguments)


def test_a_table_without_anything_to_explain_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("model,gpu,gpus\nllama3-8b,h100,8\n")
    with pytest.raises(InputError, match="no row that can be priced"):
        main(["--runs", str(tmp_path / "runs.csv")])
