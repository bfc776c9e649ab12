"""Closed forms of a pipeline schedule: time of a step from the stages' times per micro-batch, and its bubble."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from optimizer.objectives.arrays import FloatArray


def pipeline_time(microbatches: ArrayLike, vpp: ArrayLike, slowest: ArrayLike, total: ArrayLike) -> FloatArray:
    """Time from the first forward to the last backward pass of 1F1B or interleaved 1F1B [s].

    (m - 1) max_s T_s + sum_s T_s / vpp + (1 - 1 / vpp) max_s T_s, with T_s the time of stage s for one micro-batch,
    forward and backward [s]. For equal stages this is m T + (pp - 1) T / vpp.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2.

    >>> float(pipeline_time(8, 1, 1.0, 4.0)), float(pipeline_time(8, 2, 1.0, 4.0))
    (11.0, 9.5)
    """
    m, v, longest = _float(microbatches), _float(vpp), _float(slowest)
    return (m - 1) * longest + _float(total) / v + (1 - 1 / v) * longest


def bubble_fraction(pp: ArrayLike, vpp: ArrayLike, microbatches: ArrayLike, left: ArrayLike = 1.0) -> FloatArray:
    """Share of the pipeline's time that a stage idles: (pp - 1) l / (vpp m + (pp - 1) l) [1].

    `left` l is what the schedule leaves of the bubble of 1F1B (`bubble_left`).

    Source: Narayanan et al., arXiv 2104.04473, section 2.2, there as idle over ideal time (pp - 1) / (vpp m).

    >>> round(float(bubble_fraction(4, 1, 16)), 3), round(float(bubble_fraction(4, 1, 16, 1 / 3)), 3)
    (0.158, 0.059)
    """
    idle = (_float(pp) - 1) * _float(left)
    return idle / (_float(vpp) * _float(microbatches) + idle)


def uneven_pipeline_time(microbatches: int, vpp: int, forward: ArrayLike, backward: ArrayLike) -> float:
    """Time of 1F1B or interleaved 1F1B when stages differ: the longest of the pp paths that stay at one stage [s].

    The path of stage s fills and drains the stages before it, sum_{i<s} T_i / v, works m T_s, and waits for the later
    ones, D = sum_{i>s} T_i / v, once after its first forward pass and once before its last backward pass, less the k
    passes it has to do meanwhile: max(0, D - k F_s / v) + max(0, D - k B_s / v), or the larger of the two where all
    forward passes precede the backward ones. T = F + B [s] per micro-batch and stage, all v chunks; k = pp - s - 1
    (2 (pp - s - 1) interleaved), at most the micro-batches there are.

    `pipeline_time` adds D in full, so it is never less for one chunk; they agree when stages are equal. Chunks of one
    stage count as equal.

    Source: derived from the orders in schedule.py and held against simulator.py by the tests.

    >>> uneven_pipeline_time(8, 1, [1.0] * 4, [2.0] * 4), uneven_pipeline_time(8, 1, [1.0, 3.0, 1.0], [2.0, 6.0, 2.0])
    (33.0, 75.0)
    """
    ahead, behind = np.asarray(forward, dtype=np.float64) / vpp, np.asarray(backward, dtype=np.float64) / vpp
    chunk = ahead + behind
    pp, units = len(chunk), microbatches * vpp
    later = pp - 1.0 - np.arange(pp)
    before = np.cumsum(chunk) - chunk
    wait = chunk.sum() - before - chunk
    between = np.minimum((1 if vpp == 1 else 2) * later, units - (vpp - 1) * pp - 1)
    first, last = np.maximum(0.0, wait - between * ahead), np.maximum(0.0, wait - between * behind)
    alternates = units - 1 > (vpp - 1) * pp + (1 if vpp == 1 else 2) * later
    waits = np.where(alternates, first + last, np.maximum(first, last))
    return float((before + units * chunk + waits).max())


def zero_bubble_time(
    microbatches: ArrayLike, pp: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> FloatArray:
    """Time of a step under ZB-H1: m (F + B + W) + (pp - 1) (F + B - W), at least (m + pp - 1) (F + B) + W [s].

    F, B, W: a stage's forward pass, gradient of its inputs, gradient of its weights for one micro-batch [s]. Equal
    stages and W <= B. The least is what the first stage waits for: the last micro-batch comes back from the last stage
    after m + pp - 1 forward passes and as many backward ones, and its weights remain. It counts where m < pp.

    Source: Qi et al., arXiv 2401.10241, section 2.3 (ZB-H1); the least derived, and held against
    objectives/pipeline/simulator.py by the tests.

    >>> float(zero_bubble_time(8, 4, 1.0, 1.0, 1.0)), float(zero_bubble_time(2, 4, 1.0, 1.0, 1.0))
    (27.0, 11.0)
    """
    m, stages, f, b, w = (_float(value) for value in (microbatches, pp, forward, backward, weight))
    return np.maximum(m * (f + b + w) + (stages - 1) * (f + b - w), (m + stages - 1) * (f + b) + w)


def zero_bubble_h2_time(
    microbatches: ArrayLike, pp: ArrayLike, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike
) -> FloatArray:
    """Time of a step under ZB-H2, which keeps up to 2 pp - 1 micro-batches: m (F + B + W) + (pp - 1) (F + B - 2 W) [s].

    Symbols and least as in `zero_bubble_time`, which counts where m < 2 pp - 1; never less than m (F + B + W), which
    ZB-2p reaches with the same memory.

    Source: Qi et al., arXiv 2401.10241, section 2.3 (ZB-H2) and section 4 (ZB-2p).

    >>> float(zero_bubble_h2_time(8, 4, 1.0, 1.0, 1.0)), float(zero_bubble_h2_time(4, 4, 1.0, 1.0, 1.0))
    (24.0, 15.0)
    """
    m, stages, f, b, w = (_float(value) for value in (microbatches, pp, forward, backward, weight))
    whole = m * (f + b + w) + np.maximum(0.0, (stages - 1) * (f + b - 2 * w))
    return np.maximum(whole, (m + stages - 1) * (f + b) + w)


def _float(value: ArrayLike) -> FloatArray:
    return np.asarray(value, dtype=np.float64)
