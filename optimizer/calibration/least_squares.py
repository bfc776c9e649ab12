"""Bounded robust least squares on unit scales with a prior, and how much the data tell of each parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from optimizer.job.stack import PARAMETERS, PRIOR_SPREAD
from optimizer.objectives.arrays import FloatArray

SCALE = 0.05  # of the soft-L1 loss, in log: errors below it count as squares
PRIOR = SCALE / PRIOR_SPREAD  # weight of a parameter's distance against a run's error, whose spread is SCALE
IDENTIFIED = 0.7  # of the prior's spread: below, the data tell as much of a parameter as the prior does
RUNS_PER_PARAMETER = 3
STEP = 1e-3  # finite difference on the unit scale
EDGE = 0.005  # on the unit scale: nearer to a bound than this is on it


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """Parameters at the least cost."""

    names: tuple[str, ...]  # of the parameters
    unit: FloatArray  # their places between their bounds [1]
    home: FloatArray  # places of their priors [1]
    information: FloatArray  # curvature of the cost by the places
    cost: float  # weighted soft-L1 losses of the runs, and the prior [1]
    evaluations: int  # steps of the search
    errors: FloatArray = field(default_factory=lambda: np.zeros(0))  # of every run [1]

    @property
    def parameters(self) -> dict[str, float]:
        """The values."""
        return values_at(self.names, self.unit)

    @property
    def at_bound(self) -> dict[str, float]:
        """The bound of each parameter that lies on one."""
        near = {name: round(u) for name, u in zip(self.names, self.unit, strict=True) if min(u, 1 - u) < EDGE}
        return {name: PARAMETERS[name].at(end) for name, end in near.items()}

    @property
    def spreads(self) -> dict[str, float]:
        """Spread of each parameter after the data / before them [1]: 1 where they tell nothing, 0 where they tell it.

        sqrt(diag(H^-1)) / PRIOR_SPREAD with the information H = J'WJ / SCALE^2 + 1 / PRIOR_SPREAD^2.

        Source: Tarantola, Inverse Problem Theory (2005), chapter 3.
        """
        after = np.sqrt(np.diag(np.linalg.inv(self.information))) if self.names else np.zeros(0)
        return dict(zip(self.names, (after / PRIOR_SPREAD).tolist(), strict=True))

    def unidentified(self, most: int) -> tuple[str, ...]:
        """Parameters to send home so that the data identify each of the others, `most` of them at most.

        One at a time the one whose return costs the least, its home distance^2 / (2 variance), the others following.
        """
        keep, away = np.arange(len(self.names)), self.unit - self.home
        gone: list[str] = []
        while len(keep):
            covariance = np.linalg.inv(self.information[np.ix_(keep, keep)])
            variance = np.diag(covariance)
            vague = np.sqrt(variance) > IDENTIFIED * PRIOR_SPREAD
            if not vague.any() and len(keep) <= most:
                break
            loss = np.where(vague | (len(keep) > most), away**2 / (2 * variance), np.inf)
            first = int(loss.argmin())
            away = np.delete(away - covariance[:, first] / variance[first] * away[first], first)
            gone.append(self.names[keep[first]])
            keep = np.delete(keep, first)
        return tuple(gone)


def solve(
    errors: Callable[[Mapping[str, float]], FloatArray],
    names: Sequence[str],
    home: Mapping[str, float],
    guess: Mapping[str, float],
    *,
    weights: FloatArray | float = 1.0,
    prior: float = PRIOR,
    evaluations: int = 40,
) -> Optimum:
    """Least sum of weighted soft-L1 losses of `errors` and of squared distances from home, from a first guess.

    Each parameter moves on [0, 1] between its bounds, in log where they are positive and far apart. `cost` is what was
    minimised: sum_i w_i (sqrt(1 + e_i^2 / SCALE^2) - 1) + prior^2 sum_j (u_j - home_j)^2 / (2 SCALE^2).
    """
    from scipy.optimize import least_squares

    centre = np.array([PARAMETERS[name].place(home[name]) for name in names])
    start = np.clip([PARAMETERS[name].place(guess[name]) for name in names], 0.02, 0.98)
    count = len(names)

    @lru_cache(maxsize=1)  # the slopes are asked for where the residuals just were
    def errors_at(place: tuple[float, ...]) -> FloatArray:
        return errors(values_at(names, place))

    def residuals(unit: FloatArray) -> FloatArray:
        return np.concatenate([errors_at(tuple(unit)), prior * (unit - centre)])

    def loss(squares: FloatArray) -> FloatArray:
        root = np.sqrt(1.0 + squares[: len(squares) - count])
        one = np.ones(count)
        far = np.stack([weights * 2.0 * (root - 1.0), weights / root, weights * -0.5 / root**3])
        return np.concatenate([far, np.stack([squares[len(squares) - count :], one, 0 * one])], axis=1)

    def slopes(unit: FloatArray) -> FloatArray:
        return np.concatenate([derivatives(errors, names, unit, errors_at(tuple(unit))), prior * np.eye(count)])

    optimum = least_squares(residuals, start, jac=slopes, bounds=(0, 1), loss=loss, f_scale=SCALE, max_nfev=evaluations)
    return Optimum(
        names=tuple(names),
        unit=optimum.x,
        home=centre,
        information=np.asarray(optimum.jac.T @ optimum.jac / SCALE**2),
        cost=float(optimum.cost / SCALE**2),
        evaluations=int(optimum.nfev),
        errors=optimum.fun[: len(optimum.fun) - count],
    )


def derivatives(
    errors: Callable[[Mapping[str, float]], FloatArray], names: Sequence[str], unit: FloatArray, here: FloatArray
) -> FloatArray:
    """Derivative of every error by every parameter on its unit scale [1]: one row an error, one column a parameter.

    here: the errors at `unit`.
    """
    columns = []
    for index, place in enumerate(unit):
        moved = unit.copy()
        moved[index] += STEP if place < 0.5 else -STEP
        columns.append((errors(values_at(names, moved)) - here) / (moved[index] - place))
    return np.stack(columns, axis=1) if columns else np.zeros((len(here), 0))


def values_at(names: Sequence[str], unit: Sequence[float] | FloatArray) -> dict[str, float]:
    """Parameters at places between their bounds."""
    return {name: PARAMETERS[name].at(u) for name, u in zip(names, unit, strict=True)}
