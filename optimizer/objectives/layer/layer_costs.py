"""Layer costs: seconds and bytes of one layer of every kind; a step is counts of layers x layer costs.

operators + messages -> LayerTime (few distinct shapes) -> KindCosts (every plan) -> LayerCosts
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import IntArray, Placement, Plan, Plans
from optimizer.job.rows import Rows
from optimizer.objectives.arrays import FloatArray, distinct, joined, nothing
from optimizer.objectives.kernels.shapes import COST_KEYS, REPLICA_KEYS, SHAPE_KEYS, TRANSFER_KEYS, layer_keys
from optimizer.objectives.layer.cost import BY_TERM, Cost, Terms, costs_of
from optimizer.objectives.layer.messages import boundary_messages
from optimizer.objectives.layer.parameters import Group, LocalParameters, Replicas, groups_of, whole_model
from optimizer.objectives.layer.seconds import BACKWARD_KERNELS
from optimizer.objectives.layer.sharded import Covers, Exposure, sharded_exposures
from optimizer.objectives.layer.trained import local_elements
from optimizer.objectives.pipeline.schedules import paired_share
from optimizer.objectives.pipeline.stages import DENSE, EMBEDDING, LAYERS

# Wait of a TP group of several nodes without a pipeline / with one. Scanned over 0, 0.1, 0.15 and 0.2: the 106 runs of
# nanotron-2024 with such groups err by 44, 24, 21 and 23 %, in the median by -44, -19, -7 and 2 %.
SPANNED = 0.15


@dataclass(frozen=True, kw_only=True)
class KindCosts(Rows):
    """What a layer of a kind, the embedding or the head costs, one entry per plan."""

    WHOLE = ("cost", "elements")

    cost: Cost  # by distinct shape
    rows: IntArray  # which shape each plan has
    elements: LocalParameters  # by distinct replicas [elements]
    replicas: IntArray  # which of these each plan has
    exposure: Exposure  # what sharded weights and gradients show for each micro-batch [s]
    waits: tuple[FloatArray, FloatArray]  # what collectives between nodes are late, as it is and recomputed [s]
    paired: FloatArray  # share of its passes that overlap with another micro-batch [1]

    def gathered(self, values: FloatArray) -> FloatArray:
        """What the distinct shapes have, for every plan."""
        return values[self.rows]

    @cached_property
    def shared(self) -> FloatArray:
        """Elements that every replica holds [elements]."""
        return self.elements.shared[self.replicas]

    @cached_property
    def experts(self) -> FloatArray:
        """Elements of routed experts [elements]."""
        return self.elements.experts[self.replicas]

    @cached_property
    def trained_shared(self) -> FloatArray:
        """Those of `shared` that are trained [elements]."""
        return self.elements.trained_shared[self.replicas]

    @cached_property
    def trained_experts(self) -> FloatArray:
        """Those of `experts` that are trained [elements]."""
        return self.elements.trained_experts[self.replicas]

    @cached_property
    def forward(self) -> FloatArray:
        """Forward pass of one micro-batch [s]."""
        alone = self.gathered(_total(self.cost.forward)) + self.exposure.forward + self.waits[0] / 2
        return alone + self._overlapped(self.cost.overlapped_forward)

    @cached_property
    def backward(self) -> FloatArray:
        """Backward pass of one micro-batch, the layer spared [s]."""
        alone = self.gathered(_total(self.cost.backward)) + self.exposure.backward + self.waits[0] / 2
        return alone + self._overlapped(self.cost.overlapped_backward)

    @cached_property
    def recompute(self) -> FloatArray:
        """What recomputing the whole layer adds [s]."""
        return self.gathered(_total(self.cost.recompute)) + self.exposure.recompute + self.waits[1]

    @cached_property
    def seconds(self) -> FloatArray:
        """Both passes of one micro-batch, the layer spared [s]."""
        return self.forward + self.backward

    @property
    def cover_forward(self) -> FloatArray:
        """What the step's weights can hide under in a forward pass [s]."""
        return self.gathered(self.cost.cover_forward) + self.exposure.after_forward

    @property
    def cover_backward(self) -> FloatArray:
        """What the step's gradients can hide under in a backward pass, nothing recomputed [s]."""
        return self.gathered(self.cost.cover_backward) + self.exposure.after_backward

    @property
    def hidden(self) -> FloatArray:
        """Communication that hides, nothing recomputed [s]."""
        overlapped = self._overlapped(self.cost.overlapped_forward) + self._overlapped(self.cost.overlapped_backward)
        return self.gathered(self.cost.hidden) + np.maximum(0.0, -overlapped)

    @property
    def gain(self) -> FloatArray:
        """What both passes of one micro-batch gain overlapped with another one's [s]."""
        pair = (self.cost.overlapped_forward, self.cost.overlapped_backward)
        return -sum((self.gathered(_total(terms)) for terms in pair if terms), np.zeros(len(self.rows)))

    @property
    def alone(self) -> tuple[FloatArray, FloatArray]:
        """Forward and backward pass of one micro-batch with nothing overlapped, the layer spared [s]."""
        overlapped = self._overlapped(self.cost.overlapped_forward), self._overlapped(self.cost.overlapped_backward)
        return self.forward - overlapped[0], self.backward - overlapped[1]

    def _overlapped(self, terms: Terms) -> FloatArray | float:
        """What passes gain (below 0) or lose overlapped with another micro-batch [s]."""
        return self.paired * self.gathered(_total(terms)) if terms else 0.0

    def term(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Seconds of one term in both passes, and what recomputing adds to it [s]."""
        if name == "dp_communication":
            return self.exposure.forward + self.exposure.backward, self.exposure.recompute
        cost = self.cost
        if name not in cost.forward:
            return np.zeros(len(self.rows)), np.zeros(len(self.rows))
        spared = self.gathered(cost.forward[name] + cost.backward[name])
        if name in cost.overlapped_forward:
            spared = spared + self.paired * self.gathered(
                cost.overlapped_forward[name] + cost.overlapped_backward[name]
            )
        recompute = self.gathered(cost.recompute[name]) if name in cost.recompute else np.zeros(len(self.rows))
        return (spared + self.waits[0], recompute + self.waits[1]) if name == "launch" else (spared, recompute)


@dataclass(frozen=True, kw_only=True)
class LayerCosts(Rows):
    """Plans and what one of everything costs under each: a priced lattice, to be counted at any knobs and layout."""

    WHOLE = ("job",)

    job: Job  # what is trained
    plans: Plans  # the plans
    by_kind: Mapping[str, KindCosts]  # what one of each kind costs
    stage_terms: Terms  # what every stage spends outside its layers for one micro-batch, by term [s]
    replicas: Replicas  # how the plans' parameters are repeated

    def __len__(self) -> int:
        return len(self.plans)

    @cached_property
    def stage_seconds(self) -> FloatArray:
        """What every stage spends outside its layers for one micro-batch [s]."""
        return _total(self.stage_terms)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The replicas of each plan's parameters."""
        return groups_of(self.plans, self.replicas.whole_of_plans)

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the terms of time that layers have."""
        return tuple(self.by_kind[DENSE].cost.forward)

    def placed(self, placements: Sequence[Placement]) -> LayerCosts:
        """The same plans with their layers placed so, which changes none of their layer costs."""
        return self.changed(plans=self.plans.placed(placements))

    @classmethod
    def joined(cls, cost_batches: Sequence[LayerCosts]) -> LayerCosts:
        """Those of several batches of plans of one job as one."""
        if len(cost_batches) == 1:
            return cost_batches[0]
        plans = Plans.joined([layer_costs.plans for layer_costs in cost_batches])
        kinds = cost_batches[0].by_kind
        stage_terms = joined([layer_costs.stage_terms for layer_costs in cost_batches])
        by_kind = {kind: _joined([layer_costs.by_kind[kind] for layer_costs in cost_batches]) for kind in kinds}
        replicas = Replicas.joined([layer_costs.replicas for layer_costs in cost_batches])
        return cls(job=cost_batches[0].job, plans=plans, by_kind=by_kind, stage_terms=stage_terms, replicas=replicas)


def layer_costs_of(job: Job, plans: Plans, *, timed: bool = True) -> LayerCosts:
    """The layer costs of these plans; bytes alone where they are not `timed`, which takes half as long.

    Raises InputError when the device has no units for the job's dtype.
    """
    some, at = distinct(plans, COST_KEYS)
    few, rows = distinct(some, SHAPE_KEYS)
    layers, layer_rows = distinct(few, layer_keys(job))
    one_of, replicas = distinct(some, REPLICA_KEYS)
    costs = costs_of(job, few, layers, layer_rows, timed=timed)
    elements = local_elements(job, one_of)
    exposures = (
        sharded_exposures(job, some, one_of, replicas, elements, covers(costs, rows))
        if timed
        else dict.fromkeys(costs, Exposure.none(len(some)))
    )
    shape_of, replica_of, paired = rows[at], replicas[at], paired_share(plans)
    by_kind = {}
    for kind, cost in costs.items():
        waits = _waits(job, some, cost, rows) if timed and kind in LAYERS else None
        by_kind[kind] = KindCosts(
            cost=cost,
            rows=shape_of,
            elements=elements[kind],
            replicas=replica_of,
            exposure=exposures[kind].take(at),
            waits=(waits[0][at], waits[1][at]) if waits else (nothing(len(plans)),) * 2,
            paired=paired,
        )
    return LayerCosts(
        job=job,
        plans=plans,
        by_kind=by_kind,
        stage_terms=stage_extras(job, plans, some, at) if timed else {},
        replicas=Replicas(plans=one_of, rows=replica_of, whole=whole_model(job.model, elements)),
    )


@lru_cache(maxsize=8)
def layer_costs_of_plan(job: Job, plan: Plan) -> LayerCosts:
    """The same of one plan, which an answer asks for several times."""
    return layer_costs_of(job, Plans.of([plan]))


def covers(costs: Mapping[str, Cost], rows: IntArray) -> dict[str, Covers]:
    """Computation of the forward and backward pass, and of recomputing, that each kind's weights can hide under [s].

    The embedding has none of its own: its weights travel while a neighbouring layer computes.
    """
    by_kind = {}
    for kind in costs:
        cost = costs[DENSE if kind == EMBEDDING else kind]
        ahead = cost.host[rows] / (1.0 + BACKWARD_KERNELS)
        by_kind[kind] = Covers(
            forward=cost.cover_forward[rows],
            backward=cost.cover_backward[rows],
            recompute=cost.cover_recompute[rows],
            host_forward=ahead,
            host_backward=BACKWARD_KERNELS * ahead,
        )
    return by_kind


def stage_extras(job: Job, plans: Plans, some: Plans, at: IntArray) -> dict[str, FloatArray]:
    """Seconds per micro-batch that every pipeline stage spends outside its layers: transfers and host overhead.

    Each virtual stage sends activations forward and gradients back: 2 vpp x transfer x (1 - p2p_overlap); activations
    in every forward pass of the loss. `some` are the plans whose layers differ, `at` the one of each plan.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2.
    """
    senders, rows = distinct(some, TRANSFER_KEYS)
    rows = rows[at]
    sent = sum((message.seconds(job) for message in boundary_messages(job, senders)), np.zeros(len(senders)))
    return {
        "pp_communication": plans.vpp * sent[rows] * (1 - job.stack["p2p_overlap"]) * (1.0 + job.forward_passes) / 2.0,
        "launch": plans.vpp.astype(np.float64) * job.stack["microbatch_overhead"],
    }


def _waits(job: Job, plans: Plans, cost: Cost, rows: IntArray) -> tuple[FloatArray, FloatArray] | None:
    """What collectives between nodes make a layer wait, as it is, and what recomputing it changes of that [s]."""
    if not job.stack["pipelined_collective"]:
        return None
    host, collectives = cost.host[rows], cost.collectives[rows]
    busy = (_total(cost.forward) + _total(cost.backward))[rows]
    spared = pipelined_wait(job, plans, busy, host, collectives)
    return spared, pipelined_wait(job, plans, busy + _total(cost.recompute)[rows], host, collectives) - spared


def _total(terms: Terms) -> FloatArray:
    return np.asarray(sum(terms.values()))


def _joined(by_kind: Sequence[KindCosts]) -> KindCosts:
    """Entries of one kind as one: their distinct shapes one after the other."""
    shapes = np.cumsum([0] + [len(kind_costs.cost.weight) for kind_costs in by_kind])
    groups = np.cumsum([0] + [len(kind_costs.elements.shared) for kind_costs in by_kind])
    terms = {
        column: {name: 0 for kind_costs in by_kind for name in getattr(kind_costs.cost, column)} for column in BY_TERM
    }
    parts = []
    for kind_costs, shape, group in zip(by_kind, shapes[:-1], groups[:-1], strict=True):
        none = np.zeros(len(kind_costs.cost.weight))
        columns: dict[str, Any] = {
            c: dict.fromkeys(terms[c], none) | dict(getattr(kind_costs.cost, c)) for c in BY_TERM
        }
        cost = replace(kind_costs.cost, **columns)
        parts.append(kind_costs.changed(cost=cost, rows=kind_costs.rows + shape, replicas=kind_costs.replicas + group))
    together: KindCosts = joined(parts)
    return together


def pipelined_wait(job: Job, plans: Plans, busy: FloatArray, host: FloatArray, collectives: FloatArray) -> FloatArray:
    """Time by which one layer's collectives between nodes are late, besides its own `busy` seconds [s].

    In a pipeline whose GPUs fill more than one node max(0, host + collectives x tp x pipelined_collective - busy);
    without one, where a TP group does not fit in the scale-up domain, SPANNED x collectives x tp x that;
    else 0. `host` [s] and `collectives` [1] are those of both passes. No cause is known for it: a time per TP rank and
    collective that does not depend on the message, absent inside a node.

    Source: nanotron runs of the Ultra-Scale Playbook (Hugging Face, 2025), whose slots take 14, 21 and 50 ms per layer
    under TP 4, 8 and 16 however small the micro-batch, and without a pipeline 8 and 15 to 18 ms under TP 16 and 32 of
    nodes of 8; the form and the rate are fitted to them.
    """
    waits = collectives * plans.tp * job.stack["pipelined_collective"]
    between = (plans.tp > 1) & (plans.gpus > job.cluster.gpus_per_node)
    spanning = between & (plans.tp > job.cluster.scale_up_size)
    late = np.where(plans.pp > 1, np.maximum(0.0, host + waits - busy), np.where(spanning, SPANNED * waits, 0.0))
    return np.where(between, late, 0.0)
