"""What `optimize batch` runs, merges, shows and says, with fakes around it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.cli import cli
from optimizer.commands import own_runs
from optimizer.commands.study import batch
from tests.search.jobs import small_job
from tests.sweep.test_results import results


def test_what_a_dry_run_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study: Any = SimpleNamespace(name="small")
    tasks: Any = [SimpleNamespace(key="a", job=small_job()), SimpleNamespace(key="b", job=None)]
    told = {"schema_version": 1, "study": "small", "jobs": 2, "answered": 0, "impossible": 1, "seconds": 0.04}
    found = batch._outlook(study, tasks, str(tmp_path / "none.db"), 2, as_json=True)
    assert found == json.dumps(told | {"workers": 2, "measured": 0}, indent=2)
    monkeypatch.setattr("optimizer.sweep.local.processors", lambda: 5)
    assert batch._outlook(study, tasks, str(tmp_path / "none.db"), None, as_json=False).splitlines() == [
        "small: 2 jobs",
        "1 of them cannot be jobs, and will be listed as failed with the reason",
        "some seconds on 5 local processes (a guess; no job was measured yet)",
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("typed", "named", "read"), [("a", "", "a"), ("", "b", "b"), ("a", "b", "a"), ("", "", None)])
def test_runs_that_are_typed_come_before_those_of_the_study(
    typed: str, named: str, read: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(own_runs, "own_files", asked.append)
    monkeypatch.setattr("optimizer.sweep.study_file.read_study", lambda _: SimpleNamespace(runs=named))
    monkeypatch.setattr(
        "optimizer.sweep.expansion.tasks_of", lambda study, make, version: (make.keywords, len(version))
    )
    monkeypatch.setattr("optimizer.sweep.work.cost_model_version", lambda: "v1")
    assert batch._tasks(Path("x.toml"), typed)[1] == ({"runs": typed or named}, 2)
    assert asked == ([read] if read else [])


@pytest.mark.parametrize(("there", "absent"), [(1, True), (2, False)])
def test_jobs_that_a_store_lacks_are_told(there: int, absent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a study; of a store alone nobody knows them."""
    study: Any = SimpleNamespace(name="small", prices={})
    asked: list[Any] = []

    def wholes(store: Any, study: Any, tasks: Any, prices: Any, tokens: float) -> list[Any]:
        asked.append((study and study.name, tokens))
        return results()[:there]

    def store(_: str, read_only: bool) -> Any:
        assert read_only
        return SimpleNamespace(label="s.db", close=int)

    monkeypatch.setattr("optimizer.sweep.store.Store", store)
    monkeypatch.setattr(batch, "_tasks", lambda *_: (study, ["a", "b"]))
    monkeypatch.setattr(batch, "_wholes", wholes)
    done = CliRunner().invoke(cli, ["batch", "show", "x.toml", "--json"])
    told = "optimize: 1 of the 2 jobs of x.toml are in s.db; `optimize batch x.toml --store s.db` plans the others"
    assert done.stderr.startswith(told) if absent else done.stderr == ""
    assert json.loads(done.stdout)["jobs"] == there
    alone = CliRunner().invoke(cli, ["batch", "show", "s.db", "--json", "--tokens", "1B", "--where", "gpus=16"])
    assert (alone.stderr, json.loads(alone.stdout)["jobs"]) == ("", there - 1)
    assert asked == [("small", 0.0), (None, 1e9)]
    nothing = CliRunner().invoke(cli, ["batch", "show"])
    assert "name a study file, or a --store" in nothing.stderr


@pytest.mark.parametrize(
    ("words", "taken", "place", "stops", "count", "code", "told"),
    [
        ("", "abcd", "x.db", False, 2, 0, "optimize: answers go to s.db in this folder; --store names another place\n"),
        ("--store y.db --shard 2/3", "b", "y.db", False, 2, 0, ""),
        ("--store y.db --shard 1/3", "ad", "y.db", False, 2, 0, ""),
        ("--store y.db", "abcd", "y.db", True, 2, 130, "optimize: stopped; every answer is kept in s.db, the same"),
        ("--store y.db", "abcd", "y.db", False, 3, 5, "optimize: 1 of 3 jobs failed; the others are kept in s.db. "),
    ],
)
def test_a_batch_is_run_and_shown(
    words: str,
    taken: str,
    place: str,
    stops: bool,
    count: int,
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def run_batch(store: Any, tasks: Any, *_: Any) -> None:
        asked.append("".join(tasks))
        if stops:
            raise KeyboardInterrupt

    def store(place: str) -> Any:
        asked.append(place)
        return SimpleNamespace(label="s.db", close=int)

    monkeypatch.setattr("optimizer.sweep.store.Store", store)
    monkeypatch.setattr("optimizer.sweep.batch.run_batch", run_batch)
    monkeypatch.setattr("optimizer.sweep.progress.progress", lambda *_: nullcontext())
    monkeypatch.setattr(batch, "_tasks", lambda *_: (SimpleNamespace(name="small"), "abcd"))
    monkeypatch.setattr(batch, "_wholes", lambda *_: results()[:count])
    done = CliRunner().invoke(cli, ["batch", "x.toml", "--json", *words.split()])
    assert asked == [place, taken]
    assert done.stderr.startswith(told) if told else done.stderr == ""
    assert (done.exit_code, bool(done.stdout)) == (code, not stops)


def test_stores_are_merged_and_answers_that_differ_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    conflicts = {"a.db": (), "b.db": ("key 1", "key 2")}

    def store(place: str, read_only: bool = False) -> Any:
        opened.append((place, read_only))
        taken = {name: SimpleNamespace(count=1500, conflicts=keys) for name, keys in conflicts.items()}
        return SimpleNamespace(label=place, close=int, take_from=lambda source: taken[source.label])

    monkeypatch.setattr("optimizer.sweep.store.Store", store)
    merged = CliRunner().invoke(cli, ["batch", "merge", "c.db", "a.db"])
    assert (merged.exit_code, merged.stdout, merged.stderr) == (0, "", "a.db: 1,500 answers taken\n")
    assert opened == [("a.db", True), ("c.db", False)]
    merged = CliRunner().invoke(cli, ["batch", "merge", "c.db", "a.db", "b.db"])
    assert merged.stdout == ""
    assert merged.stderr.splitlines()[1:] == [
        "b.db: 1,500 answers taken",
        "warning: 2 answers of b.db differ from those in c.db, which are kept; the first has the key key 1",
        "optimize: 2 answers of one key differ; plan these jobs again in a new store",
    ]
