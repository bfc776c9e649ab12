"""Whole things: machines are sold as nodes, racks or slices, and what a job leaves over is paid for too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, kw_only=True)
class Lot:
    """What is paid for: `count` things of `size` GPUs each, called `name`, for a job that uses `used` GPUs."""

    used: int
    count: int
    size: int
    name: str

    @property
    def gpus(self) -> int:
        """GPUs paid for."""
        return self.count * self.size

    @property
    def spare(self) -> int:
        """GPUs paid for and not used by the job."""
        return self.gpus - self.used

    def words(self) -> str:
        """The lot as it would be ordered.

        >>> Lot(used=2048, count=29, size=72, name="rack").words()
        '29 racks of 72 GPUs, 2,048 of 2,088 GPUs used'
        >>> Lot(used=8, count=1, size=8, name="node").words()
        '1 node of 8 GPUs'
        """
        things = f"{self.count:,} {self.name}{'s' * (self.count != 1)} of {self.size:,} GPUs"
        return things + (f", {self.used:,} of {self.gpus:,} GPUs used" if self.spare else "")


def whole(gpus: int, node: int, sizes: Sequence[int] = (), name: str = "") -> Lot:
    """The fewest GPUs that are sold and hold a job: nodes, or things of one of the `sizes` on offer.

    Up to the largest size it is the smallest one that suffices. Beyond it the size of at least a quarter of the
    largest that leaves the fewest GPUs over, the larger of equals.

    >>> whole(2048, 4, (72,), "rack").gpus, whole(1001, 8).gpus
    (2088, 1008)
    >>> pods = (4, 8, 16, 32, 64, 128, 256)
    >>> [whole(gpus, 4, pods, "slice").words() for gpus in (100, 384)]
    ['1 slice of 128 GPUs, 100 of 128 GPUs used', '3 slices of 128 GPUs']
    """
    if not sizes:
        return Lot(used=gpus, count=ceil(gpus / node), size=node, name=name or "node")
    largest = max(sizes)
    if gpus <= largest:
        return Lot(used=gpus, count=1, size=min(size for size in sizes if size >= gpus), name=name or "unit")
    fits = [size for size in sizes if 4 * size >= largest]
    size = min(fits, key=lambda size: (ceil(gpus / size) * size, -size))
    return Lot(used=gpus, count=ceil(gpus / size), size=size, name=name or "unit")
