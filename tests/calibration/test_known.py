"""What measured runs say of a software's errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log
from pathlib import Path

import numpy as np
import pytest

from optimizer.base.errors import InputError, InvalidFile
from optimizer.calibration.known import FEW, knowing, known_errors, own_rows, thinned, with_known
from optimizer.calibration.runs import Run, read_runs, rows_of
from optimizer.catalog import load_stack
from optimizer.job.known import MEMORY, TIME, YOURS
from optimizer.job.stack import Stack

HEADER = "model,gpu,gpus,tp,micro_batch,global_batch,step_time_s,stack,quality\n"


def table(folder: Path, *rows: str) -> Path:
    path = folder / "mine.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def test_a_run_errs_by_what_it_was_measured_over_what_was_predicted(measured: Callable[..., Path], lab: Stack) -> None:
    """Runs as the model has them, a tenth slower."""
    runs = read_runs(measured({}, memory=True), lab)
    slow = [replace(run, step_time=1.1 * run.step_time if run.step_time else None) for run in runs]
    rows = known_errors(slow)
    assert {row.quantity for row in rows} == {TIME, MEMORY}
    times = [row.error for row in rows if row.quantity == TIME]
    assert times == pytest.approx([log(1.1)] * len(times))
    assert [row.error for row in rows[len(times) :]] == pytest.approx([0.0] * len(times), abs=1e-6)
    assert {(row.software, row.site, row.generation) for row in rows} == {("lab", YOURS, "NVIDIA bf16")}


def test_like_runs_stand_together_and_one_far_off_counts_little(gpt_runs: list[Run]) -> None:
    """Of 24 runs of each width at most FEW are left, whose errors are those of all."""
    rows = [replace(row, error=0.1) for row in known_errors(gpt_runs)]
    wild = [replace(rows[0], error=3.0), *rows[1:]]
    for each in (rows, wild):
        found = thinned(each)
        assert len(found) <= 3 * FEW
        assert np.median([row.error for row in found]) == pytest.approx(0.1)
        assert all(row.spread > 0 for row in found)


def test_a_fitted_stack_holds_what_its_runs_say_unless_it_is_shipped(gpt_runs: list[Run], lab: Stack) -> None:
    own = with_known(lab.named("mine"), gpt_runs)
    assert {row.software for row in own.known} == {"mine"}
    assert own.devices == ("a100-80",)
    assert own.residuals["left_out_mape"] < 0.05
    assert with_known(lab.named("nemo-2024"), gpt_runs).known == ()


def test_a_stack_under_another_name_keeps_its_runs(gpt_runs: list[Run], lab: Stack) -> None:
    own = with_known(lab.named("mine"), gpt_runs)
    assert {row.software for row in own.named("theirs").known} == {"theirs"}


def test_rows_that_name_no_software_are_of_the_stack(tmp_path: Path) -> None:
    path = table(tmp_path, "llama3-8b,H100,8,1,1,64,9.0,,", "llama3-8b,H100,8,1,1,64,9.0,nemo-2024,")
    stack = load_stack("torchtitan-2024")
    found = knowing(stack, own_rows(rows_of(path), stack), "mine").known
    assert [row.software for row in found] == ["torchtitan", "nemo"]


def test_a_table_without_a_clean_run_says_so(tmp_path: Path) -> None:
    stack = load_stack("nemo-2024")
    doubted = own_rows(rows_of(table(tmp_path, "llama3-8b,H100,8,1,1,64,9.0,,suspect")), stack)
    with pytest.raises(InputError, match="mine: none of 1 rows has a step time"):
        knowing(stack, doubted, "mine")
    with pytest.raises(InvalidFile, match="cannot be read"):
        rows_of(tmp_path / "none.csv")
