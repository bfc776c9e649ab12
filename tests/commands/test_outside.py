"""What is outside of the program and goes wrong: databases, passwords, full disks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from optimizer.cli import cli
from optimizer.commands.study.calibrate import _day_of
from optimizer.search.lattice.saved_trials import open_storage

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--model", "llama3-8b", "--gpus", "8", "--global-batch", "64", "--fix", "pp=1", "--fix", "tp=1")
STUDY = str(ROOT / "examples" / "study.toml")
SECRET = "hunter2"
URLS = (
    f"postgresql://me:{SECRET}@127.0.0.1:1/x",
    f"postgresql://me@127.0.0.1:1/x?password={SECRET}",
    f"postgresql://me@127.0.0.1:1/x?sslmode=disable&sslpassword={SECRET}",
    f"postgresql://me:{SECRET}@{SECRET}@127.0.0.1:1/x",
    f"weird://me:{SECRET}@127.0.0.1/x",
    f"mysql://me:{SECRET}@127.0.0.1/x",
    f"x://a:{SECRET}@c:port/",
    f"://me:{SECRET}@x",
    "://",
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="optimize")


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("option", ["--study", "--store", "merge"])
def test_no_password_is_shown_and_what_is_wrong_is_told(url: str, option: str) -> None:
    commands = {
        "--study": (*SMALL, "--study", url),
        "--store": ("batch", "show", "--store", url),
        "merge": ("batch", "merge", url, url),
    }
    found = run(*commands[option])
    assert found.exit_code == 2, found.output
    assert SECRET not in found.output
    assert "internal error" not in found.stderr
    assert len(found.stderr) < 2000


def test_a_study_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    found = run(*SMALL, "--study", str(path))
    assert found.exit_code == 2
    assert "--study" in found.stderr
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    "words", [(*SMALL, "--study"), ("batch", "show", "--store"), ("batch", "study.toml", "--store")]
)
def test_a_name_that_is_no_text_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text('models = "llama3-8b"\ngpus = 8\n', encoding="utf-8")
    found = run(*words, "\udcff.db")
    assert found.exit_code == 2
    assert "internal error" not in found.stderr


def test_one_seed_gives_one_answer_whatever_a_study_holds(tmp_path: Path) -> None:
    job = (*SMALL, "--trials", "4", "--json")
    found = [run(*job, "--study", str(tmp_path / "s.db")) for _ in range(2)] + [run(*job)]
    documents = [json.loads(each.stdout) for each in found]
    for document in documents:
        del document["search_s"]
    assert documents[0] == documents[1] == documents[2]
    import optuna

    with open_storage(f"sqlite:///{tmp_path / 's.db'}") as storage:
        (study,) = optuna.study.get_all_study_summaries(storage)
    assert study.n_trials > 4


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_study_in_memory_holds_its_tables_until_it_ends(url: str) -> None:
    assert run(*SMALL, "--top", "0", "--trials", "2", "--study", url).exit_code == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("arguments", [("presets",), (*SMALL, "--json"), SMALL])
def test_a_full_disk_under_stdout_is_no_bug_of_ours(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "optimizer", *arguments], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2, done.stderr
    assert "the output cannot be written: No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_same_runs_give_the_same_date(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.touch()
    os.utime(path, (86400 * 365, 86400 * 365))
    assert _day_of(path) == "1971-01-01"
