"""The discrete outer variables of a purchase: which machines, how many, wired how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from optimizer.purchase.campaign import Design

# A variable of Design, and its values here.
AXES: Mapping[str, str] = {
    "gpus": "gpus",
    "dtype": "dtypes",
    "batch_factor": "batch_factors",
    "power_cap": "power_caps",
    "nic": "nics",
    "oversubscription": "oversubscriptions",
    "hbm": "hbms",
    "scale_up": "scale_ups",
}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The discrete outer variables; every combination is a design."""

    kinds: tuple[Design, ...]
    gpus: tuple[int, ...]
    dtypes: tuple[str, ...] = ("bf16",)
    batch_factors: tuple[float, ...] = (1.0,)
    power_caps: tuple[float, ...] = (1.0,)
    nics: tuple[float, ...] = (0.0,)
    oversubscriptions: tuple[float, ...] = (0.0,)
    hbms: tuple[float, ...] = (0.0,)
    scale_ups: tuple[int, ...] = (0,)
    best_counts: Mapping[str, int] = field(default_factory=dict)  # number of GPUs instead of `gpus`, by kind of machine

    def designs(self) -> Iterable[Design]:
        """Every combination, in a fixed order."""
        axes = [getattr(self, name) for name in AXES.values()]
        for kind, *values in product(self.kinds, *axes):
            design = replace(kind, **dict(zip(AXES, values, strict=True)))
            yield replace(design, gpus=self.best_counts.get(kind.kind, design.gpus))
