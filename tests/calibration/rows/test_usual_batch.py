"""Rows that name no micro-batch: which one is assumed, and that nothing is fitted to them."""

from pathlib import Path

import pytest

from optimizer.base.errors import InputError
from optimizer.calibration.calibrate import calibrate
from optimizer.calibration.runs import Run, read_runs
from optimizer.calibration.validation import validate
from optimizer.job.stack import Stack

HEADER = "id,model,gpu,gpus,tp,pp,vpp,micro_batch,global_batch,seq_len,step_time_s\n"


def runs_of(folder: Path, *lines: str) -> list[Run]:
    path = folder / "runs.csv"
    path.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    return read_runs(path)


def test_the_fastest_that_fits_is_assumed_and_said(tmp_path: Path) -> None:
    sizes = (1, 2, 4, 8)
    named = [f"{size},llama3-8b,H100,8,2,1,1,{size},32,4096,3" for size in sizes]
    *given, blank = validate(runs_of(tmp_path, *named, "blank,llama3-8b,H100,8,2,1,1,,32,4096,3")).rows
    fitting = [row for row in given if row.fits]
    assert 0 < len(fitting) < len(given)
    best = min(fitting, key=lambda row: row.step_time or 0.0)
    assert blank.step_time == best.step_time
    assert f"micro_batch {best.run.id}" in blank.run.assumed
    assert not blank.clean
    assert best.clean


@pytest.mark.parametrize(("global_batch", "largest"), [(96, 1), (192, 2)])
def test_an_interleaved_schedule_keeps_a_multiple_of_its_stages_in_micro_batches(
    tmp_path: Path, global_batch: int, largest: int
) -> None:
    (run,) = runs_of(tmp_path, f"x,llama3-8b,H200,64,2,4,2,,{global_batch},4096,3")
    assert run.plan is not None
    assert run.plan.micro_batch <= largest
    assert run.plan.num_microbatches % run.plan.pp == 0
    assert run.plan.micro_batch * run.plan.num_microbatches * run.plan.dp == global_batch


def test_one_sample_is_assumed_where_nothing_fits(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path, "x,llama3-70b,H100,8,1,1,1,,64,4096,3")
    assert run.plan is not None
    assert run.plan.micro_batch == 1


def test_nothing_is_fitted_to_such_a_row(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, "x,llama3-8b,H100,8,2,1,1,,32,4096,3")
    with pytest.raises(InputError, match="none of 1 rows"):
        calibrate(runs, Stack(name="mine"))
