"""Connections to a store, an SQLite file in WAL mode or any database that SQLAlchemy reaches by URL; and its errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from time import monotonic, sleep
from typing import Any, ParamSpec, TypeVar
from urllib.parse import quote

from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, NoSuchModuleError, OperationalError

from optimizer.base.content import content
from optimizer.base.errors import InputError
from optimizer.base.names import without_passwords

PATIENCE = 60.0  # to wait for another process's lock [s]
PAUSE = 0.01  # between two tries [s]
STORE = "--store"
BACK_AFTER = (2.0, 4.0)  # pauses in which a server that went away may come back, as from a restart [s]
P = ParamSpec("P")
T = TypeVar("T")


def url_of(place: str) -> URL:
    """The URL of a store given as a file or a URL; PostgreSQL is reached with psycopg unless a driver is named.

    >>> url_of("postgresql://me@host/batches").drivername, url_of("results.db").database
    ('postgresql+psycopg', 'results.db')
    """
    if not place.strip() or "\0" in place:
        raise ArgumentError("a file or a URL is expected")
    if not is_text(place):  # bytes that are no UTF-8, which SQLite and URLs take none of
        raise ArgumentError("its name is no UTF-8; give another file")
    if "://" not in place:
        return URL.create("sqlite", database=str(Path(place).expanduser()))
    if place.partition("://")[2].partition("/")[0].count("@") > 1:
        raise ArgumentError("an @ in a user's name or password is written %40")
    try:
        url = make_url(place)
    except ValueError as error:  # a port that is no number
        raise ArgumentError(str(error)) from None
    return url.set(drivername="postgresql+psycopg") if url.drivername in ("postgresql", "postgres") else url


def is_text(name: str) -> bool:
    r"""Whether a name can be written as UTF-8: bytes of a command line that are none stand as halves of characters.

    >>> is_text("Größe.db"), is_text("\udcff.db")
    (True, False)
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def writable(url: URL) -> Engine:
    """An engine whose transactions are serialised on SQLite and durable once committed."""
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    engine = create_engine(url, connect_args={"timeout": PATIENCE})

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, record: Any) -> None:
        # The driver's own transactions start too late to be atomic; see "begin" below.
        connection.isolation_level = None
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _write_ahead(connection: Any) -> None:
    """Switch a file to its write-ahead log.

    Of two that switch a new file at once SQLite refuses one without waiting, since both read it already
    (https://sqlite.org/c3ref/busy_handler.html on deadlocks), so that one asks again.
    """
    end = monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or monotonic() > end:
                raise
            sleep(PAUSE)


def readable(url: URL) -> Engine:
    """An engine that only reads, so that a store in a read-only folder can be shown."""
    if url.get_backend_name() != "sqlite":
        return create_engine(url)
    path = quote(str(Path(url.database or "").absolute()))
    engine = create_engine(f"sqlite:///file:{path}?mode=ro&uri=true", connect_args={"timeout": PATIENCE})
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT count(*) FROM sqlite_master"))
    except DatabaseError as error:
        engine.dispose()
        waiting = Path(f"{url.database}-wal")
        if not isinstance(error, OperationalError) or (waiting.exists() and waiting.stat().st_size):
            raise
        # Without a writable folder, WAL's shared memory cannot be made; nobody else can write there either.
        return create_engine(f"sqlite:///file:{path}?immutable=1&uri=true")
    return engine


class StoreError(InputError):
    """The store cannot be used; what it held is still there."""


class NoBatch(StoreError):
    """There is no store yet, or a database without one."""


@contextmanager
def explained(where: str, option: str = STORE) -> Iterator[None]:
    """Turn what the database complains about into a StoreError that says what to do.

    `option` is the one that named the place.
    """
    place = f"{'store' if option == STORE else option} {without_passwords(where)}"
    try:
        yield
    except DBAPIError as error:
        raise StoreError(f"{place}: {advice(str(error.orig)).replace(STORE, option)}") from error
    except UnicodeDecodeError as error:  # bytes that are no text, where SQLite's own check sees nothing
        raise StoreError(f"{place}: {advice(f'malformed: {error}')}") from error
    except NoSuchModuleError as error:
        raise StoreError(
            f"{place}: unknown kind of database ({error}); use a file, or postgresql+psycopg://..."
        ) from None
    except ArgumentError as error:
        raise StoreError(f"{place}: no file and no URL ({error})") from None
    except ImportError as error:
        driver = repr(error.name) if error.name else "of this database"
        raise StoreError(f"{place}: the driver {driver} is missing; pip install 'mfu-optimizer[postgresql]'") from None


def retried(work: Callable[P, T]) -> Callable[P, T]:
    """The same work, begun afresh after a pause where a server went away meanwhile; it must bear being done twice.

    A file is never asked again: SQLite waits for its locks by itself.
    """

    @wraps(work)
    def patient(*args: P.args, **kwargs: P.kwargs) -> T:
        for pause in BACK_AFTER:
            try:
                return work(*args, **kwargs)
            except StoreError as error:
                reason = error.__cause__
                if not isinstance(reason, OperationalError) or isinstance(reason.orig, sqlite3.Error):
                    raise
                sleep(pause)
        return work(*args, **kwargs)

    return patient


def advice(reason: str) -> str:
    """The sentence for one complaint.

    >>> advice("database or disk is full").partition(" (")[0]
    'the disk is full or fails'
    """
    first = " ".join(reason.split())
    for each in content("optimizer.sweep", "advice.toml")["complaint"]:
        if any(word in first.lower() for word in each["says"]):
            return str(each["advice"].format(reason=first))
    return f"failed: {first}"
