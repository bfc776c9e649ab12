"""Read the JSON that the node program writes; imported only when such a file is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from optimizer.base.errors import InvalidFile
from optimizer.catalog.readers.nccl_tests import CollectiveSample
from optimizer.catalog.readers.problems import validated
from optimizer.catalog.readers.tables import Count, Positive, Table, Text, Texts, Unsigned, one_of, part
from optimizer.catalog.readers.text import read_json
from optimizer.measure.measured import AttentionTime, Machine, Measured, Product, Transfer
from optimizer.objectives.network.collectives import KINDS

FORMAT, VERSION = "optimize measure", 1

MACHINE: Any = part(
    Machine,
    processor=(one_of(("gpu", "cpu")), ...),
    dtype=(one_of(("bfloat16", "float16")), ...),
    memory=(Positive, ...),
)
PRODUCT: Any = part(Product, seconds=(Positive, ...))
TRANSFER: Any = part(Transfer, bytes=(Positive, ...), seconds=(Positive, ...))
ATTENTION: Any = part(AttentionTime, forward=(Positive, ...), backward=(Unsigned, ...))
KIND: Any = one_of(KINDS)


class Collective(Table):
    """A collective over some ranks of some nodes: the whole buffer [B] and its time [s]."""

    kind: KIND
    message: Count
    ranks: Count
    nodes: Count
    seconds: Positive


class MeasuredTable(Table):
    """Everything; parts that the program could not measure are empty."""

    format: Text
    version: Count
    job: dict[str, str | int]
    machine: MACHINE
    launches: dict[str, Positive]
    memory: Annotated[tuple[TRANSFER, ...], "a list of transfers"]
    products: Annotated[tuple[PRODUCT, ...], Field(min_length=1), "a list of products, one at least"]
    attention: Annotated[tuple[ATTENTION, ...], "a list of attention times"]
    ranks: tuple[Positive, ...]
    collectives: tuple[Collective, ...]
    left_out: Texts
    seconds: dict[str, Unsigned]


def read_measured(path: str | Path) -> Measured:
    """What a file of the node program says; raises InvalidFile with every problem found."""
    path, problems = Path(path), list[str]()
    raw = read_json(path, "give the measure.json that the program of optimize measure wrote")
    if raw.get("format") != FORMAT or raw.get("version") != VERSION:
        raise InvalidFile(
            path, ["not a measure.json of this version of optimize measure: write and run the program again"]
        )
    table = validated(MeasuredTable, raw, problems)
    if table is None:
        raise InvalidFile(path, problems)
    return Measured(
        source=path.name,
        job=table.job,
        machine=table.machine,
        launches=table.launches,
        memory=table.memory,
        products=table.products,
        attention=table.attention,
        collectives=tuple(
            CollectiveSample(kind=row.kind, message=row.message, time=row.seconds, ranks=row.ranks, nodes=row.nodes)
            for row in table.collectives
        ),
        ranks=table.ranks,
        left_out=table.left_out,
        seconds=table.seconds,
    )
