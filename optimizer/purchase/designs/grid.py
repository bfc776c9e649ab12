"""The discrete outer variables of a purchase: which machines, how many, wired how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from optimizer.purchase.campaign import Design


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The discrete outer variables; every combination is a design.

    best_counts: the number of GPUs instead of `gpus`, by kind of machine.
    """

    kinds: tuple[Design, ...]
    gpus: tuple[int, ...]
    dtypes: tuple[str, ...] = ("bf16",)
    batch_factors: tuple[float, ...] = (1.0,)
    power_caps: tuple[float, ...] = (1.0,)
    nics: tuple[float, ...] = (0.0,)
    oversubscriptions: tuple[float, ...] = (0.0,)
    hbms: tuple[float, ...] = (0.0,)
    scale_ups: tuple[int, ...] = (0,)
    best_counts: Mapping[str, int] = field(default_factory=dict)

    def designs(self) -> Iterable[Design]:
        """Every combination, in a fixed order."""
        values: list[Any]
        for kind, *values in product(
            self.kinds,
            self.gpus,
            self.dtypes,
            self.batch_factors,
            self.power_caps,
            self.nics,
            self.oversubscriptions,
            self.hbms,
            self.scale_ups,
        ):
            gpus, dtype, batch, cap, nic, taper, hbm, domain = values
            gpus = self.best_counts.get(kind.kind, gpus)
            yield Design(
                kind=kind.kind,
                cluster=kind.cluster,
                gpus=gpus,
                dtype=dtype,
                batch_factor=batch,
                power_cap=cap,
                nic=nic,
                oversubscription=taper,
                hbm=hbm,
                scale_up=domain,
            )
