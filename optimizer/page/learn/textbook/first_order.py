"""Back-of-the-envelope estimates of a job known only by its number of parameters.

They are what people do before they have a model of their cluster, and what textbooks teach; the planner does not use
them, its tests and the room to learn do.
"""

from __future__ import annotations

from math import log2


def dense_flops(params: float, tokens: float, *, recomputed: bool = False) -> float:
    """Operations of a forward and backward pass: 2 x params x tokens x 3, or x 4 with recomputation [FLOP].

    Source: Kaplan et al., arXiv 2001.08361, section 2.1; Narayanan et al., arXiv 2104.04473, equation 3 (factor 4).

    >>> dense_flops(2e9, 2048 * 16, recomputed=True) / 8 / 1e12
    65.536
    """
    return 2.0 * params * tokens * (4.0 if recomputed else 3.0)


def serial_mfu(compute: float, communication: float, reference: float) -> float:
    """MFU when nothing of the communication hides: reference x compute / (compute + communication) [1].

    `compute` [s] is the time at the MFU `reference` without communication, `communication` [s].

    >>> serial_mfu(3.0, 1.0, 0.52)
    0.39
    """
    return reference * compute / (compute + communication)


def sharded_memory(
    params: float, tp: int, pp: int, *, weight_bytes: float, state_bytes: float, activations: float
) -> float:
    """Memory of a GPU: (weight_bytes + state_bytes) x params / (tp x pp) + activations [B].

    `weight_bytes` and `state_bytes` [B per parameter], `activations` [B] of one GPU.

    >>> sharded_memory(1e9, 2, 1, weight_bytes=2, state_bytes=8, activations=1e9) / 1e9
    6.0
    """
    return (weight_bytes + state_bytes) * params / (tp * pp) + activations


def rule_of_thumb_mfu(base: float, *, tp: int, dp: int, bubble: float, tp_slowdown: float = 1.0) -> float:
    """MFU from a base by rules of thumb: 5 % lost per doubling of tp, the bubble, 2 % per doubling of dp [1].

    base x (1 - 0.05 log2(tp) x tp_slowdown) x (1 - bubble) x (1 - 0.02 log2(dp)), clipped to [0, base];
    `tp_slowdown` is the bandwidth inside a node over the one that tp uses.

    Source: assumed form of a teaching lab on parallelism; not fitted to anything.

    >>> round(rule_of_thumb_mfu(0.52, tp=8, dp=32, bubble=3 / 32), 4)
    0.3605
    """
    kept = (1.0 - 0.05 * log2(tp) * tp_slowdown) * (1.0 - bubble) * (1.0 - 0.02 * log2(dp))
    return max(0.0, min(base, base * kept))
