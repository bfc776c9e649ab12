"""How far predictions are from measurements: errors of time and memory, verdicts on memory, choice among plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import ArrayLike

from optimizer.objectives.arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Relative errors, predicted / measured - 1."""

    runs: int  # number of runs
    mape: float  # mean of the sizes [1]
    median: float  # of the sizes [1]
    p90: float  # 90th percentile of the sizes [1]
    bias: float  # mean of the signed errors [1]


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """Runs by what happened (fitted or ran out of memory) and what was predicted."""

    fits_predicted_fits: int = 0
    fits_predicted_oom: int = 0
    oom_predicted_fits: int = 0
    oom_predicted_oom: int = 0

    @property
    def runs(self) -> int:
        """Runs of which it is known whether they fitted."""
        return sum(astuple(self))

    @property
    def balanced_accuracy(self) -> float | None:
        """Mean share of right verdicts of the two outcomes; of one where only that occurs, None without runs.

        >>> Verdicts(fits_predicted_fits=9, fits_predicted_oom=1, oom_predicted_oom=1).balanced_accuracy
        0.95
        """
        fits = self.fits_predicted_fits + self.fits_predicted_oom
        failed = self.oom_predicted_fits + self.oom_predicted_oom
        shares = [self.fits_predicted_fits / fits] if fits else []
        shares += [self.oom_predicted_oom / failed] if failed else []
        return sum(shares) / len(shares) if shares else None


@dataclass(frozen=True, kw_only=True)
class PlanChoice:
    """How well the model ranks plans: regret of its first choice, rank correlation, over groups of runs."""

    groups: int
    mean_regret: float
    p90_regret: float
    worst_regret: float
    rank_correlation: float | None


def errors_of(predicted: ArrayLike, measured: ArrayLike) -> Errors | None:
    """Mean absolute percentage error, its median and 90th percentile, and the mean signed error; None without runs.

    >>> errors_of([1.1, 0.8], [1.0, 1.0]).mape
    0.15
    """
    ratio = np.asarray(predicted, dtype=np.float64) / np.asarray(measured, dtype=np.float64) - 1.0
    if not ratio.size:
        return None
    size = np.abs(ratio)
    return Errors(
        runs=int(ratio.size),
        mape=round(float(np.mean(size)), 12),
        median=float(np.median(size)),
        p90=float(np.quantile(size, 0.9)),
        bias=float(np.mean(ratio)),
    )


def regret(predicted: FloatArray, measured: FloatArray) -> float:
    """Measured time of the plan predicted to be the fastest / the best measured time - 1 [1].

    >>> regret(np.array([1.0, 2.0]), np.array([1.5, 1.2]))
    0.25
    """
    return round(float(measured[np.argmin(predicted)] / measured.min() - 1.0), 12)


def spearman(predicted: FloatArray, measured: FloatArray) -> float:
    """Rank correlation: Pearson's correlation of the ranks, ties sharing their mean rank; 0 when all are tied [1].

    >>> round(spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])), 12)
    0.5
    """
    x, y = ranks(predicted), ranks(measured)
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt(np.sum(x**2) * np.sum(y**2)))
    return float(np.sum(x * y)) / size if size else 0.0


def ranks(values: FloatArray) -> FloatArray:
    """Ranks from 0, ties sharing their mean rank.

    >>> ranks(np.array([5.0, 1.0, 5.0])).tolist()
    [1.5, 0.0, 1.5]
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean = np.cumsum(counts) - (counts + 1) / 2.0
    return np.asarray(mean[inverse], dtype=np.float64)


def choice_of(groups: Sequence[tuple[FloatArray, FloatArray]]) -> PlanChoice | None:
    """Regret and rank correlation over groups of (predicted, measured) times; None without groups.

    The correlation is the mean over the groups of at least three runs.
    """
    if not groups:
        return None
    regrets = [regret(predicted, measured) for predicted, measured in groups]
    correlations = [spearman(predicted, measured) for predicted, measured in groups if len(measured) >= 3]
    return PlanChoice(
        groups=len(groups),
        mean_regret=float(np.mean(regrets)),
        p90_regret=float(np.quantile(regrets, 0.9)),
        worst_regret=float(np.max(regrets)),
        rank_correlation=float(np.mean(correlations)) if correlations else None,
    )
