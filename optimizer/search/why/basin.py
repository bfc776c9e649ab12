"""How alone the best plan is: what comes within a few percent of it, and in which variables that differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from optimizer.job.plan import FIELDS
from optimizer.job.variables import VARIABLES
from optimizer.search.lattice.oracle import NEAR_BEST, STRUCTURE, Sweep

WITHIN = (0.01, 0.02, NEAR_BEST)  # the sweep keeps every plan of the widest
SHAPE_WITHIN = 0.02
BROAD = 3


@dataclass(frozen=True, kw_only=True)
class Ring:
    """The other plans within `share` of the best value: how many, of how many other structures, and by variable
    the values they take, where not all agree with the best plan.
    """

    share: float
    plans: int
    structures: int
    values: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Basin:
    """Rings of growing width around the best plan."""

    rings: tuple[Ring, ...]

    @property
    def shape(self) -> str:
        """Judged by the other structures (tp, cp, ep, etp, pp) within 2 %: "sharp peak" for none, "broad basin" for
        three or more, else "narrow ridge".
        """
        structures = next(ring.structures for ring in self.rings if ring.share == SHAPE_WITHIN)
        if structures == 0:
            return "sharp peak"
        return "broad basin" if structures >= BROAD else "narrow ridge"

    def to_dict(self) -> dict[str, Any]:
        """The basin as plain values."""
        return {"shape": self.shape, "rings": [asdict(ring) for ring in self.rings]}


def basin(swept: Sweep) -> Basin:
    """The neighbourhood of a sweep's best plan; empty rings when it has none."""
    return Basin(rings=tuple(_ring(swept, share) for share in WITHIN))


def _ring(swept: Sweep, share: float) -> Ring:
    points, best = swept.points, swept.best
    if points is None or best < 0:
        return Ring(share=share, plans=0, structures=0, values={})
    near = points.fits & (points.values <= points.values[best] * (1 + share))
    columns = {name: getattr(points.plans, name).astype(np.int64)[near] for name in FIELDS}
    own = {name: int(getattr(points.plans, name)[best]) for name in FIELDS}
    structures = np.unique(np.column_stack([columns[name] for name in STRUCTURE]), axis=0)
    values = {
        name: tuple(VARIABLES[name].shown(int(value)) for value in np.unique(column))
        for name, column in columns.items()
        if np.any(column != own[name])
    }
    return Ring(share=share, plans=int(near.sum()) - 1, structures=len(structures) - 1, values=values)
