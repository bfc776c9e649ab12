"""The seconds of a step, term by term; each function is the formula that is executed and printed.

Arrays of layers have a row for each kind (embedding, dense, MoE, prediction layer, head).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from optimizer.objectives.arrays import FloatArray, total
from optimizer.objectives.kernels import attention, gemm
from optimizer.objectives.layer import cost, dispatchers, messages, overlapped, seconds
from optimizer.objectives.network.messages import collective, exposed
from optimizer.objectives.step.formula import COMPUTE, SECONDS, STREAM, WAIT, Formula, Term

RATES = ("scale_up_efficiency", "network_efficiency", "collective_skew")


def in_layers(
    microbatches: FloatArray,
    layers: FloatArray,
    seconds: FloatArray,
    recomputed: FloatArray,
    recompute: FloatArray,
    stage_seconds: FloatArray,
) -> FloatArray:
    """What the slowest stage spends on one term [s].

    microbatches of a step; layers: by kind on the stage, seconds: of each for one micro-batch, forward and backward
    [s]; recomputed: layers that full recomputation recomputes, recompute: seconds that this adds to each [s];
    stage_seconds: what a stage spends outside its layers [s].

    Source: Narayanan et al., arXiv 2104.04473, section 2.2.

    >>> two = np.array([[2.0], [1.0]])
    >>> float(in_layers(np.array([8.0]), two, two, two * 0, two, np.array([0.5]))[0])
    44.0
    """
    return microbatches * (total(layers * seconds) + total(recomputed * recompute) + stage_seconds)


def bubble(
    slowest: FloatArray, whole: FloatArray, vpp: FloatArray, filled: FloatArray, stalled: FloatArray
) -> FloatArray:
    """Time for which the slowest stage waits for the others [s].

    Of stages that are alike (pp - 1) / vpp x slowest, in 1F1B with vpp 1 and interleaved. slowest, whole: seconds of
    the slowest stage and of all stages for one micro-batch [s]; vpp: virtual stages of each [1]; filled: what weights'
    gradients fill of it under a zero-bubble schedule, and what DualPipe leaves out [s]; stalled: what virtual stages of
    unlike length cost an interleaved schedule, found by running it [s].

    Source: Narayanan et al., arXiv 2104.04473, section 2.2; Qi et al., arXiv 2401.10241, section 2.3;
    deepseek-ai/DualPipe @3da1bbe, README.md.

    >>> float(bubble(np.array(1.0), np.array(4.0), np.array(2.0), np.array(0.0), np.array(0.0)))
    1.5
    """
    return np.maximum((whole - slowest) / vpp - filled, 0.0) + stalled


def hidden(
    hideable: FloatArray,
    backward: FloatArray,
    gather: FloatArray,
    forward: FloatArray,
    overlap: FloatArray,
    vpp: FloatArray,
    pp: FloatArray,
) -> FloatArray:
    """What of the step's gradients and weights hides under the last backward and the first forward passes [s].

    overlap x (least(hideable, backward) + least(gather, forward)), where least(s, c) is the smallest of s,
    (vpp - 1) / vpp x s + c and (1 + (vpp - 1) pp) x c. hideable: seconds of the gradients' buckets but the last [s];
    gather: of the weights [s]; backward, forward: computation of one micro-batch on one virtual stage [s]; overlap:
    share of it that the software hides [1]. The virtual stage that is reduced last, or needed first, has only its own
    pass to hide under.

    Source: Li et al., arXiv 2006.15704, section 3.2 (buckets); the share is fitted.

    >>> one, two = np.array(1.0), np.array(2.0)
    >>> float(hidden(np.array(3.0), two, one, np.array(4.0), np.array(0.5), vpp=one, pp=one))
    1.5
    >>> float(hidden(np.array(9.0), one, 0 * one, one, one, vpp=two, pp=np.array(4.0)))
    5.0
    """
    others, passes = before_last(vpp), passes_overlapped(vpp, pp)
    gradients, weights = (
        np.minimum(np.minimum(seconds, others * seconds + cover), passes * cover)
        for seconds, cover in ((hideable, backward), (gather, forward))
    )
    return np.asarray(overlap * (gradients + weights))


def before_last(vpp: FloatArray) -> FloatArray:
    """Share of a stage's messages that is not of the virtual stage which is reduced last, or needed first [1].

    vpp: virtual stages of a stage, which share its parameters evenly [1]. Source: as `passes_overlapped`.

    >>> float(before_last(np.array(4.0)))
    0.75
    """
    return (vpp - 1) / vpp


def passes_overlapped(vpp: FloatArray, pp: FloatArray) -> FloatArray:
    """Passes under which all messages of a stage can hide, of one micro-batch on one virtual stage [1].

    One, and a group of pp micro-batches on each virtual stage that comes after the first to be reduced: Megatron-LM
    reduces a virtual stage when its last micro-batch is done.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2 (groups of pp); NVIDIA/Megatron-LM,
    megatron/core/pipeline_parallel/schedules.py (when gradients are synchronised).

    >>> float(passes_overlapped(np.array(4.0), np.array(8.0)))
    25.0
    """
    return 1 + (vpp - 1) * pp


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


def update_bytes(optimizer_bytes: float, grad_bytes: float, param_bytes: float) -> float:
    """Traffic of the optimizer's update of one element on the device [B].

    2 x optimizer_bytes + grad_bytes + param_bytes: master weight and moments are read and written, the gradient is
    read, the weight that lies beside the master copy written. On the host the gradient is written before, grad_bytes
    more. The bytes are those that memory counts (`Features`).

    Source: Rajbhandari et al., arXiv 1910.02054, section 3.1 for the state; Ren et al., arXiv 2101.06840, section 4,
    for the host.

    >>> update_bytes(12, 4, 2), update_bytes(8, 2, 2)
    (30, 20)
    """
    return 2 * optimizer_bytes + grad_bytes + param_bytes


def optimizer(
    updated: FloatArray,
    traffic: FloatArray,
    passes: FloatArray,
    bandwidth: FloatArray,
    offload: FloatArray,
    host_traffic: FloatArray,
    host_bandwidth: FloatArray,
    besides: FloatArray,
) -> FloatArray:
    """The update of the elements that a rank updates [s].

    updated: elements [1]; traffic, host_traffic: bytes of each in HBM, and over the host link and in the host's memory
    [B]; passes: HBM traffic over one read and write (stack) [1]; bandwidth: of HBM, host_bandwidth: of the host link
    [B/s]; offload: share of the state on the host [1]; besides: what paging moments, or making them orthogonal, adds to
    an element [s].

    Source: Rajbhandari et al., arXiv 1910.02054, section 3.1 for the state; Ren et al., arXiv 2101.06840 for offload.

    >>> numbers = (1e9, 30.0, 1.0, 3e12, 0.0, 34.0, 1e11, 0.0)
    >>> float(optimizer(*map(np.array, numbers)))
    0.01
    """
    return updated * (
        traffic * passes / bandwidth * (1.0 - offload) + host_traffic / host_bandwidth * offload + besides
    )


def quantising(sms: float) -> float:
    """What an optimizer in eight bits takes for an element beside its traffic: its kernel looks codes up [s].

    1 / (0.3e9 x sms): 204 ms for 8.03e9 elements on an H200 with 132 multiprocessors.

    Source: kOptimizerStatic8bit2StateBlockwise of bitsandbytes 0.50.2, profiled on 2026-11-26.

    >>> round(8.03e9 * quantising(132), 3)
    0.203
    """
    return 1.0 / (0.3e9 * sms)


def paging(moments: float, host_bandwidth: float) -> float:
    """What the moments of a paged optimizer take to come from the host and go back, for an element [s].

    2 x moments [B] / host_bandwidth [B/s]. Source: Dettmers et al., arXiv 2305.14314, section 3 (unified memory).

    >>> paging(2.0, 4e9)
    1e-09
    """
    return 2.0 * moments / host_bandwidth


def orthogonalising(hidden: float, ffn_hidden: float, rate: float) -> float:
    """What making the moment of a matrix orthogonal takes for an element of it [s].

    5 x (4 n + 2 n^2 / m) / rate for a matrix n x m, n <= m: five iterations, each the product of it with itself, that
    squared, and both times it; rate [FLOP/s].

    Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks", Newton-Schulz iteration.

    >>> orthogonalising(1000.0, 4000.0, 2.25e13)
    1e-09
    """
    n, m = min(hidden, ffn_hidden), max(hidden, ffn_hidden)
    return 5.0 * (4.0 * n + 2.0 * n**2 / m) / rate


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


def _term(function: Callable[..., FloatArray], label: str, burns: str = WAIT, *, name: str = "", **more: Any) -> Term:
    """A term of seconds, under the name of its function unless it has one of its own."""
    formula = Formula(function=function)
    return Term(name=name or formula.name, label=label, unit=SECONDS, formula=formula, burns=burns, **more)


TIME_TERMS: Mapping[str, Term] = {
    term.name: term
    for term in (
        _term(
            in_layers,
            "matrix products",
            COMPUTE,
            name="gemm",
            parameters=("gemm_efficiency", "expert_efficiency"),
            quantities=("peak_flops",),
            kernels=(gemm.gemm_time, seconds.gemm_seconds),
        ),
        _term(
            in_layers,
            "attention",
            COMPUTE,
            name="attention",
            parameters=("attention_efficiency", "score_passes"),
            quantities=("peak_flops",),
            kernels=(attention.flash_time, attention.softmax_time),
        ),
        _term(
            in_layers,
            "element-wise",
            STREAM,
            name="elementwise",
            parameters=("hbm_efficiency", "elementwise_passes"),
            quantities=("memory_bandwidth",),
            kernels=(seconds.elementwise_seconds,),
        ),
        _term(
            in_layers,
            "kernel launches",
            name="launch",
            parameters=("launch", "microbatch_overhead", "pipelined_collective", "expert_host"),
            kernels=(seconds.launch_seconds, seconds.moe_host),
        ),
        _term(
            in_layers,
            "TP communication",
            name="tp_communication",
            parameters=("tp_overlap", *RATES),
            kernels=(messages.tensor_messages, collective, exposed),
        ),
        _term(
            in_layers,
            "CP communication",
            name="cp_communication",
            parameters=("cp_overlap", *RATES),
            kernels=(messages.context_messages,),
        ),
        _term(
            in_layers,
            "EP communication",
            name="ep_communication",
            parameters=("ep_overlap", "pair_overlap", "expert_imbalance", *RATES),
            kernels=(messages.expert_messages, dispatchers.all_to_all_seconds, overlapped.overlapped_all_to_all),
        ),
        _term(
            in_layers,
            "host transfers",
            name="host_transfer",
            quantities=("memory_bandwidth",),
            kernels=(cost.host_seconds,),
        ),
        _term(
            in_layers, "output head and loss", COMPUTE, name="head", parameters=("gemm_efficiency", "hbm_efficiency")
        ),
        _term(
            in_layers,
            "PP communication",
            name="pp_communication",
            parameters=("p2p_overlap", *RATES),
            kernels=(messages.boundary_messages,),
        ),
        _term(
            data_parallel,
            "DP communication",
            name="dp_communication",
            phase="step",
            knobs=("bucket", "comm_sm_share"),
            parameters=("dp_overlap", *RATES),
            kernels=(hidden,),
        ),
        _term(bubble, "pipeline bubble", phase="pipeline"),
        _term(contention, "overlap contention", phase="step", knobs=("bucket", "comm_sm_share")),
        _term(
            optimizer,
            "optimizer",
            STREAM,
            phase="step",
            knobs=("offload",),
            parameters=("optimizer_passes",),
            quantities=("memory_bandwidth",),
            kernels=(update_bytes, quantising, paging, orthogonalising),
        ),
        _term(overhead, "step overhead", phase="step", parameters=("step_overhead",)),
        _term(stragglers, "stragglers", phase="step", parameters=("straggler",)),
    )
}


def burning(what: str) -> tuple[str, ...]:
    """Terms during which a GPU computes (COMPUTE), streams memory (STREAM) or waits (WAIT).

    >>> burning(COMPUTE)
    ('gemm', 'attention', 'head')
    """
    return tuple(name for name, term in TIME_TERMS.items() if term.burns == what)
