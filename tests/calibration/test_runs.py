from pathlib import Path

import pytest

from optimizer.calibration.row_network import network_bandwidth
from optimizer.calibration.row_numbers import number_problems
from optimizer.calibration.runs import read_runs
from optimizer.errors import InvalidFile

SHORT = "model,gpu,gpus,micro_batch,global_batch,step_time_s\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "runs.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_short_csv_is_enough(tmp_path: Path) -> None:
    (run,) = read_runs(written(tmp_path, SHORT + "llama3-8b,H100-SXM,64,1,256,5.1\n"))
    assert run.job is not None
    assert run.plan is not None
    assert (run.job.model.name, run.job.cluster.device.name, run.job.gpus) == ("llama3-8b", "h100", 64)
    assert (run.plan.dp, run.plan.num_microbatches, run.job.global_batch) == (64, 4, 256)
    assert run.step_time == 5.1
    assert "stack megatron-core for blank" in run.assumed


def test_the_stack_of_a_row_is_used_and_an_unknown_one_is_said(tmp_path: Path) -> None:
    text = "stack," + SHORT + "nemo-2024,llama3-8b,H100,8,1,64,1\n" + "homemade,llama3-8b,H100,8,1,64,1\n"
    known, unknown = read_runs(written(tmp_path, text))
    assert known.stack_name == "nemo-2024"
    assert unknown.stack_name == "megatron-core"
    assert "stack megatron-core for homemade" in unknown.assumed


def test_missing_columns_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile) as raised:
        read_runs(written(tmp_path, "name,step_time_s\na,1\n"))
    assert "column gpu is missing" in str(raised.value)
    assert "column gpus is missing" in str(raised.value)
    assert "column model" in str(raised.value)


def test_an_empty_file_a_folder_and_bytes_are_no_csv(tmp_path: Path) -> None:
    binary = tmp_path / "binary.csv"
    binary.write_bytes(bytes(range(256)))
    for path in (written(tmp_path, ""), tmp_path, tmp_path / "absent.csv", binary):
        with pytest.raises(InvalidFile):
            read_runs(path)


def test_every_wrong_number_of_a_row_is_named(tmp_path: Path) -> None:
    text = "tp," + SHORT + "2.5,llama3-8b,H100,eight,1,-4,nan\n"
    (run,) = read_runs(written(tmp_path, text))
    assert run.job is None
    for part in (
        "gpus must be a whole number of at least 1, but got 'eight'",
        "tp must be a whole number of at least 1, but got '2.5'",
        "global_batch must be a whole number of at least 1, but got '-4'",
        "step_time_s must be a positive number, but got 'nan'",
    ):
        assert part in run.refused


def test_blank_cells_are_no_wrong_numbers() -> None:
    assert number_problems({"tp": "", "gpus": "8.0", "step_time_s": "1e-3"}) == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("unheard-of,H100,8,1,64,1", "no preset"),
        ("llama3-8b,abacus,8,1,64,1", "not a known device"),
        ("llama3-8b,H100,8,1,,1", "no global_batch"),
        ("bert-large,H100,8,1,64,1", ""),
    ],
)
def test_a_row_that_cannot_be_priced_says_why_and_the_others_stay(tmp_path: Path, row: str, reason: str) -> None:
    runs = read_runs(written(tmp_path, f"{SHORT}{row}\nllama3-8b,H100,8,1,64,1\n"))
    assert runs[0].job is None
    assert reason in runs[0].refused
    assert runs[0].refused
    assert runs[1].job is not None


def test_degrees_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    (run,) = read_runs(written(tmp_path, "tp,pp," + SHORT + "3,1,llama3-8b,H100,8,1,64,1\n"))
    assert "does not divide 8 GPUs" in run.refused


def test_out_of_memory_rows_need_no_time(tmp_path: Path) -> None:
    text = "status," + SHORT + "oom,llama3-8b,H100,8,8,64,\nok,llama3-8b,H100,8,1,64,2\nerror,llama3-8b,H100,8,1,64,\n"
    failed, fitted, unknown = read_runs(written(tmp_path, text))
    assert (failed.out_of_memory, fitted.out_of_memory, unknown.out_of_memory) == (True, False, None)
    assert failed.step_time is None


def test_rows_with_too_many_cells_are_read(tmp_path: Path) -> None:
    (run,) = read_runs(written(tmp_path, SHORT + "llama3-8b,H100,8,1,64,1,more,and more\n"))
    assert run.job is not None


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [("", 0.0), ("4x EDR per node", 6.25), ("400 Gb/s per GPU", 50.0), ("Omni-Path node", 1.5625)],
)
def test_network_bandwidth(text: str, gigabytes: float) -> None:
    assert network_bandwidth(text, 8) / 1e9 == pytest.approx(gigabytes)
