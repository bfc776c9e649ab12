"""The seconds of a step, term by term; each function is the formula that is executed and printed.

Arrays of layers have a row for each kind (embedding, dense, MoE, prediction layer, head).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from optimizer.objectives.arrays import FloatArray, total
from optimizer.objectives.kernels import attention, gemm
from optimizer.objectives.layer import dispatchers, host, messages, seconds
from optimizer.objectives.step.formula import COMPUTE, SECONDS, STREAM, WAIT, Formula, Term

RATES = ("scale_up_efficiency", "network_efficiency", "collective_skew")


def in_layers(
    microbatches: FloatArray,
    layers: FloatArray,
    seconds: FloatArray,
    recomputed: FloatArray,
    again: FloatArray,
    beside: FloatArray,
) -> FloatArray:
    """What the slowest stage spends on one term [s].

    microbatches of a step; layers: by kind on the stage, seconds: of each for one micro-batch, forward and backward
    [s]; recomputed: layers that full recomputation recomputes, again: seconds that this adds to each [s]; beside: what
    a stage spends beside its layers [s].

    Source: Narayanan et al., arXiv 2104.04473, section 2.2.

    >>> two = np.array([[2.0], [1.0]])
    >>> float(in_layers(np.array([8.0]), two, two, two * 0, two, np.array([0.5]))[0])
    44.0
    """
    return microbatches * (total(layers * seconds) + total(recomputed * again) + beside)


def bubble(slowest: FloatArray, whole: FloatArray, vpp: FloatArray, filled: FloatArray) -> FloatArray:
    """Time for which the slowest stage waits for the others [s].

    slowest, whole: seconds of the slowest stage and of all stages for one micro-batch [s]; vpp: virtual stages of each
    [1]; filled: what weights' gradients fill of it under a zero-bubble schedule [s].

    Source: Narayanan et al., arXiv 2104.04473, section 2.2; Qi et al., arXiv 2401.10241, section 2.3.

    >>> float(bubble(np.array(1.0), np.array(4.0), np.array(2.0), np.array(0.0)))
    1.5
    """
    return np.maximum((whole - slowest) / vpp - filled, 0.0)


def hidden(
    hideable: FloatArray, backward: FloatArray, gather: FloatArray, forward: FloatArray, overlap: FloatArray
) -> FloatArray:
    """What of the step's gradients and weights hides under the last backward and the first forward pass [s].

    hideable: seconds of the gradients' buckets but the last [s]; gather: of the weights [s]; backward, forward:
    computation of one micro-batch on one virtual stage [s]; overlap: share of it that the software hides [1].

    Source: Li et al., arXiv 2006.15704, section 3.2 (buckets); the share is fitted.

    >>> float(hidden(np.array(3.0), np.array(2.0), np.array(1.0), np.array(4.0), np.array(0.5)))
    1.5
    """
    return np.asarray(overlap * (np.minimum(hideable, backward) + np.minimum(gather, forward)))


def data_parallel(sharded: FloatArray, reduce: FloatArray, gather: FloatArray, hides: FloatArray) -> FloatArray:
    """Gradients and weights that show [s].

    sharded: what ZeRO-2 and ZeRO-3 show in every micro-batch [s]; reduce: all buckets of gradients, gather: all buckets
    of weights of a step [s]; hides: what of both is hidden [s].

    Source: Rajbhandari et al., arXiv 1910.02054, section 7.
    """
    return sharded + reduce + gather - hides


def contention(hides: FloatArray, comm_sm_share: FloatArray) -> FloatArray:
    """What computation loses to the collectives that hide under it, which take a share of the SMs [s].

    Source: assumed: computation slows down by the share that is taken.
    """
    return hides * comm_sm_share


def optimizer(
    updated: FloatArray,
    passes: FloatArray,
    bandwidth: FloatArray,
    offload: FloatArray,
    host_bandwidth: FloatArray,
) -> FloatArray:
    """Adam on the elements that a rank updates [s].

    updated: elements [1]; passes: HBM traffic over one read and write (stack); bandwidth: of HBM, host_bandwidth: of
    the host link [B/s]; offload: share of the state on the host [1]. 30 B an element: gradient, master weight and two
    moments are read, the last three and the weight written; 34 B over the host link and in its memory.

    Source: Rajbhandari et al., arXiv 1910.02054, section 3.1 for the state; Ren et al., arXiv 2101.06840 for offload.

    >>> float(optimizer(np.array(1e9), np.array(1.0), np.array(3e12), np.array(0.0), np.array(1e11)))
    0.01
    """
    return updated * (30.0 * passes / bandwidth * (1.0 - offload) + 34.0 / host_bandwidth * offload)


def overhead(step_overhead: FloatArray) -> FloatArray:
    """Host time per step: data, logging, clipping [s]."""
    return step_overhead + 0.0


def stragglers(rest: FloatArray, straggler: FloatArray, nodes: FloatArray) -> FloatArray:
    """Time lost to the slowest of many nodes [s]: rest: all other terms [s]; straggler: per doubling of the nodes [1].

    Source: assumed form, the expected maximum of n like delays growing with log n; the rate is fitted.

    >>> float(stragglers(np.array(10.0), np.array(0.01), np.array(4.0)))
    0.2
    """
    return rest * straggler * np.log2(np.maximum(1.0, nodes))


def _layer(name: str, label: str, burns: str = WAIT, **more: Any) -> Term:
    return Term(name=name, label=label, unit=SECONDS, formula=Formula(function=in_layers), burns=burns, **more)


TIME_TERMS: Mapping[str, Term] = {
    term.name: term
    for term in (
        _layer(
            "gemm",
            "matrix products",
            COMPUTE,
            parameters=("gemm_efficiency", "expert_efficiency"),
            quantities=("peak_flops",),
            kernels=(gemm.gemm_time, seconds.gemm_seconds),
        ),
        _layer(
            "attention",
            "attention",
            COMPUTE,
            parameters=("attention_efficiency", "score_passes"),
            quantities=("peak_flops",),
            kernels=(attention.flash_time, attention.softmax_time),
        ),
        _layer(
            "elementwise",
            "element-wise",
            STREAM,
            parameters=("hbm_efficiency", "elementwise_passes"),
            quantities=("memory_bandwidth",),
            kernels=(seconds.elementwise_seconds,),
        ),
        _layer(
            "launch",
            "kernel launches",
            parameters=("launch", "microbatch_overhead", "pipelined_collective", "expert_host"),
            kernels=(seconds.launch_seconds, seconds.mixture_host),
        ),
        _layer(
            "tp_communication",
            "TP communication",
            parameters=("tp_overlap", *RATES),
            kernels=(messages.tensor_messages,),
        ),
        _layer(
            "cp_communication",
            "CP communication",
            parameters=("cp_overlap", *RATES),
            kernels=(messages.context_messages,),
        ),
        _layer(
            "ep_communication",
            "EP communication",
            parameters=("ep_overlap", "expert_imbalance", *RATES),
            kernels=(messages.expert_messages, dispatchers.exchange_seconds),
        ),
        _layer(
            "host_transfer",
            "host transfers",
            quantities=("memory_bandwidth",),
            kernels=(host.host_seconds,),
        ),
        _layer(
            "head",
            "output head and loss",
            COMPUTE,
            parameters=("gemm_efficiency", "hbm_efficiency"),
        ),
        _layer(
            "pp_communication",
            "PP communication",
            parameters=("p2p_overlap", *RATES),
            kernels=(messages.boundary_messages,),
        ),
        Term(
            name="dp_communication",
            label="DP communication",
            unit=SECONDS,
            formula=Formula(function=data_parallel),
            phase="step",
            knobs=("bucket", "comm_sm_share"),
            parameters=("dp_overlap", *RATES),
            kernels=(hidden,),
        ),
        Term(
            name="bubble",
            label="pipeline bubble",
            unit=SECONDS,
            formula=Formula(function=bubble),
            phase="pipeline",
        ),
        Term(
            name="contention",
            label="overlap contention",
            unit=SECONDS,
            formula=Formula(function=contention),
            phase="step",
            knobs=("bucket", "comm_sm_share"),
        ),
        Term(
            name="optimizer",
            label="optimizer",
            unit=SECONDS,
            formula=Formula(function=optimizer),
            phase="step",
            burns=STREAM,
            knobs=("offload",),
            parameters=("optimizer_passes",),
            quantities=("memory_bandwidth",),
        ),
        Term(
            name="overhead",
            label="step overhead",
            unit=SECONDS,
            formula=Formula(function=overhead),
            phase="step",
            parameters=("step_overhead",),
        ),
        Term(
            name="stragglers",
            label="stragglers",
            unit=SECONDS,
            formula=Formula(function=stragglers),
            phase="step",
            parameters=("straggler",),
        ),
    )
}
KNOB_TERMS = tuple(name for name, term in TIME_TERMS.items() if term.knobs)


def burning(what: str) -> tuple[str, ...]:
    """Terms during which a GPU computes (COMPUTE), streams memory (STREAM) or waits (WAIT).

    >>> burning(COMPUTE)
    ('gemm', 'attention', 'head')
    """
    return tuple(name for name, term in TIME_TERMS.items() if term.burns == what)
