"""Bytes of a pipeline stage as a sum: what a layer of each kind takes of it, and what the stage takes by itself.

memory terms  ->  LinearStage (of any layout: bounds, CP-SAT, least memory)
              ->  StageMemory (of given stages: prices, term by term)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Generic, TypeVar

import numpy as np

from optimizer.job.job import Job
from optimizer.job.plan import KnobColumns, Knobs, Plans
from optimizer.job.rows import Rows
from optimizer.objectives.arrays import FloatArray, mapped
from optimizer.objectives.layer.layer_costs import LayerCosts, layer_costs_of
from optimizer.objectives.pipeline.schedules import both_ways, copies
from optimizer.objectives.pipeline.stages import FULL, LAYERS, MTP, Stages, kinds_of, stages_of
from optimizer.objectives.step.formula import Inputs
from optimizer.objectives.step.memory_term import NOTHING, Content, MemoryTerm
from optimizer.objectives.step.memory_terms import MEMORY_TERMS

N = TypeVar("N", float, FloatArray)  # of one plan, or an entry for each of many


@dataclass(frozen=True, kw_only=True)
class LayerBytes(Rows, Generic[N]):
    """What one layer of a kind, the embedding or the head takes of a stage, with what the allocator loses to it."""

    static: N  # whatever is in flight [B]
    in_flight: N  # for each micro-batch in flight, as it always is [B]
    recomputed: N  # for each micro-batch in flight, where it is recomputed [B]
    recomputing: N  # of the stage, while it recomputes its largest layer or a module of it [B]
    freed: N  # of `static`, before anything is recomputed [B]
    state: N  # may lie on the host instead, all of it together [B]
    hosted: N  # on the host because sharded weights are, whatever is in flight [B]
    host_in_flight: N  # on the host for each micro-batch in flight [B]
    chosen: N  # 1 where it may be recomputed or not, 0 where it always or never is [1]


@dataclass(frozen=True, kw_only=True)
class LinearStage(Rows, Generic[N]):
    """Bytes of any stage of a plan: sums over the layers that it holds.

    fixed + sum of n_k (static_k + f in_flight_k) - sum of r_k f (in_flight_k - recomputed_k)
    + max(0, largest recomputing_k - sum of n_k freed_k)

    n_k: layers of kind k on the stage, r_k: those of them that are recomputed, f: micro-batches in flight; the largest
    `recomputing` is among the kinds of which a layer is recomputed, by choice or always.
    """

    layers: Mapping[str, LayerBytes[N]]  # by kind; of their state `static` has what is not on the host
    fixed: N  # what each stage takes by itself [B]
    offload: N  # share of the optimizer state on the host [1]

    def row(self, index: int) -> LinearStage[float]:
        """That of one of many plans."""
        row: LinearStage[float] = mapped(self, lambda column: float(column[index]))
        return row

    def of(self, kind: str, in_flight: Any, recomputed: bool = False) -> Any:
        """Bytes of one layer with so many micro-batches in flight [B]."""
        layer = self.layers[kind]
        return layer.static + in_flight * (layer.recomputed if recomputed else layer.in_flight)

    def least(self, kind: str, in_flight: Any) -> Any:
        """The same, recomputed or not, whichever is less [B]."""
        layer = self.layers[kind]
        return layer.static + in_flight * np.minimum(layer.in_flight, layer.recomputed)

    def saved(self, kind: str, in_flight: Any) -> Any:
        """Bytes that recomputing one layer saves [B]."""
        return in_flight * (self.layers[kind].in_flight - self.layers[kind].recomputed)

    def on_host(self, kind: str, in_flight: Any) -> Any:
        """Bytes of one layer on the host [B]."""
        layer = self.layers[kind]
        return self.offload * layer.state + layer.hosted + in_flight * layer.host_in_flight

    def offloaded(self, share: Any) -> LinearStage[N]:
        """The same with so much more of the optimizer state on the host [1]."""
        layers = {kind: layer.changed(static=layer.static - share * layer.state) for kind, layer in self.layers.items()}
        return self.changed(layers=layers, offload=self.offload + share)

    def reserved(
        self: LinearStage[float], counts: Mapping[str, Any], recomputed: Mapping[str, Any], in_flight: Any
    ) -> Any:
        """Bytes of stages with so many layers of each kind, of which so many are recomputed by choice [B].

        Args:
            counts: layers by kind, as numbers or arrays of stages.
            recomputed: those that may be recomputed and are.
            in_flight: micro-batches in flight.

        Returns:
            What each of the stages reserves.
        """
        whole, once, freed = self.fixed + 0 * in_flight, 0.0 * in_flight, 0.0
        for kind, n in counts.items():
            layer = self.layers[kind]
            whole = whole + n * self.of(kind, in_flight)
            if layer.recomputing:
                once = np.maximum(once, ((recomputed.get(kind, 0) if layer.chosen else n) > 0) * layer.recomputing)
            freed = freed + n * layer.freed
        for kind, n in recomputed.items():
            whole = whole - n * self.saved(kind, in_flight)
        return whole + np.maximum(once - freed, 0.0)

    def states(self, counts: Mapping[str, Any]) -> Any:
        """Bytes of stages with so many layers of each kind that may lie on the host, wherever they do [B]."""
        return sum((n * self.layers[kind].state for kind, n in counts.items()), 0.0)

    def hosted(self, counts: Mapping[str, Any], in_flight: Any) -> Any:
        """Bytes that stages with so many layers of each kind have on the host [B]."""
        return sum((n * self.on_host(kind, in_flight) for kind, n in counts.items()), 0.0 * in_flight)


def recomputing(layer_costs: LayerCosts, kind: str) -> tuple[FloatArray, FloatArray]:
    """Where layers of a kind are always recomputed, and where it may be chosen [1 or 0].

    Under full recomputation each layer may or may not be recomputed, unless the job pins it. MTP layers always are, but
    where the software recomputes equally many layers on every virtual stage: there they are if all layers are.
    """
    whole = (layer_costs.plans.recompute == FULL) * float(kind in LAYERS)
    always = whole * float(layer_costs.job.recomputes_all or (kind == MTP and not layer_costs.job.recomputes_alike))
    return always, whole - always


def linear_stage(layer_costs: LayerCosts, offload: FloatArray | float = 0.0) -> LinearStage[FloatArray]:
    """What the memory terms make of the stages of each plan, whatever its layout, with this share of the optimizer
    state on the host [1].
    """
    nothing = np.zeros(len(layer_costs))
    reserved = 1.0 + layer_costs.job.stack["fragmentation"]
    several = copies(layer_costs.plans) if np.any(both_ways(layer_costs.plans)) else 1.0
    # With what the allocator adds to the bytes of each term, and whether they may lie on the host.
    terms = [(term, reserved if term.fragments else 1.0, float(term.offloadable)) for term in MEMORY_TERMS.values()]
    static_of, state_of = (
        _of_elements([(term, times) for term, times, _ in terms], layer_costs),
        _of_elements([(term, hosts) for term, _, hosts in terms], layer_costs),
    )
    on_host_of = hosted_of(layer_costs)
    layers = {}
    for kind, kind_costs in layer_costs.by_kind.items():
        columns = dict.fromkeys(("in_flight", "recomputed", "recomputing", "freed", "host_in_flight"), nothing)
        static, state = static_of(kind_costs), state_of(kind_costs)
        for term, times, hosts in terms:
            layer, (resident, recomputed) = term.of_layer(layer_costs, kind), term.of_microbatch(layer_costs, kind)
            static, state = static + layer * times, state + layer * hosts
            columns["in_flight"] = columns["in_flight"] + resident * times
            columns["recomputed"] = columns["recomputed"] + (recomputed if kind in LAYERS else resident) * times
            columns["recomputing"] = (
                columns["recomputing"] + np.maximum(*term.while_recomputed(layer_costs, kind)) * times
            )
            columns["freed"] = columns["freed"] + layer * times * term.freed(layer_costs)
            columns["host_in_flight"] = columns["host_in_flight"] + term.on_host(layer_costs, kind)
        always, chosen = recomputing(layer_costs, kind)
        columns["in_flight"] = np.where(always > 0, columns["recomputed"], columns["in_flight"])
        columns |= {"static": static * several, "freed": columns["freed"] * several}
        layers[kind] = LayerBytes(
            **columns, state=state * several, hosted=on_host_of(kind_costs) * several, chosen=chosen
        )
    fixed = sum((term.of_stage(layer_costs) * times for term, times, _ in terms), nothing)
    return LinearStage(layers=layers, fixed=fixed, offload=nothing).offloaded(offload)


def hosted_of(layer_costs: LayerCosts) -> Callable[[Any], FloatArray]:
    """What lies on the host with sharded weights of the elements that it is given [B]; nothing where these stay on the
    device.
    """
    hosts = layer_costs.job.stack.features.hosted_weights
    terms = [(term, 1.0) for term in MEMORY_TERMS.values() if term.follows_weights and hosts]
    return _of_elements(terms, layer_costs, hosted=True)


def _of_elements(
    terms: Sequence[tuple[MemoryTerm, float]], layer_costs: LayerCosts, *, hosted: bool = False
) -> Callable[[Any], FloatArray]:
    """What terms, each so many times, take on the device, or of what lies on the host with the weights, of the elements
    of a layer, or of the whole model, that it is given [B].
    """
    freezes = layer_costs.job.method.freezes
    each = {True: [NOTHING, NOTHING], False: [NOTHING, NOTHING]}
    for term, times in terms:
        for place, size in enumerate((term.of_hosted_element if hosted else term.of_element)(layer_costs)):
            sizes = each[term.trained and freezes]
            sizes[place] = sizes[place] + size * times

    def of(elements: Any) -> FloatArray:
        resident = elements.shared * each[False][0] + elements.experts * each[False][1]
        if not freezes:
            return np.asarray(resident)
        return np.asarray(resident + elements.trained_shared * each[True][0] + elements.trained_experts * each[True][1])

    return of


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """Bytes of given stages."""

    content: Content  # the stages and what layers cost
    terms: Mapping[str, FloatArray]  # bytes by term of every stage (rows) [B]
    inputs: Mapping[str, Inputs]  # of each term's formula
    reserved: FloatArray  # by every stage, nothing by those that a plan does not have [B]

    @cached_property
    def offloadable(self) -> FloatArray:
        """What may lie on the host of each stage, wherever it does [B]."""
        terms = (term for term in MEMORY_TERMS.values() if term.offloadable)
        parts = (term.formula(term.inputs(self.content, np.ones(1))) for term in terms)
        return np.asarray(self.content.stages.exists * sum(parts, NOTHING))


def states_of_model(layer_costs: LayerCosts, *, offloadable: bool = False) -> FloatArray:
    """Bytes of all stages of each plan together that hang on no layout: per element, and all that is offloadable [B].

    Args:
        layer_costs: of the plans.
        offloadable: only what may lie on the host.

    Returns:
        An entry per plan.
    """
    whole, counts = layer_costs.replicas.whole_of_plans, kinds_of(layer_costs.job.model)
    states = NOTHING
    for term in MEMORY_TERMS.values():
        if term.offloadable or (term.per_element and not offloadable):
            layers = sum((n * term.of_layer(layer_costs, kind) for kind, n in counts.items()), NOTHING)
            states = states + (_of_elements([(term, 1.0)], layer_costs)(whole) + layers)
    return states


def activations_on_host(layer_costs: LayerCosts, stages: Stages) -> FloatArray:
    """Activations that each stage of every plan keeps on the host for a GPU [B].

    micro-batches in flight x layers by kind x what one of the kind keeps on the host for a micro-batch. What whole
    layers recompute is never there.

    Source: NVIDIA/Megatron-LM, fine-grained activation offloading: what is offloaded stays on the host until its
    backward pass; that no micro-batch is spared is assumed, and errs to the safe side.

    >>> from optimizer.catalog import load_cluster, load_model, load_stack
    >>> from optimizer.job.plan import Plan
    >>> job = Job(model=load_model("deepseek-v3"), cluster=load_cluster("dgx-h100"),
    ...     stack=load_stack("megatron-core"), gpus=256, seq_len=4096, global_batch=256)
    >>> plan = Plan(tp=8, pp=4, dp=8, ep=8, num_microbatches=32, sequence_parallel=True, activation_offload=100)
    >>> layer_costs = layer_costs_of(job, Plans.of([plan]))
    >>> (activations_on_host(layer_costs, stages_of(job.model, layer_costs.plans)) / 1e9).round(2).tolist()
    [[11.13], [9.99], [3.33]]
    """
    layers = NOTHING
    for term, kind in product(MEMORY_TERMS.values(), layer_costs.by_kind):
        size = term.on_host(layer_costs, kind)
        layers = layers + stages.counts[kind] * size if np.any(size) else layers
    return np.asarray(stages.exists * stages.in_flight * layers)


def weights_on_host(layer_costs: LayerCosts, stages: Stages) -> FloatArray:
    """Weights, gradients and optimizer state that each stage keeps on the host with sharded weights, for a GPU [B]."""
    if not layer_costs.job.stack.features.hosted_weights:
        return NOTHING
    of = hosted_of(layer_costs)
    layers = sum((stages.counts[kind] * of(costs) for kind, costs in layer_costs.by_kind.items()), NOTHING)
    return np.asarray(stages.exists * layers * copies(layer_costs.plans))


def stage_memory(layer_costs: LayerCosts, stages: Stages, knobs: Knobs | KnobColumns = Knobs()) -> StageMemory:
    """Every byte of each stage [B]."""
    content, device = Content(layer_costs=layer_costs, stages=stages), np.asarray(1.0 - knobs.offload)
    inputs: dict[str, Any] = {}
    for name, term in MEMORY_TERMS.items():
        if term.parts:
            inputs[name] = term.inputs(content, device if term.offloadable else np.ones(1))
    freed = [term for term in MEMORY_TERMS.values() if term.freed(layer_costs)]
    if freed:
        before = sum((term.formula(inputs[term.name]) for term in freed), np.zeros(1))
        for values in inputs.values():
            if "recomputing" in values:
                values["recomputing"] = np.maximum(0.0, values["recomputing"] - before)
    terms = {name: MEMORY_TERMS[name].formula(values) for name, values in inputs.items()}
    inputs["fragmentation"] = {
        "rate": np.asarray(layer_costs.job.stack["fragmentation"]),
        "dynamic": sum((terms[name] for name in terms if MEMORY_TERMS[name].fragments), np.zeros(1)),
    }
    terms["fragmentation"] = MEMORY_TERMS["fragmentation"].formula(inputs["fragmentation"])
    reserved = stages.exists * sum(terms.values(), np.zeros(1))
    return StageMemory(content=content, terms=terms, inputs=inputs, reserved=reserved)


def reserved_memory(job: Job, plans: Plans, knobs: Knobs | KnobColumns = Knobs()) -> FloatArray:
    """Peak reserved memory of every plan as `price` finds it [B]."""
    layer_costs = layer_costs_of(job, plans)
    return np.asarray(stage_memory(layer_costs, stages_of(job.model, plans), knobs).reserved.max(axis=0))
