"""Settings of plans that are looked at more than once, each settled once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from optimizer.job.plan import FIELDS, KnobColumns
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.search.lattice.knobs import NAMES, STARTUP, unhosted


@dataclass(frozen=True, kw_only=True)
class OwnSettings:
    """The settings of `unhosted` for the plans of one job: neither the risk it takes nor what it prefers moves them."""

    trials: int = 0  # of Optuna
    seed: int = 0  # of the trials
    study: str | None = None  # URL of a storage that keeps the trials
    # settings of the plans so far, by their variables
    settled: dict[tuple[object, ...], tuple[float, ...]] = field(default_factory=dict, repr=False, compare=False)

    def of(self, layer_costs: LayerCosts) -> KnobColumns:
        """The best settings of every plan with no optimizer state on the host."""
        if self.study is not None or self.trials > STARTUP:  # trials that learn move all plans alike
            return unhosted(layer_costs, trials=self.trials, seed=self.seed, study=self.study)
        rows = list(zip(*(getattr(layer_costs.plans, name).tolist() for name in FIELDS), strict=True))
        new = [place for place, row in enumerate(rows) if row not in self.settled]
        if new:
            own = unhosted(layer_costs.take(new), trials=self.trials, seed=self.seed)
            settings = zip(*(getattr(own, name).tolist() for name in NAMES), strict=True)
            self.settled.update(zip((rows[place] for place in new), settings, strict=True))
        columns = np.array([self.settled[row] for row in rows]).reshape(-1, len(NAMES)).T
        return KnobColumns(**dict(zip(NAMES, columns, strict=True)))
