"""The JSON that the node program writes, as it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from optimizer.catalog.readers.nccl_tests import CollectiveSample


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
class Measured:
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
