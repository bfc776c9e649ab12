"""Fit a Stack's parameters to measured step times: bounded robust least squares in log time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.calibration.predict import Batch, batches, predict
from optimizer.calibration.runs import Run
from optimizer.errors import InputError
from optimizer.objectives.arrays import FloatArray
from optimizer.stack import PARAMETERS, Stack

TIME_PARAMETERS = (
    "gemm_efficiency",
    "attention_efficiency",
    "score_passes",
    "hbm_efficiency",
    "elementwise_passes",
    "launch",
    "microbatch_overhead",
    "network_efficiency",
    "scale_up_efficiency",
    "collective_skew",
    "tp_overlap",
    "dp_overlap",
    "p2p_overlap",
    "optimizer_passes",
    "step_overhead",
    "straggler",
)
SCALE = 0.05  # of the soft-L1 loss, in log: errors below it count as squares
PRIOR_SPREAD = 0.25  # of a parameter around its default, as a share of the distance between its bounds
PRIOR = SCALE / PRIOR_SPREAD  # weight of a parameter's distance against a run's error, whose spread is SCALE


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Fitted parameters, those at a bound, and log(predicted / measured) of each run."""

    parameters: Mapping[str, float]
    at_bound: tuple[str, ...]
    residuals: FloatArray
    evaluations: int


def fit_times(
    runs: Sequence[Run],
    start: Stack,
    free: Sequence[str] = TIME_PARAMETERS,
    evaluations: int = 40,
    prior: float = PRIOR,
) -> Fit:
    """Fit `free` parameters so that log(predicted / measured step time) is small for most runs.

    Each parameter moves on [0, 1] between its bounds, in log where they are positive and far apart; the soft-L1 loss
    (scale SCALE) bounds the pull of wrong rows, table_weights that of long tables, and a prior as strong as one run
    holds what the others do not inform: many runs outvote it, seven cannot be met exactly by fifteen parameters.

    Raises InputError when no run has a step time.
    """
    from scipy.optimize import least_squares

    usable = [run for run in runs if run.job is not None and run.step_time]
    if not usable:
        raise InputError("no run has both a step time and everything that pricing needs")
    grouped = batches(usable)
    measured = np.array([run.step_time for run in usable], dtype=np.float64)
    origin = np.array([to_unit(name, start[name]) for name in free])

    def residuals(unit: FloatArray) -> FloatArray:
        values = {name: from_unit(name, u) for name, u in zip(free, unit, strict=True)}
        return np.concatenate([log_error(grouped, measured, values), prior * (unit - origin)])

    counts = np.concatenate([table_weights(usable), np.ones(len(free))])

    def loss(squares: FloatArray) -> FloatArray:
        root = np.sqrt(1.0 + squares)
        return np.stack([counts * 2.0 * (root - 1.0), counts / root, counts * -0.5 / root**3])

    guess = np.clip(origin, 0.02, 0.98)
    found = least_squares(
        residuals, guess, bounds=(0, 1), loss=loss, f_scale=SCALE, diff_step=1e-3, max_nfev=evaluations, x_scale=1.0
    )
    values = {name: from_unit(name, u) for name, u in zip(free, found.x, strict=True)}
    return Fit(
        parameters=values,
        at_bound=tuple(name for name, u in zip(free, found.x, strict=True) if u < 0.005 or u > 0.995),
        residuals=log_error(grouped, measured, values),
        evaluations=int(found.nfev),
    )


def table_weights(runs: Sequence[Run]) -> FloatArray:
    """How much each run counts: as 1 / sqrt(runs of its table), 1 on average [1].

    A stack is to hold for tables that it was not fitted to, so that a thousand runs of one sweep must not drown sixty
    of another; a run of a large table still counts for something.

    >>> rows = [{"source": "sweep"}] * 9 + [{"source": "paper"}]
    >>> table_weights([Run(id="", row=row, stack_name="") for row in rows]).round(2)[[0, 9]].tolist()
    [0.83, 2.5]
    """
    tables = [run.row.get("source", "") for run in runs]
    counts = Counter(tables)
    weights = np.array([counts[table] ** -0.5 for table in tables])
    return np.asarray(weights / weights.mean(), dtype=np.float64)


def log_error(grouped: Sequence[Batch], measured: FloatArray, parameters: Mapping[str, float]) -> FloatArray:
    """log(predicted / measured) of every run [1]."""
    return np.log(predict(grouped, len(measured), parameters).step_time / measured)


def to_unit(name: str, value: float) -> float:
    """Position of a parameter's value between its bounds, 0 to 1."""
    low, high, logarithmic = _scale(name)
    if logarithmic:
        return float(np.log(max(value, low) / low) / np.log(high / low))
    return (value - low) / (high - low)


def from_unit(name: str, unit: float) -> float:
    """The value at a position between the bounds.

    >>> round(from_unit("launch", to_unit("launch", 7e-6)), 9)
    7e-06
    """
    low, high, logarithmic = _scale(name)
    return float(low * (high / low) ** unit) if logarithmic else float(low + unit * (high - low))


def _scale(name: str) -> tuple[float, float, bool]:
    parameter = PARAMETERS[name]
    return parameter.low, parameter.high, parameter.low > 0 and parameter.high / parameter.low > 4
