"""How many layers the stages of a plan have room for: in their memory, and in the time of the slowest of them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Plans
from optimizer.objectives.arrays import ROUNDING, FloatArray, raised
from optimizer.objectives.pipeline.stages import DENSE, FULL, HEAD, MTP
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.layouts.bounds.stage_needs import apart, both_kinds, common, each, entries, needs_of
from optimizer.search.layouts.costs import StageCosts

FEW = 4  # layers of the rarer kind, up to which they are told from the common ones


@dataclass(frozen=True, kw_only=True)
class StageCapacity:
    """How many layers of the common kind each stage of each plan has room for, as far as time is open.

    Every array has one entry per stage, those of a plan one after the other from `first` of it on; `plan` is the one
    that an entry belongs to. lost: the stage is too full without layers. outside_layers, less: what it spends beside
    its layers, by how much consecutive layers may take less, layer: a layer, obliged_recompute: what the layers that it
    recomputes at least add, if it does not recompute all, recompute_each: what recomputing a layer adds at least [s].
    memory: left for layers, fewer, spare: what consecutive ones may hold less, spared and recomputed, whole, least:
    what a layer holds, spared and recomputed [B]. per_byte: what a byte costs that recomputing saves [s/B]. recomputes:
    that saves memory. other, other_bytes: what a layer of the rarer kind takes at least [s], [B], of which there are
    `others`; predicted, predicted_bytes: what the MTP layers do, which lie together, if there are any [s], [B].
    """

    others: int
    predicts: bool
    first: IntArray
    plan: IntArray
    lost: NDArray[np.bool_]
    outside_layers: FloatArray
    less: FloatArray
    layer: FloatArray
    obliged_recompute: FloatArray
    recompute_each: FloatArray
    memory: FloatArray
    fewer: FloatArray
    spare: FloatArray
    whole: FloatArray
    least: FloatArray
    per_byte: FloatArray
    recomputes: NDArray[np.bool_]
    other: FloatArray
    other_bytes: FloatArray
    predicted: FloatArray
    predicted_bytes: FloatArray

    def take(self, index: NDArray[np.int64]) -> StageCapacity:
        """Some of the plans."""
        depth = np.diff(self.first, append=len(self.plan))[index]
        first, plan, stage = entries(depth)
        here = self.first[index][plan] + stage
        same: dict[str, Any] = {"others": self.others, "predicts": self.predicts, "first": first, "plan": plan}
        columns = {f.name: getattr(self, f.name)[here] for f in fields(self) if f.name not in same}
        return StageCapacity(**same, **columns)

    def layers(self, slowest: FloatArray) -> FloatArray:
        """Common layers that all stages together have room for if the slowest takes so long for one micro-batch, with
        the other layers wherever they take least of it [layers].

        However those are shared out, a stage with some of them, and perhaps the MTP layers, loses no less than the one
        that loses least by so many.
        """
        capacities = self._capacities(raised(slowest[self.plan]) - self.outside_layers + self.less)
        alone, lost = capacities[0], np.minimum.reduceat(capacities[0] - capacities[1:], self.first, axis=1)
        least: list[FloatArray | float] = [0.0]
        for number in range(1, self.others + 1):
            parts = [least[number - count] + lost[count - 1] for count in range(1, number + 1)]
            least.append(np.minimum.reduce(parts))
        taken = least[-1]
        if self.predicts:
            predicting = lost[self.others :]
            taken = np.minimum.reduce([predicting[count] + least[-1 - count] for count in range(self.others + 1)])
        return np.where(self._any_lost, -np.inf, np.add.reduceat(alone, self.first) - taken)

    @cached_property
    def _any_lost(self) -> NDArray[np.bool_]:
        return np.asarray(np.logical_or.reduceat(self.lost, self.first))

    def _capacities(self, seconds: FloatArray) -> FloatArray:
        """Common layers that each stage has room for, -inf where there is none for those beside them [layers].

        The first row is of none beside them, the next of one of the others, of two and so on, then of the MTP layers
        with none of the others, with one and so on.

        Where layers may be recomputed, a share of one may: n <= (T + M r / d) / (t + a r / d), with T the time and M
        the memory left for layers [s], [B], a the bytes of a layer that is spared and d what recomputing saves of them,
        t and r the seconds of a layer and of recomputing it. Where some have to be, all are or at least `again`.
        """
        timeless = self._timeless
        seconds = seconds - timeless.others - timeless.predicted
        time = np.maximum(0.0, seconds)
        fast = np.maximum((time - self.obliged_recompute) / self.layer, time / timeless.all_recomputed)
        mixed = (time + timeless.bought) / timeless.mixed
        full = np.where(self.recomputes, np.minimum(mixed, timeless.lean), timeless.small)
        chosen = np.where(fast <= timeless.small, fast, np.minimum(fast, full))
        capacities: FloatArray = np.floor(np.maximum(chosen, 0.0) + ROUNDING)
        capacities[1:][(seconds[1:] < 0) | timeless.none[1:]] = -np.inf
        return capacities

    @cached_property
    def _timeless(self) -> _Timeless:
        """What time does not move, found once for all times."""
        numbers = [(others, predicting) for predicting in range(self.predicts + 1) for others in range(self.others + 1)]
        others, predicting = np.array(numbers).T[:, :, None]
        memory = self.memory - others * self.other_bytes - predicting * self.predicted_bytes
        space = np.maximum(memory + self.fewer, 0.0)
        return _Timeless(
            others=others * self.other,
            predicted=predicting * self.predicted,
            all_recomputed=self.layer + self.recompute_each,
            bought=space * self.per_byte,
            mixed=self.layer + self.whole * self.per_byte,
            small=space / self.whole,
            lean=np.maximum(memory + self.spare, 0.0) / self.least,
            none=memory + self.spare < 0,
        )


class _Timeless(NamedTuple):
    """Rows as those of `_capacities`. others, predicted: seconds of the other and the MTP layers, all_recomputed: of a
    layer that is recomputed, mixed: of one whose bytes are bought by recomputing [s]; bought: what all bytes are worth
    so [s]. small, lean: layers that memory has room for, spared and recomputed [1]; none: it has none for these others.
    """

    others: FloatArray
    predicted: FloatArray
    all_recomputed: FloatArray
    bought: FloatArray
    mixed: FloatArray
    small: FloatArray
    lean: FloatArray
    none: NDArray[np.bool_]


def stage_capacity(job: Job, costs: StageCosts[FloatArray], plans: Plans) -> StageCapacity:
    """The room on every stage of every plan."""
    usual, needs = common(job.model), needs_of(job, plans, costs.memory)
    plan, stage = needs.plan, np.arange(len(needs.plan)) - needs.first[needs.plan]
    costs, obliged = costs.take(plan), obliged_layers(job, plans)[0][plan]
    plans, unlike = plans.take(plan), apart(job, plans)[plan]
    memory, passes, last = needs.memory, needs.passes, plans.pp == stage + 1
    both = both_kinds(memory)
    kinds, shares = [costs.kinds[kind] for kind in both], (1 - usual.share, usual.share)
    saved = each(both, lambda kind: memory.saved(kind, passes))
    times = each(both, lambda kind: costs.kinds[kind].seconds)
    reserved = each(both, lambda kind: memory.of(kind, passes))
    recompute_each = np.minimum(*(kind.recompute for kind in kinds))
    left, nothing = safe_memory(job) - needs.bare, np.zeros(len(plan))
    rare, others, mtp = DENSE if usual.share else both[1], job.model.layers - usual.count, job.model.mtp_layers
    return StageCapacity(
        others=others if others <= FEW else 0,
        predicts=mtp > 0,
        first=needs.first,
        plan=plan,
        lost=left < 0,
        outside_layers=costs.seconds + np.where(last, costs.kinds[HEAD].seconds, 0.0),
        less=usual.less(times[0], times[1], unlike),
        layer=usual.mean(*times),
        obliged_recompute=obliged * recompute_each,
        recompute_each=recompute_each,
        memory=left,
        fewer=usual.less(reserved[0], reserved[1], unlike),
        spare=needs.spare,
        whole=needs.whole,
        least=needs.layer,
        per_byte=np.minimum.reduce(
            [
                kind.recompute / np.maximum(less, 1.0)
                for kind, less, share in zip(kinds, saved, shares, strict=True)
                if share
            ]
        ),
        recomputes=usual.mean(*saved) > 0,
        other=costs.kinds[rare].seconds,
        other_bytes=memory.least(rare, passes),
        predicted=mtp * costs.kinds[MTP].seconds if mtp else nothing,
        predicted_bytes=mtp * memory.least(MTP, passes) if mtp else nothing,
    )


def obliged_layers(job: Job, plans: Plans) -> tuple[FloatArray, FloatArray]:
    """Layers that every stage which holds some recomputes at least, or all of them, and all stages together [layers].

    Where the software recomputes the first so many layers of every virtual stage alike, that is one or more of each, of
    which all but the last ones hold a layer if there are as many layers as virtual stages.

    >>> from optimizer.job.plan import Plan
    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> job = Job(model=load_model("gpt3"), cluster=load_cluster("dgx-h100"), stack=load_stack("megatron-core"),
    ...     gpus=64, seq_len=2048, global_batch=64)
    >>> modes = ((1, "full"), (6, "full"), (12, "full"), (6, "none"))
    >>> some = [Plan(pp=8, vpp=vpp, recompute=mode) for vpp, mode in modes]
    >>> [found.tolist() for found in obliged_layers(job, Plans.of(some))]
    [[1.0, 5.0, 11.0, 0.0], [6.0, 40.0, 88.0, 0.0]]
    """
    chosen = (plans.recompute == FULL) & job.recomputes_alike
    filled = np.where(plans.pp * plans.vpp <= job.model.layers, plans.vpp - 1.0, 0.0)
    ends = np.where(plans.pp == 1, 1.0, np.maximum(plans.pp - 2.0, 0.0) * (job.model.mtp_layers == 0))
    each, together = np.where(plans.vpp > 1, filled, 1.0), np.where(plans.vpp > 1, plans.pp * filled, ends)
    return chosen * each, chosen * together
