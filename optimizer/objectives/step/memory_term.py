"""What a memory term says of pipeline stages: bytes per stage, per element, per layer, or per micro-batch in flight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optimizer.objectives.arrays import FloatArray, total
from optimizer.objectives.layer.bill import Bill
from optimizer.objectives.pipeline.schedules import copies
from optimizer.objectives.pipeline.stages import EMBEDDING, LAYERS, Stages
from optimizer.objectives.step.formula import BYTES, Formula, Term
from optimizer.objectives.step.once import elements_on

OfStage = Callable[[Bill], FloatArray]  # bytes of a stage of every plan [B]
OfElement = Callable[[Bill], tuple[FloatArray, FloatArray]]  # of an element, shared and of experts [B]
OfLayer = Callable[[Bill, str], FloatArray]  # of a layer of a kind [B]
NOTHING = np.zeros(1)


@dataclass(frozen=True, kw_only=True)
class Content:
    """What stages hold of plans whose layers have costs."""

    bill: Bill
    stages: Stages

    @cached_property
    def shared(self) -> FloatArray:
        """Elements of shared parameters on each stage [elements]."""
        return elements_on(self.bill, self.stages, "shared")

    @cached_property
    def experts(self) -> FloatArray:
        """Elements of experts on each stage [elements]."""
        return elements_on(self.bill, self.stages, "experts")


class Takes:
    """What a term takes, in two readings: inputs of its formula on given stages, and what a stage is the sum of."""

    each: Callable[..., Any]

    @property
    def executed(self) -> Callable[..., FloatArray]:
        """The formula of the bytes on a stage."""
        raise NotImplementedError

    def inputs(self, content: Content, share: FloatArray) -> dict[str, FloatArray]:
        """Inputs of the formula on stages, for this share of the term."""
        raise NotImplementedError

    def per_stage(self, bill: Bill) -> FloatArray:
        """Bytes of every stage, whatever it holds [B]."""
        return NOTHING

    def per_element(self, bill: Bill) -> tuple[FloatArray, FloatArray]:
        """Bytes of an element of shared parameters and of experts [B]."""
        return NOTHING, NOTHING

    def per_layer(self, bill: Bill, kind: str) -> FloatArray:
        """Bytes of a layer, whatever is in flight [B]."""
        return NOTHING

    def in_flight(self, bill: Bill, kind: str) -> tuple[FloatArray, FloatArray]:
        """Bytes of a layer for each micro-batch in flight, and of one that is recomputed [B]."""
        return NOTHING, NOTHING

    def while_recomputed(self, bill: Bill, kind: str) -> tuple[FloatArray, FloatArray]:
        """Bytes of a stage while it recomputes modules of its largest layer, or the whole of it [B]."""
        return NOTHING, NOTHING

    def on_host(self, bill: Bill, kind: str) -> FloatArray:
        """Bytes of a layer for each micro-batch in flight that lie on the host whatever the knobs [B]."""
        return NOTHING

    def freed(self, bill: Bill) -> bool:
        """Whether the term's bytes are free again before anything is recomputed."""
        return False


class PerStage(Takes):
    """Bytes that each stage takes, whatever it holds: by `each`, or by several parts under the names of a formula."""

    def __init__(self, each: OfStage | None = None, **parts: OfStage) -> None:
        self.parts = {"each": each, **parts} if each else parts
        self.each = next(iter(self.parts.values()))

    @property
    def executed(self) -> Callable[..., FloatArray]:
        """What each stage takes."""
        return on_stage

    def inputs(self, content: Content, share: FloatArray) -> dict[str, FloatArray]:
        """The parts."""
        return {name: share * part(content.bill) for name, part in self.parts.items()}

    def per_stage(self, bill: Bill) -> FloatArray:
        """Their sum [B]."""
        return sum((part(bill) for part in self.parts.values()), NOTHING)


@dataclass(frozen=True)
class PerElement(Takes):
    """Bytes that a rank keeps for each element of the parameters that it holds or shards with others."""

    each: OfElement

    @property
    def executed(self) -> Callable[..., FloatArray]:
        """Elements x what each takes."""
        return states

    def inputs(self, content: Content, share: FloatArray) -> dict[str, FloatArray]:
        """Elements on each stage, and bytes of each."""
        shared, experts = self.each(content.bill)
        return {
            "shared": content.shared,
            "shared_bytes": shared * share,
            "experts": content.experts,
            "expert_bytes": experts * share,
        }

    def per_element(self, bill: Bill) -> tuple[FloatArray, FloatArray]:
        """Bytes of an element [B]."""
        return self.each(bill)


@dataclass(frozen=True)
class PerLayer(Takes):
    """Bytes of each layer, whatever is in flight.

    Attributes:
        each: of a layer [B].
        free_early: see Takes.freed; for terms that fragment.
    """

    each: OfLayer
    free_early: Callable[[Bill], bool] | None = None

    @property
    def executed(self) -> Callable[..., FloatArray]:
        """Layers x what each takes."""
        return on_layers

    def inputs(self, content: Content, share: FloatArray) -> dict[str, FloatArray]:
        """Layers by kind on each stage, and bytes of each."""
        bill, counts = content.bill, content.stages.counts
        columns = {kind: self.each(bill, kind) for kind in bill.entries}
        kinds = [kind for kind, column in columns.items() if np.any(column)] or [EMBEDDING]
        return {
            "layers": copies(bill.plans) * np.stack([counts[kind] for kind in kinds]),
            "static": np.stack([share * columns[kind] for kind in kinds])[:, None],
        }

    def per_layer(self, bill: Bill, kind: str) -> FloatArray:
        """Bytes of a layer [B]."""
        return self.each(bill, kind)

    def freed(self, bill: Bill) -> bool:
        """As `free_early` says."""
        return self.free_early is not None and self.free_early(bill)


@dataclass(frozen=True)
class InFlight(Takes):
    """Bytes of each layer for each micro-batch in flight.

    Attributes:
        each: of a layer that is not recomputed [B].
        recomputed: of one that is; the same where nothing is said [B].
        modules, whole: see Takes.while_recomputed, for one term of the registry alone [B].
        hosted: see Takes.on_host [B].
    """

    each: OfLayer
    recomputed: OfLayer | None = None
    modules: OfLayer | None = None
    whole: OfLayer | None = None
    hosted: OfLayer | None = None

    @property
    def executed(self) -> Callable[..., FloatArray]:
        """Micro-batches in flight x layers x what each takes."""
        return activations

    def inputs(self, content: Content, share: FloatArray) -> dict[str, FloatArray]:
        """Micro-batches in flight, layers by kind, those recomputed, bytes of each, and what one takes meanwhile."""
        bill, stages = content.bill, content.stages
        columns = {kind: self.in_flight(bill, kind) for kind in bill.entries}
        kinds = [kind for kind, pair in columns.items() if any(map(np.any, pair))] or [EMBEDDING]
        kept, kept_recomputed = (np.stack([share * columns[kind][i] for kind in kinds])[:, None] for i in (0, 1))
        return {
            "in_flight": stages.in_flight,
            "layers": np.stack([stages.counts[kind] for kind in kinds]),
            "kept": kept,
            "recomputed": np.stack([stages.recomputed.get(kind, 0.0 * stages.exists) for kind in kinds]),
            "kept_recomputed": kept_recomputed,
            "once": share * self._while_recomputed(content),
        }

    def _while_recomputed(self, content: Content) -> FloatArray:
        largest = np.zeros(content.stages.exists.shape)
        for kind in content.bill.entries:
            if kind in LAYERS:
                parts = self.while_recomputed(content.bill, kind)
                for size, counts in zip(parts, (content.stages.counts, content.stages.recomputed), strict=True):
                    if np.any(size):
                        largest = np.maximum(largest, size * (counts[kind] > 0))
        return largest

    def in_flight(self, bill: Bill, kind: str) -> tuple[FloatArray, FloatArray]:
        """Bytes of a layer, and of one that is recomputed [B]."""
        each = self.each(bill, kind)
        return each, self.recomputed(bill, kind) if self.recomputed else each

    def while_recomputed(self, bill: Bill, kind: str) -> tuple[FloatArray, FloatArray]:
        """Bytes while modules, or the whole layer, are recomputed [B]."""
        modules, whole = (part(bill, kind) if part else NOTHING for part in (self.modules, self.whole))
        return modules, whole

    def on_host(self, bill: Bill, kind: str) -> FloatArray:
        """Bytes on the host [B]."""
        return self.hosted(bill, kind) if self.hosted else NOTHING


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
    kept: FloatArray,
    recomputed: FloatArray,
    kept_recomputed: FloatArray,
    once: FloatArray,
) -> FloatArray:
    """Activations of a stage at its peak [B].

    in_flight: micro-batches [1]; layers: by kind, kept: bytes of each for one micro-batch; recomputed: layers that full
    recomputation recomputes, kept_recomputed: bytes of each of these; once: the largest that is being recomputed [B].

    Source: Korthikanti et al., arXiv 2205.05198, equations 1, 2 and 4 for a layer.
    """
    return in_flight * (total(layers * kept) + total(recomputed * (kept_recomputed - kept))) + once


@dataclass(frozen=True, kw_only=True)
class MemoryTerm(Term):
    """One term of the memory.

    Attributes:
        takes: what stages take of it; None for fragmentation, which the other terms make up.
        fragments: the allocator reserves more than it.
        offloadable: the share `offload` of it lies on the host. It is a state: per element or layer, not fragmented.
    """

    takes: Takes | None = None
    fragments: bool = False
    offloadable: bool = False

    def __post_init__(self) -> None:
        if self.offloadable and (self.fragments or not isinstance(self.takes, PerElement | PerLayer)):
            raise ValueError(f"{self.name}: what is offloadable takes bytes per element or layer and does not fragment")
        if isinstance(self.takes, PerLayer) and self.takes.free_early and not self.fragments:
            raise ValueError(f"{self.name}: what is freed before anything is recomputed fragments as that does")


def memory_term(
    name: str, label: str, takes: Takes, *, formula: Callable[..., FloatArray] | None = None, **more: Any
) -> MemoryTerm:
    """A term of the memory, for MEMORY_TERMS.

    Args:
        name: in answers.
        label: for people.
        takes: what stages take of it. The docstring of its function is printed with the formula.
        formula: of one expression, where it is not that of `takes`; printed with its own docstring.
        more: other fields of MemoryTerm.

    Returns:
        The term in bytes.
    """
    executed = Formula(function=formula or takes.executed, documented=None if formula else takes.each)
    return MemoryTerm(name=name, label=label, unit=BYTES, formula=executed, takes=takes, **more)
