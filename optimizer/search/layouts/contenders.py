"""Plans of a large lattice that some layout could make the best, kept while all are priced so that none is twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import Knobs
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.minimised.registry import objective_of
from optimizer.search.lattice.deadline import NEVER, Deadline
from optimizer.search.lattice.enumerate import MOST_PRICED_ONCE, Space
from optimizer.search.lattice.oracle import FASTEST, PROVEN_WHOLE, Tuning
from optimizer.search.layouts.bounds.step_floor import step_floor


@dataclass
class Contenders:
    """Those of a job's plans whose bound over all layouts is below the best even split, and the lowest ones anyhow."""

    job: Job  # what was asked
    tuning: Tuning  # how knobs are chosen
    below: float = np.inf  # value up to which no plan is missing [unit of the objective]
    size: int = 0  # plans of the lattice [1]
    # the plans, with a bound by the objective and one on paper [unit of the objective]
    parts: list[tuple[LayerCosts, FloatArray, FloatArray]] = field(default_factory=list)
    _waiting: list[LayerCosts] = field(default_factory=list)

    def add(self, layer_costs: LayerCosts, best: float) -> None:
        """Keep of a batch what no plan so far beats in every layout; `best` is the best of them that fits.

        Nothing is kept where too much would be.
        """
        collects, self.below, self.size = self._collects, min(self.below, best), self.size + len(layer_costs)
        if not collects:
            return
        self._waiting.append(layer_costs)
        if self.size <= PROVEN_WHOLE:
            return
        for batch in self._waiting:
            floor = step_floor(batch, self.tuning.fixed or Knobs())
            bounds = floor.bound(any_knobs=self.tuning.fixed is None)
            paper = bounds / objective_of(self.job).weight(self.job, batch.plans)
            self.parts.append(self._left(batch, bounds, paper))
        self._waiting = []
        batches, *both = zip(*self.parts, strict=True)
        left = self._left(LayerCosts.joined(batches), *(np.concatenate(each) for each in both))
        self.parts = [left] if len(left[0]) <= MOST_PRICED_ONCE else []

    def batches(self, space: Space, job: Job, value: float, deadline: Deadline = NEVER) -> Iterable[LayerCosts]:
        """The plans of a space that may have a layout below a value, by this job or on paper; all where not known."""
        if not self.parts or value > self.below or replace(job, prefer=self.job.prefer) != self.job:
            return space.until(deadline)
        return [layer_costs.changed(job=job) for layer_costs, _, _ in self.parts]

    @property
    def _collects(self) -> bool:
        """Whether what is left stays small."""
        return bool(self.parts) or self.size == sum(map(len, self._waiting))

    def _left(
        self, layer_costs: LayerCosts, value: FloatArray, paper: FloatArray
    ) -> tuple[LayerCosts, FloatArray, FloatArray]:
        """Without what is above the best plan so far; the lowest by either bound stay."""
        keep = np.minimum(value, paper) < self.below
        for each in (value, paper):
            keep[np.argsort(each, kind="stable")[:FASTEST]] = True
        rows = np.flatnonzero(keep)
        return layer_costs.take(rows).copied(), value[rows], paper[rows]
