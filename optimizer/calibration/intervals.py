"""Prediction intervals: half-widths in log from runs left out of the fit, of few runs shared with those of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from optimizer.calibration.fit import log_error
from optimizer.calibration.groups import folds
from optimizer.calibration.leave_out import DEFAULTS, HeldOut, devices_of, held_out, ranges_of
from optimizer.calibration.memory_fit import MEMORY_PARAMETERS, log_memory_error
from optimizer.calibration.predict import batches
from optimizer.calibration.runs import Run
from optimizer.catalog.stacks import errors_of_others
from optimizer.job.stack import Stack
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.interval import (
    EXPERTS,
    EXTRAPOLATED,
    INTERPOLATED,
    LEVEL,
    RECOMPUTED,
    STARVED,
    STARVED_MFU,
    difficulty,
    mfu,
    recomputes_something,
)

FEWEST = 10  # a 90 % quantile needs at least nine residuals
ENOUGH = 60  # below, the coverage of a 90 % quantile scatters by more than four points
SLOPES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
LEFT_OUT = "left_out_"  # begins the names of residuals of runs left out
QUANTILES = np.arange(0.025, 1.0, 0.05)  # of the errors of other stacks: twenty of equal weight

Others = Mapping[str, Sequence[float]]  # errors in log of other stacks' runs left out, by quantity, category and kind


def conformal(scores: FloatArray) -> float:
    """The smallest width that covers LEVEL of new scores: the ceil((n + 1) LEVEL)-th smallest [1].

    Source: Lei et al., JASA 113 (2018), algorithm 2.

    >>> conformal(np.arange(1.0, 20.0))
    18.0
    """
    rank = min(len(scores), ceil((len(scores) + 1) * LEVEL))
    return float(np.sort(scores)[rank - 1])


def with_intervals(stack: Stack, runs: Sequence[Run], free: Sequence[str] = (), home: Stack = DEFAULTS) -> Stack:
    """The fitted stack with intervals from the runs it was fitted to, and the devices and ranges these span.

    `free`: the parameters that were fitted to times; those the stack holds when it is empty. `home` has the values that
    the prior of the fit held. The residuals get the errors on groups of like runs left out, left_out_mape and
    left_out_median [1].
    """
    timed = [run for run in runs if run.job is not None and run.step_time]
    names = tuple(free) or tuple(name for name in stack.parameters if name not in MEMORY_PARAMETERS)
    widths: dict[str, float] = {}
    residuals = {key: value for key, value in stack.residuals.items() if not key.startswith(LEFT_OUT)}
    if len(timed) >= FEWEST:
        left = held_out(timed, folds(timed), stack, names, time_errors, home)
        widths |= _time_widths(left, timed)
        residuals |= left_out_errors(left)
    known = [run for run in runs if run.job is not None and run.memory]
    if len(known) >= FEWEST:
        fitted = tuple(name for name in MEMORY_PARAMETERS if name in stack.parameters)
        left = held_out(known, folds(known), stack, fitted, memory_errors, home)
        widths |= memory_widths(left, known)
    elif not any(run.memory for run in runs):  # what the stack has of other stacks' runs stays
        widths |= {name: width for name, width in stack.intervals.items() if name.startswith("memory")}
    return replace(
        stack,
        intervals=widths,
        residuals=residuals,
        ranges=ranges_of(timed),
        devices=devices_of(timed) or stack.devices,
    )


def memory_widths(left: HeldOut, runs: Sequence[Run]) -> dict[str, float]:
    """Half-widths of memory: of plain plans, and of MoE models and plans that recompute where such runs have a peak."""
    kinds, scores = memory_categories(left, runs), np.abs(left.errors)
    widths: dict[str, float] = {}
    for kind in dict.fromkeys(("", *kinds)):
        widths |= half_widths(f"memory{kind}", scores[kinds == kind], left.part(kinds == kind))
    return widths


def memory_categories(left: HeldOut, runs: Sequence[Run]) -> NDArray[np.str_]:
    """The category of memory of each run that was left out."""
    return np.array([memory_kind(runs[place]) for place in left.places])


def time_categories(left: HeldOut, runs: Sequence[Run]) -> NDArray[np.str_]:
    """The category of the step time of each run that was left out: STARVED, else EXPERTS, else ""."""
    slow = _hardness(left, runs) < STARVED_MFU
    of_moe = np.array([bool(job and job.model.experts) for job in (runs[place].job for place in left.places)])
    return np.where(slow, STARVED, np.where(of_moe, EXPERTS, ""))


def memory_kind(run: Run) -> str:
    """The category of memory of a run's plan: EXPERTS, RECOMPUTED or "" for neither."""
    if run.job is None or run.plan is None:
        return ""
    if run.job.model.experts is not None:
        return EXPERTS
    return RECOMPUTED if recomputes_something(run.job.stack, run.plan) else ""


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


def time_errors(runs: Sequence[Run], parameters: Mapping[str, float]) -> FloatArray:
    """log(predicted / measured step time) of every run [1]."""
    measured = np.array([run.step_time for run in runs], dtype=np.float64)
    return log_error(batches(runs), measured, parameters)


def memory_errors(runs: Sequence[Run], parameters: Mapping[str, float]) -> FloatArray:
    """log(predicted / measured memory) of every run [1]."""
    return log_memory_error(batches(runs), runs, parameters)


def _time_widths(left: HeldOut, runs: Sequence[Run]) -> dict[str, float]:
    """Half-widths at the slope whose intervals are shortest on average; few runs tell no slope.

    Steps of less than STARVED_MFU have widths of their own, and of the others MoE models, where there are such runs.
    """
    hardness, kinds = _hardness(left, runs), time_categories(left, runs)
    starved = kinds == STARVED
    fed = left.part(~starved)
    slope, shortest = 0.0, np.inf
    for steeper in SLOPES if _enough(fed) else SLOPES[:1]:
        scale = _scales(hardness[~starved], steeper)
        width = half_widths("time", np.abs(fed.errors) / scale, fed)["time_interpolated"]
        inside = fed.inside if _enough(fed) else np.ones_like(fed.inside)
        mean = width * float(np.mean(scale[inside])) if np.any(inside) else np.inf
        if mean < shortest * 0.98:
            slope, shortest = steeper, mean
    widths = {"time_slope": slope}
    for kind in dict.fromkeys(("", *kinds)):
        chosen = kinds == kind
        scores = np.abs(left.errors[chosen]) / _scales(hardness[chosen], slope)
        widths |= half_widths(f"time{kind}", scores, left.part(chosen))
    return widths


def _hardness(left: HeldOut, runs: Sequence[Run]) -> FloatArray:
    """MFU of each left-out prediction, which is what the interval will see [1]."""
    pairs = [(runs[place], float(np.exp(error))) for place, error in zip(left.places, left.errors, strict=True)]
    return np.array([mfu(run.job, run.step_time * ratio) if run.job and run.step_time else 1.0 for run, ratio in pairs])


def _scales(hardness: FloatArray, slope: float) -> FloatArray:
    """How much wider than the easiest each of these steps is [1]."""
    return np.array([difficulty(share, slope) for share in hardness])


def _enough(left: HeldOut) -> bool:
    """Whether the runs inside of the rest, left out with their like, suffice for a width of their own."""
    return int(np.sum(left.inside & left.like)) >= ENOUGH


def half_widths(quantity: str, scores: FloatArray, left: HeldOut, others: Others | None = None) -> dict[str, float]:
    """Half-widths of both kinds: shared_quantile of these scores and of the `others` of this quantity.

    Peaks of memory that one software prints and another's are less alike than their times: FEWEST of its own are
    enough for an interpolation.

    An interpolation is as wide as the errors of runs left out with their like: whole devices and sources that are left
    out besides would count the same runs again. With fewer than ENOUGH runs inside of the rest, those outside count as
    well, which errs to the wide side. An extrapolation is as wide as the errors of all runs that lay outside of the
    others, each part that was left out counting as a group, and no narrower than an interpolation.
    """
    near = left.like & left.inside if _enough(left) else left.like
    far = ~left.inside
    inner, outer = (of_others(others or errors_of_others(), quantity, kind) for kind in (INTERPOLATED, EXTRAPOLATED))
    alone = quantity.startswith("memory") and np.sum(near) >= FEWEST
    narrow = conformal(scores[near]) if alone else shared_quantile(scores[near], left.groups[near], inner)
    wide = shared_quantile(scores[far], left.parts[far], outer)
    return {
        f"{quantity}_{INTERPOLATED}": narrow,
        f"{quantity}_{EXTRAPOLATED}": max(narrow, wide),
        f"{quantity}_n": float(np.sum(left.like)),
    }


def of_others(others: Others, quantity: str, kind: str) -> Sequence[float]:
    """The errors of others in a quantity with its category; in all categories where nobody has any in this one.

    >>> of_others({"time_interpolated": (0.1,)}, "time_experts", "interpolated")
    (0.1,)
    """
    return others.get(f"{quantity}_{kind}") or others.get(f"{quantity.split('_')[0]}_{kind}", ())


def shared_quantile(scores: FloatArray, groups: NDArray[np.intp], others: Sequence[float]) -> float:
    """The width that covers LEVEL of one's own scores and those of others together [1].

    Every group of like runs weighs 1, whatever its number of runs, and so do all `others` together: of many groups it
    is their own quantile, of few it is nearly that of the others; 0 where there are none at all.

    Source: Lei et al., JASA 113 (2018), algorithm 2, for widths from runs left out; Tibshirani et al., Conformal
    prediction under covariate shift (2019), section 2, for scores of unequal weight.

    >>> others = [0.1, 0.2, 0.3, 0.4]
    >>> shared_quantile(np.zeros(0), np.zeros(0, dtype=np.intp), others)
    0.4
    >>> own = np.full(40, 0.05)
    >>> [shared_quantile(own, np.arange(40) // runs, others) for runs in (1, 40)]
    [0.05, 0.4]
    """
    values, weights = np.asarray(others, dtype=np.float64), np.full(len(others), 1.0 / max(len(others), 1))
    if len(scores):
        _, place, count = np.unique(groups, return_inverse=True, return_counts=True)
        values, weights = np.concatenate([scores, values]), np.concatenate([1.0 / count[place], weights])
    return weighted_quantile(values, weights, LEVEL) if len(values) else 0.0


def weighted_quantile(values: FloatArray, weights: FloatArray, level: float) -> float:
    """The smallest value below or at which lies `level` of the weight.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 8.0]), 0.9)
    2.0
    """
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    place = int(np.searchsorted(reached, (level - 1e-12) * reached[-1]))
    return float(values[order[min(place, len(values) - 1)]])
