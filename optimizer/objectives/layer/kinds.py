"""Seconds of a dense layer, an MoE layer and the head of every plan, with what ZeRO-3 gathers for them exposed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from optimizer.job import Job
from optimizer.objectives.kernels.operators import FloatArray, head_operators, layer_operators
from optimizer.objectives.layer.activation_offload import HOST_TRANSFER, host_passes, movable_bytes, moved_bytes
from optimizer.objectives.layer.distinct import distinct, tabulated
from optimizer.objectives.layer.pipelined_host import pipelined_wait
from optimizer.objectives.layer.seconds import TERMS, LayerTime, layer_time
from optimizer.objectives.layer.shapes import LAYER_KEYS, REPLICA_KEYS, SHAPE_KEYS, shapes_of
from optimizer.objectives.step import data_parallel
from optimizer.plan import IntArray, Plans

LAYERS = "layers"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Seconds per layer and micro-batch of one kind of layer by term, gathered to one entry per plan."""

    terms: dict[str, FloatArray]
    total: FloatArray
    hidden: FloatArray
    weight: FloatArray
    forward_compute: FloatArray
    backward_compute: FloatArray


def layer_times(job: Job, plans: Plans) -> tuple[dict[str, LayerTime], IntArray]:
    """Head, dense and, where the model has any, MoE layer for one micro-batch of each shape; the shape of each plan."""

    def price(few: Plans) -> dict[str, LayerTime]:
        shapes, model, stack = shapes_of(job, few), job.model, job.stack
        found = {
            "head": layer_time(job, head_operators(model, shapes, stack), shapes, False, communicates=False),
            "dense": layer_time(job, layer_operators(model, shapes, stack, False), shapes, False),
        }
        if model.experts:
            found["moe"] = layer_time(job, layer_operators(model, shapes, stack, True), shapes, True)
        return found

    return tabulated(plans, LAYERS, job, LAYER_KEYS, price)


def layer_kinds(job: Job, plans: Plans) -> tuple[Kind, Kind, Kind]:
    """Dense layer, MoE layer and head of every plan."""
    few, inverse = distinct(plans, SHAPE_KEYS)
    table, rows = layer_times(job, few)
    plans.tables[LAYERS] = few.tables[LAYERS].at(inverse)
    priced = {name: times.take(rows) for name, times in table.items()}

    def gathered(values: FloatArray) -> FloatArray:
        return np.asarray(values[inverse] if np.any(values) else zero)

    zero, zeros = np.zeros(len(plans)), np.zeros(len(few))

    def kind(times: LayerTime, recompute: NDArray[np.int64], by_term: bool = True, moe: bool = False) -> Kind:
        again = times.again(recompute)
        terms = {term: times.forward.terms[term] + times.backward.terms[term] + again.terms[term] for term in TERMS}
        if by_term and np.any(few.activation_offload):
            terms[HOST_TRANSFER] = sum(host_passes(job, times, recompute, host_bytes(job, few, moe, recompute)), zeros)
        hidden = times.forward.hidden + times.backward.hidden + again.hidden
        total = gathered(sum(terms.values(), np.zeros(len(few))))
        wait = pipelined_wait(job, plans, total, gathered(times.host), gathered(times.collectives))
        shown = {term: gathered(seconds) for term, seconds in terms.items() if by_term}
        return Kind(
            terms=shown | {"launch": shown["launch"] + wait} if by_term else shown,
            total=total + wait,
            hidden=gathered(hidden),
            weight=gathered(times.backward.terms["gemm"] / 2),
            forward_compute=gathered(times.forward.compute),
            backward_compute=gathered(times.backward.compute + again.compute),
        )

    dense = kind(priced["dense"], few.recompute)
    moe = kind(priced["moe"], few.recompute, moe=True) if "moe" in priced else dense
    return dense, moe, kind(priced["head"], few.recompute * 0, by_term=False)


def host_bytes(job: Job, plans: Plans, moe: bool, recompute: IntArray) -> FloatArray:
    """What one layer of each plan keeps on the host for one micro-batch under these modes of recomputation [B]."""
    if not job.stack.features.activation_offload or not np.any(plans.activation_offload):
        return np.zeros(len(plans))
    movable = movable_bytes(job.model, shapes_of(job, plans), moe, job.stack.imbalance)
    return moved_bytes(movable, recompute, plans.activation_offload / 100.0) * job.stack["activation_factor"]


def sharded_exposure(job: Job, plans: Plans, dense: Kind, moe: Kind) -> tuple[FloatArray, FloatArray]:
    """ZeRO-3 seconds per layer and micro-batch that neighbouring layers' compute does not hide [s]."""
    nothing = np.zeros(len(plans))
    selected = plans.zero_stage >= 3
    if not np.any(selected):
        return nothing, nothing
    overlap = job.stack["dp_overlap"]
    exposures = []
    for is_moe, kind in ((False, dense), (True, moe)):
        price = partial(data_parallel.sharded_layer, job, moe=is_moe)
        table, index = tabulated(plans, ("sharded", is_moe), job, REPLICA_KEYS, price)
        gather, scatter = (seconds[index] for seconds in table)
        forward = gather - overlap * np.minimum(gather, kind.forward_compute)
        backward = gather + scatter - overlap * np.minimum(gather + scatter, kind.backward_compute)
        exposures.append(np.where(selected, forward + backward, 0.0))
        if not job.model.experts:
            return exposures[0], nothing
    return exposures[0], exposures[1]


def sharded_exposures(job: Job, plans: Plans, kinds: Sequence[Kind]) -> tuple[FloatArray, ...]:
    """ZeRO-3's exposed seconds of dense and MoE layers, and of those that are spared [s]."""
    pairs = [sharded_exposure(job, plans, *kinds[start : start + 2]) for start in range(0, len(kinds), 2)]
    return tuple(seconds for pair in pairs for seconds in pair)


def spared(plans: Plans, kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    """Dense and MoE layer of each plan, as if spared where the plan says which layers are rebuilt."""
    partly = np.array([bool(placed.rebuilt) for placed in plans.placements or ()])
    return tuple(
        replace(
            kind,
            forward_compute=np.where(partly, plain.forward_compute, kind.forward_compute),
            backward_compute=np.where(partly, plain.backward_compute, kind.backward_compute),
        )
        for kind, plain in zip(kinds[:2], kinds[2:], strict=True)
    )
