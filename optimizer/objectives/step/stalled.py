"""What plans that place their layers lose to virtual stages of unlike length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.bill import Bill
from optimizer.objectives.pipeline.stages import Stages, virtual_counts
from optimizer.objectives.pipeline.stall import stall
from optimizer.plan import SCHEDULES

INTERLEAVED = SCHEDULES.index("interleaved")


def stalled(bill: Bill, stages: Stages) -> FloatArray:
    """Seconds that unlike virtual stages add to the pipeline of each plan, 0 where it does not place its layers [s].

    What a stage spends beside its layers is spread evenly over its passes, and recomputing over its backward passes.
    """
    plans, found = bill.plans, np.zeros(len(bill))
    if plans.placements is None:
        return found
    for index in np.flatnonzero((plans.schedule == INTERLEAVED) & (plans.vpp > 1)).tolist():
        pp, vpp, placed = int(plans.pp[index]), int(plans.vpp[index]), plans.placements[index]
        one = {kind: entry.take(np.array([index])) for kind, entry in bill.entries.items()}
        held = virtual_counts(bill.job.model, placed, pp, vpp)
        again = sum((n[:pp, index] * one[kind].again for kind, n in stages.recomputed.items()), np.zeros(pp))
        beside = np.full(pp, float(bill.aside[index]) / 2)
        forward = _spread([n * one[kind].forward for kind, n in held.items()], beside)
        backward = _spread([n * one[kind].backward for kind, n in held.items()], beside + again)
        found[index] = stall(int(plans.num_microbatches[index]), forward, backward)
    return found


def _spread(layers: Sequence[FloatArray], beside: FloatArray) -> FloatArray:
    """Seconds by stage and virtual stage: of layers by virtual stage, and an even share of what stages spend beside."""
    total = np.add.reduce(layers)
    vpp = len(total) // len(beside)
    return np.asarray((total.reshape(vpp, -1) + beside / vpp).T)
