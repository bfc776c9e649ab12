"""The tables of a store; the names leave room for Optuna's in the same database."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, String, Table, Text

SCHEMA_VERSION = 1
METADATA = MetaData()

JOBS = Table(
    "batch_jobs",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("version", String(32), nullable=False),
    Column("position", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("scenario", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("gpus", BigInteger, nullable=False),
    Column("asked", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("owner", String(96)),
    Column("attempts", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("memory", Float, nullable=False),
    Column("host", Text, nullable=False),
    Column("finished", String(32), nullable=False),
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
    Column("host", Text, nullable=False),
    Column("process", BigInteger, nullable=False),
    Column("started", String(32), nullable=False),
    Column("beat", BigInteger, nullable=False),
)

ABOUT = Table(
    "batch_about", METADATA, Column("name", String(32), primary_key=True), Column("value", Text, nullable=False)
)
