"""The best plan where the user places the layers: every plan has one layout, so that the sweep alone proves it."""

from __future__ import annotations

import numpy as np

from optimizer.search.lattice.knobs import knobs_at
from optimizer.search.lattice.oracle import FASTEST, Sweep
from optimizer.search.layouts.assigned import AssignedLayouts, Candidate, ProofPlans


def as_given(swept: Sweep) -> AssignedLayouts:
    """The best plan of a sweep in which every plan says where its layers lie, with the plans for CP-SAT to check."""
    points = swept.points
    best: Candidate | None = None
    proof: ProofPlans | None = None
    if points is not None and swept.best >= 0:
        chosen = np.arange(len(points.plans))
        if len(chosen) < swept.space:
            chosen = np.union1d(np.argsort(points.values, kind="stable")[:FASTEST], swept.best)
        some = points.take(chosen)
        proof = ProofPlans(layer_costs=some.layer_costs, values=some.values, fits=some.fits)
        best = Candidate(
            plan=points.plans.plan(swept.best),
            value=float(points.values[swept.best]),
            knobs=knobs_at(points.knobs, swept.best),
            solved=True,
        )
    return AssignedLayouts(
        best=best,
        candidates=(),
        proof=proof,
        bound=best.value if best else np.inf,
        knob_bound=swept.knob_bound,
        space=swept.space,
        band=0,
        solved=0,
        complete=swept.complete,
    )
