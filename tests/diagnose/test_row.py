"""Rows that are appended are read and priced by `validate`, as the run that they tell of, and spoil no file."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from optimizer.answer.reading import read_answer
from optimizer.calibration.runs import read_runs
from optimizer.cli import cli
from optimizer.diagnose.measured import Measured
from optimizer.diagnose.row import row_of
from optimizer.job.plan import Plan
from tests.diagnose import written
from tests.diagnose.test_formats import PACE, times
from tests.search.jobs import small_job

JOBS = {
    "dense": ["--model", "llama3.2-1b", "--gpus", "8"],
    "mixture": ["--model", "mixtral-8x7b", "--gpus", "64", "--fix", "recompute=moe_act", "--fix", "tp=1"],
    "pipeline": ["--model", "gpt3-6.7b", "--gpus", "32", "--fix", "vpp=2", "--fix", "pp=8"],
    "old": ["--model", "llama2-13b", "--gpus", "32", "--device", "a100-40", "--stack", "llm-foundry-fsdp-2023"],
}
TOLD = {"model": "llama3-8b", "gpu": "h100", "gpus": "64", "micro_batch": "1", "global_batch": "64"}


def read(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["read", *map(str, arguments)])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(written.text(written.composer(times())))
    return path


def told(**changes: str) -> list[str]:
    return [word for name, value in (TOLD | changes).items() for word in ("--set", f"{name}={value}") if value]


@pytest.mark.parametrize("name", JOBS)
def test_a_row_of_a_plan_is_priced_as_that_plan(name: str, log: Path, tmp_path: Path) -> None:
    answer, table = tmp_path / "answer.json", tmp_path / "runs.csv"
    answer.write_text(CliRunner().invoke(cli, [*JOBS[name], "--trials", "0", "--fix", "layout=even", "--json"]).stdout)
    saved = read_answer(answer.read_text())
    done = read(log, "--plan", answer, "--append", table)
    assert done.exit_code == 0, done.output
    (run,) = read_runs(table)
    assert run.job is not None
    assert saved.plan is not None
    assert run.step_time == pytest.approx(PACE, rel=0.006)
    assert run.plan == replace(saved.plan, layers_per_stage=())
    assert run.job.model == saved.job.model
    assert run.job.cluster.device == saved.job.cluster.device
    assert [tier.bandwidth for tier in run.job.cluster.tiers] == [tier.bandwidth for tier in saved.job.cluster.tiers]
    assert (run.job.gpus, run.job.seq_len, run.job.dtype) == (saved.job.gpus, saved.job.seq_len, saved.job.dtype)
    assert run.stack_name == saved.job.stack.name


def test_validate_and_calibrate_read_what_was_appended(log: Path, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    for batch in ("64", "128"):
        assert read(log, "--append", table, *told(global_batch=batch)).exit_code == 0
    done = CliRunner().invoke(cli, ["validate", "--runs", str(table), "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["rows"]) == 2
    assert [row["id"] for row in csv.DictReader(table.read_text().splitlines())] == ["train.log", "train.log-2"]


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
def test_a_file_stays_as_it_is_before_the_new_row(ending: str, log: Path, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    assert read(log, "--append", table, *told()).exit_code == 0
    before = table.read_bytes().rstrip(b"\n").replace(b"\n", (ending or "\n").encode()) + ending.encode()
    table.write_bytes(before)
    assert read(log, "--append", table, *told()).exit_code == 0
    after = table.read_bytes()
    assert after.startswith(before)
    assert len(read_runs(table)) == 2
    assert after.count(b"\r\n") in (0, after.count(b"\n"))


def test_columns_of_ones_own_are_kept(log: Path, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text('id,gpu,gpus,model,step_time_s,remark\na,h100,8,llama3-8b,1.5,"mine, and yours"\n')
    assert read(log, "--append", table, *told()).exit_code == 0
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert rows[0]["remark"] == "mine, and yours"
    assert rows[1]["remark"] == ""
    assert float(rows[1]["step_time_s"]) == pytest.approx(PACE, rel=0.006)


@pytest.mark.parametrize(
    "content",
    [b"a,b\n1,2\n", b"gpu,gpus,step_time_s\nh100,8\n", b"\xff\xfe\xfa", b'gpu,gpus,step_time_s\n"h100,8,1\n'],
)
def test_a_file_that_is_no_table_of_runs_is_left_alone(content: bytes, log: Path, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_bytes(content)
    done = read(log, "--append", table, *told())
    assert done.exit_code == 2
    assert "runs.csv" in done.stderr
    assert table.read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs.csv", "train.log"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (told(model=""), "needs model"),
        (told(model="no-such-model"), "no-such-model"),
        (["--set", "gpus"], "COLUMN=VALUE"),
        (["--set", "gppus=8"], "did you mean gpus"),
        (["--set", "gpus=many"], "whole number"),
    ],
)
def test_what_cannot_be_a_row_is_said_and_nothing_is_written(
    options: list[str], says: str, log: Path, tmp_path: Path
) -> None:
    table = tmp_path / "runs.csv"
    done = read(log, "--append", table, *options)
    assert done.exit_code == 2
    assert says in done.stderr
    assert not table.exists()


def test_out_of_memory_is_a_row_too(tmp_path: Path) -> None:
    log, table = tmp_path / "oom.log", tmp_path / "runs.csv"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    assert read(log, "--append", table, *told()).exit_code == 0
    (run,) = read_runs(table)
    assert run.out_of_memory


def test_a_log_of_another_run_than_the_plan_makes_no_row(tmp_path: Path) -> None:
    answer, log, table = tmp_path / "answer.json", tmp_path / "train.log", tmp_path / "runs.csv"
    answer.write_text(CliRunner().invoke(cli, [*JOBS["dense"], "--trials", "0", "--json"]).stdout)
    log.write_text(written.text(written.megatron(times())))
    done = read(log, "--plan", answer, "--append", table)
    assert done.exit_code == 2
    assert "global_batch 64, not 512" in done.stderr
    assert not table.exists()
    assert "global_batch 64, not 512" in read(log, "--plan", answer).stdout


@pytest.mark.parametrize(
    ("plan", "notes"),
    [
        (Plan(pp=2, layers_per_stage=(17, 15)), "layers per stage 17 15"),
        (Plan(pp=2, layers_per_stage=(16, 16)), ""),
        (Plan(recompute="full", recompute_first=4), "recompute_num_layers=4"),
    ],
)
def test_notes_hold_what_no_column_does(plan: Plan, notes: str) -> None:
    measured = Measured(files=("train.log",), program="", status="oom", steady=None, facts={})
    assert row_of(measured, small_job(), plan).get("notes", "") == notes
