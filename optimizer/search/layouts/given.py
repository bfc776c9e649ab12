"""The best plan where the user places the layers: every plan has one layout, so that the sweep alone proves it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optimizer.search.lattice.oracle import FASTEST, Sweep
from optimizer.search.layouts.band import Candidate, LaidOut


def as_given(swept: Sweep) -> LaidOut:
    """The best plan of a sweep in which every plan says where its layers lie, with the fastest for CP-SAT to check."""
    points = swept.points
    best: Candidate | None = None
    found: list[Candidate] = []
    if points is not None and swept.best >= 0:
        fastest = np.argsort(points.seconds, kind="stable")[:FASTEST].tolist()
        chosen = sorted({*fastest, swept.best})
        every = points.plans.take(chosen)
        found = [
            Candidate(plan=plan, seconds=float(points.seconds[position]))
            for plan, position in zip(every.plans(), chosen, strict=True)
        ]
        place = chosen.index(swept.best)
        best = found[place] = replace(found[place], solved=True, source=every.take([place]))
    return LaidOut(
        best=best,
        candidates=tuple(found),
        bound=best.seconds if best else np.inf,
        knob_bound=swept.knob_bound,
        space=swept.space,
        band=0,
        solved=0,
        complete=swept.complete,
    )
