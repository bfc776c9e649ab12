"""Where the pace of a run changes: the levels of its step times.

Binary segmentation with a penalty for every change; steps far off are pulled in first, so that a stall is no level.
"""

from __future__ import annotations

import numpy as np

from optimizer.objectives.arrays import FloatArray

SHORTEST = 5  # steps of a level at least
PENALTY = 4.0  # times log(n) noise variances that a change must explain
LEAST = 0.01  # relative change that counts
TO_SIGMA = 1.4826  # of a normal distribution's median absolute deviation


def noise(values: FloatArray) -> float:
    """Standard deviation of a step to the next, whatever slow changes there are, robust to stalls [as the values].

    >>> round(noise(np.array([1.0, 1.1, 1.0, 1.1, 1.0, 9.0])), 3)
    0.105
    """
    if len(values) < 2:
        return 0.0
    return float(TO_SIGMA * np.median(np.abs(np.diff(values))) / np.sqrt(2.0))


def winsorised(values: FloatArray, widths: float = 4.0) -> FloatArray:
    """The values, those further from the median than so many robust deviations pulled in to there."""
    middle = np.median(values)
    reach = widths * max(float(TO_SIGMA * np.median(np.abs(values - middle))), 1e-3)
    return np.asarray(np.clip(values, middle - reach, middle + reach))


def level_starts(logs: FloatArray) -> list[int]:
    """Where each level of the logarithms of step times begins; [0] for a run with one pace.

    Source: binary segmentation, Scott and Knott, Biometrics 30 (1974); Fryzlewicz, Annals of Statistics 42 (2014), for
    a penalty in log n.

    >>> level_starts(np.log(np.array([1.0, 1.01] * 10 + [1.2, 1.21] * 10)))
    [0, 20]
    """
    values = winsorised(logs) if len(logs) else logs
    variance = max(noise(values), 1e-3) ** 2
    starts, open_parts = [0], [(0, len(values))]
    while open_parts:
        first, end = open_parts.pop()
        cut = _best_cut(values[first:end], variance, len(values))
        if cut:
            starts.append(first + cut)
            open_parts += [(first, first + cut), (first + cut, end)]
    return sorted(starts)


def _best_cut(values: FloatArray, variance: float, whole: int) -> int:
    """Where the sum of squares falls most when the values are cut in two, 0 where it does not fall enough."""
    count = len(values)
    if count < 2 * SHORTEST:
        return 0
    sums = np.cumsum(values)
    left = np.arange(1, count)
    means, rest = sums[:-1] / left, (sums[-1] - sums[:-1]) / (count - left)
    gains = left * (count - left) / count * (means - rest) ** 2
    gains[: SHORTEST - 1] = gains[count - SHORTEST :] = 0.0
    best = int(np.argmax(gains))
    enough = gains[best] > PENALTY * variance * np.log(whole) and abs(means[best] - rest[best]) > LEAST
    return best + 1 if enough else 0
