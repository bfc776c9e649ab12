"""`--runs`: a user's own runs, which every figure knows; `validate --given` judges others by them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import optimizer
from optimizer.cli import cli

HEADER = "model,gpu,gpus,tp,micro_batch,global_batch,seq_len,step_time_s,stack,source\n"
ASKED = ("--model", "llama3-8b", "--gpus", "8", "--global-batch", "64", "--fix", "tp=1,micro_batch=1")


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), prog_name="optimize")


@pytest.fixture
def mine(tmp_path: Path) -> str:
    """One run, slower than predicted."""
    path = tmp_path / "mine.csv"
    path.write_text(f"{HEADER}llama3-8b,H100,8,1,1,64,8192,7.2,,\n", encoding="utf-8")
    return str(path)


def test_one_run_moves_the_step_and_the_interval_and_the_answer_says_so(mine: str) -> None:
    before, after = run(*ASKED), run(*ASKED, "--runs", mine)
    assert after.exit_code == 0, after.output
    assert "your 1 run: " in " ".join(after.output.split())
    assert "your 1 run" not in before.output
    plain, known = (json.loads(run(*ASKED, *more, "--json").stdout)["estimate"] for more in ((), ("--runs", mine)))
    assert known["step_time_s"] == plain["step_time_s"]
    ratio = [each["interval_s"][1] / each["interval_s"][0] for each in (known, plain)]
    assert ratio[0] < ratio[1]
    assert known["interval_s"][0] > plain["interval_s"][0]


def test_python_takes_runs_and_check_finds_the_answer_again(mine: str, tmp_path: Path) -> None:
    answer = optimizer.plan(model="llama3-8b", gpus=8, global_batch=64, fix={"tp": 1}, runs=mine)
    saved = tmp_path / "answer.json"
    saved.write_text(
        run(
            "--model", "llama3-8b", "--gpus", "8", "--global-batch", "64", "--fix", "tp=1", "--runs", mine, "--json"
        ).stdout,
        encoding="utf-8",
    )
    assert json.loads(saved.read_text())["estimate"]["interval_s"] == list(answer.to_dict()["estimate"]["interval_s"])
    assert json.loads(saved.read_text())["job"]["own_runs"]["runs"] == 1
    for more in (("--runs", mine), ()):
        assert run("check", str(saved), *more).exit_code == 0
    Path(mine).write_text(Path(mine).read_text().replace("7.2", "7.9"), encoding="utf-8")
    changed = run("check", str(saved))
    assert changed.exit_code == 2
    assert "is not what the answer was made with" in changed.output


def test_a_table_that_tells_nothing_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    path.write_text(HEADER, encoding="utf-8")
    refused = run(*ASKED, "--runs", str(path))
    assert refused.exit_code == 2
    assert "has a step time" in refused.output


def test_validate_says_what_the_given_runs_change(mine: str, tmp_path: Path) -> None:
    """Runs as slow as the one that is given: they are met better with it than without."""
    rows = tmp_path / "rows.csv"
    body = "".join(f"llama3-8b,H100,{gpus},1,1,{8 * gpus},8192,7.3,,\n" for gpus in (16, 32))
    rows.write_text(HEADER + body, encoding="utf-8")
    without, given = (
        json.loads(run("validate", "--runs", str(rows), *more, "--json").stdout) for more in ((), ("--given", mine))
    )
    errors = [each["groups"][0]["time"]["mape"] for each in (without, given)]
    assert errors[1] < 0.6 * errors[0]
    shown = run("validate", "--runs", str(rows), "--given", mine).output
    assert "Given 1 run: mean error of each group's other runs" in shown
