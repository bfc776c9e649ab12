"""What layouts are made of: the bill of many plans as columns of plain numbers, and of one plan as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optimizer.job.plan import IntArray, KnobColumns, Knobs
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.bill import Bill
from optimizer.objectives.layer.sharded import overlap_of
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.pipeline.simulator import PassTimes
from optimizer.objectives.pipeline.stages import FULL, LAYERS, MTP, Runs
from optimizer.objectives.step.buckets import rates_of
from optimizer.objectives.step.memory import gathered_bytes, state_bytes, unsharded_bytes
from optimizer.objectives.step.price import with_stragglers
from optimizer.objectives.step.time_terms import optimizer


@dataclass(frozen=True, kw_only=True)
class LayerCosts:
    """One layer for one micro-batch on one GPU.

    forward, backward, recompute: seconds; the last is what recomputing its activations adds [s]. weight: the part of
    `backward` that computes the weights' gradients [s]. once: what it adds to a step once, nothing hidden: gradients,
    weights and optimizer; spared: by how much less with the least optimizer state on the host; reduced, gathered: the
    parts of `once` that can hide, under the computation of cover_backward and cover_forward [s]. static: weights,
    gradients, optimizer state and logits [B]. kept: activations per micro-batch in flight, kept_recomputed: the same
    when they are recomputed, held_once: what a stage holds while it recomputes a layer [B]. states_there: optimizer
    state of it on the host [B], kept_there: activations there per micro-batch in flight [B]. recomputes: 1 where it may
    be recomputed or spared; else what is recomputed always is. recompute_price: what recomputing it adds to the
    objective beside its time, as seconds of a step without stragglers [s].
    """

    forward: float = 0.0
    backward: float = 0.0
    recompute: float = 0.0
    weight: float = 0.0
    once: float = 0.0
    spared: float = 0.0
    reduced: float = 0.0
    gathered: float = 0.0
    cover_backward: float = 0.0
    cover_forward: float = 0.0
    static: float = 0.0
    kept: float = 0.0
    kept_recomputed: float = 0.0
    held_once: float = 0.0
    states_there: float = 0.0
    kept_there: float = 0.0
    recomputes: float = 0.0
    recompute_price: float = 0.0

    @property
    def seconds(self) -> float:
        """Forward and backward pass without recomputation [s]."""
        return self.forward + self.backward


@dataclass(frozen=True, kw_only=True)
class StageCosts:
    """What stages are made of: layers by kind, and what each stage spends [s] and holds [B] whatever its layers.

    hides: share of what can hide once per step that does, less what computation loses to it [1].
    """

    kinds: Mapping[str, LayerCosts]
    seconds: float = 0.0
    fixed: float = 0.0
    hides: float = 0.0


@dataclass(frozen=True, kw_only=True)
class LayerTable:
    """StageCosts of many plans: the fields of LayerCosts by kind as arrays with one entry per plan."""

    kinds: Mapping[str, Mapping[str, FloatArray]]
    seconds: FloatArray
    fixed: FloatArray
    hides: FloatArray

    def take(self, index: IntArray) -> LayerTable:
        """Some of the plans."""
        return LayerTable(
            kinds={kind: {name: column[index] for name, column in c.items()} for kind, c in self.kinds.items()},
            seconds=self.seconds[index],
            fixed=self.fixed[index],
            hides=self.hides[index],
        )

    def holding(self, other: LayerTable) -> LayerTable:
        """The same costs with the weights, gradients and optimizer state on the device of another table."""
        kinds = {kind: {**columns, "static": other.kinds[kind]["static"]} for kind, columns in self.kinds.items()}
        return replace(self, kinds=kinds)

    def row(self, index: int) -> StageCosts:
        """One plan's."""
        return StageCosts(
            kinds={
                kind: LayerCosts(**{name: float(column[index]) for name, column in columns.items()})
                for kind, columns in self.kinds.items()
            },
            seconds=float(self.seconds[index]),
            fixed=float(self.fixed[index]),
            hides=float(self.hides[index]),
        )


def layer_table(bill: Bill, knobs: Knobs | KnobColumns = Knobs(), least: FloatArray | float = 0.0) -> LayerTable:
    """The costs from which a step adds up, layer by layer; knobs are the same for all plans or one per plan. least: the
    share of the optimizer state that every layout has on the host [1].

    Under full recomputation each layer may or may not be recomputed, unless the job pins it; else the mode's cost is in
    `backward` and `kept`. Prediction layers are always recomputed under full recomputation, but where the software
    recomputes equally many layers on every virtual stage: there they are if all layers are.
    """
    job, plans, rates = bill.job, bill.plans, rates_of(bill, knobs)
    held = byte_table(bill, knobs)
    offload, host = np.asarray(knobs.offload), np.asarray(job.cluster.host_bandwidth)
    rate = np.asarray(job.stack["optimizer_passes"]), np.asarray(job.cluster.device.memory_bandwidth)
    update = optimizer(np.ones(1), *rate, offload, host)
    slower = np.maximum(update - optimizer(np.ones(1), *rate, np.minimum(least, offload), host), 0.0)
    objective = objective_of(job)
    surplus, second = objective.surplus(bill), objective.rate(job) * with_stragglers(bill, np.ones(len(bill)))
    kinds: dict[str, dict[str, FloatArray]] = {}
    for kind, entry in bill.entries.items():
        reduce = entry.shared * rates.reduce_shared, entry.experts * rates.reduce_experts
        gather = entry.shared * rates.gather_shared + entry.experts * rates.gather_experts
        updated = entry.shared * rates.updated_shared + entry.experts * rates.updated_experts
        always, chosen = recomputing(bill, kind)
        kinds[kind] = {
            **held.kinds[kind],
            "forward": entry.forward,
            "backward": entry.backward + always * entry.again,
            "recompute": chosen * entry.again,
            "recompute_price": chosen * surplus.again(kind) / second,
            "weight": entry.gathered(entry.cost.weight),
            "once": reduce[0] + reduce[1] + gather + updated * update,
            "spared": updated * slower,
            "reduced": reduce[0] * rates.hideable_shared + reduce[1] * rates.hideable_experts,
            "gathered": gather,
            "cover_backward": entry.cover_backward / plans.vpp,
            "cover_forward": entry.cover_forward / plans.vpp,
        }
    hides = overlap_of(job, plans) * (1.0 - np.asarray(knobs.comm_sm_share))
    return LayerTable(kinds=kinds, seconds=bill.aside, fixed=held.fixed, hides=hides)


def byte_table(bill: Bill, knobs: Knobs | KnobColumns = Knobs()) -> LayerTable:
    """`layer_table` without the seconds."""
    job = bill.job
    left = {"optimizer": 1.0 - np.asarray(knobs.offload)}
    shared, experts = (
        sum((parts[i] * left.get(state, 1.0) for state, parts in state_bytes(job, bill.plans).items()), np.zeros(1))
        for i in (0, 1)
    )
    there = [parts * np.asarray(knobs.offload) for parts in state_bytes(job, bill.plans)["optimizer"]]
    reserved = 1.0 + job.stack["fragmentation"]
    kinds = {}
    for kind, entry in bill.entries.items():
        cost, (always, chosen) = entry.cost, recomputing(bill, kind)
        kept, kept_recomputed, once, once_whole = (
            entry.gathered(values) * reserved
            for values in (cost.kept, cost.kept_recomputed, cost.once, cost.once_whole)
        )
        kinds[kind] = {
            "static": entry.shared * shared + entry.experts * experts + entry.gathered(cost.static) * reserved,
            "kept": np.where(always > 0, kept_recomputed, kept),
            "kept_recomputed": kept_recomputed if kind in LAYERS else kept,
            "held_once": np.maximum(once, once_whole),
            "states_there": entry.shared * there[0] + entry.experts * there[1],
            "kept_there": entry.gathered(cost.hosted),
            "recomputes": chosen,
        }
    fixed = (job.stack["workspace"] + unsharded_bytes(bill) + gathered_bytes(bill)) * reserved
    nothing = np.zeros(len(bill))
    return LayerTable(kinds=kinds, seconds=nothing, fixed=fixed, hides=nothing)


def recomputing(bill: Bill, kind: str) -> tuple[FloatArray, FloatArray]:
    """Where layers of a kind are always recomputed, and where it may be chosen [1 or 0]."""
    whole = (bill.plans.recompute == FULL) * float(kind in LAYERS)
    always = whole * float(bill.job.recomputes_all or (kind == MTP and not bill.job.recomputes_alike))
    return always, whole - always


def pass_times(
    costs: StageCosts, runs: Sequence[Runs], recomputed: Sequence[Runs], *, pp: int, split: bool = False
) -> PassTimes:
    """Times for the simulator: `runs` of layers on each virtual stage, layers `recomputed` on each stage.

    What a stage spends beside its layers is spread evenly over its passes, recomputing over its backward passes.
    `split`: the weights' gradients are passes of their own.
    """
    vpp = len(runs) // pp
    aside = costs.seconds / (2 * vpp)

    def table(name: str, extra: float) -> list[list[float]]:
        return [
            [extra + sum(n * getattr(costs.kinds[kind], name) for kind, n in virtual) for virtual in runs[stage::pp]]
            for stage in range(pp)
        ]

    backward, weight = np.array(table("backward", aside)), np.array(table("weight", 0.0))
    again = [sum(n * costs.kinds[kind].recompute for kind, n in stage) / vpp for stage in recomputed]
    return PassTimes(
        forward=table("forward", aside),
        backward=(backward - weight if split else backward).tolist(),
        weight=weight.tolist(),
        recompute=[[seconds] * vpp for seconds in again],
    )
