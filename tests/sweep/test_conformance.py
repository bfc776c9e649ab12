"""What batches need of every store and engine of tests/sweep/backends.py: nothing lost, nothing done twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from optimizer.sweep.batch import Engine, run_batch
from optimizer.sweep.connection import NoBatch, StoreError
from optimizer.sweep.local import Work
from optimizer.sweep.owner import Owner, is_dead, myself
from optimizer.sweep.owner import place as here
from optimizer.sweep.store import CHUNK, Store
from optimizer.sweep.task import JobOutcome, Task
from tests.sweep import fakes
from tests.sweep.backends import ENGINES, STORES, Serial
from tests.sweep.fakes import answer, bytes_of, tasks


def outcome(key: str) -> JobOutcome:
    return JobOutcome(key=key, status="optimal", result=answer(key), seconds=0.5, memory=1e8, host="here")


def statuses(store: Store) -> list[str]:
    return [row.status for row in store.rows()]


class TestStore:
    """Every test on every store."""

    @pytest.fixture(params=STORES)
    def place(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
        with STORES[request.param](tmp_path) as found:
            yield found

    def test_a_job_goes_from_pending_to_its_answer(self, place: str) -> None:
        store, owner = Store(place), myself()
        store.register(tasks(3))
        store.enter(owner)
        assert store.statuses(["job-0000", "unknown"]) == {"job-0000": "pending"}
        assert store.claim(["job-0000", "job-0001"], owner) == {"job-0000", "job-0001"}
        assert store.claim(["job-0000", "job-0002"], owner) == {"job-0002"}
        store.save([outcome("job-0000")], owner)
        store.leave(owner.name)
        assert [row.status for row in store.rows()] == ["optimal", "pending", "pending"]
        (row,) = store.rows(["job-0000"])
        assert (row.result, row.seconds, row.host, row.attempts) == (answer("job-0000"), 0.5, "here", 1)
        store.close()

    def test_a_claim_that_was_kept_and_never_said_is_said_again(self, place: str) -> None:
        store, owner = Store(place), myself()
        store.register(tasks(2))
        unsaid = Store(place)  # stands for a commit whose answer was lost on its way
        unsaid.claim(["job-0000"], owner)
        assert store.claim(["job-0000", "job-0001"], owner) == {"job-0000", "job-0001"}
        assert store.claim(["job-0000", "job-0001"], owner) == set()
        unsaid.close()
        store.close()

    def test_registering_again_keeps_answers_and_gives_failures_another_chance(self, place: str) -> None:
        store, owner = Store(place), myself()
        store.register(tasks(2))
        store.claim(["job-0000", "job-0001"], owner)
        store.save([outcome("job-0000"), JobOutcome(key="job-0001", status="failed", error="bad luck")], owner)
        store.register(tasks(3))
        assert statuses(store) == ["optimal", "pending", "pending"]
        store.close()

    def test_a_combination_that_is_no_job_is_failed_from_the_start(self, place: str) -> None:
        store = Store(place)
        impossible = replace(tasks(1)[0], job=None, problem="h100 has no fp4 matrix units")
        store.register([impossible])
        store.register([impossible])
        (row,) = store.rows()
        assert (row.status, row.error) == ("failed", "h100 has no fp4 matrix units")
        store.close()

    def test_no_two_owners_get_the_same_job(self, place: str) -> None:
        stores = [Store(place) for _ in range(4)]
        stores[0].register(tasks(120))
        keys = [task.key for task in tasks(120)]

        def grab(store: Store) -> list[str]:
            owner = myself()
            store.enter(owner)
            return [key for start in range(0, 120, 4) for key in store.claim(keys[start : start + 4], owner)]

        with ThreadPoolExecutor(4) as pool:
            claimed = [key for found in pool.map(grab, stores) for key in found]
        assert sorted(claimed) == keys
        for store in stores:
            store.close()

    def test_an_outcome_whose_claim_was_taken_over_is_dropped(self, place: str) -> None:
        store, slow, fast = Store(place), myself(), myself()
        store.register(tasks(1))
        store.claim(["job-0000"], slow)
        store.leave(slow.name)
        store.claim(["job-0000"], fast)
        store.save([replace(outcome("job-0000"), host="slow")], slow)
        assert store.statuses(["job-0000"]) == {"job-0000": "running"}
        store.save([replace(outcome("job-0000"), host="fast")], fast)
        assert store.rows()[0].host == "fast"
        store.close()

    def test_the_claims_of_a_dead_process_are_free_at_once_and_those_of_a_living_one_stay(self, place: str) -> None:
        store, living = Store(place), myself()
        gone = subprocess.Popen([sys.executable, "-c", "pass"])
        dead = Owner(name="dead", host=here(), process=gone.pid, started="1")
        gone.wait()
        elsewhere = replace(dead, name="elsewhere", host="another machine")
        store.register(tasks(3))
        for key, owner in zip(("job-0000", "job-0001", "job-0002"), (living, dead, elsewhere), strict=True):
            store.enter(owner)
            store.claim([key], owner)
        store.free_dead()
        assert statuses(store) == ["running", "pending", "running"]
        assert set(store.beats()) == {living.name, "elsewhere"}
        before = store.beats()[living.name]
        store.beat(living)
        assert store.beats()[living.name] == before + 1
        assert not is_dead(living)
        assert not is_dead(elsewhere)
        store.close()

    def test_answers_of_another_store_are_taken_but_never_replace_our_own(self, place: str, tmp_path: Path) -> None:
        mine, theirs, owner = Store(place), Store(str(tmp_path / "theirs.db")), myself()
        for store, keys in ((mine, ["job-0000"]), (theirs, ["job-0000", "job-0001"])):
            store.register(tasks(3))
            store.claim(keys, owner)
            store.save([replace(outcome(key), host=store.place) for key in keys], owner)
        assert mine.take_from(theirs).count == 1
        assert [row.status for row in mine.rows()] == ["optimal", "optimal", "pending"]
        assert mine.rows()[0].host == place
        mine.close()
        theirs.close()

    def test_only_another_answer_is_in_conflict_with_ours(self, place: str, tmp_path: Path) -> None:
        """The same answer, another one, and one of a job that runs here, or failed here and is taken."""
        mine, theirs, owner = Store(place), Store(str(tmp_path / "theirs.db")), myself()
        every = [f"job-{number:04}" for number in range(4)]
        other = replace(outcome("job-0001"), result=answer("job-0000"))
        failure = replace(outcome("job-0003"), status="failed", result="", error="why")
        for store, said in ((mine, [outcome("job-0000"), other, failure]), (theirs, [outcome(key) for key in every])):
            store.register(tasks(4))
            store.claim(every, owner)
            store.save(said, owner)
        taken = mine.take_from(theirs)
        assert (taken.count, taken.conflicts) == (1, ("job-0001",))
        assert statuses(mine) == ["optimal", "optimal", "running", "optimal"]
        assert theirs.take_from(mine).count == 0
        mine.close()
        theirs.close()

    def test_two_processes_may_open_a_new_store_at_once(self, place: str) -> None:
        with ThreadPoolExecutor(4) as pool:
            for store in pool.map(lambda _: Store(place), range(4)):
                store.close()

    def test_what_was_saved_is_there_when_it_is_opened_again(self, place: str) -> None:
        store, owner = Store(place), myself()
        store.register(tasks(2))
        store.claim(["job-0001"], owner)
        store.save([replace(outcome("job-0001"), host="é 😀", error="a\nb")], owner)
        before = store.rows()
        store.close()
        for read_only in (False, True):
            again = Store(place, read_only=read_only)
            assert again.rows() == before
            assert again.rows(["unknown", "job-0001"]) == before[1:]
            again.close()

    def test_there_is_nothing_to_read_where_nothing_was_written(self, place: str) -> None:
        with pytest.raises(NoBatch):
            Store(place, read_only=True)

    def test_outcomes_are_kept_all_or_none(self, place: str) -> None:
        store, owner = Store(place), myself()
        store.register(tasks(2))
        store.claim(["job-0000", "job-0001"], owner)
        with pytest.raises(StoreError):
            store.save([outcome("job-0000"), replace(outcome("job-0001"), result=None)], owner)  # type: ignore[arg-type]
        assert statuses(store) == ["running", "running"]
        store.close()

    def test_more_jobs_than_one_statement_takes(self, place: str) -> None:
        store, owner, many = Store(place), myself(), tasks(CHUNK + 20)
        keys = [task.key for task in many]
        store.register(many)
        assert store.claim(keys, owner) == set(keys)
        store.save([outcome(key) for key in keys], owner)
        assert set(store.statuses(keys).values()) == {"optimal"}
        assert [row.key for row in store.rows(keys[::-1])] == keys[::-1]
        store.close()

    def test_a_value_that_was_changed_from_outside_is_told(self, place: str) -> None:
        store, owner = Store(place), myself()
        store.register(tasks(1))
        store.claim(["job-0000"], owner)
        store.save([outcome("job-0000")], owner)
        with store.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE batch_jobs SET result = 'another'")
        with pytest.raises(StoreError, match="damaged"):
            store.rows()
        store.close()


class TestEngine:
    """Every test on every engine."""

    @pytest.fixture(params=ENGINES)
    def name(self, request: pytest.FixtureRequest) -> str:
        ENGINES[request.param](fakes.work)  # skips what is not here
        return str(request.param)

    def engine(self, name: str, work: Work = fakes.work) -> Engine:
        return ENGINES[name](work)

    def test_every_task_has_one_outcome(self, name: str) -> None:
        given = [outcome for some in self.engine(name).run(iter(tasks(15))) for outcome in some]
        assert sorted(given, key=lambda item: item.key) == [fakes.work(task) for task in tasks(15)]

    def test_no_task_is_no_outcome(self, name: str) -> None:
        assert list(self.engine(name).run(iter(()))) == []
        assert self.engine(name).title

    def test_tasks_are_taken_only_when_there_is_room(self, name: str) -> None:
        taken: list[str] = []

        def source() -> Iterator[Task]:
            for task in tasks(200):
                taken.append(task.key)
                yield task

        running = self.engine(name, partial(fakes.work, nap=0.02)).run(source())
        next(iter(running))
        assert len(taken) < 100
        running.close()  # type: ignore[attr-defined]

    def test_a_batch_ends_as_on_the_serial_one(self, name: str, tmp_path: Path) -> None:
        found = []
        for number, engine in enumerate((self.engine(name), Serial(fakes.work))):
            store = Store(str(tmp_path / f"{number}.db"))
            run_batch(store, tasks(20), engine, lambda statuses: None)
            found.append(bytes_of(store, 20))
            store.close()
        assert found[0] == found[1]
