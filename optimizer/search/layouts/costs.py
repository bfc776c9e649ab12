"""What layouts are made of: seconds and bytes of one layer of every kind, of many plans or of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Generic

import numpy as np

from optimizer.job.plan import KnobColumns, Knobs
from optimizer.job.rows import Rows
from optimizer.objectives.arrays import FloatArray, mapped
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.layer.sharded import overlap_of
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.pipeline.simulator import PassTimes
from optimizer.objectives.pipeline.stages import Runs
from optimizer.objectives.step.linear_stage import LinearStage, N, linear_stage, recomputing
from optimizer.objectives.step.per_step import rates_of, update_time
from optimizer.objectives.step.price import with_stragglers


@dataclass(frozen=True, kw_only=True)
class LayerSeconds(Rows, Generic[N]):
    """One layer of a kind for one micro-batch on one GPU."""

    forward: N  # forward pass [s]
    backward: N  # backward pass, nothing recomputed [s]
    always: N  # what recomputing its activations adds where it has no choice [s]
    recompute: N  # what that adds by choice [s]
    recompute_price: N  # what that adds to the objective beside its time, as seconds of a step without stragglers [s]
    weight: N  # the part of `backward` that computes the gradients of weights [s]
    per_step: N  # what it adds to a step once, nothing overlapped: gradients, weights and optimizer [s]
    hosted: N  # what that grows by with all of its optimizer state on the host [s]
    reduced: N  # the part of `per_step` that can overlap with the computation of cover_backward [s]
    gathered: N  # the part of `per_step` that can overlap with the computation of cover_forward [s]
    cover_backward: N  # computation of a backward pass [s]
    cover_forward: N  # computation of a forward pass [s]

    @property
    def seconds(self) -> N:
        """Forward and backward pass, recomputed only where it always is [s]."""
        return self.forward + self.backward + self.always


FREE: LayerSeconds[float] = LayerSeconds(**{field.name: 0.0 for field in fields(LayerSeconds)})  # takes no time


@dataclass(frozen=True, kw_only=True)
class StageCosts(Rows, Generic[N]):
    """Seconds and bytes from which stages add up, of one plan or with an entry for each of many."""

    kinds: Mapping[str, LayerSeconds[N]]  # seconds of a layer, the embedding and the head, by kind
    memory: LinearStage[N]  # bytes of stages, with as much of the optimizer state on the host as `kinds` have
    seconds: N  # what each stage spends beside its layers for one micro-batch [s]
    hides: N  # share of what can overlap once per step that does, less what computation loses to it [1]
    # what all of the optimizer state on the host adds to the objective beside its time, as seconds of a step without
    # stragglers [s]
    hosted_price: N

    def row(self: StageCosts[FloatArray], index: int) -> StageCosts[float]:
        """Those of one plan."""
        row: StageCosts[float] = mapped(self, lambda column: float(column[index]))
        return row

    def offloaded(self, share: N) -> StageCosts[N]:
        """The same with so much more of the optimizer state on the host [1]."""
        kinds = {
            kind: layer.changed(per_step=layer.per_step + share * layer.hosted) for kind, layer in self.kinds.items()
        }
        return self.changed(kinds=kinds, memory=self.memory.offloaded(share))


def stage_costs(layer_costs: LayerCosts, knobs: Knobs | KnobColumns = Knobs()) -> StageCosts[FloatArray]:
    """The costs from which a step adds up, layer by layer.

    Args:
        layer_costs: of the plans.
        knobs: the same for all plans, or one of each per plan.

    Returns:
        An entry per plan; the bytes in flight are of recomputed layers where they always are.
    """
    job, plans, rates = layer_costs.job, layer_costs.plans, rates_of(layer_costs, knobs)
    offload = np.asarray(knobs.offload)
    none, every = (update_time(layer_costs, np.asarray(share)) for share in (0.0, 1.0))
    update = update_time(layer_costs, offload)
    objective = objective_of(job)
    surplus, second = (
        objective.surplus(layer_costs),
        objective.rates(job, plans) * with_stragglers(layer_costs, np.ones(len(layer_costs))),
    )
    kinds = {}
    for kind, kind_costs in layer_costs.by_kind.items():
        shared, experts = kind_costs.trained_shared, kind_costs.trained_experts
        reduce = shared * rates.reduce_shared, experts * rates.reduce_experts
        gather = shared * rates.gather_shared + experts * rates.gather_experts
        updated = shared * rates.updated_shared + experts * rates.updated_experts
        always, chosen = recomputing(layer_costs, kind)
        kinds[kind] = LayerSeconds(
            forward=kind_costs.forward,
            backward=kind_costs.backward,
            always=always * kind_costs.recompute,
            recompute=chosen * kind_costs.recompute,
            recompute_price=chosen * surplus.recompute(kind) / second,
            weight=kind_costs.gathered(kind_costs.cost.weight),
            per_step=reduce[0] + reduce[1] + gather + updated * update,
            hosted=updated * (every - none),
            reduced=reduce[0] * rates.hideable_shared + reduce[1] * rates.hideable_experts,
            gathered=gather,
            cover_backward=kind_costs.cover_backward / plans.vpp,
            cover_forward=kind_costs.cover_forward / plans.vpp,
        )
    hides = overlap_of(job, plans) * (1.0 - np.asarray(knobs.comm_sm_share))
    return StageCosts(
        kinds=kinds,
        memory=linear_stage(layer_costs, offload),
        seconds=layer_costs.stage_seconds,
        hides=hides,
        hosted_price=(surplus.spared(1.0) - surplus.spared(0.0)) / second,
    )


def pass_times(
    costs: StageCosts[float], runs: Sequence[Runs], recomputed: Sequence[Runs], *, pp: int, split: bool = False
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
    recompute_seconds = [
        (
            sum(n * costs.kinds[kind].recompute for kind, n in chosen)
            + sum(n * costs.kinds[kind].always for virtual in runs[stage::pp] for kind, n in virtual)
        )
        / vpp
        for stage, chosen in enumerate(recomputed)
    ]
    return PassTimes(
        forward=table("forward", aside),
        backward=(backward - weight if split else backward).tolist(),
        weight=weight.tolist(),
        recompute=[[seconds] * vpp for seconds in recompute_seconds],
    )
