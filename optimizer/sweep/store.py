"""Where results are kept: one row per job, in an SQLite file or on a PostgreSQL server.

A job is pending, running (claimed by an owner), or answered: optimal, feasible, infeasible, failed. Every change is one
transaction, so a process that is killed at any moment leaves a store that the same command completes.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, TypeVar

from sqlalchemy import Connection, CursorResult, Engine, and_, bindparam, delete, insert, inspect, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from optimizer.base.names import without_passwords
from optimizer.sweep.connection import NoBatch, StoreError, advice, explained, readable, retried, url_of, writable
from optimizer.sweep.owner import Owner, is_dead
from optimizer.sweep.tables import ABOUT, JOBS, METADATA, OWNERS, SCHEMA_VERSION, SUMS
from optimizer.sweep.task import JobOutcome, Task, canonical

T = TypeVar("T")
PENDING, RUNNING, FAILED = "pending", "running", "failed"
SUMMED = ("key", "version", "status", "asked", "result", "error", "attempts", "seconds", "memory", "host", "finished")
PLACED = ("position", "scenario")
CHUNK = 500  # keys in one statement, which databases limit


@dataclass(frozen=True, kw_only=True)
class StoredRow:
    """One job of a store."""

    key: str  # of the job
    version: str  # of the cost model
    status: str  # pending, running, or that of the answer
    scenario: str  # names of its scenarios
    asked: str  # what was asked, as JSON
    result: str  # the answer, as JSON
    error: str  # why there is none
    attempts: int  # times that it was planned
    seconds: float  # time of the last one [s]
    memory: float  # peak of the worker [B]
    host: str  # machine of the worker
    finished: str  # date and time of its end


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Answers copied from another store."""

    count: int  # how many
    conflicts: tuple[str, ...] = ()  # keys of answers that both stores have and that differ; ours stay


class Store:
    """A store that is open for reading and writing, or for reading only."""

    def __init__(self, place: str, *, read_only: bool = False) -> None:
        self.place = place
        self._claimed: set[str] = set()  # keys that were ever claimed through this store
        with explained(place):
            url = url_of(place)
            self.label = without_passwords(url.render_as_string()) if "://" in place else place
        with explained(self.label):
            if read_only and url.get_backend_name() == "sqlite" and not os.path.isfile(url.database or ""):
                raise NoBatch(f"store {self.label}: no such file; `optimize batch STUDY` makes one")
            self.engine: Engine = readable(url) if read_only else writable(url)
            try:
                self._check(url.get_backend_name() == "sqlite")
                self._prepare(read_only)
            except BaseException:
                self.engine.dispose()
                raise

    def _check(self, sqlite: bool) -> None:
        """Find damage before anything is built on it."""
        if sqlite:
            with self.engine.connect() as connection:
                verdict = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
            if verdict != "ok":
                raise StoreError(f"store {self.label}: {advice(f'malformed: {verdict}')}")

    def _prepare(self, read_only: bool) -> None:
        if read_only:
            if not inspect(self.engine).has_table("batch_jobs"):
                raise NoBatch(f"store {self.label}: holds no batch; `optimize batch STUDY` fills one")
            return
        with self.engine.begin() as connection:
            if self.engine.dialect.name == "postgresql":  # which would let two processes make the tables at once
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7301894215)")
            METADATA.create_all(connection)
            connection.execute(self._insert(ABOUT), [{"name": "schema", "value": str(SCHEMA_VERSION)}])
            layout = connection.execute(select(ABOUT.c.value).where(ABOUT.c.name == "schema")).scalar_one()
        if layout != str(SCHEMA_VERSION):
            raise StoreError(
                f"store {self.label}: has the layout of another version of optimize ({layout}, not {SCHEMA_VERSION}); "
                "name a new store with --store"
            )

    def _insert(self, table: Any) -> Any:
        """INSERT that leaves rows alone which are there already."""
        dialect = postgresql if self.engine.dialect.name == "postgresql" else sqlite
        return dialect.insert(table).on_conflict_do_nothing()

    def close(self) -> None:
        """Let go of every connection."""
        self.engine.dispose()

    @retried
    def register(self, tasks: Sequence[Task]) -> None:
        """Add jobs that are not there yet; those that failed before become pending again."""
        retried = [task.key for task in tasks if task.job is not None]
        with explained(self.label), self.engine.begin() as connection:
            for numbered in chunks(list(enumerate(tasks))):
                connection.execute(self._insert(JOBS), [_new(position, task) for position, task in numbered])
            for keys in chunks(retried):
                failed = (JOBS.c.key.in_(keys), JOBS.c.status == FAILED)
                connection.execute(delete(SUMS).where(SUMS.c.key.in_(select(JOBS.c.key).where(*failed))))
                connection.execute(update(JOBS).where(*failed).values(status=PENDING, error="", result=""))

    @retried
    def enter(self, owner: Owner) -> None:
        """Make an owner known, so that others see whether it lives."""
        row = {"owner": owner.name, "host": owner.host, "process": owner.process, "started": owner.started, "beat": 0}
        with explained(self.label), self.engine.begin() as connection:
            connection.execute(self._insert(OWNERS), [row])

    @retried
    def beat(self, owner: Owner) -> None:
        """Show that an owner lives."""
        with explained(self.label), self.engine.begin() as connection:
            connection.execute(update(OWNERS).where(OWNERS.c.owner == owner.name).values(beat=OWNERS.c.beat + 1))

    @retried
    def leave(self, name: str) -> None:
        """Forget an owner; what it had claimed is pending again."""
        with explained(self.label), self.engine.begin() as connection:
            running = update(JOBS).where(JOBS.c.owner == name, JOBS.c.status == RUNNING)
            connection.execute(running.values(status=PENDING, owner=None))
            connection.execute(delete(OWNERS).where(OWNERS.c.owner == name))

    @retried
    def free_dead(self) -> None:
        """Take back the claims of owners that this machine knows to be gone."""
        with explained(self.label), self.engine.connect() as connection:
            rows = connection.execute(select(OWNERS)).mappings().all()
        for row in rows:
            owner = Owner(name=row["owner"], host=row["host"], process=row["process"], started=row["started"])
            if is_dead(owner):
                self.leave(owner.name)

    @retried
    def claim(self, keys: Sequence[str], owner: Owner) -> set[str]:
        """Those of the keys that were pending and are this owner's now; no two owners ever get the same one."""
        # A server that went away may have kept a claim without saying so.
        unsaid = [key for key in keys if key not in self._claimed]
        own = and_(JOBS.c.key.in_(unsaid), JOBS.c.status == RUNNING, JOBS.c.owner == owner.name)
        with explained(self.label), self.engine.begin() as connection:
            free = select(JOBS.c.key).where(JOBS.c.key.in_(keys), or_(JOBS.c.status == PENDING, own))
            claimed = set(connection.execute(free.with_for_update(skip_locked=True)).scalars())
            if claimed:
                connection.execute(update(JOBS).where(JOBS.c.key.in_(claimed)).values(status=RUNNING, owner=owner.name))
        self._claimed |= claimed
        return claimed

    @retried
    def save(self, outcomes: Iterable[JobOutcome], owner: Owner) -> None:
        """Keep outcomes, all or none; one whose claim was taken over meanwhile is dropped."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        rows = [{f"new_{name}": value for name, value in vars(outcome).items()} for outcome in outcomes]
        names = [field.name for field in fields(JobOutcome) if field.name != "key"]
        mine = (JOBS.c.key == bindparam("new_key"), JOBS.c.owner == owner.name, JOBS.c.status == RUNNING)
        changes: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
        with explained(self.label), self.engine.begin() as connection:
            connection.execute(update(JOBS).where(*mine).values(**changes, finished=now, owner=None), rows)
            self._sum_up(connection, [row["new_key"] for row in rows])

    def _sum_up(self, connection: Connection, keys: Sequence[str]) -> None:
        """Keep the checksums of these jobs as they are now."""
        for some in chunks(keys):
            rows = _dicts(connection.execute(select(JOBS).where(JOBS.c.key.in_(some))))
            connection.execute(delete(SUMS).where(SUMS.c.key.in_(some)))
            if rows:
                connection.execute(insert(SUMS), [{"key": row["key"], "checksum": checksum(row)} for row in rows])

    def _intact(self, connection: Connection, rows: Sequence[Mapping[str, Any]], asked: Sequence[str] | None) -> None:
        """Raise StoreError for an answer that is not what was written; what has no checksum is of an earlier version.

        `rows` are those of the keys `asked`, None for all of the store: one that is gone is noticed by its checksum.
        """
        if not inspect(connection).has_table(SUMS.name):
            return
        keys, sums, query = {row["key"] for row in rows}, dict[str, str](), select(SUMS.c.key, SUMS.c.checksum)
        for some in [None] if asked is None else chunks(asked):
            stored = connection.execute(query if some is None else query.where(SUMS.c.key.in_(some)))
            sums.update((key, str(value)) for key, value in stored)
        changed = [row["key"] for row in rows if row["key"] in sums and not matches(row, sums[row["key"]])]
        lost = sorted(sums.keys() - keys)
        for key, what in [*((key, "not what was written") for key in changed), *((key, "gone") for key in lost)]:
            raise StoreError(f"store {self.label}: {advice(f'malformed: the answer of key {key} is {what}')}")

    @retried
    def statuses(self, keys: Iterable[str]) -> dict[str, str]:
        """Status by key."""
        by_key: dict[str, str] = {}
        with explained(self.label), self.engine.connect() as connection:
            for some in chunks(list(keys)):
                rows = connection.execute(select(JOBS.c.key, JOBS.c.status).where(JOBS.c.key.in_(some)))
                by_key.update((key, status) for key, status in rows)
        return by_key

    @retried
    def beats(self) -> dict[str, int]:
        """Last sign of life of every owner that has claims."""
        owners = select(JOBS.c.owner).where(JOBS.c.status == RUNNING).distinct()
        with explained(self.label), self.engine.connect() as connection:
            names = [name for name in connection.execute(owners).scalars() if name]
            known = {row.owner: row.beat for row in connection.execute(select(OWNERS.c.owner, OWNERS.c.beat))}
        return {name: known.get(name, -1) for name in names}

    @retried
    def rows(self, keys: Sequence[str] | None = None) -> list[StoredRow]:
        """The jobs of these keys in their order, or all jobs of the store in the order they were added."""
        names = [field.name for field in fields(StoredRow)]
        query = select(*(JOBS.c[name] for name in (*names, "position")))
        with explained(self.label), self.engine.connect() as connection:
            if keys is None:
                every = _dicts(connection.execute(query.order_by(JOBS.c.version, JOBS.c.position, JOBS.c.key)))
                self._intact(connection, every, None)
                return [_row(row) for row in every]
            by_key: dict[str, StoredRow] = {}
            for some in chunks(list(keys)):
                rows = _dicts(connection.execute(query.where(JOBS.c.key.in_(some))))
                self._intact(connection, rows, some)
                by_key.update((row["key"], _row(row)) for row in rows)
        return [by_key[key] for key in keys if key in by_key]

    @retried
    def take_from(self, other: Store) -> Taken:
        """Copy the answered jobs of another store that this one lacks or has not answered."""
        with explained(other.label), other.engine.connect() as connection:
            rows = _dicts(connection.execute(select(JOBS)))
            other._intact(connection, rows, None)
            theirs = [row | {"owner": None} for row in rows if row["status"] not in (PENDING, RUNNING)]
        with explained(self.label), self.engine.begin() as connection:
            settled = select(JOBS.c.key, JOBS.c.status, JOBS.c.result).where(JOBS.c.status.not_in((PENDING, FAILED)))
            ours = {key: (status, result) for key, status, result in connection.execute(settled)}
            taken = [row for row in theirs if row["key"] not in ours]
            for some in chunks(taken):
                connection.execute(delete(JOBS).where(JOBS.c.key.in_([row["key"] for row in some])))
                connection.execute(self._insert(JOBS), some)
            self._sum_up(connection, [row["key"] for row in taken])
        answers = [row for row in theirs if row["key"] in ours and row["status"] != FAILED]
        other_than = [row["key"] for row in answers if (row["status"], row["result"]) != ours[row["key"]]]
        running = [key for key in other_than if ours[key][0] == RUNNING]
        return Taken(count=len(taken), conflicts=tuple(key for key in other_than if key not in running))


def chunks(items: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """The items in portions of at most `size`.

    >>> list(chunks([1, 2, 3], 2))
    [[1, 2], [3]]
    """
    return (items[start : start + size] for start in range(0, len(items), size))


def _dicts(result: CursorResult[Any]) -> list[dict[str, Any]]:
    return [dict(row) for row in result.mappings()]


def checksum(row: Mapping[str, Any], names: Sequence[str] = (*SUMMED, *PLACED)) -> str:
    """A hash of everything in an answered job, behind the number of columns in it.

    >>> row = dict.fromkeys((*SUMMED, *PLACED), "a")
    >>> checksum(row)[:3], checksum(row) == checksum({**row, "owner": "b"})
    ('13:', True)
    """
    return f"{len(names)}:{_digest(row, names)[:48]}"


def matches(row: Mapping[str, Any], stored: str) -> bool:
    """Whether a job is as it was when its checksum was made, maybe by the first version, without place and scenario.

    >>> row = dict.fromkeys((*SUMMED, *PLACED), "a")
    >>> matches(row, checksum(row)), matches({**row, "result": ""}, checksum(row))
    (True, False)
    """
    if ":" in stored:
        return checksum(row) == stored
    return row["status"] in (PENDING, RUNNING) or _digest(row, SUMMED) == stored


def _digest(row: Mapping[str, Any], names: Sequence[str]) -> str:
    text = "\0".join(f"{row[name]!r}" for name in names)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _row(columns: Mapping[str, Any]) -> StoredRow:
    return StoredRow(**{field.name: columns[field.name] for field in fields(StoredRow)})


def _new(position: int, task: Task) -> Mapping[str, Any]:
    return {
        **{"key": task.key, "version": task.version, "position": position, "scenario": task.scenario},
        **{name: task.asked[name] for name in ("model", "cluster", "gpus")},
        **{"status": FAILED if task.job is None else PENDING, "error": task.problem, "asked": canonical(task.asked)},
        **{"owner": None, "attempts": 0, "seconds": 0.0, "memory": 0.0, "result": "", "host": "", "finished": ""},
    }
