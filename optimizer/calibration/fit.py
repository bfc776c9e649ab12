"""Fit a Stack's parameters to measured step times: bounded robust least squares in log time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from optimizer.base.errors import InputError
from optimizer.calibration.least_squares import PRIOR, Optimum, solve
from optimizer.calibration.predict import PlanBatch, batches, step_times
from optimizer.calibration.runs import Run
from optimizer.job.stack import Stack
from optimizer.objectives.arrays import FloatArray

TIME_PARAMETERS = (
    *("gemm_efficiency", "attention_efficiency", "score_passes", "hbm_efficiency", "elementwise_passes", "launch"),
    *(
        "dequantise_passes",
        "microbatch_overhead",
        "network_efficiency",
        "scale_up_efficiency",
        "collective_skew",
        "tp_overlap",
    ),
    *("dp_overlap", "p2p_overlap", "optimizer_passes", "step_overhead", "straggler"),
)


def fit_times(
    runs: Sequence[Run],
    start: Stack,
    free: Sequence[str] = TIME_PARAMETERS,
    evaluations: int = 40,
    prior: float = PRIOR,
    guess: Mapping[str, float] | None = None,
) -> Optimum:
    """Fit parameters so that log(predicted / measured step time) is small for most runs, all else as in `start`.

    The soft-L1 loss bounds the pull of wrong rows, table_weights that of long tables, and a prior as strong as one run
    holds at the values of `start` what the others do not inform: many runs outvote it, seven cannot be met exactly by
    fifteen parameters.

    Args:
        runs: Measured ones; those without a step time do not count.
        start: Has the values of the prior.
        free: The parameters to fit.
        evaluations: Most steps of the search.
        prior: Weight of the distance from `start` against the error of a run [1].
        guess: Where the search begins; at `start` for what it does not name.

    Returns:
        The parameters at the least cost; its errors are log(predicted / measured) of each run [1].

    Raises:
        InputError: No run has a step time.
    """
    usable = [run for run in runs if run.job is not None and run.step_time]
    if not usable:
        raise InputError("no run has both a step time and everything that pricing needs")
    grouped = batches(usable)
    measured = np.array([run.step_time for run in usable], dtype=np.float64)
    home = {name: start[name] for name in free}

    def errors(values: Mapping[str, float]) -> FloatArray:
        return log_error(grouped, measured, {**start.parameters, **values})

    start_at, weights = home | dict(guess or {}), table_weights(usable)
    return solve(errors, free, home, start_at, weights=weights, prior=prior, evaluations=evaluations)


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


def time_errors(runs: Sequence[Run], parameters: Mapping[str, float]) -> FloatArray:
    """log(predicted / measured step time) of every run [1]."""
    measured = np.array([run.step_time for run in runs], dtype=np.float64)
    return log_error(batches(runs), measured, parameters)


def log_error(grouped: Sequence[PlanBatch], measured: FloatArray, parameters: Mapping[str, float]) -> FloatArray:
    """log(predicted / measured) of every run [1]."""
    return np.asarray(np.log(step_times(grouped, len(measured), parameters) / measured))
