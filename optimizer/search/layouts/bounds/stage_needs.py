"""What every stage reserves at least, and so the memory that no layout of a plan's layers can do without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from optimizer.job.job import Job
from optimizer.job.model import Model
from optimizer.job.plan import IntArray, Plans
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.pipeline.schedules import in_flight
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE
from optimizer.objectives.step.linear_stage import LinearStage

SLACK = 1e-9  # share by which a bound gives way, so that rounding cannot make it exceed what it bounds


@dataclass(frozen=True, kw_only=True)
class Common:
    """The layers by which bounds count: those of one kind, or all of a model in which every k-th layer is an MoE layer.

    `share` of them are MoE layers. Of n consecutive layers of such a model n / k are MoE layers, (k - 1) / k more or
    fewer, so that they cost at least n times the mean less (k - 1) / k of the difference.
    """

    count: int
    share: float

    def mean(self, dense: FloatArray, moe: FloatArray) -> FloatArray:
        """Cost of a layer in the mean."""
        return dense + self.share * (moe - dense) if self.share else dense

    def less(self, dense: FloatArray, moe: FloatArray) -> FloatArray:
        """By how much consecutive layers may cost less than so many in the mean."""
        return np.abs(moe - dense) * (1 - self.share) if self.share else np.zeros_like(dense)


def common(model: Model) -> Common:
    """All layers where kinds alternate from the first one on, else those of the more frequent kind."""
    experts = model.experts
    if experts and experts.every > 1 and not experts.first_dense_layers and model.layers % experts.every == 0:
        return Common(count=model.layers, share=1 / experts.every)
    mostly_moe = model.moe_layers >= model.dense_layers
    return Common(count=max(model.moe_layers, model.dense_layers), share=float(mostly_moe))


def entries(depth: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Of stages listed plan by plan: where each plan's begin, and for each the plan and the number of the stage.

    >>> [found.tolist() for found in entries(np.array([2, 1]))]
    [[0, 2], [0, 0, 1], [0, 1, 0]]
    """
    first = np.cumsum(depth) - depth
    plan = np.repeat(np.arange(len(depth)), depth)
    return first, plan, np.arange(len(plan)) - first[plan]


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What each stage of each plan reserves at least; entries as in Room.

    memory, passes: of its plan and its micro-batches in flight. bare: without layers, layer: a common layer, recomputed
    if it may be, whole: one that is not, again: held where any is recomputed, spare: by how much consecutive layers may
    reserve less than so many common ones [B]. chosen: layers need not be recomputed. count: common layers of the model.
    """

    first: IntArray
    plan: IntArray
    memory: LinearStage[FloatArray]
    passes: FloatArray
    bare: FloatArray
    layer: FloatArray
    whole: FloatArray
    obliged_recompute: FloatArray
    spare: FloatArray
    chosen: NDArray[np.bool_]
    count: int

    def bound(self) -> FloatArray:
        """Memory that the fullest stage of each plan reserves under every layout [B].

        Stages of M bytes hold n_s <= (M - bare_s + spare_s) / layer_s layers, count in all, so that M is at least
        (count + sum of (bare_s - spare_s) / layer_s) / sum of 1 / layer_s, and what the fullest reserves without any.
        """
        taken = np.add.reduceat((self.bare - self.spare) / self.layer, self.first)
        shared = (self.count + taken) / np.add.reduceat(1 / self.layer, self.first)
        return np.maximum(shared, np.maximum.reduceat(self.bare, self.first)) * (1 - SLACK)

    def have_capacity(self, usable: float) -> NDArray[np.bool_]:
        """Whether the stages of each plan have room for all layers, all of a stage recomputed, or none."""
        memory = usable - self.bare + self.spare
        layers = np.maximum(
            (memory - self.obliged_recompute) / self.layer, np.where(self.chosen, memory / self.whole, 0.0)
        )
        fits = np.add.reduceat(np.floor(np.maximum(layers, 0.0) + SLACK), self.first) >= self.count
        return np.asarray(fits & ~np.logical_or.reduceat(self.bare > usable, self.first))


def needs_of(job: Job, plans: Plans, memory: LinearStage[FloatArray]) -> Needs:
    """What the stages of these plans need."""
    usual = common(job.model)
    first, plan, stage = entries(plans.pp)
    memory, passes = memory.take(plan), in_flight(plans.take(plan), stage.astype(np.float64))
    kinds = both_kinds(memory)
    least, whole = (
        each(kinds, partial(memory.of, in_flight=passes, recomputed=recomputed)) for recomputed in (True, False)
    )
    once = [
        memory.layers[kind].recomputing
        for kind, share in zip(kinds, (1 - usual.share, usual.share), strict=True)
        if share
    ]
    ends = (stage == 0) * memory.of(EMBEDDING, passes) + (plans.pp[plan] == stage + 1) * memory.of(HEAD, passes)
    freed = sum(layer.freed for layer in memory.layers.values())
    return Needs(
        first=first,
        plan=plan,
        memory=memory,
        passes=passes,
        bare=memory.fixed + ends,
        layer=usual.mean(*least),
        whole=usual.mean(*whole),
        obliged_recompute=np.where(freed > 0, 0.0, np.minimum.reduce(once)),
        spare=plans.vpp[plan].astype(np.float64) * np.maximum(usual.less(*least), usual.less(*whole)),
        chosen=memory.layers[DENSE].chosen > 0,
        count=usual.count,
    )


def mean_need(job: Job, plans: Plans, memory: LinearStage[FloatArray]) -> FloatArray:
    """What stages reserve at least in the mean, each with one micro-batch in flight: a looser bound, soon known [B]."""
    usual = common(job.model)
    least = [memory.of(kind, 1.0, recomputed=True) for kind in both_kinds(memory)]
    layers = usual.count * usual.mean(*least) - plans.pp * plans.vpp * usual.less(*least)
    ends = memory.layers[HEAD].static + memory.layers[EMBEDDING].static
    return np.asarray((memory.fixed + (layers + ends) / plans.pp) * (1 - SLACK))


def each(kinds: Sequence[str], of: Callable[[str], FloatArray]) -> list[FloatArray]:
    """What kinds of layers have, found once where both are the same."""
    known = {kind: of(kind) for kind in dict.fromkeys(kinds)}
    return [known[kind] for kind in kinds]


def both_kinds(memory: LinearStage[FloatArray]) -> tuple[str, str]:
    """Dense and MoE layers, or dense ones twice where a model has no others."""
    return DENSE, MOE if MOE in memory.layers else DENSE
