"""Collectives on a torus of chips that talk to their neighbours only, such as the inter-chip links of a TPU pod.

A group is laid along whole axes and runs one ring on each, in both directions at once. Groups of different dimensions
of a plan take different axes: whoever spans n of the torus's C chips gets the share log n / log C of its axes, so that
TP 16 x DP 256 on 16 x 16 x 16 chips has one axis for TP and two for DP.

Source: J. Austin et al., "How to Scale Your Model", jax-ml/scaling-book sharding.md and tpus.md @04d8de5; the torus of
TPU v4 is described in Jouppi et al., arXiv 2304.01433. The share of the axes is this project's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from optimizer.job.hardware import Tier
from optimizer.objectives.arrays import FloatArray

LINE = 0.5  # of an axis: a row of chips whose ends are not joined has one link at each end, a ring has two


def is_torus(tier: Tier) -> bool:
    """Whether the number of axes of this tier's torus is known."""
    return tier.link.topology == "torus" and "axes" in tier.link.quantities


def torus_axes(ranks: ArrayLike, tier: Tier) -> FloatArray:
    """Axes of the torus that a group of so many ranks has for itself [1].

    axes log(ranks) / log(size), at least 1 from `wraparound` ranks on, the shortest ring that the links can close, and
    half an axis below that.

    >>> from optimizer.catalog.hardware import load_cluster
    >>> torus_axes([2, 4, 16, 256, 4096], load_cluster("tpu-v4").scale_up).tolist()
    [0.5, 1.0, 1.0, 2.0, 3.0]
    """
    n = np.asarray(ranks, dtype=np.float64)
    known = tier.link.quantities
    share = known["axes"] * np.log(n) / np.log(max(2, tier.size))
    ring = np.clip(share, 1.0, known["axes"])
    axes: FloatArray = np.where(n >= known.get("wraparound", 3.0), ring, LINE)
    return axes


def torus_rate(ranks: ArrayLike, tier: Tier) -> FloatArray:
    """What a rank sends at best over all the links that its group has [B/s]: axes x 2 links x bandwidth of a link.

    An all-gather of V bytes takes V (n - 1) / n / rate, an all-reduce twice as long.

    One axis of a TPU v4 has two links of 45 GB/s:

    >>> from optimizer.catalog.hardware import load_cluster
    >>> float(torus_rate(16, load_cluster("tpu-v4").scale_up))
    90000000000.0
    """
    links = torus_axes(ranks, tier) * 2.0
    rate: FloatArray = np.minimum(tier.link.bandwidth, links * tier.link.pair_bandwidth)
    return rate


def torus_steps(ranks: ArrayLike, tier: Tier) -> FloatArray:
    """Hops from the first to the last rank of a group, the steps of an all-gather [1].

    A ring of n: n / 2, both ways at once; `a` axes with n^(1/a) ranks each: a n^(1/a) / 2; a row: n - 1.

    >>> from optimizer.catalog.hardware import load_cluster
    >>> torus_steps([2, 16, 4096], load_cluster("tpu-v4").scale_up).round(6).tolist()
    [1.0, 8.0, 24.0]
    """
    n = np.asarray(ranks, dtype=np.float64)
    axes = np.maximum(1.0, torus_axes(n, tier))
    rings = axes * n ** (1.0 / axes) / 2.0
    steps: FloatArray = np.where(torus_axes(n, tier) > LINE, rings, n - 1.0)
    return steps


def torus_detour(ranks: ArrayLike, tier: Tier) -> FloatArray:
    """Time of an all-to-all over that of one where every rank reaches every other directly at the same rate [1].

    What goes to a rank h hops away crosses h links. On a ring of n the mean over the others is n^2 / 4 / (n - 1) hops,
    on `a` axes a n^(1 + 1/a) / 4 / (n - 1); at least 1. The middle link of a row is crossed by n^2 / 4 pairs each way.

    On a ring of 16 every byte crosses 16 x 16 / 4 / 15 links on average:

    >>> from optimizer.catalog.hardware import load_cluster
    >>> round(float(torus_detour(16, load_cluster("tpu-v4").scale_up)), 3)
    4.267
    """
    n = np.maximum(2.0, np.asarray(ranks, dtype=np.float64))
    axes = np.maximum(1.0, torus_axes(n, tier))
    detour: FloatArray = np.maximum(1.0, axes * n ** (1.0 + 1.0 / axes) / 4.0 / (n - 1.0))
    return detour
