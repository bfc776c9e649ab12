"""The objective: seconds, bytes and MFU of one training step, for one plan or a million.

layer costs x layers of a stage -> stage times -> pipeline -> + what the slowest stage does once per step
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import SCHEDULES, IntArray, KnobColumns, Knobs, Plans
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.layer.cost import HOST_TRANSFER
from optimizer.objectives.layer.layer_costs import LayerCosts, layer_costs_of
from optimizer.objectives.pipeline import dualpipe
from optimizer.objectives.pipeline.schedules import both_ways, bubble_fraction, bubble_left, filled_passes
from optimizer.objectives.pipeline.stages import FULL, LAYERS, Stages, kinds_of, stages_of, virtual_counts
from optimizer.objectives.pipeline.stall import stall
from optimizer.objectives.step.estimate import Costs
from optimizer.objectives.step.flops import recomputed_flops, useful_flops
from optimizer.objectives.step.formula import Inputs
from optimizer.objectives.step.linear_stage import stage_memory
from optimizer.objectives.step.per_step import PerStep, by_stage, work_of, work_per_step
from optimizer.objectives.step.time_terms import TIME_TERMS, bubble, in_layers, stragglers

BLOCK = 1 << 14  # plans that are priced together
BROKEN_DOWN = ("time", "memory")
INTERLEAVED, ONE_F_ONE_B = SCHEDULES.index("interleaved"), SCHEDULES.index("1f1b")


def price(job: Job, plans: Plans, knobs: Knobs | KnobColumns = Knobs()) -> Costs:
    """Time by term, memory by term, MFU and HFU of every plan, under one setting of the knobs or one per plan.

    Raises InputError when the device has no units for the job's dtype.
    """
    return price_layer_costs(layer_costs_of(job, plans), knobs)


def price_layer_costs(layer_costs: LayerCosts, knobs: Knobs | KnobColumns = Knobs()) -> Costs:
    """The price of plans whose layer costs are known; the breakdown by term is worked out when it is looked at."""
    if len(layer_costs) > BLOCK and isinstance(knobs, Knobs):
        return _in_blocks(layer_costs, knobs)
    job, plans = layer_costs.job, layer_costs.plans
    step = Step(layer_costs=layer_costs, stages=stages_of(job.model, plans), knobs=knobs)
    memory = stage_memory(layer_costs, step.stages, knobs)
    fullest = memory.reserved.argmax(axis=0)
    reserved = memory.reserved.max(axis=0)
    useful = useful_flops(job) / job.global_batch * plans.global_batch
    recomputed = recomputed_flops(job, plans, step.stages)
    available = step.seconds * plans.gpus * job.peak_flops
    left = bubble_left(plans.schedule, plans.pp, plans.num_microbatches)
    return Costs(
        time=Breakdown(names=step.names, find=cache(step.term)),
        memory=Breakdown(names=tuple(memory.terms), find=cache(lambda name: _of_stage(memory.terms[name], fullest))),
        step_time=step.seconds,
        reserved=reserved,
        allocated=reserved - _of_stage(memory.terms["fragmentation"], fullest),
        mfu=useful / available,
        hfu=(useful + recomputed) / available,
        bubble=bubble_fraction(plans.pp, plans.vpp, plans.num_microbatches, left),
        overlappable=step.overlappable,
    )


def _in_blocks(layer_costs: LayerCosts, knobs: Knobs) -> Costs:
    """The price of many plans, BLOCK of them at a time: their intermediate columns stay in the processor's cache.

    All at per_step, half of the time would go into asking the system for memory. To break the costs down prices again.
    """
    blocks = [slice(start, start + BLOCK) for start in range(0, len(layer_costs), BLOCK)]
    columns: dict[str, list[FloatArray]] = {field.name: [] for field in fields(Costs) if field.name not in BROKEN_DOWN}
    for block in blocks:
        costs = price_layer_costs(layer_costs.take(block), knobs)
        for name, parts in columns.items():
            parts.append(getattr(costs, name))

    def breakdown(what: str) -> Breakdown:
        def term(name: str) -> FloatArray:
            return np.concatenate(
                [getattr(price_layer_costs(layer_costs.take(block), knobs), what)[name] for block in blocks]
            )

        return Breakdown(names=getattr(costs, what).names, find=cache(term))

    whole: dict[str, Any] = {name: np.concatenate(parts) for name, parts in columns.items()}
    return Costs(time=breakdown("time"), memory=breakdown("memory"), **whole)


@dataclass(frozen=True, kw_only=True)
class Breakdown(Mapping[str, FloatArray]):
    """Terms by name, each worked out when it is asked for."""

    names: tuple[str, ...]
    find: Callable[[str], FloatArray]

    def __getitem__(self, name: str) -> FloatArray:
        if name not in self.names:
            raise KeyError(name)
        return self.find(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of every plan: which stage is the slowest, and what it spends on each term."""

    layer_costs: LayerCosts
    stages: Stages
    knobs: Knobs | KnobColumns

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The terms that these plans have."""
        return tuple(name for name in TIME_TERMS if name != HOST_TRANSFER or name in self.layer_costs.terms)

    @cached_property
    def busy(self) -> FloatArray:
        """What each stage (rows) spends on one micro-batch [s]."""
        layer_costs, stages = self.layer_costs, self.stages
        total = layer_costs.stage_seconds
        for kind, kind_costs in layer_costs.by_kind.items():
            if kind_costs.seconds.any():
                total = total + stages.counts[kind] * kind_costs.seconds
            if kind in LAYERS and kind_costs.recompute.any():
                total = total + stages.recomputed[kind] * kind_costs.recompute
        return stages.exists * total

    @cached_property
    def slowest(self) -> IntArray:
        """The stage that takes longest for one micro-batch."""
        return np.asarray(self.busy.argmax(axis=0))

    @cached_property
    def longest(self) -> FloatArray:
        """What the slowest stage takes for one micro-batch [s]."""
        return np.asarray(self.busy.max(axis=0))

    @cached_property
    def whole(self) -> FloatArray:
        """What all stages together take for one micro-batch [s]."""
        layer_costs, plans = self.layer_costs, self.layer_costs.plans
        if plans.placements is not None:
            return np.asarray(self.busy.sum(axis=0))
        full, total = plans.recompute == FULL, plans.pp * layer_costs.stage_seconds
        for kind, count in kinds_of(layer_costs.job.model).items():
            kind_costs = layer_costs.by_kind[kind]
            total = total + count * (
                kind_costs.seconds + (np.where(full, kind_costs.recompute, 0.0) if kind in LAYERS else 0.0)
            )
        return total

    @cached_property
    def filled(self) -> FloatArray:
        """What zero-bubble schedules take off the bubble of 1F1B [s]; see filled_bubble."""
        return filled_bubble(self.layer_costs)

    @cached_property
    def per_step(self) -> PerStep:
        """What each stage does once per step."""
        return work_per_step(work_of(self.layer_costs, self.stages), self.knobs)

    @cached_property
    def last(self) -> IntArray:
        """The stage that takes longest for what is done once per step."""
        return np.asarray((self.per_step.total - 1.0 + by_stage(self.stages.exists, self.knobs)).argmax(axis=0))

    @cached_property
    def rest(self) -> FloatArray:
        """The step without its stragglers [s]."""
        m, per_step = self.layer_costs.plans.num_microbatches, _of_stage(self.per_step.total, self.last)
        pipeline = m * self.longest + bubble(**self._bubble)
        return np.asarray(pipeline + per_step + self.layer_costs.job.stack["step_overhead"])

    @cached_property
    def seconds(self) -> FloatArray:
        """The step [s]."""
        return with_stragglers(self.layer_costs, self.rest)

    @cached_property
    def overlappable(self) -> FloatArray:
        """Communication that hides: inside layers, and of what happens once per step [s]."""
        hidden = np.zeros(1)
        for kind, kind_costs in self.layer_costs.by_kind.items():
            if kind in LAYERS:
                cost = kind_costs.cost
                recompute = self.stages.recomputed[kind] * kind_costs.gathered(cost.hidden_recompute)
                hidden = hidden + self.stages.counts[kind] * kind_costs.hidden + recompute
        inside = self.layer_costs.plans.num_microbatches * (
            _of_stage(hidden, self.slowest) if hidden.ndim > 1 else hidden
        )
        return inside + _of_stage(self.per_step.hides, self.last)

    @cached_property
    def _bubble(self) -> dict[str, FloatArray]:
        return {
            "slowest": self.longest,
            "whole": self.whole,
            "vpp": self.layer_costs.plans.vpp.astype(np.float64),
            "filled": self.filled,
            "stalled": stalled(self.layer_costs, self.stages),
        }

    def term(self, name: str) -> FloatArray:
        """Seconds of one term, by its formula [s]."""
        return TIME_TERMS[name].formula(self.inputs(name))

    def inputs(self, name: str) -> Inputs:
        """What the formula of a term takes, on the stage that counts."""
        layer_costs, per_step = self.layer_costs, self.per_step
        if name == "bubble":
            return self._bubble
        if name == "overhead":
            return {"step_overhead": np.full(np.shape(self.rest), layer_costs.job.stack["step_overhead"])}
        if name == "stragglers":
            return {"rest": self.rest, **_late(layer_costs)}
        if name in ("contention", "optimizer", "dp_communication"):
            inputs = {key: _of_stage(value, self.last) for key, value in per_step.inputs.items()}
            inputs["hides"] = _of_stage(per_step.hides, self.last)
            if name == "dp_communication":
                inputs["sharded"] = in_layers(**self._in_layers(name))
            return inputs
        return self._in_layers(name)

    @cached_property
    def _slowest_layers(self) -> dict[str, FloatArray]:
        """Micro-batches, and layers of the slowest stage by kind: all, and those recomputed."""
        stages, nothing = self.stages, np.zeros(len(self.layer_costs))
        kinds = self.layer_costs.by_kind
        recomputed = [_of_stage(stages.recomputed[k], self.slowest) if k in LAYERS else nothing for k in kinds]
        return {
            "microbatches": self.layer_costs.plans.num_microbatches.astype(np.float64),
            "layers": np.stack([_of_stage(stages.counts[kind], self.slowest) for kind in kinds]),
            "recomputed": np.stack(recomputed),
        }

    def _in_layers(self, name: str) -> dict[str, FloatArray]:
        """Layers of the slowest stage, and what one of each kind spends on a term."""
        parts = [kind_costs.term(name) for kind_costs in self.layer_costs.by_kind.values()]
        return {
            **self._slowest_layers,
            "seconds": np.stack([seconds for seconds, _ in parts]),
            "recompute": np.stack([recompute for _, recompute in parts]),
            "stage_seconds": self.layer_costs.stage_terms.get(name, np.zeros(len(self.layer_costs))),
        }


def with_stragglers(layer_costs: LayerCosts, seconds: FloatArray) -> FloatArray:
    """A step's seconds with what waiting for the slowest of the nodes adds [s]."""
    return seconds + stragglers(seconds, **_late(layer_costs))


def _late(layer_costs: LayerCosts) -> dict[str, FloatArray]:
    nodes = layer_costs.plans.gpus / layer_costs.job.cluster.gpus_per_node
    return {"straggler": np.asarray(layer_costs.job.stack["straggler"]), "nodes": nodes}


def filled_bubble(layer_costs: LayerCosts) -> FloatArray:
    """What schedules other than 1F1B take off its bubble at most [s].

    Zero-bubble schedules: `filled_passes` of W, the mean stage's weight gradients for one micro-batch: half of its
    backward products. DualPipe: all of it but its own bubble.

    Source: Qi et al., arXiv 2401.10241, section 2.3.
    """
    plans, counts = layer_costs.plans, kinds_of(layer_costs.job.model)
    passes, two_ways = filled_passes(plans.schedule, plans.pp, plans.num_microbatches), both_ways(plans)
    if not (np.any(passes) or np.any(two_ways)):
        return np.zeros(len(plans))
    by_kind = {kind: kind_costs for kind, kind_costs in layer_costs.by_kind.items() if kind in LAYERS}
    weights = sum(
        (counts[kind] * kind_costs.gathered(kind_costs.cost.weight) for kind, kind_costs in by_kind.items()),
        np.zeros(1),
    )
    mean = weights / plans.pp
    filled = np.asarray(passes * mean)
    return np.where(two_ways, _filled_both_ways(layer_costs, mean), filled) if np.any(two_ways) else filled


def _filled_both_ways(layer_costs: LayerCosts, weights: FloatArray) -> FloatArray:
    """The bubble of 1F1B over mean stages less that of DualPipe, `weights` being their gradients of weights [s]."""
    plans, nothing = layer_costs.plans, np.zeros(len(layer_costs))
    forward, backward, gain, seconds = (
        nothing + layer_costs.stage_seconds / 2,
        nothing + layer_costs.stage_seconds / 2,
        nothing,
        nothing + layer_costs.stage_seconds,
    )
    for kind, count in kinds_of(layer_costs.job.model).items():
        kind_costs, share = layer_costs.by_kind[kind], count / plans.pp
        recompute = np.where(plans.recompute == FULL, kind_costs.recompute, 0.0) if kind in LAYERS else 0.0
        ahead, back = kind_costs.alone
        forward, backward = forward + share * ahead, backward + share * (back + recompute)
        gain, seconds = gain + share * kind_costs.gain, seconds + share * (kind_costs.seconds + recompute)
    pp = plans.pp.astype(np.float64)
    return np.asarray((pp - 1) * seconds - dualpipe.bubble(pp, forward, backward, weights, gain))


def _of_stage(values: FloatArray, stage: IntArray) -> FloatArray:
    """The row of each plan (and setting of the knobs) for its stage; values without stages as they are."""
    if np.ndim(values) <= stage.ndim:
        return values
    shape = (values.shape[0], *stage.shape)
    return np.asarray(np.take_along_axis(np.broadcast_to(values, shape), stage[None], axis=0)[0])


def stalled(layer_costs: LayerCosts, stages: Stages) -> FloatArray:
    """Seconds that running its schedule adds to the pipeline of each plan, 0 where it does not place its layers [s].

    Of 1F1B and of interleaved plans: their stages are unlike. It is below 0 where it takes less.

    What a stage spends outside its layers is spread evenly over its passes, and recomputing over its backward passes.
    """
    plans, waiting = layer_costs.plans, np.zeros(len(layer_costs))
    if plans.placements is None:
        return waiting
    shapes: dict[tuple[int, int, int], list[int]] = {}
    run = np.where(plans.schedule == INTERLEAVED, plans.vpp > 1, (plans.schedule == ONE_F_ONE_B) & (plans.pp > 1))
    for index in np.flatnonzero(run).tolist():
        shape = (int(plans.pp[index]), int(plans.vpp[index]), int(plans.num_microbatches[index]))
        shapes.setdefault(shape, []).append(index)
    for (pp, vpp, microbatches), alike in shapes.items():
        waiting[alike] = stall(microbatches, *passes(layer_costs, stages, np.array(alike), pp, vpp))
    return waiting


def passes(
    layer_costs: LayerCosts, stages: Stages, index: IntArray, pp: int, vpp: int
) -> tuple[FloatArray, FloatArray]:
    """Forward and backward seconds of such plans for one micro-batch, by plan, stage and virtual stage [s]."""
    placements = [layer_costs.plans.placements[i] for i in index] if layer_costs.plans.placements else []
    counts_of = {placed: virtual_counts(layer_costs.job.model, placed, pp, vpp) for placed in set(placements)}
    stage = np.repeat(layer_costs.stage_seconds[index, None] / 2, pp, axis=1)
    recompute = sum(
        (n[:pp, index].T * layer_costs.by_kind[k].recompute[index, None] for k, n in stages.recomputed.items()),
        stage * 0,
    )
    forward, backward = np.zeros((len(index), pp * vpp)), np.zeros((len(index), pp * vpp))
    for kind, kind_costs in layer_costs.by_kind.items():
        counts = np.array([counts_of[placed][kind] for placed in placements])
        forward += counts * kind_costs.forward[index, None]
        backward += counts * kind_costs.backward[index, None]
    return _spread(forward, stage), _spread(backward, stage + recompute)


def _spread(layers: FloatArray, stage: FloatArray) -> FloatArray:
    """Seconds by stage and virtual stage: of layers, an even share of what stages spend stage."""
    pp = stage.shape[1]
    vpp = layers.shape[1] // pp
    return np.asarray(layers.reshape(-1, vpp, pp).transpose(0, 2, 1) + stage[..., None] / vpp)
