"""What every stage reserves at least, and so the memory that no layout of a plan's layers can do without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from optimizer.job.job import Job
from optimizer.job.model import Model
from optimizer.job.plan import IntArray, Plans, virtual_stages
from optimizer.objectives.arrays import ROUNDING, FloatArray, lowered
from optimizer.objectives.pipeline.schedules import in_flight
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, HEAD, MOE, kinds_of, moe_pattern
from optimizer.objectives.step.linear_stage import LinearStage
from optimizer.search.layouts.problem import FEW
from optimizer.search.layouts.solve.shapes import shapes_of_model

LEAST = 1e-3  # of a layer, all of which may lie on the host [B]


@dataclass(frozen=True, kw_only=True)
class Common:
    """The layers by which bounds count: those of one kind, or all of a model whose kinds alternate.

    `share` of them are MoE layers. Of n consecutive layers of such a model n times the share are MoE layers, up to
    `apart` more or fewer, so that they cost at least n times the mean less `apart` times the difference. Where every
    k-th layer is an MoE layer that is (k - 1) / k.
    """

    count: int
    share: float
    apart: float = 0.0

    def mean(self, dense: FloatArray, moe: FloatArray) -> FloatArray:
        """Cost of a layer in the mean."""
        return dense + self.share * (moe - dense) if self.share else dense

    def less(self, dense: FloatArray, moe: FloatArray, apart: FloatArray) -> FloatArray:
        """By how much layers may cost less than so many in the mean, `apart` MoE layers more or fewer than these."""
        return np.abs(moe - dense) * apart if self.apart else np.zeros_like(dense)


@cache
def common(model: Model) -> Common:
    """All layers where there are more than FEW runs of layers of one kind, else those of the more frequent kind.

    >>> from optimizer.catalog import load_model
    >>> common(load_model("deepseek-v3")), common(load_model("llama4-maverick"))
    (Common(count=58, share=1.0, apart=0.0), Common(count=48, share=0.5, apart=0.5))
    """
    pattern = moe_pattern(model)
    if 1 + np.count_nonzero(np.diff(pattern)) > FEW:
        share = float(pattern.mean())
        beyond = np.cumsum([0.0, *(pattern - share)])
        return Common(count=model.layers, share=share, apart=float(np.ptp(beyond)))
    return Common(count=max(model.moe_layers, model.dense_layers), share=float(model.moe_layers >= model.dense_layers))


def apart(job: Job, plans: Plans) -> FloatArray:
    """How many MoE layers more or fewer than the share of its common layers a stage may hold, in any layout of each
    plan [layers].
    """
    if not common(job.model).apart:
        return np.zeros(len(plans))
    most, even = int(plans.vpp.max(initial=0)) + 1, not job.stack.features.uneven_stages
    pairs, row = np.unique(plans.pp * most + plans.vpp, return_inverse=True)
    beyond = [_apart(job.model, *divmod(pair, most), even=even) for pair in pairs.tolist()]
    return np.asarray(np.array(beyond, dtype=np.float64)[row])


@lru_cache(maxsize=1024)
def _apart(model: Model, pp: int, vpp: int, *, even: bool) -> float:
    """The same of one number of stages and virtual stages: interleaved, of the layouts that are compared.

    >>> from optimizer.catalog import load_model
    >>> hybrid = load_model("nemotron-3-super-120b-a12b")
    >>> [round(_apart(hybrid, 2, vpp, even=False), 2) for vpp in (1, 2, 11)]
    [1.18, 1.09, 3.09]
    """
    usual, unlike = common(model), (pp * vpp > model.layers + 2) or bool(even and model.layers % (pp * vpp))
    if not usual.apart or vpp == 1 or unlike:
        return vpp * usual.apart
    evenly = np.array([virtual_stages((), model.layers, pp, vpp)])
    counts = np.concatenate([evenly, shapes_of_model(model, pp, vpp, even=even).counts])
    before, end = np.cumsum([0, *moe_pattern(model)]), np.cumsum(counts, axis=1)
    beyond = before[end] - before[end - counts] - usual.share * counts
    return float(np.abs(beyond.reshape(len(counts), vpp, pp).sum(axis=1)).max())


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
        return lowered(np.maximum(shared, np.maximum.reduceat(self.bare, self.first)))

    def have_capacity(self, usable: float) -> NDArray[np.bool_]:
        """Whether the stages of each plan have room for all layers, all of a stage recomputed, or none."""
        memory = usable - self.bare + self.spare
        layers = np.maximum(
            (memory - self.obliged_recompute) / self.layer, np.where(self.chosen, memory / self.whole, 0.0)
        )
        fits = np.add.reduceat(np.floor(np.maximum(layers, 0.0) + ROUNDING), self.first) >= self.count
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
        layer=np.maximum(usual.mean(*least), LEAST),
        whole=np.maximum(usual.mean(*whole), LEAST),
        obliged_recompute=np.where(freed > 0, 0.0, np.minimum.reduce(once)),
        spare=np.maximum(*(usual.less(kinds[0], kinds[1], apart(job, plans)[plan]) for kinds in (least, whole))),
        chosen=memory.layers[DENSE].chosen > 0,
        count=usual.count,
    )


def mean_need(job: Job, plans: Plans, memory: LinearStage[FloatArray]) -> FloatArray:
    """What stages reserve at least in the mean, each with one micro-batch in flight: a looser bound, soon known [B]."""
    counts = kinds_of(job.model)
    layers = sum(counts[kind] * memory.of(kind, 1.0, recomputed=True) for kind in set(both_kinds(memory)))
    ends = memory.layers[HEAD].static + memory.layers[EMBEDDING].static
    return lowered(memory.fixed + (layers + ends) / plans.pp)


def each(kinds: Sequence[str], of: Callable[[str], FloatArray]) -> list[FloatArray]:
    """What kinds of layers have, found once where both are the same."""
    known = {kind: of(kind) for kind in dict.fromkeys(kinds)}
    return [known[kind] for kind in kinds]


def both_kinds(memory: LinearStage[FloatArray]) -> tuple[str, str]:
    """Dense and MoE layers, or dense ones twice where a model has no others."""
    return DENSE, MOE if MOE in memory.layers else DENSE
