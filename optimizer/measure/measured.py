"""The JSON that the node program writes, as it was measured; imported only when such a file is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from optimizer.base.errors import InvalidFile
from optimizer.catalog.readers.nccl_tests import CollectiveSample
from optimizer.catalog.readers.problems import validated
from optimizer.catalog.readers.tables import Count, FileTable, Positive, Text, Texts, Unsigned, one_of, part
from optimizer.catalog.readers.text import read_json
from optimizer.objectives.network.collectives import KINDS

FORMAT, VERSION = "optimize measure", 1


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a node says of itself: `processor` is gpu or cpu, `memory` of one GPU [B], `dtype` that of the products."""

    processor: str
    name: str
    dtype: str
    ranks: int
    ranks_per_node: int
    gpus_of_node: int
    memory: float
    sms: int = 1
    vendor: str = ""
    torch: str = ""
    backend: str = ""
    runtime: str = ""


@dataclass(frozen=True, kw_only=True)
class Product:
    """A measured product (m x k) by (k x n) [elements] and its time [s]."""

    m: int
    n: int
    k: int
    seconds: float

    @property
    def rate(self) -> float:
        """Operations per second [FLOP/s]."""
        return 2.0 * self.m * self.n * self.k / self.seconds


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """So many bytes read and written [B] in a time [s]; `kind` is copy, add, from_host or to_host."""

    kind: str
    bytes: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class AttentionTime:
    """Causal attention over batch x heads x tokens, forward and backward [s]."""

    batch: int
    heads: int
    seq_len: int
    qk_dim: int
    v_dim: int
    forward: float
    backward: float

    @property
    def rate(self) -> float:
        """Operations of the forward pass that the mask leaves per second [FLOP/s]."""
        scores = self.batch * self.heads * self.seq_len * (self.seq_len + 1) / 2.0
        return 2.0 * scores * (self.qk_dim + self.v_dim) / self.forward


@dataclass(frozen=True, kw_only=True)
class NodeMeasurements:
    """Everything that one run of the node program found; `left_out` what its time did not allow."""

    source: str
    job: Mapping[str, str | int]
    machine: Machine
    launches: Mapping[str, float]
    memory: tuple[Transfer, ...]
    products: tuple[Product, ...]
    attention: tuple[AttentionTime, ...]
    collectives: tuple[CollectiveSample, ...]
    ranks: tuple[float, ...]
    left_out: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


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


class Collective(FileTable):
    """A collective over some ranks of some nodes: the whole buffer [B] and its time [s]."""

    kind: KIND
    message: Count
    ranks: Count
    nodes: Count
    seconds: Positive


class MeasuredTable(FileTable):
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


def read_measured(path: str | Path) -> NodeMeasurements:
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
    return NodeMeasurements(
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
