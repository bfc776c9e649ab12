"""Goodput: the share of the wall time that trains, with failures, restarts and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optimizer.objectives.arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """How often one GPU's share of the fleet fails and what that costs.

    failure_rate: interruptions per GPU and second, 1/8 of a node's [1/s]. restart: detection and restart [s].
    checkpoint_stall: time that training waits for one checkpoint [s].
    """

    failure_rate: float
    restart: float
    checkpoint_stall: float


def mean_time_between_failures(failure_rate: ArrayLike, gpus: ArrayLike) -> FloatArray:
    """Mean time between interruptions of a job [s].

    M = 1 / (N r); r: interruptions per GPU and second [1/s]; N: GPUs. Do not use it to shrink a large fleet's rate to
    jobs of fewer than about a thousand GPUs: RSC measured 7.9 h at 1,024 where 1 / N says 28.8 h.

    Source: Kokolis et al., arXiv 2410.21680.

    Llama 3's 419 unexpected interruptions of 16,384 GPUs in 54 days are one every three hours:

    >>> rate = 419 / (54 * 86400 * 16384)
    >>> round(float(mean_time_between_failures(rate, 16384)) / 3600, 2)
    3.09
    """
    time: FloatArray = 1.0 / (np.asarray(failure_rate, dtype=np.float64) * np.asarray(gpus))
    return time


def optimal_interval(stall: ArrayLike, mtbf: ArrayLike) -> FloatArray:
    """Training time between two checkpoints that maximises exact_goodput [s].

    D = M (1 + W(-exp(-1 - w / M))), W: the principal branch of Lambert's function; w, M [s]. It solves
    1 - exp(-(D + w) / M) = D / M, the zero of the derivative.

    Source: Daly, FGCS 22 (2006) 303, the complete model, differentiated.

    >>> float(optimal_interval(5.0, 36000.0).round(1))
    596.7
    """
    from scipy.special import lambertw

    mtbf = np.asarray(mtbf, dtype=np.float64)
    interval: FloatArray = mtbf * (1.0 + np.real(lambertw(-np.exp(-1.0 - np.asarray(stall) / mtbf))))
    return interval


def exact_goodput(interval: ArrayLike, stall: ArrayLike, restart: ArrayLike, mtbf: ArrayLike) -> FloatArray:
    """Share of the wall time that trains, under failures at any moment, restarts included [1].

    D / (M exp(R / M) (exp((D + w) / M) - 1)); D: training between checkpoints, w: stall of a checkpoint, R: detection
    and restart, M: mean time between failures [s]. Failures are a Poisson process; each loses the work since the
    checkpoint.

    Source: Daly, FGCS 22 (2006) 303, the complete model of the wall time, useful time over wall time.

    >>> float(exact_goodput(600.0, 5.0, 600.0, 36000.0).round(4))
    0.9672
    """
    mtbf = np.asarray(mtbf, dtype=np.float64)
    interval = np.asarray(interval, dtype=np.float64)
    wall = mtbf * np.exp(np.asarray(restart) / mtbf) * np.expm1((interval + np.asarray(stall)) / mtbf)
    share: FloatArray = interval / wall
    return share


def goodput(reliability: Reliability, gpus: ArrayLike) -> FloatArray:
    """Share of the wall time that trains with checkpoints at the optimal interval [1].

    >>> llama = Reliability(failure_rate=3.79e-3 / 8 / 86400, restart=600.0, checkpoint_stall=5.0)
    >>> float(goodput(llama, 16384).round(3))
    0.919
    """
    mtbf = mean_time_between_failures(reliability.failure_rate, gpus)
    interval = optimal_interval(reliability.checkpoint_stall, mtbf)
    return exact_goodput(interval, reliability.checkpoint_stall, reliability.restart, mtbf)
