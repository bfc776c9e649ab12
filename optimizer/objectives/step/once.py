"""What a rank does once per step: gradients and weights in buckets, and the optimizer, stage by stage.

Every time is linear in the elements that a stage holds, so that a stage costs counts x bill here too; what hides is the
lesser of two such sums, which makes the whole convex in the layers of a stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import KnobColumns, Knobs
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.bill import Bill
from optimizer.objectives.layer.sharded import overlap_of
from optimizer.objectives.pipeline.schedules import both_ways, copies
from optimizer.objectives.pipeline.stages import Stages
from optimizer.objectives.step.buckets import rates_of
from optimizer.objectives.step.time_terms import contention, data_parallel, hidden, optimizer, update_bytes

FASTEST = Knobs(bucket=1e9, comm_sm_share=0.30)  # the corner of BOX where collectives take least
COVERED = ("backward", "gather", "forward", "overlap", "vpp", "pp")


@dataclass(frozen=True, kw_only=True)
class Work:
    """What every stage (rows) has to do once per step, whatever the knobs, and the stages that exist.

    shared, experts: elements that a rank holds [elements]; forward, backward: computation of a micro-batch on a virtual
    stage that is not recomputed, under which its messages can hide [s].
    """

    bill: Bill
    exists: FloatArray
    shared: FloatArray
    experts: FloatArray
    forward: FloatArray
    backward: FloatArray


@dataclass(frozen=True, kw_only=True)
class Once:
    """Seconds of what each stage (rows) does once per step, nothing for stages that a plan does not have.

    shown: data parallelism that shows, slowed: contention with what hides, updating: the optimizer, hides: what of the
    collectives hides [s]; inputs: of the formulas. exists: 0 where a plan has no such stage.
    """

    exists: FloatArray
    shown: FloatArray
    slowed: FloatArray
    updating: FloatArray
    hides: FloatArray
    inputs: Mapping[str, FloatArray]

    @cached_property
    def total(self) -> FloatArray:
        """All of it [s]."""
        return self.exists * (self.shown + self.slowed + self.updating)


def work_of(bill: Bill, stages: Stages) -> Work:
    """The counts of a stage x the bill, added up."""
    forward, backward = (
        counted(stages, {kind: getattr(entry, name) for kind, entry in bill.entries.items()}) / bill.plans.vpp
        for name in ("cover_forward", "cover_backward")
    )
    return Work(
        bill=bill,
        exists=stages.exists,
        shared=elements_on(bill, stages, "shared"),
        experts=elements_on(bill, stages, "experts"),
        forward=forward,
        backward=backward,
    )


def once_per_step(work: Work, knobs: Knobs | KnobColumns = Knobs()) -> Once:
    """What each stage does once per step, by the formulas of time_terms."""
    inputs = once_inputs(work, knobs)
    hides = hidden(*(inputs[name] for name in ("hideable", *COVERED)))
    exists = by_stage(work.exists, knobs)
    return Once(
        exists=exists,
        shown=data_parallel(np.zeros(1), inputs["reduce"], inputs["gather"], hides),
        slowed=contention(hides, inputs["comm_sm_share"]),
        updating=inputs["updated"] * update_time(work.bill.job, inputs["offload"]),
        hides=exists * hides,
        inputs=inputs,
    )


def least_once(work: Work, offload: FloatArray) -> FloatArray:
    """What no setting of the knobs beats for what happens once per step on the first stage of each plan [s].

    offload: share of the optimizer state that must be on the host for a plan to fit, or less [1].
    R + G - overlap (min(R, computation) + min(G, computation)) at the largest bucket and the largest share of SMs, all
    but the last bucket hideable and nobody slowed down, grows with the collectives' times R and G, which no other
    setting makes shorter; the optimizer is linear in what is offloaded.
    """
    inputs = once_inputs(work, FASTEST)
    hides = hidden(*(inputs[name] for name in ("reduce", *COVERED)))
    updating = inputs["updated"] * np.minimum(*(update_time(work.bill.job, share) for share in (offload, np.ones(1))))
    return np.asarray((inputs["reduce"] + inputs["gather"] - hides + updating)[0])


def once_inputs(work: Work, knobs: Knobs | KnobColumns) -> dict[str, FloatArray]:
    """Inputs of the formulas for each stage; layers hide under what is not recomputed."""
    job, rates = work.bill.job, rates_of(work.bill, knobs)
    reduce = _by_part(work, knobs, rates.reduce_shared, rates.reduce_experts)
    gather = _by_part(work, knobs, rates.gather_shared, rates.gather_experts)
    updated = _by_part(work, knobs, rates.updated_shared, rates.updated_experts)
    hideable = rates.hideable_shared, rates.hideable_experts
    return {
        "reduce": _sum(reduce),
        "hideable": _sum([part * share for part, share in zip(reduce, hideable, strict=False)]),
        "gather": _sum(gather),
        # Whoever shards the optimizer's state shards it over the copies too.
        "updated": _sum(updated) / np.where(work.bill.plans.zero_stage >= 1, copies(work.bill.plans), 1.0),
        "forward": by_stage(work.forward, knobs),
        "backward": by_stage(work.backward, knobs),
        "overlap": overlap_of(job, work.bill.plans),
        "vpp": work.bill.plans.vpp,
        "pp": work.bill.plans.pp,
        "comm_sm_share": np.asarray(knobs.comm_sm_share),
        **_update_inputs(job, np.asarray(knobs.offload)),
    }


def update_time(job: Job, offload: FloatArray) -> FloatArray:
    """What the optimizer takes for one element, with this share of its state on the host [s]."""
    return optimizer(np.ones(1), **_update_inputs(job, offload))


def _update_inputs(job: Job, offload: FloatArray) -> dict[str, FloatArray]:
    features = job.stack.features
    traffic = update_bytes(features.optimizer_bytes, features.grad_bytes, features.param_bytes)
    return {
        "traffic": np.asarray(float(traffic)),
        "passes": np.asarray(job.stack["optimizer_passes"]),
        "bandwidth": np.asarray(job.cluster.device.memory_bandwidth),
        "offload": offload,
        "host_traffic": np.asarray(float(traffic + features.grad_bytes)),
        "host_bandwidth": np.asarray(job.cluster.host_bandwidth),
    }


def _by_part(work: Work, knobs: Knobs | KnobColumns, *rates: FloatArray) -> list[FloatArray]:
    """Elements of each stage x what each of them takes: shared parameters, and the experts of a model that has any."""
    held = [work.shared, work.experts] if work.bill.job.model.experts else [work.shared]
    return [by_stage(elements, knobs) * rate for elements, rate in zip(held, rates, strict=False)]


def _sum(parts: list[FloatArray]) -> FloatArray:
    return parts[0] + parts[1] if len(parts) > 1 else parts[0]


def counted(stages: Stages, each: Mapping[str, FloatArray]) -> FloatArray:
    """Sum over the kinds of layers on each stage x what one of the kind has."""
    parts = (stages.counts[kind] * values for kind, values in each.items() if np.any(values))
    return sum(parts, np.zeros(stages.exists.shape))


def elements_on(bill: Bill, stages: Stages, part: str) -> FloatArray:
    """Elements of the shared parameters or the experts on each stage, of every copy there [elements]."""
    held = counted(stages, {kind: getattr(entry, part) for kind, entry in bill.entries.items()})
    return held * copies(bill.plans) if np.any(both_ways(bill.plans)) else held


def by_stage(values: FloatArray, knobs: Knobs | KnobColumns) -> FloatArray:
    """Values with a row per stage, with an axis between for settings of the knobs that have a row each."""
    rows = isinstance(knobs, KnobColumns) and knobs.bucket.ndim > 1
    return values[:, None] if rows else values
