"""Batches that are disturbed in every way give exactly what an undisturbed one gives. SQLite and PostgreSQL."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event

from optimizer.sweep import batch
from optimizer.sweep.batch import run_batch
from optimizer.sweep.connection import StoreError
from optimizer.sweep.local import LocalEngine
from optimizer.sweep.owner import Owner
from optimizer.sweep.store import Store
from optimizer.sweep.task import JobOutcome, Task
from optimizer.sweep.work import cost_model_version
from optimizer.sweep.work import work as plan_one
from tests.sweep import fakes
from tests.sweep.fakes import bytes_of, tasks

ROOT = Path(__file__).resolve().parents[2]


class Here:
    """An engine that works in this process."""

    title = "this process"

    def run(self, given: Iterator[Task]) -> Iterator[list[JobOutcome]]:
        return ([fakes.work(task)] for task in given)


def undisturbed(count: int, folder: Path) -> bytes:
    store = Store(str(folder / "undisturbed.db"))
    run_batch(store, tasks(count), Here(), lambda statuses: None)
    found = bytes_of(store, count)
    store.close()
    return found


def started(place: str, count: int, nap: float, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.sweep.fakes", place, str(count), str(nap), str(log)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_every_job_is_answered_once_and_failures_keep_the_others(place: str) -> None:
    store, heard = Store(place), list[str]()
    run_batch(store, tasks(20), Here(), heard.extend)
    assert Counter(heard) == {"optimal": 19, "failed": 1}
    assert [row.error for row in store.rows() if row.status == "failed"] == ["thirteen brings bad luck"]
    store.close()


def test_a_second_run_has_only_the_failures_to_do(place: str) -> None:
    store, done = Store(place), list[str]()

    class Counting(Here):
        def run(self, given: Iterator[Task]) -> Iterator[list[JobOutcome]]:
            for task in given:
                done.append(task.key)
                yield [fakes.work(task)]

    run_batch(store, tasks(20), Here(), lambda statuses: None)
    run_batch(store, tasks(20), Counting(), lambda statuses: None)
    assert done == ["job-0013"]
    store.close()


def test_shards_together_are_the_whole(place: str, tmp_path: Path) -> None:
    store = Store(place)
    for part in range(3):
        run_batch(store, tasks(20)[part::3], Here(), lambda statuses: None)
    assert bytes_of(store, 20) == undisturbed(20, tmp_path)
    store.close()


def test_two_processes_on_one_store_share_the_work(place: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    both = [started(place, 60, 0.02, log) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    store = Store(place)
    assert bytes_of(store, 60) == undisturbed(60, tmp_path)
    # Each ran once; only the job that fails may be tried by both.
    counts = Counter(log.read_text().split())
    assert {key for key, count in counts.items() if count > 1} <= {"job-0013"}
    store.close()


def test_killing_the_parent_at_random_moments_loses_and_repeats_nothing(place: str, tmp_path: Path) -> None:
    log, dice, kills = tmp_path / "log", random.Random(1), 4
    for _ in range(kills):
        process = started(place, 80, 0.03, log)
        while not (log.exists() and log.read_text()) and process.poll() is None:
            time.sleep(0.01)
        time.sleep(dice.uniform(0.0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    assert started(place, 80, 0.0, log).wait(60) == 0
    store = Store(place)
    assert bytes_of(store, 80) == undisturbed(80, tmp_path)
    counts = Counter(log.read_text().split())
    repeated = sum(count - 1 for key, count in counts.items() if key != "job-0013")
    assert len(counts) == 80
    # What two workers were doing, and what they had just handed in, at each kill.
    assert repeated <= kills * 4
    store.close()


def test_workers_that_are_killed_cost_only_their_own_job(place: str, tmp_path: Path) -> None:
    store, dice, log = Store(place), random.Random(2), tmp_path / "log"
    seen = 0

    def watch(statuses: object) -> None:
        nonlocal seen
        seen += 1
        if seen % 15 == 0:
            children = worker_processes()
            if children:
                os.kill(dice.choice(children), signal.SIGKILL)

    run_batch(store, tasks(80), LocalEngine(workers=2, work=partial(fakes.work, nap=0.01, log=str(log))), watch)
    assert bytes_of(store, 80) == undisturbed(80, tmp_path)
    assert len(log.read_text().split()) <= 80 + seen // 15
    store.close()


def worker_processes() -> list[int]:
    return [child for child in below(os.getpid()) if b"forkserver" in Path(f"/proc/{child}/cmdline").read_bytes()]


def below(process: int) -> list[int]:
    """Every process below this one, as /proc lists them."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_text() if entry.name.isdecimal() else ""
        except OSError:
            continue
        if stat:
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found, level = list[int](), {process}
    while level := {child for child, parent in parents.items() if parent in level}:
        found += level
    return found


def test_an_owner_on_another_machine_is_dead_when_its_beat_stands_still(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LEASE", 0.2)
    monkeypatch.setattr(batch, "LOOK", 0.1)
    store = Store(place)
    store.register(tasks(3))
    other = Owner(name="other", host="another machine", process=1, started="1")
    store.enter(other)
    store.claim(["job-0001"], other)
    run_batch(store, tasks(3), Here(), lambda statuses: None)
    assert set(store.statuses([task.key for task in tasks(3)]).values()) == {"optimal"}
    store.close()


class Stopped:
    """An event that is set after some waits, each of which it keeps."""

    waits: list[float]
    after = 99

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return len(self.waits) > self.after

    def set(self) -> None:
        self.after = 0


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    monkeypatch.setattr(Stopped, "waits", [], raising=False)
    monkeypatch.setattr(batch, "threading", SimpleNamespace(Event=Stopped, Thread=threading.Thread))
    return Stopped.waits


def test_a_beat_may_stand_still_for_a_minute_of_our_clock(waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """One stands still from the first look on, the other from the second, when it went on."""
    clock, left = iter([0.0, 60.0, 60.1, 120.0, 120.1]), list[str]()
    beats = iter([{"one": 1, "two": 1}, *[{"one": 1, "two": 2}] * 2, *[{"two": 2}] * 2])
    monkeypatch.setattr(batch, "monotonic", lambda: next(clock))
    store: Any = SimpleNamespace(free_dead=lambda: None, beats=lambda: next(beats), leave=left.append)
    patience, dead = batch.Patience(), []
    for _ in range(5):
        patience.wait(store)
        dead.append(tuple(left))
    assert dead == [(), (), ("one",), ("one",), ("one", "two")]
    assert waits == [0.5] * 5


def test_a_sign_of_life_is_shown_every_five_seconds(waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stopped, "after", 3)
    monkeypatch.setattr(Stopped, "set", lambda _: None)
    shown: list[object] = []
    store: Any = SimpleNamespace(beat=shown.append)
    owner: Any = "me"
    with batch._alive(store, owner):
        pass
    assert (shown, waits) == (["me"] * 3, [5.0] * 4)


def test_eight_jobs_are_claimed_at_once_and_those_of_others_left() -> None:
    asked: list[int] = []

    def claim(keys: list[str], owner: Owner) -> set[str]:
        asked.append(len(keys))
        return set(keys) - {"job-0003"}

    store: Any = SimpleNamespace(claim=claim)
    owner: Any = "me"
    given = list(batch._claimed(store, tasks(20), owner))
    assert asked == [8, 8, 4]
    assert given == [task for task in tasks(20) if task.key != "job-0003"]


def test_interruption_keeps_answers_and_gives_claims_back(place: str) -> None:
    store = Store(place)

    class Interrupted(Here):
        def run(self, given: Iterator[Task]) -> Iterator[list[JobOutcome]]:
            for number, task in enumerate(given):
                if number == 5:
                    raise KeyboardInterrupt
                yield [fakes.work(task)]

    with pytest.raises(KeyboardInterrupt):
        run_batch(store, tasks(12), Interrupted(), lambda statuses: None)
    counts = Counter(row.status for row in store.rows())
    assert counts == {"optimal": 5, "pending": 7}
    assert store.beats() == {}
    store.close()


def test_a_store_that_fails_halfway_is_one_clear_message(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store.db"))
    limited = Store(str(tmp_path / "store.db"))
    limited.register(tasks(60))
    with limited.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()

    @event.listens_for(limited.engine, "checkout")
    def _full(connection: object, record: object, proxy: object) -> None:
        connection.execute(f"PRAGMA max_page_count={pages + 2}")  # type: ignore[attr-defined]

    with pytest.raises(StoreError, match=r"the disk is full or fails .* make room"):
        run_batch(limited, tasks(60), Here(), lambda statuses: None)
    limited.close()
    kept = sum(row.status == "optimal" for row in store.rows())
    assert 0 < kept < 60
    run_batch(store, tasks(60), Here(), lambda statuses: None)
    assert bytes_of(store, 60) == undisturbed(60, tmp_path)
    store.close()


@pytest.mark.parametrize(
    ("version", "words"), [("other", "but the batch was started with other"), ("", "no such model")]
)
def test_another_version_of_the_cost_model_plans_nothing(version: str, words: str) -> None:
    task = replace(tasks(1)[0], version=version or cost_model_version(), job=None, problem="no such model")
    outcome = plan_one(task)
    assert (outcome.status, outcome.attempts) == ("failed", 1)
    assert words in outcome.error
