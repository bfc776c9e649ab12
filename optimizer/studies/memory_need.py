"""Whether what is studied could run at all: the memory that a plan reserves, and what a GPU has."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from optimizer.base.units import GB


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """Memory of the fullest GPU."""

    reserved: float  # what the plan reserves of it [B]
    usable: float  # what it may reserve [B]

    @property
    def fits(self) -> bool:
        """Whether the plan can run."""
        return self.reserved <= self.usable

    @property
    def warning(self) -> str:
        """What to say of a plan that cannot run; nothing of one that can.

        >>> MemoryNeed(reserved=132.5e9, usable=83.5e9).warning
        'does not fit in memory: 132.5 of 83.5 GB usable per GPU'
        """
        if self.fits:
            return ""
        return f"does not fit in memory: {self.reserved / GB:.1f} of {self.usable / GB:.1f} GB usable per GPU"

    def to_dict(self) -> dict[str, Any]:
        """The memory as plain values [B]."""
        return {"fits": self.fits, **{f"{name}_bytes": value for name, value in asdict(self).items()}}
