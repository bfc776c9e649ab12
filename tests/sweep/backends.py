"""Every store and every engine that the conformance suite holds to what batches need; a new one is added here."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest import mock

import pytest

from optimizer.sweep.batch import Engine
from optimizer.sweep.local import LocalEngine, Work
from optimizer.sweep.task import JobOutcome, Task

POSTGRESQL, RAY = "OPTIMIZE_TEST_POSTGRESQL", "OPTIMIZE_TEST_RAY"


@contextmanager
def sqlite(folder: Path) -> Iterator[str]:
    """A file with a write-ahead log."""
    yield str(folder / "store.db")


@contextmanager
def sqlite_without_wal(folder: Path) -> Iterator[str]:
    """A file where there is no shared memory for such a log, as on some network file systems."""
    with mock.patch("optimizer.sweep.connection._write_ahead"):
        yield str(folder / "store.db")


@contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """A database of its own on the server that the environment names: test processes run beside each other."""
    server = os.environ.get(POSTGRESQL)
    if not server:
        pytest.skip(f"{POSTGRESQL} names no server, such as postgresql://postgres@127.0.0.1/postgres")
    pytest.importorskip("psycopg")
    from sqlalchemy import NullPool, create_engine, make_url, text

    url, database = make_url(server).set(drivername="postgresql+psycopg"), f"batches_{uuid.uuid4().hex}"
    engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {database}"))
    try:
        yield url.set(database=database).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {database} WITH (FORCE)"))


class Serial:
    """The engine that all others are held to: one task after the other, in this process."""

    title = "this process"

    def __init__(self, work: Work) -> None:
        self.work = work

    def run(self, tasks: Iterator[Task]) -> Iterator[list[JobOutcome]]:
        for task in tasks:
            yield [self.work(task)]


def ray(work: Work) -> Engine:
    """The cluster that the environment names."""
    address = os.environ.get(RAY, "")
    if ":" not in address:
        pytest.skip(f"{RAY} names no Ray cluster, such as 127.0.0.1:6379")
    pytest.importorskip("ray")
    from optimizer.sweep.ray_engine import RayEngine

    return RayEngine(address=address, work=work)


# By name: what gives the place of an empty store in a folder, and an engine that does this work with each task.
STORES: Mapping[str, Callable[[Path], AbstractContextManager[str]]] = {
    "sqlite": sqlite,
    "sqlite without WAL": sqlite_without_wal,
    "postgresql": postgresql,
}
ENGINES: Mapping[str, Callable[[Work], Engine]] = {
    "serial": Serial,
    "one process": lambda work: LocalEngine(workers=1, work=work),
    "two processes": lambda work: LocalEngine(workers=2, work=work),
    "ray": ray,
}
