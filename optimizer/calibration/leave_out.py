"""Errors on runs left out of the fit, without a full fit per part: one linear step from the fit to all runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
from numpy.typing import NDArray

from optimizer.calibration.fit import table_weights
from optimizer.calibration.groups import like_runs
from optimizer.calibration.least_squares import PRIOR, SCALE, derivatives, values_at
from optimizer.calibration.runs import Run
from optimizer.job.stack import PARAMETERS, Stack
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.interval import COORDINATES

REWEIGHTINGS = 6
LEFT_OUT = "left_out_"  # begins the names of residuals of runs left out
DEFAULTS = Stack(name="defaults")
LARGEST_STEP = 0.3  # on the unit scale: the linear step is not trusted further

# log(predicted / measured) of some runs under some parameters
LogErrors = Callable[[Sequence[Run], Mapping[str, float]], FloatArray]


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Errors of left-out runs, one entry a run and part."""

    places: NDArray[np.intp]  # of the runs in their list
    errors: FloatArray  # log(predicted / measured) [1]
    inside: NDArray[np.bool_]  # whether the other runs surround it
    parts: NDArray[np.intp]  # the number of the part that it is left out with
    # left out for the first time, with its like; later parts are whole devices, sources and far ends
    like: NDArray[np.bool_]
    groups: NDArray[np.intp]  # the number of its group of like runs

    def part(self, chosen: NDArray[np.bool_]) -> HeldOut:
        """Some of them."""
        return HeldOut(**{column.name: getattr(self, column.name)[chosen] for column in fields(self)})


def held_out(
    runs: Sequence[Run],
    parts: Sequence[NDArray[np.intp]],
    fitted: Stack,
    free: Sequence[str],
    errors: LogErrors,
    home: Stack = DEFAULTS,
) -> HeldOut:
    """For each part: refit `free` to the other runs by one Gauss-Newton step, then price the part exactly.

    Minimises sum_i w_i (r_i + J_i d)^2 + prior over the step d within the parameters' bounds, r being the errors of
    the fit to all runs, J their derivatives and w the weights of their tables and of the robust loss at the end of the
    step, found by repetition; the prior holds the values of `home`; runs of the part count nothing. Where the step
    improves on the stack, which is then not at its best fit, the error of the stack as it is counts.

    Source: Björck, Numerical Methods for Least Squares Problems (1996), section 9.2 for the Gauss-Newton step.
    """
    at_fit = errors(runs, values_at(free, _places(fitted, free)))
    left_errors, inside = [], []
    for part, values in zip(parts, refitted(runs, parts, fitted, free, errors, home), strict=True):
        left = [runs[place] for place in part]
        alone, whole = errors(left, values), at_fit[part]
        left_errors.append(np.where(np.abs(alone) >= np.abs(whole), alone, whole))
        inside.append(_surrounded(left, [runs[place] for place in np.setdiff1d(np.arange(len(runs)), part).tolist()]))
    places = np.concatenate(parts)
    like = np.zeros(len(places), dtype=bool)
    like[np.unique(places, return_index=True)[1]] = True
    return HeldOut(
        places=places,
        errors=np.concatenate(left_errors),
        inside=np.concatenate(inside),
        parts=np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
        like=like,
        groups=like_runs(runs)[places],
    )


def left_out_errors(left: HeldOut) -> dict[str, float]:
    """Mean and median absolute error of runs left out with their like [1], each run counted once.

    Devices, sources and far ends that are left out besides come later in `left` and do not count.

    >>> twice = HeldOut(places=np.array([0, 1, 0]), errors=np.log([1.1, 0.7, 3.0]), inside=np.ones(3, dtype=bool),
    ...     parts=np.array([0, 0, 1]), like=np.array([True, True, False]), groups=np.zeros(3, dtype=int))
    >>> {key: round(value, 2) for key, value in left_out_errors(twice).items()}
    {'left_out_mape': 0.2, 'left_out_median': 0.2}
    """
    size = np.abs(np.expm1(left.errors[left.like]))
    return {f"{LEFT_OUT}mape": float(np.mean(size)), f"{LEFT_OUT}median": float(np.median(size))}


def refitted(
    runs: Sequence[Run],
    parts: Sequence[NDArray[np.intp]],
    fitted: Stack,
    free: Sequence[str],
    errors: LogErrors,
    home: Stack = DEFAULTS,
) -> Iterator[dict[str, float]]:
    """The values of `free` for each part after one such step to the runs outside of it."""
    from scipy.optimize import lsq_linear

    unit = _places(fitted, free)
    at_fit = errors(runs, values_at(free, unit))
    jacobian = derivatives(partial(errors, runs), free, unit, at_fit)
    pull = PRIOR * np.eye(len(free))
    away = np.array([PARAMETERS[name].place(home[name]) for name in free]) - unit
    low, high = np.maximum(-unit, -LARGEST_STEP) - 1e-12, np.minimum(1.0 - unit, LARGEST_STEP) + 1e-12
    for part in parts:
        rest = np.setdiff1d(np.arange(len(runs)), part)
        counts = np.sqrt(table_weights([runs[place] for place in rest.tolist()]))
        step = np.zeros(len(free))
        for _ in range(REWEIGHTINGS):
            weights = counts * (1.0 + ((at_fit[rest] + jacobian[rest] @ step) / SCALE) ** 2) ** -0.25
            matrix = np.concatenate([weights[:, None] * jacobian[rest], pull])
            target = np.concatenate([-weights * at_fit[rest], pull @ away])
            step = lsq_linear(matrix, target, bounds=(low, high)).x
        yield values_at(free, np.clip(unit + step, 0, 1))


def _places(stack: Stack, names: Sequence[str]) -> FloatArray:
    """Where a stack's parameters lie between their bounds [1]."""
    return np.array([np.clip(PARAMETERS[name].place(stack[name]), 0.0, 1.0) for name in names])


def ranges_of(runs: Iterable[Run]) -> dict[str, tuple[float, float]]:
    """Lowest and highest value of each coordinate over the runs: beyond them, predictions are extrapolations."""
    jobs = [run.job for run in runs if run.job]
    values = {name: [coordinate(job) for job in jobs] for name, coordinate in COORDINATES.items() if jobs}
    return {name: (min(each), max(each)) for name, each in values.items()}


def devices_of(runs: Iterable[Run]) -> tuple[str, ...]:
    """Names of the devices that the runs used, sorted."""
    return tuple(sorted({run.job.cluster.device.name for run in runs if run.job}))


def _surrounded(left: Sequence[Run], rest: Sequence[Run]) -> NDArray[np.bool_]:
    """Whether each left-out run lies within the devices and ranges of the rest."""
    devices, ranges = devices_of(rest), ranges_of(rest)

    def within(run: Run) -> bool:
        if run.job is None or run.job.cluster.device.name not in devices:
            return False
        return all(low <= COORDINATES[name](run.job) <= high for name, (low, high) in ranges.items())

    return np.array([within(run) for run in left], dtype=bool)
