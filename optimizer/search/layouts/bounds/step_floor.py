"""What no layout of a plan's layers can beat: a least step time for every plan of a lattice at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import KnobColumns, Knobs, Plans
from optimizer.job.rows import Rows
from optimizer.objectives.arrays import FloatArray, lowered, raised, spread
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.minimised.registry import objective_of
from optimizer.objectives.pipeline.stages import DENSE, HEAD, MOE, kinds_of, mean_stage, stages_of
from optimizer.objectives.step.linear_stage import recomputing, states_of_model
from optimizer.objectives.step.per_step import (
    least_collectives,
    least_update_time,
    update_time,
    work_of,
    work_per_step,
)
from optimizer.objectives.step.price import ONE_F_ONE_B, filled_bubble
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.objectives.step.time_terms import bubble, stragglers
from optimizer.search.lattice.knobs import HostNeed
from optimizer.search.layouts.bounds.stage_capacity import obliged_layers, stage_capacity
from optimizer.search.layouts.bounds.stage_needs import apart, common
from optimizer.search.layouts.costs import StageCosts

HALVINGS = 24  # of the interval that holds the least time of the slowest stage


@dataclass(frozen=True, kw_only=True)
class StepFloor(Rows):
    """What a step of each plan takes whatever its layout, per plan, and the value of that.

    rate: what any second of a step is worth [unit of the objective/s].
    surplus: what a step adds to the value of its seconds, recomputing only what has to be, least_surplus: the same at
    any knobs [unit of the objective].
    layer: a common layer (see Common) for one micro-batch, less: by how much a stage may take less than its layers at
    that price, head: the passes through the head, outside_layers: what each stage spends beside its layers, whole: all
    stages together, nothing recomputed that need not be [s]. filled: what a zero-bubble schedule takes off the bubble
    at most [s]. once: what happens once per step under the best layout, tuned: the part of it that knobs can change,
    hosted: what all of the optimizer state on the host adds to it [s], hosted_surplus: and to `surplus` [unit of the
    objective]. alternates: 1 where 1F1B is run, else 0, forward: share of its layers' time that a stage's forward pass
    takes at most, and up to half [1]. per_step: `once` without the step's overhead, collectives: the least that those
    in it take at any knobs [s], updated: what a rank updates [elements], obliged: the part of `surplus` that is of what
    has to be recomputed [unit of the objective]. states, offloadable: what all stages keep of the model, and what of it
    may lie on the host [B].
    """

    WHOLE = ("job",)

    job: Job
    plans: Plans
    rate: FloatArray
    layer: FloatArray
    less: FloatArray
    head: FloatArray
    outside_layers: FloatArray
    whole: FloatArray
    filled: FloatArray
    once: FloatArray
    tuned: FloatArray
    hosted: FloatArray
    surplus: FloatArray
    least_surplus: FloatArray
    hosted_surplus: FloatArray
    alternates: FloatArray
    forward: FloatArray
    per_step: FloatArray
    collectives: FloatArray
    updated: FloatArray
    obliged: FloatArray
    states: FloatArray
    offloadable: FloatArray
    alone: FloatArray
    alone_offloadable: FloatArray
    alone_most: FloatArray

    def value(self, slowest: FloatArray, *, any_knobs: bool = False) -> FloatArray:
        """Least value of a step whose slowest stage takes so long for one micro-batch, infinite where none can
        [unit of the objective].
        """
        surplus = self.least_surplus if any_knobs else self.surplus
        return np.asarray(self.rate * self.step_time(slowest, any_knobs=any_knobs) + surplus)

    def bound(self, *, any_knobs: bool = False) -> FloatArray:
        """Values that no layout beats, whatever fits [unit of the objective]."""
        return self.value(self.slowest(), any_knobs=any_knobs)

    def step_time(self, slowest: FloatArray, *, any_knobs: bool = False) -> FloatArray:
        """Least time of a step whose slowest stage takes so long for one micro-batch, infinite where none can [s]."""
        m, possible = self.plans.num_microbatches, np.isfinite(slowest)
        longest = np.maximum(np.where(possible, slowest, 0.0), self._least_slowest)
        waits = bubble(longest, self.whole, self._virtual_stages, self.filled, -self._gained_ahead(longest))
        # The last stage, which holds the head, has nothing to run ahead.
        last = self.alternates * (self.whole + (m - 1) * (self.outside_layers + self.head))
        step = np.maximum(m * longest + waits, last) + self.once - (self.tuned if any_knobs else 0.0)
        bound = lowered(self._with_stragglers(step))
        return np.where(possible, bound, np.inf)

    def _gained_ahead(self, slowest: FloatArray) -> FloatArray:
        """By how much 1F1B may take less than its closed form, as stages run ahead while they wait [s].

        a f at most, f: the forward pass of the slowest stage, a = min(pp, m) - 1: how many of these run ahead; and
        pp t - (sum of t) at most, what all other stages take less than the slowest, t. The second is derived for
        m > pp; for all m the tests hold it against the schedule.
        """
        slack = self.plans.pp * slowest - self.whole
        return np.asarray(self.alternates * np.minimum(self._ahead * self._forward(slowest), slack))

    def _forward(self, slowest: FloatArray) -> FloatArray:
        """The shorter pass of a stage that takes so long, or more [s]."""
        return np.asarray(self.forward * slowest + (0.5 - self.forward) * self.outside_layers)

    @property
    def _ahead(self) -> FloatArray:
        return np.asarray(np.minimum(self.plans.pp, self.plans.num_microbatches) - 1.0)

    @cached_property
    def _least_slowest(self) -> FloatArray:
        """The slowest stage with which 1F1B takes least: the mean, or with few micro-batches (m <= pp) what uses up
        all that stages may run ahead [s].
        """
        gained = self._ahead * (self.plans.num_microbatches <= self.plans.pp)
        outside = gained * (0.5 - self.forward) * self.outside_layers
        return np.asarray(self.alternates * (self.whole + outside) / (self.plans.pp - gained * self.forward))

    def uneven(self) -> FloatArray:
        """Least value of a step whose stages do not all hold as many layers, 0 where they cannot [unit of objective].

        Layers that pp divides can: any other layout has a stage with one more of them, or other kinds of them on
        virtual stages that are no longer alike.
        """
        model, share, usual = self.job.model, self.job.model.layers / self.plans.pp, common(self.job.model)
        if usual.count != model.layers or model.mtp_layers:
            return np.zeros(len(self.plans))
        bound = self.value(self.outside_layers + (share + 1) * self.layer - self.less)
        known = (model.layers % self.plans.pp == 0) & ((self.plans.vpp == 1) | (usual.apart == 0))
        return np.where(known, bound, 0.0)

    def slowest_within(self, limit: float, any_knobs: bool = False) -> FloatArray:
        """A slowest stage with which the value is at least `limit`: solved for it, all filled [s]."""
        m, v = self.plans.num_microbatches, self.plans.vpp
        pipeline = self.pipelines_within(limit, any_knobs) + self.filled
        gained = self.alternates * self._ahead
        times = np.maximum(m - 1 / v - gained * self.forward, 0.0)
        fixed = self.whole / v - gained * (0.5 - self.forward) * self.outside_layers
        with np.errstate(divide="ignore"):
            slowest = np.where(times > 0, (pipeline - fixed) / times, np.inf)
            steady = np.where(self.alternates * (m - 1 - self.plans.pp) > 0, m - 1 - self.plans.pp, np.nan)
            slowest = np.fmin(slowest, (pipeline - 2 * self.whole) / steady)
        return raised(slowest)

    def pipelines_within(self, limit: float, any_knobs: bool = False) -> FloatArray:
        """Times of pipelines with which the value is `limit` [s]."""
        limits = (limit - (self.least_surplus if any_knobs else self.surplus)) / self.rate
        seconds = limits / lowered(self._with_stragglers(np.ones(len(self.plans))))
        return np.asarray(seconds - self.once + (self.tuned if any_knobs else 0.0))

    def values_of(self, pipelines: FloatArray) -> FloatArray:
        """Least values of steps whose pipelines take so long [unit of the objective]."""
        return np.asarray(self.rate * lowered(self._with_stragglers(pipelines + self.once)) + self.surplus)

    def offloaded(self, share: FloatArray) -> StepFloor:
        """The floors with this share of the optimizer state on the host, of which they have none [1]."""
        return self.changed(once=self.once + share * self.hosted, surplus=self.surplus + share * self.hosted_surplus)

    def of(self, layer_costs: LayerCosts) -> StepFloor:
        """The floors of the same plans where memory has other room: what any knobs leave is all that it moves."""
        job, share = layer_costs.job, self.host_share(layer_costs.job)
        return self.changed(
            job=job,
            tuned=self.per_step - (self.collectives + self.updated * least_update_time(layer_costs, share)),
            least_surplus=objective_of(job).surplus(layer_costs).spared(share, 1.0) + self.obliged,
        )

    def by(self, layer_costs: LayerCosts) -> StepFloor:
        """The floors of the same plans, none with anything on the host, by what another job minimises."""
        job = layer_costs.job
        return self.changed(job=job, **_worth(layer_costs, 0.0, self.host_share(job))).of(layer_costs)

    def at(self, layer_costs: LayerCosts, knobs: KnobColumns) -> StepFloor:
        """The floors of the same plans at other settings, with as much of the optimizer state on the host as here."""
        per_step = work_per_step(work_of(layer_costs, mean_stage(self.job.model, self.plans)), knobs).total[0]
        once = per_step + self.job.stack["step_overhead"]
        return self.changed(per_step=per_step, once=once).of(layer_costs)

    def host_share(self, job: Job) -> FloatArray:
        """Share of the optimizer state that is on the host in every layout that fits a job's room, or less [1]."""
        alone = HostNeed(reserved=self.alone[None], offloadable=self.alone_offloadable[None], most=self.alone_most)
        return host_share(job, self.plans, self.states, self.offloadable, alone)

    def value_of(self, seconds: float, index: int) -> float:
        """Value of one plan whose pipeline takes so long, with what happens once per step and the price on recomputed
        layers [unit of the objective].
        """
        some = self.take(np.array([index]))
        step = some._with_stragglers(np.array([seconds + self.job.stack["step_overhead"]]))
        return float((some.rate * step + some.surplus)[0])

    def within(self, limit: float, index: int) -> float:
        """Time of one plan's pipeline, as `value_of` takes it, with which its step has this value [s]."""
        some = self.take(np.array([index]))
        seconds = (limit - some.surplus) / some.rate
        return float((seconds / some._with_stragglers(np.ones(1)))[0]) - self.job.stack["step_overhead"]

    @property
    def _virtual_stages(self) -> FloatArray:
        return self.plans.vpp.astype(np.float64)

    def _with_stragglers(self, step: FloatArray) -> FloatArray:
        nodes = self.plans.gpus / self.job.cluster.gpus_per_node
        return step + stragglers(step, np.asarray(self.job.stack["straggler"]), nodes)

    def slowest(self) -> FloatArray:
        """Time that the slowest stage takes under every layout [s]: the mean, or the fullest of whole layers.

        With c layers beside the head, some other stage holds ceil((L - c) / (pp - 1)) of the L layers of the common
        kind: min over c of max(ceil((L - c) / (pp - 1)) t, head + c t). The first falls with c and the second rises, so
        that the least lies at one of the two whole numbers around the crossing of (L - c) / (pp - 1) t and head + c t.
        """
        count = float(common(self.job.model).count)
        others = np.maximum(self.plans.pp - 1.0, 1.0)
        crossing = (count * self.layer / others - self.head) / (self.layer * (1 + 1 / others))
        fullest = np.full(len(self.plans), np.inf)
        for layers_with_head in (np.floor(crossing), np.floor(crossing) + 1):
            c = np.clip(layers_with_head, 0.0, count)
            elsewhere = np.ceil((count - c) / others) * self.layer
            fullest = np.minimum(fullest, np.maximum(elsewhere, self.head + c * self.layer))
        least = np.maximum(self.whole / self.plans.pp, self.outside_layers + fullest - self.less)
        return np.where(self.plans.pp > 1, least, self.whole)


def step_floor(layer_costs: LayerCosts, knobs: Knobs | KnobColumns = Knobs()) -> StepFloor:
    """The parts of a step that no layout changes; where it may be chosen what is recomputed, as little as can be [s].

    What happens once per step is that of the mean stage: it is convex in the layers of a stage, so that the slowest
    stage of any layout takes no less.
    """
    job, plans, model = layer_costs.job, layer_costs.plans, layer_costs.job.model
    seconds = {kind: _least(layer_costs, kind) for kind in layer_costs.by_kind}
    layers = [kind for kind in (DENSE, MOE) if kind in seconds]
    dense, moe = seconds[DENSE], seconds[layers[-1]]
    usual, overhead = common(model), job.stack["step_overhead"]
    counts = kinds_of(model)
    whole = sum((counts[kind] * values for kind, values in seconds.items()), plans.pp * layer_costs.stage_seconds)
    recompute_time = np.minimum.reduce(
        [recomputing(layer_costs, kind)[1] * layer_costs.by_kind[kind].recompute for kind in layers]
    )
    work = work_of(layer_costs, mean_stage(model, plans))
    once = work_per_step(work, knobs)
    per_step, (collectives, updated) = once.total[0], least_collectives(work)
    none, every = (update_time(layer_costs, np.asarray(share)) for share in (0.0, 1.0))
    states, offloadable = states_of_model(layer_costs), states_of_model(layer_costs, offloadable=True)
    alone = _only_stages(layer_costs)
    share = host_share(job, plans, states, offloadable, alone)
    return StepFloor(
        job=job,
        plans=plans,
        layer=usual.mean(dense, moe),
        less=usual.less(dense, moe, apart(job, plans)),
        head=seconds[HEAD],
        outside_layers=layer_costs.stage_seconds,
        whole=whole + obliged_layers(job, plans)[1] * recompute_time,
        filled=filled_bubble(layer_costs),
        once=per_step + overhead,
        tuned=per_step - (collectives + updated * least_update_time(layer_costs, share)),
        hosted=once.inputs["updated"][0] * (every - none),
        alternates=((plans.schedule == ONE_F_ONE_B) & (plans.pp > 1)).astype(np.float64),
        forward=_forward_share(layer_costs),
        per_step=per_step,
        collectives=collectives,
        updated=updated,
        states=states,
        offloadable=offloadable,
        alone=alone.reserved[0],
        alone_offloadable=alone.offloadable[0],
        alone_most=alone.most,
        **_worth(layer_costs, knobs.offload, share),
    )


def _worth(layer_costs: LayerCosts, offload: FloatArray | float, share: FloatArray) -> dict[str, FloatArray]:
    """What the objective makes of plans with a share `offload` of the optimizer state on the host, and no less than
    `share` in any layout that fits: columns of StepFloor.
    """
    job, counts = layer_costs.job, kinds_of(layer_costs.job.model)
    objective, surplus = objective_of(job), objective_of(job).surplus(layer_costs)
    obliged = surplus.recomputing(
        {kind: counts[kind] * recomputing(layer_costs, kind)[0] for kind in layer_costs.by_kind}
    )
    return {
        "rate": objective.rates(job, layer_costs.plans),
        "surplus": surplus.spared(offload) + obliged,
        "least_surplus": surplus.spared(share, 1.0) + obliged,
        "hosted_surplus": surplus.spared(1.0) - surplus.spared(0.0),
        "obliged": spread(obliged, (len(layer_costs),)),
    }


def _forward_share(layer_costs: LayerCosts) -> FloatArray:
    """Share of its time that the forward pass of layers takes at most, and up to half [1]."""
    shares = [
        np.divide(kind.forward, kind.forward + kind.backward, out=np.zeros(len(layer_costs)), where=kind.seconds > 0)
        for kind in layer_costs.by_kind.values()
    ]
    return np.asarray(np.minimum(np.maximum.reduce(shares), 0.5))


def host_share(job: Job, plans: Plans, states: FloatArray, offloadable: FloatArray, alone: HostNeed) -> FloatArray:
    """Share of the optimizer state that is on the host in every layout that fits, or less [1].

    All stages together hold every state: what is beyond their room is on the host, or nothing fits. One stage `alone`
    holds its activations besides, and leaves most room where it recomputes whatever may be.
    """
    capacity = plans.pp * (safe_memory(job) - job.stack["workspace"])
    share = np.clip((states - capacity) / np.maximum(offloadable, 1.0), 0.0, 1.0)
    return np.where(plans.pp == 1, alone.needed(job), share)


def _only_stages(layer_costs: LayerCosts) -> HostNeed:
    """What plans of one stage need, and nothing for others."""
    alone = np.flatnonzero(layer_costs.plans.pp == 1)
    columns = np.zeros((3, len(layer_costs)))
    if len(alone):
        some = layer_costs.take(alone)
        need = HostNeed.of(some, stages_of(some.job.model, some.plans))
        (reserved,), (offloadable,) = need.reserved[:1], need.offloadable[:1]
        columns[:, alone] = reserved, offloadable, need.most
    reserved, offloadable, most = columns
    return HostNeed(reserved=reserved[None], offloadable=offloadable[None], most=most)


def _least(layer_costs: LayerCosts, kind: str) -> FloatArray:
    """Seconds of one of a kind for one micro-batch, recomputed only where it has to be [s]."""
    kind_costs, always = layer_costs.by_kind[kind], recomputing(layer_costs, kind)[0]
    return kind_costs.seconds + always * kind_costs.recompute if np.any(always) else kind_costs.seconds


def joined(floors: Sequence[StepFloor], plans: Plans) -> StepFloor:
    """Several floors as one, of these plans."""
    names = [f.name for f in fields(StepFloor) if f.name not in ("job", "plans")]
    columns = {name: np.concatenate([getattr(floor, name) for floor in floors]) for name in names}
    return StepFloor(job=floors[0].job, plans=plans, **columns)


def fitting_slowest(
    job: Job,
    floor: StepFloor,
    costs: StageCosts[FloatArray],
    plans: Plans,
    limit: float = np.inf,
    *,
    any_knobs: bool = False,
) -> FloatArray:
    """As StepFloor.slowest, but under layouts whose stages fit in memory; infinite where none can [s].

    A stage has room for so many layers of the common kind in its memory and in the time T; all stages together must
    have room for all of them. The least such T is found by halving. Where no value is below `limit` it is not found out
    how much longer.
    """
    low = floor.slowest()
    longest, reached = np.maximum(low, floor.whole * 4), np.maximum(low, floor.slowest_within(limit, any_knobs))
    high = np.minimum(longest, reached)
    beyond = np.where(reached < longest, reached, np.inf)
    count = common(job.model).count
    capacity = stage_capacity(job, costs, plans)
    possible = capacity.layers(high) >= count
    least_slowest = np.where(possible, low, beyond)
    tight = np.flatnonzero(possible & (capacity.layers(low) < count))
    if not len(tight):
        return least_slowest
    capacity, low, high = capacity.take(tight), low[tight], high[tight]
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = capacity.layers(middle) >= count
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    least_slowest[tight] = low
    return least_slowest
