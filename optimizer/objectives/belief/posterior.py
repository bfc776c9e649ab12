"""What is known of a prediction's error: a Gaussian process with Student noise, given runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.likeness import ErrorLikeness
from optimizer.objectives.belief.places import SHARED, Places

FREEDOM = 4.0  # degrees of freedom of the noise: of Student's t distributions the usual one for rows with outliers
REWEIGHTINGS = 5
SITE = list(SHARED).index("site")
ALONE = 0.5  # of what one run says that is believed of others: it is as likely odd [1]
STRANGE = 3.0  # spreads by which a site's runs err before it counts as unlike all others


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """Errors of predictions, given those of runs."""

    likeness: ErrorLikeness  # before the runs
    known: Places  # where these lie
    weights: FloatArray  # covariance^-1 x errors of the runs [1]
    inverse: FloatArray  # inverse of the covariance of the runs' errors, with their noise [1]
    noise: FloatArray  # variance of each run's own error, larger for rows far from the others [1]
    doubt: float = 0.0  # standard deviation of what may make a site unlike all others, by one strange run of it [1]
    site: int = 0  # code of that site in `Places.codes`

    @classmethod
    def given(cls, likeness: ErrorLikeness, known: Places, errors: FloatArray, spreads: FloatArray) -> Posterior:
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
        inverse = _inverse(prior, scaled)
        for _ in range(REWEIGHTINGS if single.any() else 0):
            squares = (scaled * (inverse @ errors)) ** 2 + np.maximum(scaled - scaled**2 * np.diag(inverse), 0.0)
            scaled = np.where(single, noise * (FREEDOM + squares / noise) / (FREEDOM + 1.0), noise)
            inverse = _inverse(prior, scaled)
        return cls(likeness=likeness, known=known, weights=inverse @ errors, inverse=inverse, noise=scaled)

    def at(self, places: Places) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the error of a run at each place, its noise included [1]."""
        like = self.likeness.covariance(places, self.known)
        variance = self.likeness.variance(places) - np.einsum("ij,jk,ik->i", like, self.inverse, like)
        variance += self.doubt**2 * self._there(places)
        return like @ self.weights, np.hypot(np.sqrt(np.maximum(variance, 0.0)), self.likeness.single(places))

    def covariance(self, places: Places) -> FloatArray:
        """Covariance of the errors at every two places, without noise [1]."""
        like, there = self.likeness.covariance(places, self.known), self._there(places)
        shared = self.doubt**2 * np.outer(there, there)
        return np.asarray(self.likeness.covariance(places, places) - like @ self.inverse @ like.T + shared)

    def in_doubt(self, places: Places, errors: FloatArray) -> Posterior:
        """The same where one run is strange: it is as likely a mistake as its site is unlike all others.

        The mean is that of a mistake; the variance has half of the square of what the run errs beyond what is believed.
        """
        beyond = float((errors - ALONE * self.at(places)[0])[0])
        return replace(self, doubt=abs(beyond) * 0.5**0.5, site=int(places.codes[0, SITE]))

    def _there(self, places: Places) -> FloatArray:
        return np.asarray(places.codes[:, SITE] == self.site, dtype=np.float64)


def unlike(errors: FloatArray, mean: FloatArray, spread: FloatArray) -> float:
    """Standard deviation of what makes a site unlike those that others ran on, by its own runs [1].

    sqrt(max(0, median(z^2) - STRANGE^2)) x median(s), with z = (error - mean) / s: its runs say so together, and one of
    several that is far off does not. Otherwise a machine that is slower than any known one would be taken for a
    mistake of its runs. It is for several runs: nobody can tell whether a single one is a mistake.

    Source: DerSimonian and Laird, Meta-analysis in clinical trials, Controlled Clinical Trials 7 (1986), for the
    variance between sites by moments.

    >>> round(unlike(np.full(2, 0.4), np.zeros(2), np.full(2, 0.1)) ** 2, 6)  # 16 variances, of which 9 are usual
    0.07
    >>> unlike(np.array([0.01, 0.4, -0.02]), np.zeros(3), np.full(3, 0.1))
    0.0
    """
    excess = float(np.median(((errors - mean) / spread) ** 2)) - STRANGE**2
    return float(max(0.0, excess) ** 0.5 * np.median(spread))


def _inverse(covariance: FloatArray, noise: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.inv(covariance + np.diag(noise)), dtype=np.float64)
