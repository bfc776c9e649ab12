"""A server that goes away for a moment is asked again; a file, and what is wrong for good, is not."""

from __future__ import annotations

import socket
import sqlite3
import sys
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import ArgumentError, OperationalError, ProgrammingError

from optimizer.base.errors import InputError
from optimizer.sweep import connection
from optimizer.sweep.connection import StoreError, explained, is_text, retried, url_of, writable
from optimizer.sweep.ray_engine import _reach, connect

GONE = OperationalError("", {}, ConnectionError("server closed the connection unexpectedly"))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(connection, "sleep", slept.append)
    return slept


def asked(*errors: Exception) -> list[str]:
    """What a store does whose server complains so, one time after the other."""
    complaints, done = list(errors), []

    @retried
    def work() -> None:
        with explained("s"):
            if complaints:
                raise complaints.pop(0)
        done.append("done")

    work()
    return done


def test_a_restart_is_carried_over(pauses: list[float]) -> None:
    assert asked(GONE, GONE) == ["done"]
    assert pauses == [2, 4]


def test_after_three_tries_it_is_told(pauses: list[float]) -> None:
    with pytest.raises(StoreError, match="cannot be reached"):
        asked(GONE, GONE, GONE)
    assert len(pauses) == 2


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("", {}, sqlite3.OperationalError("database or disk is full")),
        ProgrammingError("", {}, ValueError("permission denied")),
    ],
)
def test_what_a_pause_does_not_mend_is_told_at_once(pauses: list[float], error: Exception) -> None:
    with pytest.raises(StoreError):
        asked(error)
    assert not pauses


@pytest.mark.parametrize(("code", "text"), [(0xD7FF, True), (0xD800, False), (0xDFFF, False), (0xE000, True)])
def test_halves_of_characters_are_no_text(code: int, text: bool) -> None:
    assert is_text(f"a{chr(code)}b.db") is text


@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("a.db", "sqlite:///a.db"),
        ("postgres://me@h:5/x", "postgresql+psycopg://me@h:5/x"),
        ("postgresql+pg8000://h/x", "postgresql+pg8000://h/x"),
        ("mysql://me:a%40b@h/x@y", "mysql://me:a%40b@h/x%40y"),
    ],
)
def test_a_store_is_a_file_or_a_url(place: str, url: str) -> None:
    assert url_of(place).render_as_string(hide_password=False) == url


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (" ", "a file or a URL is expected"),
        ("a\0.db", "a file or a URL is expected"),
        ("a\ud800.db", "its name is no UTF-8"),
        ("mysql://me:a@b@h/x", "an @ in a user's name or password is written %40"),
        ("mysql://h:port/x", "invalid literal for int"),
    ],
)
def test_what_is_neither_is_told(place: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        url_of(place)


def test_a_connection_that_a_server_dropped_is_noticed_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(connection, "create_engine", lambda url, **options: made.append((str(url), options)))
    writable(url_of("mysql://h/x"))
    assert made == [("mysql://h/x", {"pool_pre_ping": True})]


@pytest.mark.parametrize("address", ["10.0.0.1", ":6379", "host:", "host:port", "ray://:10001", ""])
def test_an_address_of_a_cluster_has_a_host_and_a_port(address: str) -> None:
    with pytest.raises(InputError, match="is not host:port"):
        _reach(address)


@pytest.mark.parametrize(
    ("address", "called"),
    [
        ("10.0.0.1:6379", ("10.0.0.1", 6379)),
        ("ray://[::1]:10001", ("::1", 10001)),
        ("auto", ("h", 1)),
        ("local", None),
    ],
)
def test_a_cluster_is_called_before_ray_waits_for_it(
    address: str, called: tuple[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For five seconds; what the environment names is what "auto" means."""
    calls: list[object] = []
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda **options: calls.append(options["address"]))

    def call(place: tuple[str, int], timeout: float) -> SimpleNamespace:
        calls.append((place, timeout))
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setenv("RAY_ADDRESS", "h:1")
    monkeypatch.setattr(socket, "create_connection", call)
    assert connect(address) is ray
    assert calls == [*([(called, 5.0)] if called else []), address]


@pytest.mark.parametrize(
    ("message", "until", "tries", "refused"),
    [("database is locked", 60.0, 3, False), ("database is locked", 60.5, 2, True), ("disk I/O error", 0.0, 1, True)],
)
def test_a_file_that_another_switches_is_asked_again_for_a_minute(
    message: str, until: float, tries: int, refused: bool, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked at 0 s, at a moment within the minute, and `until` seconds after the first: at 60 s it may still wait."""
    clock = iter([0.0, 30.0, until, until])
    monkeypatch.setattr(connection, "monotonic", lambda: next(clock))
    asked: list[str] = []

    def execute(words: str) -> None:
        asked.append(words)
        assert len(asked) <= tries
        if refused or len(asked) < tries:
            raise sqlite3.OperationalError(message)

    if refused:
        with pytest.raises(sqlite3.OperationalError, match=message):
            connection._write_ahead(SimpleNamespace(execute=execute))
    else:
        connection._write_ahead(SimpleNamespace(execute=execute))
    assert asked == ["PRAGMA journal_mode=WAL"] * tries
    assert pauses == [0.01] * (tries - 1)
