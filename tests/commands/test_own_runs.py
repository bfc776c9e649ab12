"""`--runs`: a user's own runs, which every figure knows; `validate --given` judges others by them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

import optimizer
from optimizer.cli import cli
from optimizer.commands.own_runs import _reference, _trial_runs
from optimizer.job.plan import Plan
from optimizer.trial.folder import read_folder
from tests.diagnose import written
from tests.search.jobs import small_job

pytestmark = pytest.mark.usefixtures("planned_once")
HEADER = "model,gpu,gpus,tp,micro_batch,global_batch,seq_len,step_time_s,stack,source\n"
SLOWER = "llama3-8b,H100,8,1,1,64,8192,7.2,,\n"  # than predicted
ASKED = ("--model", "llama3-8b", "--gpus", "8", "--global-batch", "64", "--fix", "tp=1,micro_batch=1")


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), prog_name="optimize")


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.csv"
    path.write_text(HEADER + SLOWER, encoding="utf-8")
    return str(path)


@pytest.fixture
def two(tmp_path: Path) -> str:
    path = tmp_path / "two.csv"
    path.write_text(HEADER + SLOWER + SLOWER.replace("7.2", "7.25"), encoding="utf-8")
    return str(path)


def test_a_run_of_the_plan_moves_the_step_and_the_interval_and_the_answer_says_so(tmp_path: Path) -> None:
    mine = str(tmp_path / "mine.csv")
    planned = json.loads(run(*ASKED, "--json").stdout)
    degrees = {name: planned["plan"][name] for name in ("tp", "cp", "pp", "vpp", "dp", "micro_batch")}
    sizes = {"model": "llama3-8b", "gpu": "H100", "gpus": 8, "global_batch": 64, "seq_len": 8192}
    row = {**sizes, **degrees, "sharding": f"ZeRO-{planned['plan']['zero_stage']}", "step_time_s": 7.2}
    Path(mine).write_text(f"{','.join(row)}\n{','.join(map(str, row.values()))}\n", encoding="utf-8")
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
    moved = Path(mine).rename(tmp_path / "moved.csv")
    assert "No such file" in run("check", str(saved)).output
    assert run("check", str(saved), "--runs", str(moved)).exit_code == 0
    moved.rename(mine)
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


def test_validate_says_what_the_given_runs_change(mine: str, two: str, tmp_path: Path) -> None:
    """Runs as slow as the one that is given, on 8 GPUs: they are met better with it, and the more so the nearer.

    Of a single run less is believed of others.
    """
    rows, left, by_two = tmp_path / "rows.csv", list[float](), list[float]()
    for gpus in (8, 16, 32):
        rows.write_text(f"{HEADER}llama3-8b,H100,{gpus},1,1,{8 * gpus},8192,7.3,,\n", encoding="utf-8")
        without, given, twice = (
            json.loads(run("validate", "--runs", str(rows), *more, "--json").stdout)["groups"][0]["time"]["mape"]
            for more in ((), ("--given", mine), ("--given", two))
        )
        left.append(given / without)
        by_two.append(twice / without)
    assert left[0] < left[1] < left[2] <= 1
    assert by_two[0] < by_two[1] < by_two[2] < 1
    assert by_two[1] < 0.6 < left[1] < 0.95
    shown = run("validate", "--runs", str(rows), "--given", mine).output
    assert "Given 1 run: mean error of each group's other runs" in shown


def test_a_log_with_its_script_counts_as_the_row_that_read_appends(tmp_path: Path) -> None:
    log, rows, script = tmp_path / "train.log", tmp_path / "rows.csv", "examples/llama3-8b.sh"
    log.write_text(written.text(written.megatron([8.0, *[2.8] * 40], batch=256)[1:]), encoding="utf-8")
    assert run("read", str(log), "--script", script, "--append", str(rows)).exit_code == 0
    asked = ("--model", "llama3-8b", "--gpus", "64", "--global-batch", "256", "--fix", "tp=2", "--json")
    documents = [
        json.loads(run(*asked, "--runs", names).stdout)
        for names in (str(rows), f"{log},{script}", f"{script},{log}", f"{rows},{log},{script}")
    ]
    spans = [each["estimate"]["interval_s"] for each in documents]
    assert spans[1] == spans[2] == pytest.approx(spans[0], rel=1e-6)
    assert spans[3] != spans[0]
    assert [each["job"]["own_runs"]["runs"] for each in documents] == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("names", "says", "cluster", "read"),
    [
        (["answer.json"], "", "h800", ("answer", "answer.json")),
        (["answer.json", "run.sh"], "gpus", "dgx-h100", (["answer.json", "run.sh"], "dgx-h100")),
        (["run.sh"], "device", "h800", (["run.sh"], "")),
        (["run.sh"], "gpus", "mine.toml", (["run.sh"], "")),
    ],
)
def test_what_started_a_log_is_an_answer_or_launches_on_the_machine_that_they_name(
    names: list[str], says: str, cluster: str, read: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answer.json").write_text('{"schema_version": 1}', encoding="utf-8")
    (tmp_path / "run.sh").write_text("torchrun train.py", encoding="utf-8")
    launch = SimpleNamespace(launch=SimpleNamespace(settings={says: 1}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("optimizer.answer.reading.read_answer_file", lambda name: name)
    monkeypatch.setattr("optimizer.diagnose.reference.answer_reference", lambda answer, name: ("answer", name))
    monkeypatch.setattr("optimizer.diagnose.reference.script_reference", lambda files, says, runs, on: (files, on))
    monkeypatch.setattr("optimizer.frameworks.read.read_launch", lambda files: launch)
    assert _reference(names, [], cluster) == read


def test_trials_that_trained_are_runs_with_the_memory_that_their_logs_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is a share of what a job may use."""
    job, plan = small_job(8), Plan(dp=8, micro_batch=2)
    folder = SimpleNamespace(job=job, candidates=SimpleNamespace(plans=[None, plan]))
    outcomes = [
        SimpleNamespace(name=name, index=1, seconds=seconds, memory=memory)
        for name, seconds, memory in (("a", 3.0, 0.5), ("b", 4.0, None), ("c", None, 0.5))
    ]
    monkeypatch.setattr("optimizer.trial.folder.read_folder", lambda name: folder)
    monkeypatch.setattr("optimizer.trial.outcome.outcomes", lambda trials: outcomes)
    runs = _trial_runs("here")
    assert [(run.id, run.plan, run.step_time, run.memory, run.memory_kind) for run in runs] == [
        ("a", plan, 3.0, 0.5 * job.usable_memory, "max reserved"),
        ("b", plan, 4.0, None, ""),
    ]
    assert runs[0].row == {"micro_batch": "2", "global_batch": str(job.global_batch)}


def test_a_folder_of_trials_counts(tmp_path: Path) -> None:
    folder = tmp_path / "trials"
    made = run("trial", "--model", "llama3-8b", "--gpus", "64", "--plans", "2", "--out", str(folder))
    assert made.exit_code == 0, made.output
    asked = ("--model", "llama3-8b", "--gpus", "64")
    none = run(*asked, "--runs", str(folder))
    assert none.exit_code == 2
    assert "has a step time" in none.output
    trials = read_folder(folder)
    slow = 1.2 * float(trials.candidates.costs.step_time[trials.chosen[0]])
    lines = written.megatron([4 * slow, *[slow] * 19], last=20, batch=trials.job.global_batch)[1:]
    (trials.trial(0) / "train.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (trials.trial(0) / "exit-code").write_text("0\n", encoding="utf-8")
    told = run(*asked, "--runs", str(folder))
    assert told.exit_code == 0, told.output
    assert "your 1 run: " in " ".join(told.output.split())


@pytest.mark.parametrize(
    ("names", "refusal"),
    [
        ("examples/llama3-8b.sh", "a launch alone"),
        ("examples/slow-run.log", "a log alone; name what started it too"),
        ("examples/slow-run.log,examples/llama3-8b.sh", "the log is not of this plan"),
        ("examples", "a folder without trials.json"),
        ("nowhere.csv", "No such file"),
        ("/dev/zero", "a device or a pipe"),
    ],
)
def test_what_is_no_run_of_ones_own_is_one_message(names: str, refusal: str) -> None:
    refused = run(*ASKED, "--runs", names)
    assert refused.exit_code == 2
    assert refusal in refused.output


def test_a_study_knows_runs_and_answers_without_them_are_others(mine: str, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    keys = 'models = "llama3-8b"\ngpus = 8\nglobal_batches = 64\nseq_lens = 8192\nfix = {tp = 1, micro_batch = 1}\n'
    study.write_text(keys, encoding="utf-8")

    def steps(*more: str) -> list[tuple[float, float]]:
        done = run("batch", str(study), "--store", str(tmp_path / "store.db"), *more, "--export", "json")
        assert done.exit_code == 0, done.output
        return [each["estimate"]["interval_s"] for each in json.loads(done.stdout)]

    without, typed = steps(), steps("--runs", mine)
    study.write_text(f'{keys}runs = "mine.csv"\n', encoding="utf-8")
    assert steps() == typed != without
    refused = run("batch", str(study), "--runs", "nowhere.csv")
    assert refused.exit_code == 2
    assert "No such file" in refused.output


def test_time_and_cost_of_machines_follow_ones_own_runs(two: str) -> None:
    asked = ("--model", "llama3-8b", "--tokens", "1e12", "--hardware", "h100", "--gpus", "8", "--global-batch", "64")
    pins = ("--seq-len", "8192", "--fix", "tp=1", "--fix", "micro_batch=1")
    before, after = (
        json.loads(run("pareto", *asked, *pins, *more, "--json").stdout)["front"][0] for more in ((), ("--runs", two))
    )
    assert after["time_to_train_days"] > 1.01 * before["time_to_train_days"]
    assert after["cost_usd"] > 1.01 * before["cost_usd"]


def test_a_table_of_the_users_defaults_always_counts(
    mine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "config" / "mfu-optimizer"
    home.mkdir(parents=True)
    (home / "defaults.toml").write_text(f'runs = "{mine}"\n', encoding="utf-8")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert "your 1 run: " in " ".join(run(*ASKED).output.split())
    improved = run("improve", "examples/llama3-8b.sh")
    assert "your 1 run: " in " ".join(improved.output.split())


def test_a_run_that_no_error_of_a_prediction_explains_is_refused(mine: str) -> None:
    Path(mine).write_text(Path(mine).read_text().replace("7.2", "7200"), encoding="utf-8")
    refused = run(*ASKED, "--runs", mine)
    assert refused.exit_code == 2
    assert "times what is predicted" in refused.output


def test_a_file_that_is_named_twice_counts_once(mine: str) -> None:
    once, twice = (json.loads(run(*ASKED, "--runs", names, "--json").stdout) for names in (mine, f"{mine},{mine}"))
    assert twice["job"]["own_runs"]["runs"] == 1
    assert twice["estimate"] == once["estimate"]
