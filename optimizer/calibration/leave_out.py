"""Errors on runs left out of the fit, without a full fit per part: one linear step from the fit to all runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optimizer.calibration.fit import PRIOR, SCALE, from_unit, table_weights, to_unit
from optimizer.calibration.ranges import ranges_of
from optimizer.calibration.runs import Run
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.interval import COORDINATES
from optimizer.stack import PARAMETERS, Stack

STEP = 1e-3  # finite difference on the unit scale of a parameter
REWEIGHTINGS = 6
LARGEST_STEP = 0.3  # on the unit scale: the linear step is not trusted further

# log(predicted / measured) of some runs under some parameters
Errors = Callable[[Sequence[Run], Mapping[str, float]], FloatArray]


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Errors of left-out runs in log: of which run, and whether the other runs surround it."""

    places: NDArray[np.intp]
    errors: FloatArray
    inside: NDArray[np.bool_]

    def part(self, chosen: NDArray[np.bool_]) -> HeldOut:
        """Some of them."""
        return HeldOut(places=self.places[chosen], errors=self.errors[chosen], inside=self.inside[chosen])


def held_out(
    runs: Sequence[Run],
    parts: Sequence[NDArray[np.intp]],
    fitted: Stack,
    free: Sequence[str],
    errors: Errors,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> HeldOut:
    """For each part: refit `free` to the other runs by one Gauss-Newton step, then price the part exactly.

    Minimises sum_i w_i (r_i + J_i d)^2 + prior over the step d within the parameters' bounds, r being the errors of
    the fit to all runs, J their derivatives and w the weights of their tables and of the robust loss at the end of the
    step, found by repetition; runs of the part count nothing. Where the step improves on the stack, which is then not
    at its best fit, the error of the stack as it is counts.

    Source: Björck, Numerical Methods for Least Squares Problems (1996), section 9.2 for the Gauss-Newton step.
    """
    from scipy.optimize import lsq_linear

    unit = np.array([np.clip(to_unit(name, fitted[name]), 0.0, 1.0) for name in free])
    at_fit, jacobian = _derivatives(runs, free, unit, errors, progress)
    pull = PRIOR * np.eye(len(free))
    home = np.array([to_unit(name, PARAMETERS[name].default) for name in free])
    low, high = np.maximum(-unit, -LARGEST_STEP) - 1e-12, np.minimum(1.0 - unit, LARGEST_STEP) + 1e-12
    places, found, inside = [], [], []
    for part in parts:
        rest = np.setdiff1d(np.arange(len(runs)), part)
        counts = np.sqrt(table_weights([runs[place] for place in rest]))
        step = np.zeros(len(free))
        for _ in range(REWEIGHTINGS):
            weights = counts * (1.0 + ((at_fit[rest] + jacobian[rest] @ step) / SCALE) ** 2) ** -0.25
            matrix = np.concatenate([weights[:, None] * jacobian[rest], pull])
            target = np.concatenate([-weights * at_fit[rest], pull @ (home - unit)])
            step = lsq_linear(matrix, target, bounds=(low, high)).x
        values = {name: from_unit(name, float(np.clip(u, 0, 1))) for name, u in zip(free, unit + step, strict=True)}
        left = [runs[place] for place in part]
        places.append(part)
        found.append(_larger(errors(left, values), at_fit[part]))
        inside.append(_surrounded(left, [runs[place] for place in rest]))
    return HeldOut(places=np.concatenate(places), errors=np.concatenate(found), inside=np.concatenate(inside))


def _larger(one: FloatArray, other: FloatArray) -> FloatArray:
    """Of each pair the one farther from zero."""
    return np.where(np.abs(one) >= np.abs(other), one, other)


def _derivatives(
    runs: Sequence[Run], free: Sequence[str], unit: FloatArray, errors: Errors, progress: Callable[[int, int], None]
) -> tuple[FloatArray, FloatArray]:
    """Errors at the fit, and their derivative by each parameter on its unit scale."""
    at_fit = errors(runs, {name: from_unit(name, u) for name, u in zip(free, unit, strict=True)})
    columns = []
    for index in range(len(free)):
        moved = unit.copy()
        moved[index] += STEP if unit[index] < 0.5 else -STEP
        values = {name: from_unit(name, u) for name, u in zip(free, moved, strict=True)}
        columns.append((errors(runs, values) - at_fit) / (moved[index] - unit[index]))
        progress(index + 1, len(free))
    return at_fit, np.stack(columns, axis=1) if columns else np.zeros((len(runs), 0))


def _surrounded(left: Sequence[Run], rest: Sequence[Run]) -> NDArray[np.bool_]:
    """Whether each left-out run lies within the devices and ranges of the rest."""
    devices = {run.job.cluster.device.name for run in rest if run.job}
    ranges = ranges_of(rest)

    def within(run: Run) -> bool:
        if run.job is None or run.job.cluster.device.name not in devices:
            return False
        return all(low <= COORDINATES[name](run.job) <= high for name, (low, high) in ranges.items())

    return np.array([within(run) for run in left], dtype=bool)
