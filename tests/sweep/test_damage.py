"""Stores that were damaged or merged: an export is what was written, or an error; never something else."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from optimizer.base.errors import InputError
from optimizer.cli import cli
from optimizer.sweep.owner import myself
from optimizer.sweep.results import nested
from optimizer.sweep.store import Store
from optimizer.sweep.task import JobOutcome
from optimizer.sweep.work import sources
from tests.sweep.fakes import answer, tasks

ROOT = Path(__file__).resolve().parents[2]
DAMAGES = 120


def filled(place: Path, results: dict[str, str] | None = None) -> Path:
    store, owner, some = Store(str(place)), myself(), tasks(12)
    store.register(some)
    store.enter(owner)
    store.claim([task.key for task in some], owner)
    given = results or {}
    store.save(
        [JobOutcome(key=task.key, status="optimal", result=given.get(task.key, answer(task.key))) for task in some],
        owner,
    )
    store.leave(owner.name)
    store.close()
    with closing(sqlite3.connect(place)) as connection, connection:  # everything into the one file that is damaged
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode=DELETE")
    return place


def exported(place: Path) -> str:
    store = Store(str(place), read_only=True)
    try:
        return repr([nested(row) for row in store.rows()])
    finally:
        store.close()


def test_a_damaged_store_is_told_or_says_what_was_written(tmp_path: Path) -> None:
    """Bytes are changed where a row's texts lie, as a failing disk or a careless program would."""
    whole = filled(tmp_path / "whole.db").read_bytes()
    (tmp_path / "copy.db").write_bytes(whole)
    want, rng = exported(tmp_path / "copy.db"), random.Random(5)
    for number in range(DAMAGES):
        place, data = tmp_path / f"{number}.db", bytearray(whole)
        for _ in range(rng.choice((1, 1, 4))):
            data[rng.randrange(100, len(data))] ^= 1 << rng.randrange(8)
        place.write_bytes(bytes(data))
        try:
            assert exported(place) == want, number
        except InputError:
            continue


def test_a_changed_answer_is_named(tmp_path: Path) -> None:
    place = filled(tmp_path / "s.db")
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("UPDATE batch_jobs SET result = replace(result, '0', '1') WHERE key = 'job-0003'")
    with pytest.raises(InputError, match=r"damaged .*job-0003"):
        exported(place)


def test_a_store_of_an_earlier_version_is_still_read(tmp_path: Path) -> None:
    place = filled(tmp_path / "s.db")
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("DROP TABLE batch_sums")
    assert "optimal" in exported(place)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="optimize")


def test_merged_parts_that_contradict_are_said(tmp_path: Path) -> None:
    one, two = filled(tmp_path / "1.db"), filled(tmp_path / "2.db", {"job-0002": answer("another")})
    same = filled(tmp_path / "3.db")
    assert run("batch", "merge", str(tmp_path / "all.db"), str(one), str(same)).exit_code == 0
    found = run("batch", "merge", str(tmp_path / "all.db"), str(two))
    assert found.exit_code == 5
    assert "1 answers of" in found.stderr
    assert "job-0002" in found.stderr


def test_a_missing_source_makes_nothing(tmp_path: Path) -> None:
    one = filled(tmp_path / "1.db")
    found = run("batch", "merge", str(tmp_path / "all.db"), str(one), str(tmp_path / "absent.db"))
    assert found.exit_code == 2
    assert not (tmp_path / "all.db").exists()


def test_everything_that_planning_runs_is_in_the_version() -> None:
    code = (
        "import sys\nfrom tests.search.jobs import small_job\nfrom optimizer.search.plan.planner import plan\n"
        "plan(small_job(8), trials=8).to_dict()\n"
        "found = {m.__file__ for n, m in sys.modules.items() if n.startswith('optimizer.')}\n"
        "print(*sorted(filter(None, found)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {Path(name).resolve() for name in done.stdout.split()}
    told = {ROOT / "optimizer" / name for name in ("errors.py", "picture.py")}  # which change no answer
    missing = loaded - {path.resolve() for path in sources()} - told
    assert len(loaded) > 50
    assert missing == set()
    names = {path.name for path in sources()}
    assert {"belief.csv", "belief-sweeps.csv", "belief.toml", "kernels.csv", "nccl.csv"} <= names
