"""The passes of one layer (or the head) over one micro-batch, each with its seconds term by term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import FloatArray, mapped, pick
from optimizer.objectives.kernels.modules import modes, recomputes
from optimizer.objectives.layer.overlapped import Terms

TERMS = ("gemm", "attention", "elementwise", "launch", "tp_communication", "cp_communication", "ep_communication")


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One pass over one layer; per shape."""

    terms: dict[str, FloatArray]  # seconds by term [s]
    hidden: FloatArray  # of communication hidden under compute [s]
    outlasting: FloatArray  # what would hide too if there were more to compute [s]

    @property
    def total(self) -> FloatArray:
        """All terms together [s]."""
        return sum(self.terms.values(), np.zeros(1))

    @property
    def compute(self) -> FloatArray:
        """The terms that keep the GPU's units busy, under which communication can hide [s]."""
        return self.terms["gemm"] + self.terms["attention"] + self.terms["elementwise"]

    @property
    def busy(self) -> FloatArray:
        """Computation with what the GPU waits for the host and for messages that outlast it (see `beyond`), while data
        parallelism's messages travel on [s].
        """
        return self.compute + self.terms["launch"] + self.outlasting

    @property
    def window(self) -> FloatArray:
        """Computation that hides no communication, and what the GPU waits for launches [s]."""
        return self.compute - self.hidden + self.terms["launch"]


@dataclass(frozen=True, kw_only=True)
class LayerTime:
    """One layer and micro-batch: forward and backward passes, and what recomputation adds to the backward pass."""

    forward: Phase
    backward: Phase
    selective: Phase
    full: Phase
    host: FloatArray  # the host's seconds for both passes [s]
    collectives: FloatArray  # how many it launches in them
    modules: Mapping[str, Phase] = field(default_factory=dict)  # what recomputing each module of the layer adds
    # what the forward and the backward pass gain or lose where they overlap with another micro-batch
    # (layer/overlapped.py)
    overlapped: tuple[Terms, Terms] = ({}, {})

    def take(self, rows: IntArray) -> LayerTime:
        """The layer at these shapes."""
        taken: LayerTime = mapped(self, lambda column: column[rows])
        return taken

    def recomputation(self, recompute: IntArray) -> Phase:
        """What these modes of recomputation add to the backward pass."""
        mode = modes(recompute)
        named = [(phase, recomputes(recompute, module)) for module, phase in self.modules.items()]
        terms = {term: pick(mode, (0.0, self.selective.terms[term], self.full.terms[term])) for term in TERMS}
        hidden, outlasting = (pick(mode, (0.0, 0.0, part)) for part in (self.full.hidden, self.full.outlasting))
        for phase, chosen in named:
            if np.any(chosen):
                terms = {term: seconds + np.where(chosen, phase.terms[term], 0.0) for term, seconds in terms.items()}
                hidden = hidden + np.where(chosen, phase.hidden, 0.0)
                outlasting = outlasting + np.where(chosen, phase.outlasting, 0.0)
        return Phase(terms=terms, hidden=hidden, outlasting=outlasting)
