"""The bytes of a stage, term by term; each function is the formula that is executed and printed.

Arrays of layers have a row for each kind (embedding, dense, MoE, prediction layer, head).
"""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.objectives.arrays import FloatArray, total
from optimizer.objectives.kernels import activations as kernels
from optimizer.objectives.step.formula import BYTES, Formula, Term


def states(shared: FloatArray, shared_bytes: FloatArray, experts: FloatArray, expert_bytes: FloatArray) -> FloatArray:
    """Weights, gradients or optimizer state of a stage [B].

    shared, experts: elements that a rank holds or shards with others [1]; shared_bytes, expert_bytes: bytes for each
    that the rank keeps of it [B].

    ZeRO-1 divides the optimizer state by the sharding ranks, ZeRO-2 the gradients, ZeRO-3 the weights as well.

    Source: Rajbhandari et al., arXiv 1910.02054, section 5 and figure 1.

    >>> import numpy as np
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


def logits(layers: FloatArray, static: FloatArray) -> FloatArray:
    """Logits of the loss, those of prediction layers too [B]: layers by kind, static: bytes of each [B].

    Source: Megatron-LM, megatron/core/tensor_parallel/cross_entropy.py; bytes per logit are fitted (logit_memory).
    """
    return total(layers * static)


def buffers(workspace: FloatArray, unsharded: FloatArray, gathered: FloatArray) -> FloatArray:
    """Library workspaces; layers that sharding puts together; tokens that sequence parallelism gathers [B].

    unsharded: ZeRO-3's gathered weights of two units and the gradient of one, ZeRO-2's gradient of one [B].

    Source: Zhao et al., arXiv 2304.11277, section 4 (the rate limiter keeps two gathered units).
    """
    return workspace + unsharded + gathered


def fragmentation(rate: FloatArray, dynamic: FloatArray) -> FloatArray:
    """What the allocator reserves beyond its peak: a share of the dynamic terms [B]. Source: fitted."""
    return rate * dynamic


MEMORY_TERMS: Mapping[str, Term] = {
    term.name: term
    for term in (
        Term(name="weights", label="weights", unit=BYTES, formula=Formula(function=states)),
        Term(name="gradients", label="gradients", unit=BYTES, formula=Formula(function=states)),
        Term(name="optimizer", label="optimizer", unit=BYTES, formula=Formula(function=states), knobs=("offload",)),
        Term(
            name="activations",
            label="activations",
            unit=BYTES,
            formula=Formula(function=activations),
            parameters=("activation_factor",),
            kernels=(kernels.activation_bytes, kernels.norm_bytes),
        ),
        Term(name="logits", label="logits", unit=BYTES, formula=Formula(function=logits), parameters=("logit_memory",)),
        Term(name="buffers", label="buffers", unit=BYTES, formula=Formula(function=buffers), parameters=("workspace",)),
        Term(
            name="fragmentation",
            label="fragmentation",
            unit=BYTES,
            formula=Formula(function=fragmentation),
            parameters=("fragmentation",),
        ),
    )
}
