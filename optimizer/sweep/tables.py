"""The tables of a store; the names leave room for Optuna's in the same database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.types import TypeEngine

SCHEMA_VERSION = 1
METADATA = MetaData()


def _stated(name: str, kind: type[TypeEngine[Any]] | TypeEngine[Any]) -> Column[Any]:
    """A column that every row fills."""
    return Column(name, kind, nullable=False)


JOBS = Table(
    "batch_jobs",
    METADATA,
    Column("key", String(64), primary_key=True),
    _stated("version", String(32)),
    _stated("position", Integer),
    _stated("status", String(16)),
    _stated("scenario", Text),
    _stated("model", Text),
    _stated("cluster", Text),
    _stated("gpus", BigInteger),
    _stated("asked", Text),
    _stated("result", Text),
    _stated("error", Text),
    Column("owner", String(96)),
    _stated("attempts", Integer),
    _stated("seconds", Float),
    _stated("memory", Float),
    _stated("host", Text),
    _stated("finished", String(32)),
    Index("batch_jobs_status", "status"),
    Index("batch_jobs_owner", "owner"),
)

# What was written of an answered job, as a hash: damage inside of a value is seen. `register` of a store without this
# table, of an earlier version, begins it.
SUMS = Table("batch_sums", METADATA, Column("key", String(64), primary_key=True), Column("checksum", String(64)))

# Who claims jobs. `beat` grows while the owner lives.
OWNERS = Table(
    "batch_owners",
    METADATA,
    Column("owner", String(96), primary_key=True),
    _stated("host", Text),
    _stated("process", BigInteger),
    _stated("started", String(32)),
    _stated("beat", BigInteger),
)

ABOUT = Table("batch_about", METADATA, Column("name", String(32), primary_key=True), _stated("value", Text))
