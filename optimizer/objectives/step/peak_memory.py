"""Peak memory of every plan: the stage that reserves most, by term."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from optimizer.job import Job
from optimizer.objectives.kernels.operators import FloatArray
from optimizer.objectives.layer.distinct import distinct, pick, tabulated
from optimizer.objectives.layer.shapes import REPLICA_KEYS, SHAPE_KEYS, shapes_of, without_rebuilding
from optimizer.objectives.pipeline.stages import Stage, representative_stages, stacked, stages_of
from optimizer.objectives.step.memory import KeptBytes, activation_bytes, buffers, kept_bytes, stage_memory, states
from optimizer.plan import IntArray, KnobColumns, Knobs, Plans


def reserved_memory(job: Job, plans: Plans, knobs: Knobs | KnobColumns = Knobs()) -> FloatArray:
    """Peak reserved memory of every plan as `price` finds it, without the seconds [B]."""
    few, inverse = distinct(plans, SHAPE_KEYS)
    return peak_memory(job, plans, stages_of(job.model, plans), few, inverse, knobs)[1]


def stage_reserved(job: Job, plans: Plans, knobs: Knobs = Knobs()) -> FloatArray:
    """Reserved memory of every stage (rows) of plans that say where their layers lie, 0 where there is none [B]."""
    few, inverse = distinct(plans, SHAPE_KEYS)
    dense, moe, spared = _kept(job, plans, few, inverse)
    return _every_stage(job, plans, stages_of(job.model, plans), dense, moe, spared, knobs)[1]


def peak_memory(
    job: Job,
    plans: Plans,
    stages: Sequence[Stage],
    few: Plans,
    inverse: NDArray[np.intp],
    knobs: Knobs | KnobColumns,
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Memory by term of the stage that reserves most, and its total [B]."""
    dense, moe, spared = _kept(job, plans, few, inverse)
    if plans.placements is not None and isinstance(knobs, Knobs):
        table, total = _every_stage(job, plans, stages, dense, moe, spared, knobs)
        fullest = np.argmax(total, axis=0)[None]
        of_fullest = {
            name: np.take_along_axis(np.broadcast_to(values, total.shape), fullest, axis=0)[0]
            for name, values in table.items()
        }
        return of_fullest, total.max(axis=0)
    held, buffered = stage_states(job, plans, stages, knobs), buffers(job, plans)
    tables = [
        stage_memory(job, plans, stage, dense, moe, states, buffered, spared)
        for stage, states in zip(stages, held, strict=True)
    ]
    totals = np.stack([s.exists * sum(t.values(), np.zeros(1)) for s, t in zip(stages, tables, strict=True)])
    fullest = np.argmax(totals, axis=0)
    terms = {name: pick(fullest, [table[name] for table in tables]) for name in tables[0]}
    return terms, totals.max(axis=0)


def _kept(
    job: Job, plans: Plans, few: Plans, inverse: NDArray[np.intp]
) -> tuple[KeptBytes, KeptBytes, tuple[KeptBytes, ...]]:
    """Activations of a dense and of a MoE layer, and of both where they are spared [B]."""
    shapes, features, imbalance = shapes_of(job, few), job.stack.features, job.stack.imbalance

    def kept(moe: bool, recompute: IntArray = few.recompute) -> KeptBytes:
        table = activation_bytes(job.model, shapes, features, moe, imbalance, job.quantised)
        distinct_kept = kept_bytes(table, recompute, few.activation_offload)
        return KeptBytes(each=distinct_kept.each[inverse], once=distinct_kept.once[inverse])

    dense = kept(False)
    moe = kept(True) if job.model.experts else dense
    if plans.placements is None:
        return dense, moe, ()
    plain = without_rebuilding(few).recompute
    return dense, moe, (kept(False, plain), kept(bool(job.model.experts), plain))


def _every_stage(
    job: Job,
    plans: Plans,
    stages: Sequence[Stage],
    dense: KeptBytes,
    moe: KeptBytes,
    spared: tuple[KeptBytes, ...],
    knobs: Knobs,
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Memory of every stage (rows) of every plan, by term and in all [B]."""
    every = stacked(stages)
    held = states(job, plans, every, knobs)
    table = stage_memory(job, plans, every, dense, moe, held, buffers(job, plans), spared)
    return table, every.exists * sum(table.values(), np.zeros(1))


def stage_states(
    job: Job, plans: Plans, stages: Sequence[Stage], knobs: Knobs | KnobColumns
) -> list[dict[str, FloatArray]]:
    """Weights, gradients and optimizer state of each representative stage [B]."""
    if plans.placements is not None or isinstance(knobs, KnobColumns):
        return [states(job, plans, stage, knobs) for stage in stages]

    def price(few: Plans) -> list[dict[str, FloatArray]]:
        return [states(job, few, stage, knobs) for stage in representative_stages(job.model, few)]

    held, index = tabulated(plans, ("states", knobs), job, REPLICA_KEYS, price)
    return [{name: values[index] for name, values in table.items()} for table in held]
