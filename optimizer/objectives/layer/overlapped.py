"""What an MoE layer gains where its all-to-all overlaps with the computation of another micro-batch.

Source: NVIDIA/Megatron-LM @d98e8a64dd (core 0.20), megatron/core/models/common/model_chunk_schedule_plan.py: the
forward pass of one micro-batch and the backward pass of another one run layer by layer at once, communication on a
stream of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from optimizer.objectives.arrays import FloatArray

NODES = 4  # parts into which a layer is cut: attention, dispatch, experts, combine
# What the host does for each part besides its kernels: wait for the other stream, and leave a mark for it.
# Source: NVIDIA/Megatron-LM, megatron/core/pipeline_parallel/utils.py, ScheduleNode.stream_acquire_context.
CALLS = 2
EXPERT_ALL_TO_ALL, LAUNCH = "ep_communication", "launch"
Terms = Mapping[str, FloatArray]


def overlapped_all_to_all(all_to_all: FloatArray, compute: FloatArray, overlap: float) -> FloatArray:
    """All-to-all that a pair of passes hides [s]: overlap x min(all_to_all, compute).

    all_to_all, compute: of one layer in both passes [s]; overlap: share of what can hide that does [1]. The forward
    pass of one micro-batch computes while tokens of the other's backward pass travel, and the other way round.

    Source: deepseek-ai/profile-data @4496024, train.json: 118.2 ms of computation, 114.5 of all-to-all take 129.0.

    >>> both = overlapped_all_to_all(np.array(114.5e-3), np.array(118.2e-3), 0.906)
    >>> round(float(118.2e-3 + 114.5e-3 - both), 4)
    0.129
    """
    return overlap * np.minimum(all_to_all, compute)


def gained(
    all_to_all: FloatArray, compute: FloatArray, other: FloatArray, host: FloatArray, overlap: float, taken: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Seconds of the all-to-all that a pair of passes does not show, and of the host that it shows instead [s].

    all_to_all, compute: of one layer in both passes, other: its other messages [s]; host: what the host needs to launch
    both passes [s]; overlap: as in `overlapped_all_to_all`; taken: share of the multiprocessors that the dispatcher
    takes meanwhile [1]. Where the host is the limit, what hides only makes the GPU wait for it.

    >>> one = np.array(1.0)
    >>> [float(value) for value in gained(one, 2 * one, 0 * one, 0 * one, 0.5, 0.2 * one)]
    [0.4, 0.0]
    >>> [float(value) for value in gained(one, 2 * one, 0 * one, 4 * one, 0.5, 0 * one)]
    [0.5, 1.5]
    """
    hides = overlapped_all_to_all(all_to_all, compute, overlap) * (1.0 - taken)
    return hides, np.maximum(0.0, host - (compute + other + all_to_all - hides))


def overlapped(
    forward: Terms,
    backward: Terms,
    hosts: tuple[FloatArray, FloatArray],
    overlap: float,
    taken: FloatArray,
    marks: FloatArray | float = 0.0,
) -> tuple[Terms, Terms]:
    """What both passes of a layer gain (below 0) or lose overlapped with those of another micro-batch, by term [s].

    forward, backward: seconds of each pass by term, nothing hidden [s]; hosts: what the host needs for each, cut into
    parts [s]; overlap, taken: as in `gained`; marks: calls for the parts that show whatever the GPU does, where the
    host waits for it in every MoE layer [s]. Both passes share what the pair gains as they share its all-to-all.
    """
    both = {term: forward[term] + backward[term] for term in forward}
    compute = both["gemm"] + both["attention"] + both["elementwise"]
    all_to_all, host = both[EXPERT_ALL_TO_ALL], hosts[0] + hosts[1]
    other = sum(
        (both[term] for term in both if term.endswith("communication") and term != EXPERT_ALL_TO_ALL), np.zeros(1)
    )
    hides, waits = gained(all_to_all, compute, other, host, overlap, taken)
    more = np.maximum(marks, waits - both[LAUNCH])
    ahead = forward[EXPERT_ALL_TO_ALL] / np.where(all_to_all > 0, all_to_all, 1.0)
    first = hosts[0] / np.where(host > 0, host, 1.0)
    return (
        {EXPERT_ALL_TO_ALL: -ahead * hides, LAUNCH: first * more},
        {EXPERT_ALL_TO_ALL: (ahead - 1.0) * hides, LAUNCH: (1.0 - first) * more},
    )
