"""The store: atomic claims, nothing lost, clear words when the place is bad. Runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from optimizer.sweep.owner import Owner, is_dead, myself
from optimizer.sweep.owner import place as here
from optimizer.sweep.storage_errors import StoreError, advice
from optimizer.sweep.store import Store
from optimizer.sweep.task import Outcome
from tests.sweep.fakes import answer, bytes_of, tasks


def outcome(key: str) -> Outcome:
    return Outcome(key=key, status="optimal", result=answer(key), seconds=0.5, memory=1e8, host="here")


def statuses(store: Store) -> list[str]:
    return [row.status for row in store.rows()]


def test_a_job_goes_from_pending_to_its_answer(place: str) -> None:
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


def test_registering_again_keeps_answers_and_gives_failures_another_chance(place: str) -> None:
    store, owner = Store(place), myself()
    store.register(tasks(2))
    store.claim(["job-0000", "job-0001"], owner)
    store.save([outcome("job-0000"), Outcome(key="job-0001", status="failed", error="bad luck")], owner)
    store.register(tasks(3))
    assert statuses(store) == ["optimal", "pending", "pending"]
    store.close()


def test_a_combination_that_is_no_job_is_failed_from_the_start(place: str) -> None:
    store = Store(place)
    impossible = replace(tasks(1)[0], job=None, problem="h100 has no fp4 matrix units")
    store.register([impossible])
    store.register([impossible])
    (row,) = store.rows()
    assert (row.status, row.error) == ("failed", "h100 has no fp4 matrix units")
    store.close()


def test_no_two_owners_get_the_same_job(place: str) -> None:
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


def test_an_outcome_whose_claim_was_taken_over_is_dropped(place: str) -> None:
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


def test_the_claims_of_a_dead_process_are_free_at_once_and_those_of_a_living_one_stay(place: str) -> None:
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


def test_answers_of_another_store_are_taken_but_never_replace_our_own(place: str, tmp_path: Path) -> None:
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


def test_two_processes_may_open_a_new_store_at_once(place: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        for store in pool.map(lambda _: Store(place), range(4)):
            store.close()


def test_a_file_that_is_no_store_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("these are my notes, not a database\n" * 50)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"notes\.db: is damaged or no store .* Move it away"):
        Store(str(path))
    assert path.read_bytes() == before


def test_a_damaged_store_is_told_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = Store(str(path))
    store.register(tasks(200))
    store.close()
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 6000] = os.urandom(6000)
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"is damaged .* `sqlite3 FILE \.recover`"):
        Store(str(path))
    assert path.read_bytes() == data


def test_a_store_of_another_layout_is_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store.db"))
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE batch_about SET value = '99'")
    store.close()
    with pytest.raises(StoreError, match="another version of optimize"):
        Store(str(tmp_path / "store.db"))


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("/no/such/folder/store.db", "cannot be opened or made"),
        ("postgresql://nobody@127.0.0.1:1/none", "cannot be reached"),
        ("oracle2://host/x", "unknown kind of database"),
        ("://", "no file and no URL"),
    ],
)
def test_a_place_that_cannot_be_used_is_one_clear_message(place: str, words: str) -> None:
    if place.startswith("postgresql"):
        pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match=words):
        Store(place)


def test_a_password_never_shows_in_a_message() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError) as raised:
        Store("postgresql://me:secret@127.0.0.1:1/none")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("database or disk is full", "make room"),
        ("attempt to write a readonly database", "write permission"),
        ("database is locked", "another program"),
        ('FATAL:  password authentication failed for user "me"', "Check user"),
        ("something new", "failed: something new"),
    ],
)
def test_what_databases_complain_about_becomes_advice(reason: str, words: str) -> None:
    assert words in advice(reason)


def test_reading_needs_no_right_to_write(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with pytest.raises(StoreError, match="no such file"):
        Store(str(path), read_only=True)
    store = Store(str(path))
    store.register(tasks(5))
    expected = bytes_of(store, 5)
    reader = Store(str(path), read_only=True)
    assert bytes_of(reader, 5) == expected
    reader.close()
    store.close()
    with pytest.raises(StoreError, match="cannot be written"):
        Store(str(path), read_only=True).register(tasks(6))
