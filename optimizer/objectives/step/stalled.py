"""What plans that place their layers lose to virtual stages of unlike length."""

from __future__ import annotations

import numpy as np

from optimizer.job.plan import SCHEDULES, IntArray
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.bill import Bill
from optimizer.objectives.pipeline.stages import Stages, virtual_counts
from optimizer.objectives.pipeline.stall import stall

INTERLEAVED = SCHEDULES.index("interleaved")


def stalled(bill: Bill, stages: Stages) -> FloatArray:
    """Seconds that unlike virtual stages add to the pipeline of each plan, 0 where it does not place its layers [s].

    What a stage spends beside its layers is spread evenly over its passes, and recomputing over its backward passes.
    """
    plans, found = bill.plans, np.zeros(len(bill))
    if plans.placements is None:
        return found
    shapes: dict[tuple[int, int, int], list[int]] = {}
    for index in np.flatnonzero((plans.schedule == INTERLEAVED) & (plans.vpp > 1)).tolist():
        shape = (int(plans.pp[index]), int(plans.vpp[index]), int(plans.num_microbatches[index]))
        shapes.setdefault(shape, []).append(index)
    for (pp, vpp, microbatches), alike in shapes.items():
        found[alike] = stall(microbatches, *passes(bill, stages, np.array(alike), pp, vpp))
    return found


def passes(bill: Bill, stages: Stages, index: IntArray, pp: int, vpp: int) -> tuple[FloatArray, FloatArray]:
    """Forward and backward seconds of such plans for one micro-batch, by plan, stage and virtual stage [s]."""
    placements = [bill.plans.placements[i] for i in index] if bill.plans.placements else []
    held = {placed: virtual_counts(bill.job.model, placed, pp, vpp) for placed in set(placements)}
    beside = np.repeat(bill.aside[index, None] / 2, pp, axis=1)
    again = sum(
        (n[:pp, index].T * bill.entries[k].again[index, None] for k, n in stages.recomputed.items()), beside * 0
    )
    forward, backward = np.zeros((len(index), pp * vpp)), np.zeros((len(index), pp * vpp))
    for kind, entry in bill.entries.items():
        counts = np.array([held[placed][kind] for placed in placements])
        forward += counts * entry.forward[index, None]
        backward += counts * entry.backward[index, None]
    return _spread(forward, beside), _spread(backward, beside + again)


def _spread(layers: FloatArray, beside: FloatArray) -> FloatArray:
    """Seconds by stage and virtual stage: of layers, an even share of what stages spend beside."""
    pp = beside.shape[1]
    vpp = layers.shape[1] // pp
    return np.asarray(layers.reshape(-1, vpp, pp).transpose(0, 2, 1) + beside[..., None] / vpp)
