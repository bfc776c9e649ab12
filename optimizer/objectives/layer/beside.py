"""What a mixture gains where its exchange runs beside the computation of another micro-batch.

Source: NVIDIA/Megatron-LM @d98e8a64dd (core 0.20), megatron/core/models/common/model_chunk_schedule_plan.py: the
forward pass of one micro-batch and the backward pass of another one run layer beside layer, communication on a stream
of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from optimizer.objectives.arrays import FloatArray

NODES = 4  # parts into which a layer is cut: attention, dispatch, experts, combine
# What the host does for each part beside its kernels: wait for the other stream, and leave a mark for it.
# Source: NVIDIA/Megatron-LM, megatron/core/pipeline_parallel/utils.py, ScheduleNode.stream_acquire_context.
CALLS = 2
EXCHANGE, LAUNCH = "ep_communication", "launch"
Terms = Mapping[str, FloatArray]


def concealed(exchange: FloatArray, compute: FloatArray, overlap: float) -> FloatArray:
    """Exchange that a pair of passes hides [s]: overlap x min(exchange, compute).

    exchange, compute: of one layer in both passes [s]; overlap: share of what can hide that does [1]. The forward pass
    of one micro-batch computes while tokens of the other's backward pass travel, and the other way round.

    Source: deepseek-ai/profile-data @4496024, train.json: 118.2 ms of computation and 114.5 ms of exchange take 129.0.

    >>> both = concealed(np.array(114.5e-3), np.array(118.2e-3), 0.906)
    >>> round(float(118.2e-3 + 114.5e-3 - both), 4)
    0.129
    """
    return overlap * np.minimum(exchange, compute)


def gained(
    exchange: FloatArray, compute: FloatArray, other: FloatArray, host: FloatArray, overlap: float, taken: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Seconds of the exchange that a pair of passes does not show, and of the host that it shows instead [s].

    exchange, compute: of one layer in both passes, other: its other messages [s]; host: what the host needs to launch
    both passes side by side [s]; overlap: as in `concealed`; taken: share of the multiprocessors that the dispatcher
    holds meanwhile [1]. Where the host is the limit, what hides only makes the GPU wait for it.

    >>> one = np.array(1.0)
    >>> [float(value) for value in gained(one, 2 * one, 0 * one, 0 * one, 0.5, 0.2 * one)]
    [0.4, 0.0]
    >>> [float(value) for value in gained(one, 2 * one, 0 * one, 4 * one, 0.5, 0 * one)]
    [0.5, 1.5]
    """
    hides = concealed(exchange, compute, overlap) * (1.0 - taken)
    return hides, np.maximum(0.0, host - (compute + other + exchange - hides))


def beside(
    forward: Terms,
    backward: Terms,
    hosts: tuple[FloatArray, FloatArray],
    overlap: float,
    taken: FloatArray,
    marks: FloatArray | float = 0.0,
) -> tuple[Terms, Terms]:
    """What a layer's forward and backward pass gain (below 0) or lose beside those of another micro-batch, by term [s].

    forward, backward: seconds of each pass by term, nothing hidden [s]; hosts: what the host needs for each, cut into
    parts [s]; overlap, taken: as in `gained`; marks: calls for the parts that show whatever the GPU does, where the
    host waits for it in every mixture [s]. Both passes share what the pair gains as they share its exchange.
    """
    both = {term: forward[term] + backward[term] for term in forward}
    compute = both["gemm"] + both["attention"] + both["elementwise"]
    exchange, host = both[EXCHANGE], hosts[0] + hosts[1]
    other = sum((both[term] for term in both if term.endswith("communication") and term != EXCHANGE), np.zeros(1))
    hides, waits = gained(exchange, compute, other, host, overlap, taken)
    more = np.maximum(marks, waits - both[LAUNCH])
    ahead = forward[EXCHANGE] / np.where(exchange > 0, exchange, 1.0)
    first = hosts[0] / np.where(host > 0, host, 1.0)
    return (
        {EXCHANGE: -ahead * hides, LAUNCH: first * more},
        {EXCHANGE: (ahead - 1.0) * hides, LAUNCH: (1.0 - first) * more},
    )
