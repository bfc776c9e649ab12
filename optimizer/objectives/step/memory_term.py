"""What a memory term says of pipeline stages: bytes per stage, per element, per layer, or per micro-batch in flight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from optimizer.objectives.arrays import FloatArray, total
from optimizer.objectives.layer.layer_costs import LayerCosts
from optimizer.objectives.layer.sharded import hosts_weights
from optimizer.objectives.pipeline.schedules import copies
from optimizer.objectives.pipeline.stages import EMBEDDING, LAYERS, Stages
from optimizer.objectives.step.elements import elements_on
from optimizer.objectives.step.formula import BYTES, Formula, Term

OfStage = Callable[[LayerCosts], FloatArray]  # bytes of a stage of every plan [B]
OfElement = Callable[[LayerCosts], tuple[FloatArray, FloatArray]]  # of an element, shared and of experts [B]
OfLayer = Callable[[LayerCosts, str], FloatArray]  # of a layer of a kind [B]
NOTHING = np.zeros(1)
PARTS = ("shared", "experts")


@dataclass(frozen=True, kw_only=True)
class Content:
    """What stages hold of plans whose layers have costs."""

    layer_costs: LayerCosts
    stages: Stages

    @cached_property
    def resident(self) -> tuple[FloatArray, FloatArray]:
        """Elements on each stage, of shared parameters and of experts [elements]."""
        return self._elements("")

    @cached_property
    def trained(self) -> tuple[FloatArray, FloatArray]:
        """Those that are trained [elements]."""
        return self._elements("trained_") if self.layer_costs.job.method.freezes else self.resident

    def _elements(self, sort: str) -> tuple[FloatArray, FloatArray]:
        shared, experts = (elements_on(self.layer_costs, self.stages, f"{sort}{part}") for part in PARTS)
        return shared, experts


@dataclass(frozen=True, kw_only=True)
class MemoryTerm(Term):
    """One term of the memory: what a stage takes of it, in two readings: inputs of its formula, and what a layer adds.

    One of the first four is given; none for fragmentation, which the other terms make up.
    """

    # bytes that each stage takes, whatever it holds, by the arguments of the formula [B]
    per_stage: Mapping[str, OfStage] = field(default_factory=dict)
    # that a rank keeps for each element which it holds or shards, shared and of experts [B]
    per_element: OfElement | None = None
    per_layer: OfLayer | None = None  # of each layer of a kind, whatever is in flight [B]
    in_flight: OfLayer | None = None  # of each layer of a kind for each micro-batch in flight [B]
    recomputed: OfLayer | None = None  # the same of a layer that is recomputed; as `in_flight` where it is None [B]
    # of a stage while it recomputes modules of its largest layer, for one term of the registry alone [B]
    modules: OfLayer | None = None
    whole: OfLayer | None = None  # of a stage while it recomputes the whole of its largest layer, for the same term [B]
    # of each layer for each micro-batch in flight that lie on the host whatever the knobs [B]
    hosted: OfLayer | None = None
    # whether the bytes of layers are free again before anything is recomputed; for terms that fragment
    free_early: Callable[[LayerCosts], bool] | None = None
    fragments: bool = False  # the allocator reserves more than it
    trained: bool = False  # `per_element` is of an element that is trained, not of each that is held
    follows_weights: bool = False  # `per_element` lies on the host where sharded weights do
    # the share `offload` of it lies on the host. It is a state: per element or layer, not fragmented.
    offloadable: bool = False

    def __post_init__(self) -> None:
        if sum(map(bool, (self.per_stage, self.per_element, self.per_layer, self.in_flight))) > 1:
            raise ValueError(f"{self.name}: a term is of one sort; bytes of two sorts are two terms")
        if self.offloadable and (self.fragments or not (self.per_element or self.per_layer)):
            raise ValueError(f"{self.name}: what is offloadable takes bytes per element or layer and does not fragment")
        if self.free_early and not self.fragments:
            raise ValueError(f"{self.name}: what is freed before anything is recomputed fragments as that does")

    @property
    def parts(self) -> tuple[Callable[..., Any], ...]:
        """The functions that give its bytes; none for fragmentation."""
        return tuple(
            part for part in (*self.per_stage.values(), self.per_element, self.per_layer, self.in_flight) if part
        )

    def of_stage(self, layer_costs: LayerCosts) -> FloatArray:
        """Bytes of every stage, whatever it holds [B]."""
        return sum((part(layer_costs) for part in self.per_stage.values()), NOTHING)

    def of_element(self, layer_costs: LayerCosts) -> tuple[FloatArray, FloatArray]:
        """Bytes of an element of shared parameters and of experts [B]."""
        if not self.per_element:
            return NOTHING, NOTHING
        shared, experts = self.per_element(layer_costs)
        if not self._hosted(layer_costs):
            return shared, experts
        stays = 1.0 - self._away(layer_costs)
        return shared * stays, experts * stays

    def of_hosted_element(self, layer_costs: LayerCosts) -> tuple[FloatArray, FloatArray]:
        """Bytes of an element that lie on the host because sharded weights do, of shared parameters and experts [B]."""
        if not self.per_element or not self._hosted(layer_costs):
            return NOTHING, NOTHING
        shared, experts = self.per_element(layer_costs)
        away = self._away(layer_costs)
        return shared * away, experts * away

    def _hosted(self, layer_costs: LayerCosts) -> bool:
        return self.follows_weights and layer_costs.job.stack.features.hosted_weights

    def _away(self, layer_costs: LayerCosts) -> FloatArray:
        """1 where the term lies on the host with the weights, else 0."""
        return hosts_weights(layer_costs.job, layer_costs.plans).astype(np.float64)

    def of_layer(self, layer_costs: LayerCosts, kind: str) -> FloatArray:
        """Bytes of a layer, whatever is in flight [B]."""
        return self.per_layer(layer_costs, kind) if self.per_layer else NOTHING

    def of_microbatch(self, layer_costs: LayerCosts, kind: str) -> tuple[FloatArray, FloatArray]:
        """Bytes of a layer for each micro-batch in flight, and of one that is recomputed [B]."""
        each = self.in_flight(layer_costs, kind) if self.in_flight else NOTHING
        return each, self.recomputed(layer_costs, kind) if self.recomputed else each

    def while_recomputed(self, layer_costs: LayerCosts, kind: str) -> tuple[FloatArray, FloatArray]:
        """Bytes of a stage while it recomputes modules of its largest layer, or the whole of it [B]."""
        modules, whole = (part(layer_costs, kind) if part else NOTHING for part in (self.modules, self.whole))
        return modules, whole

    def on_host(self, layer_costs: LayerCosts, kind: str) -> FloatArray:
        """Bytes of a layer for each micro-batch in flight that lie on the host whatever the knobs [B]."""
        return self.hosted(layer_costs, kind) if self.hosted else NOTHING

    def freed(self, layer_costs: LayerCosts) -> bool:
        """Whether the term's bytes are free again before anything is recomputed."""
        return self.free_early is not None and self.free_early(layer_costs)

    def inputs(self, content: Content, share: FloatArray) -> dict[str, FloatArray]:
        """Inputs of the formula on stages, for this share of the term."""
        layer_costs, stages = content.layer_costs, content.stages
        if self.per_element:
            shared, experts = (each * share for each in self.of_element(layer_costs))
            elements = dict(zip(PARTS, content.trained if self.trained else content.resident, strict=True))
            return {**elements, "shared_bytes": shared, "expert_bytes": experts}
        if self.per_layer:
            columns = {kind: self.per_layer(layer_costs, kind) for kind in layer_costs.by_kind}
            kinds = [kind for kind, column in columns.items() if np.any(column)] or [EMBEDDING]
            return {
                "layers": copies(layer_costs.plans) * np.stack([stages.counts[kind] for kind in kinds]),
                "static": np.stack([share * columns[kind] for kind in kinds])[:, None],
            }
        if self.in_flight:
            pairs = {kind: self.of_microbatch(layer_costs, kind) for kind in layer_costs.by_kind}
            kinds = [kind for kind, pair in pairs.items() if any(map(np.any, pair))] or [EMBEDDING]
            resident, resident_recomputed = (
                np.stack([share * pairs[kind][i] for kind in kinds])[:, None] for i in (0, 1)
            )
            return {
                "in_flight": stages.in_flight,
                "layers": np.stack([stages.counts[kind] for kind in kinds]),
                "resident": resident,
                "recomputed": np.stack([stages.recomputed.get(kind, 0.0 * stages.exists) for kind in kinds]),
                "resident_recomputed": resident_recomputed,
                "recomputing": share * self._largest(content),
            }
        return {name: share * part(layer_costs) for name, part in self.per_stage.items()}

    def _largest(self, content: Content) -> FloatArray:
        """Bytes of each stage while it recomputes its largest layer [B]."""
        largest, stages = np.zeros(content.stages.exists.shape), content.stages
        for kind in (kind for kind in content.layer_costs.by_kind if kind in LAYERS):
            sizes = self.while_recomputed(content.layer_costs, kind)
            for size, counts in zip(sizes, (stages.counts, stages.recomputed), strict=True):
                if np.any(size):
                    largest = np.maximum(largest, size * (counts[kind] > 0))
        return largest


def on_stage(each: FloatArray) -> FloatArray:
    """Bytes that each stage takes [B]."""
    return each + 0.0


def on_layers(layers: FloatArray, static: FloatArray) -> FloatArray:
    """Bytes of layers by kind, static: of each [B]."""
    return total(layers * static)


def states(shared: FloatArray, shared_bytes: FloatArray, experts: FloatArray, expert_bytes: FloatArray) -> FloatArray:
    """Weights, gradients or optimizer state of a stage [B].

    shared, experts: elements that a rank holds or shards with others [1]; shared_bytes, expert_bytes: bytes for each
    that the rank keeps of it [B].

    ZeRO-1 divides the optimizer state by the sharding ranks, ZeRO-2 the gradients, ZeRO-3 the weights as well.

    Source: Rajbhandari et al., arXiv 1910.02054, section 5 and figure 1.

    >>> float(states(np.array(1e9), np.array(2.0), np.array(0.0), np.array(2.0)))
    2000000000.0
    """
    return shared * shared_bytes + experts * expert_bytes


def activations(
    in_flight: FloatArray,
    layers: FloatArray,
    resident: FloatArray,
    recomputed: FloatArray,
    resident_recomputed: FloatArray,
    recomputing: FloatArray,
) -> FloatArray:
    """Activations of a stage at its peak [B].

    in_flight: micro-batches [1]; layers: by kind, resident: bytes of each for one micro-batch; recomputed: layers that
    full recomputation recomputes, resident_recomputed: bytes of each of these; recomputing: bytes of the largest that
    is being recomputed [B].

    Source: Korthikanti et al., arXiv 2205.05198, equations 1, 2 and 4 for a layer.
    """
    return in_flight * (total(layers * resident) + total(recomputed * (resident_recomputed - resident))) + recomputing


def memory_term(name: str, label: str, *, formula: Callable[..., FloatArray] | None = None, **more: Any) -> MemoryTerm:
    """A term of the memory, for MEMORY_TERMS.

    Args:
        name: in answers.
        label: for people.
        formula: of one expression, printed with its own docstring; else that of what takes the bytes, printed with the
            docstring of the function that gives them.
        more: other fields of MemoryTerm.

    Returns:
        The term in bytes.
    """
    kinds: Mapping[str, Callable[..., FloatArray]] = {
        "per_element": states,
        "per_layer": on_layers,
        "in_flight": activations,
    }
    executed = next((kinds[kind] for kind in kinds if kind in more), on_stage)
    term = MemoryTerm(name=name, label=label, unit=BYTES, formula=Formula(function=formula or executed), **more)
    return term if formula else replace(term, formula=Formula(function=executed, documented=term.parts[0]))
