"""The keys of the node program's JSON, for pydantic; imported only when such a file is read."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from optimizer.catalog.readers.tables import Count, Positive, Table, Text, Texts, Unsigned, one_of, part
from optimizer.measure.measured import AttentionTime, Machine, Product, Transfer
from optimizer.objectives.network.collectives import KINDS

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
