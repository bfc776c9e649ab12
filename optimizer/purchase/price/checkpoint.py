"""Checkpoints: how many bytes they have, and how long the storage takes for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint: size [B], and bandwidth of the storage into which all GPUs write it together [B/s]."""

    size: float
    bandwidth: float

    @property
    def write(self) -> float:
        """Time until it is on the storage and can be gone back to [s]; training goes on meanwhile."""
        return self.size / self.bandwidth if self.size else 0.0


def checkpoint(params: float, gpus: int, values: Mapping[str, float]) -> Checkpoint:
    """The checkpoint of a model, on the storage of so many GPUs.

    size = parameters x bytes of each; bandwidth = GPUs x share of one; values: a scenario with `checkpoint_size` [B]
    and `storage` [B/s per GPU].

    BLOOM's 176e9 parameters at 13.1 B, written by 384 GPUs at 0.15 GB/s each, which took 40 s:

    >>> found = checkpoint(176.2e9, 384, {"checkpoint_size": 13.1, "storage": 0.15e9})
    >>> round(found.size / 1e12, 1), round(found.write)
    (2.3, 40)
    """
    return Checkpoint(size=params * values["checkpoint_size"], bandwidth=gpus * values["storage"])
