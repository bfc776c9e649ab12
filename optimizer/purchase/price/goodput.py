"""Goodput: the share of the wall time that trains, with failures, restarts, checkpoints and waits for spare nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optimizer.objectives.arrays import FloatArray

MOST_SPARES = 4096
PATIENCE = 8  # counts without a better one, after which none is looked for


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


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint: size [B], and bandwidth of the storage into which all GPUs write it together [B/s]."""

    size: float
    bandwidth: float

    @property
    def write(self) -> float:
        """Time until it is on the storage and can be gone back to [s]; training goes on meanwhile."""
        return self.size / self.bandwidth if self.size else 0.0


def checkpoint(params: float, gpus: int, values: Mapping[str, float]) -> Checkpoint:
    """The checkpoint of a model, on the storage of so many GPUs.

    size = parameters x bytes of each; bandwidth = GPUs x share of one; values: a scenario with `checkpoint_size` [B]
    and `storage` [B/s per GPU].

    BLOOM's 176e9 parameters at 13.1 B, written by 384 GPUs at 0.15 GB/s each, which took 40 s:

    >>> found = checkpoint(176.2e9, 384, {"checkpoint_size": 13.1, "storage": 0.15e9})
    >>> round(found.size / 1e12, 1), round(found.write)
    (2.3, 40)
    """
    return Checkpoint(size=params * values["checkpoint_size"], bandwidth=gpus * values["storage"])


def blocked(servers: int, load: float) -> float:
    """Share of the time in which all of so many servers are busy [1]: Erlang's B.

    B(0) = 1, B(k) = a B(k - 1) / (k + a B(k - 1)); a: mean number of busy ones if there were no end of them [1]. It
    holds for any distribution of the time that a server is busy.

    Source: Erlang, Elektroteknikeren 13 (1917); for any distribution: Sevastyanov, Theory Probab. Appl. 2 (1957) 104.

    >>> round(blocked(1, 0.5), 4), round(blocked(2, 1.0), 4)
    (0.3333, 0.2)
    """
    share = 1.0
    for server in range(1, servers + 1):
        share = load * share / (server + load * share)
    return share


def waiting(spares: int, nodes: float, values: Mapping[str, float]) -> float:
    """Share of the time in which a job of `nodes` nodes waits for a repair, with so many spare ones beside it [1].

    B(spares + 1, a), a = nodes r q t: the job stands still while one node more is in repair than there are spares, and
    nothing fails while it stands. values: a scenario with `failure_rate` r of a node [1/s], `replaced_share` q of the
    interruptions that take a node out [1], and `repair` t, for which it is out [s].

    A thousand nodes of which one a day is a day in repair wait half of the time without a spare, and a fifth with one:

    >>> usual = {"failure_rate": 1e-3 / 86400, "replaced_share": 1.0, "repair": 86400.0}
    >>> [round(waiting(spares, 1000, usual), 3) for spares in (0, 1, 4)]
    [0.5, 0.2, 0.003]
    """
    return blocked(spares + 1, nodes * values["failure_rate"] * values["replaced_share"] * values["repair"])


def cheapest_count(cost: Callable[[int], float], most: int = MOST_SPARES, together: int = 1) -> int:
    """The number of spares from 0 to `most` at which a run costs least: costs fall with each at first, and then rise.

    together: nodes that are sold together, within which costs stay the same.

    >>> cheapest_count(lambda spares: (spares - 3) ** 2)
    3
    """
    best, least = 0, cost(0)
    for spares in range(1, most + 1):
        total = cost(spares)
        if total < least:
            best, least = spares, total
        elif spares - best >= PATIENCE + together:
            break
    return best
