"""What is known of a prediction's error: a Gaussian process with Student noise, given runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.likeness import Likeness
from optimizer.objectives.belief.places import Places

FREEDOM = 4.0  # degrees of freedom of the noise: of Student's t distributions the usual one for rows with outliers
REWEIGHTINGS = 5


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """Errors of predictions, given those of runs.

    Attributes:
        likeness: before the runs.
        known: where these lie.
        weights: covariance^-1 x errors of the runs [1].
        inverse: inverse of the covariance of the runs' errors, with their noise [1].
        noise: variance of each run's own error, larger for rows far from the others [1].
    """

    likeness: Likeness
    known: Places
    weights: FloatArray
    inverse: FloatArray
    noise: FloatArray

    @classmethod
    def given(cls, likeness: Likeness, known: Places, errors: FloatArray, spreads: FloatArray) -> Posterior:
        """After some runs.

        The noise of single runs is Student's: their variance is scaled by (FREEDOM + r^2) / (FREEDOM + 1), r^2 being
        what is expected of its squared residual over that variance, found by repetition; so rows far from the others
        count little.

        Source: Lange, Little and Taylor, Robust statistical modeling using the t distribution, JASA 84 (1989).

        Args:
            likeness: Before the runs.
            known: Where they lie.
            errors: log(measured / predicted) of each [1].
            spreads: Standard deviation of the noise of each, as it is; 0 for a single run [1].
        """
        prior = likeness.covariance(known, known)
        noise = np.where(spreads > 0, spreads, likeness.single(known)) ** 2
        scaled, single = noise, spreads == 0
        inverse = np.linalg.inv(prior + np.diag(scaled))
        for _ in range(REWEIGHTINGS if single.any() else 0):
            squares = (scaled * (inverse @ errors)) ** 2 + np.maximum(scaled - scaled**2 * np.diag(inverse), 0.0)
            scaled = np.where(single, noise * (FREEDOM + squares / noise) / (FREEDOM + 1.0), noise)
            inverse = np.linalg.inv(prior + np.diag(scaled))
        return cls(likeness=likeness, known=known, weights=inverse @ errors, inverse=inverse, noise=scaled)

    def at(self, places: Places) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the error of a run at each place, its noise included [1]."""
        like = self.likeness.covariance(places, self.known)
        variance = self.likeness.variance(places) - np.einsum("ij,jk,ik->i", like, self.inverse, like)
        return like @ self.weights, np.hypot(np.sqrt(np.maximum(variance, 0.0)), self.likeness.single(places))

    def covariance(self, places: Places) -> FloatArray:
        """Covariance of the errors at every two places, without noise [1]."""
        like = self.likeness.covariance(places, self.known)
        return np.asarray(self.likeness.covariance(places, places) - like @ self.inverse @ like.T)
