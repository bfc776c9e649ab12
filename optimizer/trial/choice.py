"""Which plans to try: those whose best is expected to be the fastest, and what is still lost without another trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.objectives.arrays import FloatArray
from optimizer.trial.belief import Belief

WORLDS = 2048
SEED = 0


@dataclass(frozen=True, kw_only=True)
class Next:
    """One more trial: of which plan, and by how much it is expected to shorten the best step tried [1]."""

    index: int
    gain: float


@dataclass(frozen=True, kw_only=True)
class Worlds:
    """Logs of step times in worlds that may be, infinite where a plan does not fit; `fallback` where none does."""

    times: FloatArray
    fallback: float

    @classmethod
    def of(cls, belief: Belief, seed: int) -> Worlds:
        """Drawn from a belief."""
        return cls(times=belief.worlds(WORLDS, seed), fallback=belief.fallback)

    def best(self, chosen: Sequence[int]) -> FloatArray:
        """Log of the step time of the best of these plans in every world."""
        return self.settled(self.times[:, list(chosen)].min(axis=1, initial=np.inf))

    def settled(self, times: FloatArray) -> FloatArray:
        """The logs of times, where nothing fits that of the plan one falls back on."""
        return np.where(np.isfinite(times), times, self.fallback)


def chosen_trials(belief: Belief, count: int, *, tried: Sequence[int] = (), seed: int = SEED) -> list[int]:
    """So many plans that were not tried, each with those before it of the least expected best step, E[min_i log t_i].

    A set of plans that err together is worth little more than one of them, so that the trials differ in what the model
    is unsure of. The choice one by one is within 1 - 1/e of the best set, since the gain is submodular.

    Source: Ginsbourger, Le Riche and Carraro, Kriging Is Well-Suited to Parallelize Optimization (2010), section 2
    (multi-point expected improvement); Wilson, Hutter and Deisenroth, Maximizing Acquisition Functions for Bayesian
    Optimization, NeurIPS 2018, section 3.

    >>> from optimizer.trial.belief import Gaussian
    >>> twins = 0.01 * np.array([[1.0, 0.99, 0.0], [0.99, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> seconds = Gaussian(mean=np.log([1.0, 1.001, 1.02]), covariance=twins)
    >>> chosen_trials(Belief.untried(seconds, Gaussian(mean=np.full(3, -1.0), covariance=1e-4 * np.eye(3))), 2)
    [0, 2]
    """
    worlds = Worlds.of(belief, seed)
    all_tried = list(tried)
    best = worlds.times[:, all_tried].min(axis=1, initial=np.inf)
    open_plans = ~belief.tried
    open_plans[all_tried] = False
    while len(all_tried) < len(tried) + count and open_plans.any():
        after = worlds.settled(np.minimum(worlds.times, best[:, None])).mean(axis=0)
        all_tried.append(int(np.where(open_plans, after, np.inf).argmin()))
        best = np.minimum(best, worlds.times[:, all_tried[-1]])
        open_plans[all_tried[-1]] = False
    return all_tried[len(tried) :]


def winner(belief: Belief) -> int | None:
    """The fastest plan that trained, None while there is none."""
    if not belief.ran.any():
        return None
    return int(np.argmin(np.where(belief.ran, belief.seconds.mean, np.inf)))


def loss_left(belief: Belief, index: int, *, seed: int = SEED) -> float:
    """How much longer than the best of all plans the step of one is expected to be [1].

    exp E[log t_i - min_j log t_j] - 1.
    """
    worlds = Worlds.of(belief, seed)
    least = np.minimum(worlds.times.min(axis=1), worlds.fallback)
    return float(np.expm1(np.mean(np.maximum(worlds.best([index]) - least, 0.0))))


def next_trial(belief: Belief, *, tried: Sequence[int] = (), seed: int = SEED) -> Next | None:
    """The one more trial that pays most, None where every plan was tried."""
    plans = chosen_trials(belief, 1, tried=tried, seed=seed)
    return Next(index=plans[0], gain=expected_gain(belief, tried, [*tried, *plans], seed=seed)) if plans else None


def expected_gain(belief: Belief, before: Sequence[int], after: Sequence[int], *, seed: int = SEED) -> float:
    """How much shorter the best of some plans is expected to be than the best of others [1]."""
    worlds = Worlds.of(belief, seed)
    return float(-np.expm1(worlds.best(after).mean() - worlds.best(before).mean()))
