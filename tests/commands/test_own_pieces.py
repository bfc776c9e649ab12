"""Pieces of `--runs`: which files go together, what counts, and what an answer keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.base.errors import InputError
from optimizer.commands import own_runs
from optimizer.job.plan import Plan
from tests.search.jobs import small_job


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("runs.csv", "anything", own_runs.TABLE),
        ("runs.txt", 'id, "gpus" ,model\n1,8,gpt3', own_runs.TABLE),
        ("run.sh", "torchrun --gpus 8", own_runs.LAUNCH),
        ("run.sh", "gpus=8", own_runs.LAUNCH),
    ],
)
def test_a_file_of_runs_is_told_by_its_name_or_its_first_line(name: str, text: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    (found,) = own_runs.own_files(str(path))
    assert (found.path, found.kind, found.data) == (str(path), kind, text.encode())
    with pytest.raises(InputError, match="a folder without"):
        own_runs.own_files(str(tmp_path))


def test_paths_with_commas_between_are_several_unless_one_has_that_name(tmp_path: Path) -> None:
    odd = tmp_path / "a,b.csv"
    odd.write_text("x")
    assert own_runs._paths(str(odd)) == [str(odd)]
    assert own_runs._paths("a.csv, b.csv,,") == ["a.csv", "b.csv"]
    assert own_runs._paths(",") == [","]


def files(kinds: str) -> list[own_runs.OwnFile]:
    """Files a, b, ... of these kinds: t a table, l a log, s a script, d a folder of trials."""
    names = {"t": own_runs.TABLE, "l": own_runs.LOG, "s": own_runs.LAUNCH, "d": own_runs.TRIALS}
    return [
        own_runs.OwnFile(path=path, kind=names[kind], data=path.encode())
        for path, kind in zip("abcdef", kinds, strict=False)
    ]


@pytest.mark.parametrize(
    ("kinds", "pairs"),
    [
        *(("", []), ("ls", [("a", "b")]), ("sl", [("b", "a")]), ("llss", [("ab", "cd")])),
        *(
            ("lsls", [("a", "b"), ("c", "d")]),
            ("lssl", "log"),
            ("l", "log"),
            ("lsl", "log"),
            ("s", "launch"),
        ),
    ],
)
def test_logs_go_with_the_launches_beside_them(kinds: str, pairs: Any) -> None:
    if isinstance(pairs, str):
        last = files(kinds)[-1].path
        advice = own_runs.ADVICE if pairs == "launch" else f"name what started it too, as in --runs {last},run.sh"
        with pytest.raises(InputError) as refused:
            own_runs._pairs(files(kinds))
        assert str(refused.value) == f"--runs {last}: a {pairs} alone; {advice}"
    else:
        assert own_runs._pairs(files(kinds)) == [(tuple(logs), tuple(launches)) for logs, launches in pairs]


def test_runs_are_known_from_tables_trials_and_logs_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with a job that nothing casts doubt on, of a step or a memory that was measured, are clean."""

    def run(job: object = 1, doubted: bool = False, step: float | None = 1.0, memory: float | None = None) -> Any:
        return SimpleNamespace(job=job, doubted=doubted, step_time=step, memory=memory)

    rows = {
        "a": [run(), run(job=None), run(doubted=True)],
        "b": [run(step=None), run(step=None, memory=1.0)],
        "c d": [run()],
    }
    monkeypatch.setattr("optimizer.calibration.known.own_rows", lambda found, stack: rows[found])
    monkeypatch.setattr("optimizer.calibration.known.knowing", lambda stack, runs, names: (stack, len(runs), names))
    monkeypatch.setattr("optimizer.calibration.runs.rows_in", lambda data, path: data.decode())
    monkeypatch.setattr(own_runs, "_trial_runs", lambda path: rows[path])
    monkeypatch.setattr(own_runs, "_logged_rows", lambda logs, launches, _: " ".join((*logs, *launches)))
    found: Any = own_runs._knowing.__wrapped__
    known = files("tdls")
    assert found("stack", (*known, *known), "a,b", "") == (("stack", 6, "--runs a,b"), 3)


@pytest.mark.parametrize(
    ("launches", "says", "cluster", "asked"),
    [
        (["a.json"], set(), "dgx-h100", "an answer"),
        (["a.sh"], set(), "dgx-h100", "dgx-h100"),
        (["a.sh"], {"layers"}, "dgx-h100", "dgx-h100"),
        (["a.sh"], {"site"}, "dgx-h100", ""),
        (["a.sh"], set(), "mine", ""),
        (["a.json", "a.sh"], set(), "dgx-h100", "dgx-h100"),
    ],
)
def test_what_started_a_log_is_an_answer_or_a_launch(
    launches: list[str], says: set[str], cluster: str, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text('{"schema_version": 1}')
    (tmp_path / "a.sh").write_text(" " * 4090 + '"schema_version"')
    monkeypatch.chdir(tmp_path)
    launch = SimpleNamespace(settings=dict.fromkeys(says))
    for name, value in {
        "answer.reading.read_answer_file": lambda path: path,
        "diagnose.reference.answer_reference": lambda saved, path: "an answer" if saved == path else "",
        "diagnose.reference.script_reference": lambda paths, sizes, runs, cluster: cluster,
        "frameworks.files.read_files": lambda paths: paths,
        "frameworks.read.read_launch": lambda files: SimpleNamespace(launch=launch),
    }.items():
        monkeypatch.setattr(f"optimizer.{name}", value)
    assert own_runs._reference(launches, [], cluster) == asked


def test_an_answer_keeps_its_runs_unless_they_are_other_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def source(name: str) -> Any:
        return SimpleNamespace(files=name, sha256=name * 20)

    asked: list[str] = []
    monkeypatch.setattr(
        own_runs,
        "with_own_runs",
        lambda job, names: asked.append(names) or replace(job, own_runs=names and source(names)),
    )
    job = small_job()
    stated = source("a")
    assert own_runs.as_stated(replace(job, own_runs=stated), "").own_runs is stated
    assert own_runs.as_stated(job, "b").own_runs == source("b")
    assert not own_runs.as_stated(job, "").own_runs
    with pytest.raises(InputError, match=r"--runs b is not what the answer was made with \(a, SHA-256 aaaaaaaaaaaa"):
        own_runs.as_stated(replace(job, own_runs=stated), "b")
    assert asked == ["a", "b", "", "b"]


def test_trials_that_trained_are_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    job = small_job()
    ends = [(0, None, None), (1, 2.0, None), (0, 3.0, 0.5)]
    outcomes = [SimpleNamespace(name=f"{n}", index=n, seconds=step, memory=memory) for n, step, memory in ends]
    plans = SimpleNamespace(plans=(Plan(dp=8, micro_batch=1), Plan(dp=8, micro_batch=2)))
    monkeypatch.setattr("optimizer.trial.folder.read_folder", lambda _: SimpleNamespace(job=job, candidates=plans))
    monkeypatch.setattr("optimizer.trial.outcome.outcomes", lambda _: outcomes)
    found = [
        (run.id, run.row["micro_batch"], run.step_time, run.memory, run.memory_kind)
        for run in own_runs._trial_runs("x")
    ]
    assert found == [("1", "2", 2.0, None, ""), ("0", "1", 3.0, job.usable_memory / 2, "max reserved")]
