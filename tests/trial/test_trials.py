"""From a job to trials, and from their logs to a winner, as a user has it."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from optimizer.catalog import load_stack
from optimizer.cli import cli
from optimizer.trial.folder import read_folder
from tests.diagnose.written import megatron
from tests.frameworks.launches import read_arguments

GIB = 2.0**30
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def optimize(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


def asked(*words: str | Path) -> dict[str, Any]:
    result = optimize(*words, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three trials, as `optimize trial --out` leaves it."""
    folder = tmp_path_factory.mktemp("written") / "trials"
    result = optimize("trial", "--model", "llama3-8b", "--gpus", "16", "--out", folder)
    assert result.exit_code == 0, result.stderr
    assert "3 trials of 20 steps" in result.stdout
    assert "GPU-hours" in result.stdout
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    place = tmp_path / "trials"
    shutil.copytree(written, place)
    return place


def ran(folder: Path, place: int, factor: float = 1.0, *, code: int | None = 0, steps: int = 20) -> float:
    """Write the log of a trial that took so much longer than predicted; its step time [s]."""
    trials = read_folder(folder)
    seconds = factor * float(trials.candidates.costs.step_time[trials.chosen[place]])
    times = [4 * seconds, *(seconds * (1 + 0.002 * (-1) ** step) for step in range(steps - 1))]
    lines = megatron(times, last=20, batch=trials.job.global_batch, gpus=trials.job.gpus)[1:]
    finished(folder, place, lines, code)
    return seconds


def finished(folder: Path, place: int, lines: list[str], code: int | None) -> None:
    trial = read_folder(folder).trial(place)
    (trial / "train.log").write_text("\n".join(lines) + "\n")
    if code is not None:
        (trial / "exit-code").write_text(f"{code}\n")


def test_the_trials_are_different_plans_with_launch_files_that_run_them(written: Path) -> None:
    trials = read_folder(written)
    assert len({trials.candidates.plans[index] for index in trials.chosen}) == 3
    assert len(trials.candidates) > 100
    for place, index in enumerate(trials.chosen):
        script = (trials.trial(place) / "launch.sh").read_text()
        assert "--train-iters 20" in script
        text = (trials.trial(place) / "megatron.args").read_text()
        plan, settings = read_arguments(text, gpus=16)
        wanted = trials.candidates.plans[index]
        assert (plan.tp, plan.cp, plan.pp, plan.micro_batch) == (wanted.tp, wanted.cp, wanted.pp, wanted.micro_batch)
        assert settings["global_batch"] == trials.job.global_batch
        assert json.loads((trials.trial(place) / "answer.json").read_text())["plan"]["tp"] == wanted.tp


def test_a_slow_one_and_one_out_of_memory(folder: Path) -> None:
    finished(folder, 0, ["building the model", OUT_OF_MEMORY], 1)
    ran(folder, 1, 1.15)
    best = ran(folder, 2, 0.97)
    found = asked("trial", "read", folder)
    assert [trial["status"] for trial in found["trials"]] == ["oom", "ok", "ok"]
    assert found["winner"]["name"] == "trial-03"
    assert found["winner"]["step_time_s"] == pytest.approx(best, rel=0.01)
    assert 0 < found["expected_loss"] < 0.2
    assert found["next"]["plan"] not in [trial["plan"] for trial in found["trials"]]
    assert found["stack"]["error_after"] < found["stack"]["error_before"]
    report = optimize("trial", "read", folder)
    assert "trial-03 wins" in report.stdout
    assert "out of memory" in report.stdout


def test_the_stack_that_is_written_is_one_and_predicts_the_trials_better(folder: Path) -> None:
    for place in range(3):
        ran(folder, place, 1.12)
    found = asked("trial", "read", folder)["stack"]
    stack = load_stack(found["file"])
    assert stack.name == found["name"] == Path(found["file"]).stem
    assert stack.parent == "megatron-core"
    assert tomllib.loads(Path(found["file"]).read_text())["provenance"]["date"] == stack.name[-10:]
    assert found["error_before"] == pytest.approx(1 - 1 / 1.12, abs=0.01)
    assert found["error_after"] < 0.03
    answer = asked("--model", "llama3-8b", "--gpus", "16", "--stack", found["file"])
    assert answer["estimate"]["step_time_s"] > asked("--model", "llama3-8b", "--gpus", "16")["estimate"]["step_time_s"]


def test_trials_that_go_as_predicted_move_nothing(folder: Path) -> None:
    ran(folder, 0)
    found = asked("trial", "read", folder)["stack"]
    assert not {"gemm_efficiency", "launch", "step_overhead"} & found["moved"].keys()


def test_some_of_the_trials_are_enough(folder: Path) -> None:
    ran(folder, 0)
    found = asked("trial", "read", folder)
    assert [trial["status"] for trial in found["trials"]] == ["ok", "waiting", "waiting"]
    assert found["winner"]["name"] == "trial-01"
    assert "trial-02, trial-03" in optimize("trial", "read", folder).stdout


def test_before_any_trial_nothing_is_decided(folder: Path) -> None:
    found = asked("trial", "read", folder)
    assert found["winner"] is found["next"] is found["stack"] is None
    assert not list(folder.glob("*.toml"))


def test_an_interrupted_trial_counts_once_its_steps_are_steady(folder: Path) -> None:
    ran(folder, 0, code=None, steps=3)
    ran(folder, 1, code=None, steps=14)
    finished(folder, 2, ["starts"], None)
    statuses = [trial["status"] for trial in asked("trial", "read", folder)["trials"]]
    assert statuses == ["unfinished", "ok", "unfinished"]


def test_a_crash_is_a_result_and_says_how_to_run_it_again(folder: Path) -> None:
    finished(folder, 0, ["ModuleNotFoundError: No module named 'megatron'"], 1)
    finished(folder, 1, ["starts"], 124)
    first, second, _ = asked("trial", "read", folder)["trials"]
    assert first["status"] == second["status"] == "crashed"
    assert "remove its exit-code" in first["remarks"][0]
    assert "No module named 'megatron'" in first["remarks"][1]
    assert "took too long" in second["remarks"][0]


def test_all_out_of_memory_leaves_a_leaner_plan_to_try(folder: Path) -> None:
    for place in range(3):
        finished(folder, place, [OUT_OF_MEMORY], 1)
    found = asked("trial", "read", folder)
    assert found["winner"] is None
    assert found["next"]["predicted_memory_bytes"] < min(trial["predicted_memory_bytes"] for trial in found["trials"])
    assert found["stack"]["moved"]


def test_next_writes_one_more_trial_which_read_then_knows(folder: Path) -> None:
    for place in range(3):
        ran(folder, place, 1.0 + 0.02 * place)
    wanted = asked("trial", "read", folder)["next"]
    added = asked("trial", "next", folder)
    assert added["name"] == "trial-04"
    assert added["plan"] == wanted["plan"]
    assert (folder / "trial-04" / "launch.sh").exists()
    ran(folder, 3, 0.9)
    assert asked("trial", "read", folder)["winner"]["name"] == "trial-04"


def test_whether_another_trial_pays_depends_on_the_run(folder: Path) -> None:
    for place in range(3):
        ran(folder, place)
    assert asked("trial", "read", folder, "--tokens", "1e15")["next"]["pays"] is True
    assert asked("trial", "read", folder, "--tokens", "1e7")["next"]["pays"] is False
    assert "pays  no" in " ".join(optimize("trial", "read", folder, "--tokens", "1e7").stdout.split(" ")).replace(
        "    ", " "
    )


def test_next_waits_for_results(folder: Path) -> None:
    ran(folder, 0)
    refused(optimize("trial", "next", folder), "trial-02, trial-03 has no result yet")


def refused(result: Result, *words: str) -> None:
    assert result.exit_code == 2, result.stdout
    for word in words:
        assert word in result.stderr


def test_what_is_no_folder_of_trials_is_refused(tmp_path: Path, folder: Path) -> None:
    refused(optimize("trial", "read", tmp_path / "none"), "is no folder")
    refused(optimize("trial", "read", tmp_path), "holds no trials.json")
    (folder / "trials.json").write_text("{")
    refused(optimize("trial", "read", folder), "not JSON")


@pytest.mark.parametrize("chosen", [[], [0, 10**6], [-1], ["x"]])
def test_a_manifest_with_trials_that_are_none_is_refused(folder: Path, chosen: list[object]) -> None:
    text = json.loads((folder / "trials.json").read_text())
    text["trial"]["chosen"] = chosen
    (folder / "trials.json").write_text(json.dumps(text))
    refused(optimize("trial", "read", folder), "trials.json")


def test_a_corrupt_log_is_refused_with_what_to_do(folder: Path) -> None:
    (folder / "trial-01" / "train.log").write_bytes(bytes(range(256)) * 20)
    (folder / "trial-01" / "exit-code").write_text("0\n")
    refused(optimize("trial", "read", folder), "train.log", "to run it again")
    (folder / "trial-01" / "exit-code").write_text("what\n")
    refused(optimize("trial", "read", folder), "must hold an exit code, but got 'what'")
    (folder / "trial-01" / "exit-code").write_text("0\n")
    (folder / "trial-01" / "train.log").unlink()
    refused(optimize("trial", "read", folder), "the exit code 0 but no train.log")


def test_a_log_of_another_run_is_refused(folder: Path) -> None:
    finished(folder, 0, megatron([2.0] * 20, batch=64, gpus=16)[1:], 0)
    refused(optimize("trial", "read", folder), "is of another run", "global_batch 64, not 512")


def test_a_folder_of_trials_is_not_written_over(folder: Path) -> None:
    again = ("trial", "--model", "gpt3", "--gpus", "16", "--out", folder)
    refused(optimize(*again), "already holds trials", "optimize trial next")


def test_what_trials_need_is_said(tmp_path: Path) -> None:
    refused(optimize("trial", "--model", "llama3-8b", "--gpus", "16"), "missing --out")
    refused(optimize("trial", "--gpus", "16", "--out", tmp_path / "a"), "missing --model")
    job = ("trial", "--model", "llama3-8b", "--gpus", "16")
    refused(optimize(*job, "--out", tmp_path / "a", "--dtype", "bf16,fp8"), "one number format")
    (tmp_path / "file").touch()
    refused(optimize(*job, "--out", tmp_path / "file"), "is a file")
    nothing = optimize("trial", "--model", "gpt3", "--gpus", "8", "--out", tmp_path / "b")
    assert nothing.exit_code == 3
    assert not (tmp_path / "b").exists()


def test_files_of_a_job_are_found_again_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path("presets/stacks/megatron-core.toml").resolve()
    (tmp_path / "mine.toml").write_text(source.read_text().replace('name = "megatron-core"', 'name = "mine"'))
    monkeypatch.chdir(tmp_path)
    job = ("--model", "llama3-8b", "--gpus", "8", "--stack", "mine.toml", "--set", "layers=16", "--plans", "2")
    assert len(asked("trial", *job, "--out", "trials")["trials"]) == 2
    monkeypatch.chdir("/")
    found = read_folder(tmp_path / "trials").job
    assert (found.stack.name, found.model.layers) == ("mine", 16)
