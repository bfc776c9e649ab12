"""The tables of a store; the names leave room for Optuna's in the same database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.types import TypeEngine

SCHEMA_VERSION = 1
METADATA = MetaData()
DIGEST, OWNER, WORD = String(64), String(96), String(32)  # a SHA-256 in hexadecimal digits, a name, a time or version


def _stated(name: str, kind: type[TypeEngine[Any]] | TypeEngine[Any]) -> Column[Any]:
    """A column that every row fills."""
    return Column(name, kind, nullable=False)


JOBS = Table(
    "batch_jobs",
    METADATA,
    Column("key", DIGEST, primary_key=True),
    _stated("version", WORD),
    _stated("position", Integer),
    _stated("status", WORD),
    _stated("scenario", Text),
    _stated("model", Text),
    _stated("cluster", Text),
    _stated("gpus", BigInteger),
    _stated("asked", Text),
    _stated("result", Text),
    _stated("error", Text),
    Column("owner", OWNER),
    _stated("attempts", Integer),
    _stated("seconds", Float),
    _stated("memory", Float),
    _stated("host", Text),
    _stated("finished", WORD),
    Index("batch_jobs_status", "status"),
    Index("batch_jobs_owner", "owner"),
)

# What was written of an answered job, as a hash: damage inside of a value is seen. `register` of a store without this
# table, of an earlier version, begins it.
SUMS = Table("batch_sums", METADATA, Column("key", DIGEST, primary_key=True), Column("checksum", DIGEST))

# Who claims jobs. `beat` grows while the owner lives.
OWNERS = Table(
    "batch_owners",
    METADATA,
    Column("owner", OWNER, primary_key=True),
    _stated("host", Text),
    _stated("process", BigInteger),
    _stated("started", WORD),
    _stated("beat", BigInteger),
)

ABOUT = Table("batch_about", METADATA, Column("name", WORD, primary_key=True), _stated("value", Text))
