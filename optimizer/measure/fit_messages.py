"""What collectives say of a link: latency and bandwidth by the plainest model, kind by kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.catalog.readers.nccl_tests import CollectiveSample
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.network.collectives import volume_per_rank

LOSS_SCALE = 0.1


@dataclass(frozen=True, kw_only=True)
class AlphaBeta:
    """One kind of collective over `ranks` of `nodes`: latency of a step [s], bus bandwidth [B/s], median error [1]."""

    kind: str
    ranks: int
    nodes: int
    alpha: float
    bandwidth: float
    samples: int
    median_error: float


def steps_of(kind: str, ranks: int) -> int:
    """Steps of a ring: 2 (N - 1) for an all-reduce, N - 1 for the others, 1 for a single send [1].

    >>> steps_of("all_reduce", 8), steps_of("all_gather", 8)
    (14, 7)
    """
    return {"all_reduce": 2 * (ranks - 1), "point_to_point": 1}.get(kind, ranks - 1)


def alpha_beta(samples: Sequence[CollectiveSample]) -> AlphaBeta:
    """The alpha-beta model of samples of one kind and group.

    time = alpha x steps + bytes per rank / bandwidth, with steps and bytes per rank of a ring. Least squares over
    ln(predicted / measured), with a loss that discounts outliers, of ln alpha and ln bandwidth.

    Source: Thakur, Rabenseifner, Gropp 2005, section 4; NVIDIA/nccl-tests doc/PERFORMANCE.md (bytes per rank).

    Two ranks, 10 us and 1 GB/s: an all-reduce of 1 MB takes 2 x 10 us + 1 ms.

    >>> rows = [CollectiveSample(kind="all_reduce", message=m, time=2e-5 + m / 1e9, ranks=2) for m in (1e3, 1e5, 1e7)]
    >>> found = alpha_beta(rows)
    >>> f"{found.alpha:.3g} s, {found.bandwidth:.3g} B/s"
    '1e-05 s, 1e+09 B/s'
    """
    from scipy.optimize import least_squares

    first, *_ = samples
    steps = float(steps_of(first.kind, first.ranks))
    message = np.array([sample.message for sample in samples])
    measured = np.array([sample.time for sample in samples])
    volume = volume_per_rank(first.kind, message, first.ranks)

    def misfit(point: FloatArray) -> FloatArray:
        alpha, bandwidth = np.exp(point)
        return np.asarray(np.log((alpha * steps + volume / bandwidth) / measured))

    start = np.log([measured.min(), max(volume / measured)])
    solution = least_squares(misfit, start, loss="soft_l1", f_scale=LOSS_SCALE)
    alpha, bandwidth = np.exp(solution.x)
    return AlphaBeta(
        kind=first.kind,
        ranks=first.ranks,
        nodes=first.nodes,
        alpha=float(alpha),
        bandwidth=float(bandwidth),
        samples=len(samples),
        median_error=float(np.median(np.abs(np.expm1(misfit(solution.x))))),
    )


def alpha_betas(samples: Sequence[CollectiveSample]) -> list[AlphaBeta]:
    """The model of every kind and group that was measured at two sizes at least."""
    groups: dict[tuple[int, str], list[CollectiveSample]] = {}
    for sample in samples:
        groups.setdefault((sample.nodes, sample.kind), []).append(sample)
    return [alpha_beta(rows) for rows in groups.values() if len(rows) > 1]
