"""`optimize batch` as a person types it, with the real planner on the smallest jobs."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import chdir, closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from optimizer.cli import cli

STUDY = """
models = ["llama3-8b", "llama2-7b"]
clusters = "dgx-h100"
gpus = [8, 16]
seq_lens = 4096
global_batches = 64
trials = 0
token_budget = 1e12
"""


def run(*arguments: str) -> Result:
    """The command, typed in the folder of the study that it names."""
    with chdir(next((Path(text).parent for text in arguments if text.endswith(".toml")), Path())):
        return CliRunner().invoke(cli, ["batch", *arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that was run to its end."""
    study = tmp_path_factory.mktemp("study") / "small.toml"
    study.write_text(STUDY)
    result = run(str(study), "--workers", "2")
    assert result.exit_code == 0
    assert "small: 4 jobs, 4 optimal" in result.stdout
    assert "4 of 4 jobs on 2 local processes" in result.stderr
    return study


def test_a_dry_run_counts_and_makes_nothing(tmp_path: Path) -> None:
    study = tmp_path / "small.toml"
    study.write_text(STUDY)
    result = run(str(study), "--dry-run")
    assert result.exit_code == 0
    assert "small: 4 jobs" in result.stdout
    assert "a guess" in result.stdout
    assert json.loads(run(str(study), "--dry-run", "--json").stdout)["jobs"] == 4
    assert not (tmp_path / "small.db").exists()


def _ended(study: Path) -> list[tuple[str, float]]:
    """The jobs in a study's store, and when each was done."""
    with closing(sqlite3.connect(study.with_suffix(".db"))) as connection:
        return connection.execute("SELECT key, finished FROM batch_jobs").fetchall()


def test_the_same_command_again_has_nothing_to_do(finished: Path) -> None:
    before = _ended(finished)
    assert "4 of them have their answer in the store" in run(str(finished), "--dry-run").stdout
    found = json.loads(run(str(finished), "--export", "json").stdout)
    assert [(job["job"]["model"], job["job"]["gpus"]) for job in found] == [
        ("llama3-8b", 8),
        ("llama3-8b", 16),
        ("llama2-7b", 8),
        ("llama2-7b", 16),
    ]
    for job in found:
        plan = job["plan"]
        assert plan["tp"] * plan["cp"] * plan["pp"] * plan["dp"] == job["job"]["gpus"]
        assert sum(job["estimate"]["time_s"].values()) == pytest.approx(job["estimate"]["step_time_s"])
        assert job["costs"]["train_days"] > 0
    assert _ended(finished) == before


def test_a_job_of_a_batch_is_planned_as_optimize_plans_it(finished: Path) -> None:
    (job,) = json.loads(
        run("show", str(finished), "--where", "model=llama2-7b", "--where", "gpus=8", "--export", "json").stdout
    )
    options = "--model llama2-7b --gpus 8 --cluster dgx-h100 --seq-len 4096 --global-batch 64 --trials 0 --json"
    alone = json.loads(CliRunner().invoke(cli, options.split()).stdout)
    assert {key: job[key] for key in ("plan", "knobs", "estimate", "certificate")} == {
        key: alone[key] for key in ("plan", "knobs", "estimate", "certificate")
    }


def test_show_lists_chooses_and_exports(finished: Path, tmp_path: Path) -> None:
    assert "llama3-8b" in run("show", str(finished)).stdout
    rows = list(csv.DictReader(io.StringIO(run("show", str(finished), "--where", "gpus>8", "--export", "csv").stdout)))
    assert [row["gpus"] for row in rows] == ["16", "16"]
    by_store = json.loads(run("show", "--store", str(finished.with_suffix(".db")), "--export", "json").stdout)
    assert len(by_store) == 4
    assert json.loads(run("show", str(finished), "--json").stdout)["statuses"] == {"optimal": 4}
    of_a_run = json.loads(run("show", str(finished), "--tokens", "1T", "--export", "json").stdout)
    assert [each["costs"]["train_days"] is None for each in (by_store[0], of_a_run[0])] == [True, False]
    result = run("show", str(finished), "--html", str(tmp_path / "report.html"))
    assert result.exit_code == 0
    assert (tmp_path / "report.html").stat().st_size < 6e6
    assert (tmp_path / "report.csv").exists()


def test_failures_are_listed_and_keep_the_others(tmp_path: Path) -> None:
    study = tmp_path / "mixed.toml"
    study.write_text(
        'models = "llama2-7b"\ndevices = ["a100-80", "h100"]\ngpus = 8\nglobal_batches = 64\ndtypes = "fp8"'
    )
    result = run(str(study))
    assert result.exit_code == 5
    assert "1 x a100-80 has no fp8 matrix units" in " ".join(result.stdout.split())
    assert "1 of 2 jobs failed; the others are kept" in result.stderr
    found = json.loads(run("show", str(study), "--export", "json").stdout)
    assert [job["status"] for job in found] == ["failed", "optimal"]


def test_shards_and_separate_stores_add_up(finished: Path, tmp_path: Path) -> None:
    for part in ("1", "2"):
        assert run(str(finished), "--shard", f"{part}/2", "--store", str(tmp_path / f"{part}.db")).exit_code == 0
    whole = str(tmp_path / "whole.db")
    assert run("merge", whole, str(tmp_path / "1.db"), str(tmp_path / "2.db")).exit_code == 0
    export = ("show", str(finished), "--export", "json")
    assert run(*export, "--store", whole).stdout == run(*export).stdout


def test_a_store_that_nobody_names_lies_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "small.toml").write_text(STUDY.replace("gpus = [8, 16]", "gpus = 8"))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["batch", "theirs/small.toml", "--workers", "1"])
    assert (result.exit_code, "answers go to small.db in this folder" in result.stderr) == (0, True)
    assert [path.name for path in (tmp_path / "theirs").iterdir()] == ["small.toml"]
    assert (tmp_path / "small.db").exists()


def test_a_job_that_is_gone_is_told_where_the_study_is_named(finished: Path, tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    place.write_bytes(finished.with_suffix(".db").read_bytes())
    with closing(sqlite3.connect(place)) as connection, connection:
        key = connection.execute("SELECT key FROM batch_jobs WHERE gpus = 16").fetchone()
        connection.execute("DELETE FROM batch_jobs WHERE key = ?", key)
    shown = ("show", str(finished), "--store", str(place), "--export", "csv")
    refused = run(*shown)
    assert (refused.exit_code, f"the answer of key {key[0]} is gone" in refused.stderr) == (2, True)
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("DELETE FROM batch_sums WHERE key = ?", key)  # as if it had never been planned
    told = run(*shown)
    assert (told.exit_code, f"3 of the 4 jobs of {finished} are in {place}" in told.stderr) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("none.toml",), "cannot be read: No such file or directory; `optimize batch --help` shows what to write"),
        (("show",), "name a study file, or a --store"),
        (("show", "--store", "none.db"), "no such file"),
        (("STUDY", "--shard", "0/2"), "is not i/n with i from 1 to n"),
        (("STUDY", "--html", "/no/such/folder/x.html"), "does not exist"),
        (("STUDY", "--store", "/no/such/folder/x.db"), "cannot be opened or made"),
        (("show", "STUDY", "--where", "colour=red"), "unknown column 'colour'"),
    ],
)
def test_what_cannot_be_used_is_one_clear_message(finished: Path, arguments: tuple[str, ...], words: str) -> None:
    result = run(*(str(finished) if argument == "STUDY" else argument for argument in arguments))
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_exclusions_that_leave_nothing_are_told(tmp_path: Path) -> None:
    study = tmp_path / "empty.toml"
    study.write_text('models = "llama2-7b"\ngpus = 8\n[[exclude]]\ngpus = "> 1"')
    result = run(str(study))
    assert result.exit_code == 2
    assert "the exclusions leave no job" in result.stderr


def test_a_read_only_store_can_be_shown_but_not_run(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    for suffix in (".toml", ".db"):
        (folder / f"small{suffix}").write_bytes(finished.with_suffix(suffix).read_bytes())
    study = str(folder / "small.toml")
    for words in (("show",), ()):
        assert run(*words, str(finished.with_suffix(".toml"))).exit_code == 0  # what is imported may lie out of reach
    with without_rights(folder):
        shown = run("show", study)
        result = run(study)
    assert "small: 4 jobs, 4 optimal" in shown.stdout
    assert result.exit_code == 2
    assert "cannot be" in result.stderr
    assert "--store" in result.stderr


@contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """A folder in which nothing may be written, not even by root, who becomes somebody else meanwhile."""
    if os.name != "posix":
        pytest.skip("needs POSIX permissions")
    root = os.geteuid() == 0
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555)
    if root:
        for parent in folder.parents[: len(folder.parts) - 3]:
            parent.chmod(0o755)
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
