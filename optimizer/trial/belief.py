"""What is believed of many plans before and after trials: errors of like plans are alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optimizer.job.job import Job
from optimizer.job.known import MEMORY
from optimizer.job.plan import Plans
from optimizer.objectives.arrays import BoolArray, FloatArray, symmetric_root
from optimizer.objectives.belief.belief import errors_of
from optimizer.objectives.step.flops import useful_flops

REPEAT = 0.01  # spread of a step time between runs of one plan [1]: published runs vary by 0.3 to 3 %
JITTER = 1e-9  # on the diagonal, so that rounding leaves a covariance positive
SURE = 0.99  # chance to fit from which on a plan needs no trial to be trusted to


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """Mean and covariance of one logarithm for every plan."""

    mean: FloatArray
    covariance: FloatArray

    @property
    def spread(self) -> FloatArray:
        """Standard deviation of each [1]."""
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))

    def measured(self, index: int, value: float, error: float = REPEAT) -> Gaussian:
        """After one of them was measured with an error of this standard deviation.

        Source: Rasmussen and Williams (2006), equations 2.23 and 2.24, one observation at a time.

        >>> prior = Gaussian(mean=np.zeros(2), covariance=np.array([[1.0, 0.5], [0.5, 1.0]]))
        >>> after = prior.measured(0, 1.0, 0.0)
        >>> after.mean.tolist(), after.covariance[1].tolist()
        ([1.0, 0.5], [0.0, 0.75])
        """
        variance = self.covariance[index, index]
        gain = variance / (variance + error**2) if variance else 0.0
        mean = self.mean[index] + gain * (value - self.mean[index])
        return self._moved(index, float(mean), float(variance * (1.0 - gain)))

    def exceeded(self, index: int, limit: float) -> Gaussian:
        """After one of them was seen to exceed a limit: its truncated moments, carried over to those like it.

        With x = (limit - mean) / spread and the hazard h = phi(x) / (1 - Phi(x)), the mean becomes mean + spread h and
        the variance spread^2 (1 - h (h - x)).

        Source: Minka, Expectation Propagation for Approximate Bayesian Inference, UAI 2001 (assumed density filtering).

        >>> prior = Gaussian(mean=np.zeros(2), covariance=np.array([[1.0, 0.5], [0.5, 1.0]]))
        >>> prior.exceeded(0, 0.0).mean.round(3).tolist()
        [0.798, 0.399]
        """
        from scipy.special import log_ndtr

        spread = float(self.spread[index])
        if spread <= 0.0:
            return self
        x = (limit - float(self.mean[index])) / spread
        hazard = float(np.exp(-0.5 * x**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(-x)))
        variance = spread**2 * max(1.0 - hazard * (hazard - x), 0.0)
        return self._moved(index, float(self.mean[index]) + spread * hazard, variance)

    def stayed_below(self, index: int, limit: float) -> Gaussian:
        """After one of them was seen to stay below a limit."""
        mirrored = replace(self, mean=-self.mean).exceeded(index, -limit)
        return replace(mirrored, mean=-mirrored.mean)

    def _moved(self, index: int, mean: float, variance: float) -> Gaussian:
        """With other moments of one, and what follows for the others."""
        before = float(self.covariance[index, index])
        if before <= 0.0:
            return self
        gain = self.covariance[:, index] / before
        return Gaussian(
            mean=self.mean + gain * (mean - self.mean[index]),
            covariance=self.covariance + np.outer(gain, gain) * (variance - before),
        )

    def below(self, limit: float) -> FloatArray:
        """Chance of each to stay below a limit [1]."""
        from scipy.special import ndtr

        return np.asarray(ndtr((limit - self.mean) / np.maximum(self.spread, JITTER)), dtype=np.float64)

    def draws(self, count: int, seed: int) -> FloatArray:
        """So many draws, one row each, in pairs that mirror each other; the same seed gives the same.

        Source: Hammersley and Morton, A New Monte Carlo Technique: Antithetic Variates (1956): means are exact.
        """
        normals = np.random.default_rng(seed).standard_normal((count // 2, len(self.mean)))
        half = normals @ symmetric_root(self.covariance)
        return np.asarray(self.mean + np.concatenate([half, -half]))


@dataclass(frozen=True, kw_only=True)
class Belief:
    """Of every plan: the log of its step time [s], and the log of what it reserves / what is usable.

    `ran` and `failed` mark plans that were tried and did, or did not, train.
    """

    seconds: Gaussian
    memory: Gaussian
    ran: BoolArray
    failed: BoolArray

    @classmethod
    def untried(cls, seconds: Gaussian, memory: Gaussian) -> Belief:
        """Before any trial."""
        never = np.zeros(len(seconds.mean), dtype=bool)
        return cls(seconds=seconds, memory=memory, ran=never, failed=never)

    @classmethod
    def predicted(cls, job: Job, plans: Plans, step: FloatArray, reserved: FloatArray) -> Belief:
        """As the model has it, with what is believed of its errors: step times [s], what is reserved / usable [1]."""
        time, time_covariance = errors_of(job, plans, useful_flops(job) / (step * job.gpus * job.peak_flops))
        memory, memory_covariance = errors_of(job, plans, np.ones(len(plans)), MEMORY)
        return cls.untried(
            Gaussian(mean=np.log(step) + time, covariance=time_covariance),
            Gaussian(mean=np.log(reserved) + memory, covariance=memory_covariance),
        )

    @property
    def chance(self) -> FloatArray:
        """Chance of each plan to fit [1]; 1 or 0 where it was tried."""
        return np.where(self.ran, 1.0, np.where(self.failed, 0.0, self.memory.below(0.0)))

    @property
    def tried(self) -> BoolArray:
        """Plans with a result."""
        return np.asarray(self.ran | self.failed)

    def trained(self, index: int, seconds: float, memory: float | None = None) -> Belief:
        """After a plan ran: its step time [s], and what it reserved / what is usable where that is known."""
        after = self.memory.stayed_below(index, 0.0) if memory is None else self.memory.measured(index, np.log(memory))
        return replace(
            self,
            seconds=self.seconds.measured(index, float(np.log(seconds))),
            memory=after,
            ran=_marked(self.ran, index),
        )

    def out_of_memory(self, index: int) -> Belief:
        """After a plan ran out of memory: plans like it need more than was thought as well."""
        return replace(self, memory=self.memory.exceeded(index, 0.0), failed=_marked(self.failed, index))

    def crashed(self, index: int) -> Belief:
        """After a plan failed otherwise, which says nothing of others."""
        return replace(self, failed=_marked(self.failed, index))

    def worlds(self, count: int, seed: int) -> FloatArray:
        """Log of the step time of every plan in so many worlds that may be, infinite where it does not fit."""
        fits = (self.memory.draws(count, seed + 1) <= 0.0) & ~self.failed | self.ran
        return np.where(fits, self.seconds.draws(count, seed), np.inf)

    @property
    def fallback(self) -> float:
        """Log of the step of the plan to run where every trial fails: the fastest that surely fits, or the surest.

        One standard deviation is added, since it was not tried.
        """
        sure = self.chance >= min(SURE, float(self.chance.max()))
        return float((self.seconds.mean + self.seconds.spread)[sure].min())


def _marked(places: BoolArray, index: int) -> BoolArray:
    marked = places.copy()
    marked[index] = True
    return marked
