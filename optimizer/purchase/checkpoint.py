"""Checkpoints: how many bytes they have, and how long the storage takes for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.presets.economics import default_price, find_price


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint: size [B], and bandwidth of the storage into which all GPUs write it together [B/s]."""

    size: float
    bandwidth: float

    @property
    def write(self) -> float:
        """Time until it is on the storage and can be gone back to [s]; training goes on meanwhile."""
        return self.size / self.bandwidth if self.size else 0.0


def checkpoint(params: float, gpus: int, cluster: str, values: Mapping[str, float]) -> Checkpoint:
    """The checkpoint of a model, on the storage of so many GPUs.

    size = parameters x bytes of each; bandwidth = GPUs x share of one; values: a scenario with `checkpoint_size` [B]
    and `storage` [B/s per GPU]; a cluster with a row of its own in presets/prices.csv has that bandwidth, moved as the
    assumption is moved.

    BLOOM's 176e9 parameters at 13.1 B, written by 384 GPUs at 0.15 GB/s each, which took 40 s:

    >>> found = checkpoint(176.2e9, 384, "jean-zay", {"checkpoint_size": 13.1, "storage": 0.15e9})
    >>> round(found.size / 1e12, 1), round(found.write)
    (2.3, 40)
    """
    usual, own = default_price("storage"), find_price("storage", cluster, "default")
    each = values["storage"] * (own.value / usual.value if own else 1.0)
    return Checkpoint(size=params * values["checkpoint_size"], bandwidth=gpus * each)
