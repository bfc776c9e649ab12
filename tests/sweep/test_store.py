"""The store: clear words when the place is bad. What every store must do is in test_conformance.py."""

from __future__ import annotations

import os
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import update
from sqlalchemy.exc import DatabaseError, IntegrityError

from optimizer.sweep.connection import StoreError, advice, readable, url_of
from optimizer.sweep.owner import myself
from optimizer.sweep.store import PENDING, PLACED, SUMMED, Store, _digest, chunks, matches
from optimizer.sweep.tables import JOBS, SUMS
from tests.sweep.fakes import bytes_of, tasks


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


def test_damage_that_no_reader_meets_is_told_too(tmp_path: Path) -> None:
    """The free bytes of a page, counted wrongly in its header (https://sqlite.org/fileformat2.html, b-tree pages)."""
    path = tmp_path / "store.db"
    with closing(Store(str(path))) as store, store.engine.connect() as connection:
        root = connection.exec_driver_sql("SELECT rootpage FROM sqlite_master WHERE name = 'batch_jobs'").scalar_one()
        size = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    data = bytearray(path.read_bytes())
    data[(root - 1) * size + 7] = 50
    path.write_bytes(data)
    with pytest.raises(StoreError, match="is damaged"):
        Store(str(path))


def test_a_store_is_called_as_it_was_named(tmp_path: Path) -> None:
    for place in (str(tmp_path / "a.db"), f"sqlite:///{tmp_path / 'b.db'}"):
        with closing(Store(place)) as store:
            assert store.label == place


def test_an_owner_begins_at_no_beat_and_one_that_left_has_none(tmp_path: Path) -> None:
    owner = myself()
    with closing(Store(str(tmp_path / "store.db"))) as store:
        store.register(tasks(1))
        store.claim(["job-0000"], owner)
        assert store.beats() == {owner.name: -1}
        store.enter(owner)
        assert store.beats() == {owner.name: 0}


def test_a_checksum_of_the_first_version_holds_for_answers_alone() -> None:
    row = dict.fromkeys((*SUMMED, *PLACED), "a")
    stored = _digest(row, SUMMED)
    assert [matches({**row, "status": status}, stored) for status in ("a", "b", "pending", "running")] == [
        *(True, False, True, True)
    ]


@pytest.mark.parametrize(
    ("content", "log", "damaged"),
    [("no store", None, True), (None, "waiting", True), (None, "", False), (None, None, False)],
)
def test_a_file_is_read_as_it_lies_there_unless_it_is_damaged_or_its_log_waits(
    content: str | None, log: str | None, damaged: bool, tmp_path: Path
) -> None:
    for name, text in (("store.db", content), ("store.db-wal", log)):
        if text is not None:
            (tmp_path / name).write_text(text * 100)
    with pytest.raises(DatabaseError) if damaged else nullcontext():
        readable(url_of(str(tmp_path / "store.db"))).dispose()


def test_a_store_of_another_layout_is_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store.db"))
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE batch_about SET value = '99'")
    store.close()
    with pytest.raises(StoreError, match="another version of optimize"):
        Store(str(tmp_path / "store.db"))


@pytest.mark.parametrize("column", [column.name for column in JOBS.columns if column.name not in ("key", "owner")])
def test_every_row_is_whole(column: str, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store.db"))
    store.register(tasks(1))
    with pytest.raises(IntegrityError), store.engine.begin() as connection:
        connection.execute(update(JOBS).values({column: None}))
    store.close()


def test_a_row_that_nobody_planned_says_nothing_of_it(tmp_path: Path) -> None:
    with closing(Store(str(tmp_path / "store.db"))) as store:
        store.register(tasks(2))
        rows = store.rows([task.key for task in tasks(2)])
    blank = {"attempts": 0, "seconds": 0.0, "memory": 0.0, "result": "", "host": "", "finished": "", "error": ""}
    assert [{name: getattr(row, name) for name in blank} for row in rows] == [blank] * 2
    assert [row.status for row in rows] == [PENDING] * 2


def test_columns_hold_what_is_written() -> None:
    """A key is a SHA-256 in hexadecimal digits; a time has a zone."""
    assert {column.type.length for column in (JOBS.c.key, SUMS.c.key, SUMS.c.checksum)} == {len(sha256().hexdigest())}
    assert JOBS.c.finished.type.length == len(datetime.max.replace(tzinfo=UTC).isoformat())


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


def test_a_statement_takes_five_hundred_keys() -> None:
    assert [len(some) for some in chunks(range(1001))] == [500, 500, 1]
    assert list(chunks([])) == []


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
    with closing(Store(str(path), read_only=True)) as reader, pytest.raises(StoreError, match="cannot be written"):
        reader.register(tasks(6))
