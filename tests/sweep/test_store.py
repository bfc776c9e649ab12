"""The store: clear words when the place is bad. What every store must do is in test_conformance.py."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from optimizer.sweep.connection import StoreError, advice
from optimizer.sweep.store import Store
from optimizer.sweep.tables import JOBS
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
    with closing(Store(str(path), read_only=True)) as reader, pytest.raises(StoreError, match="cannot be written"):
        reader.register(tasks(6))
