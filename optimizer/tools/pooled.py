"""Intervals of stacks without measured runs, from stacks that have them: `python -m optimizer.tools.pooled FILE`.

Every stack's runs are priced with default parameters, as an unfitted stack would be; each stack weighs alike.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from optimizer.calibration.groups import gathered
from optimizer.calibration.intervals import SLOPES, memory_errors, time_errors
from optimizer.calibration.runs import Run, read_runs
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.interval import LEVEL, difficulty, mfu
from optimizer.presets import load_stack
from optimizer.stack import Stack


def weighted_quantile(values: FloatArray, weights: FloatArray, level: float) -> float:
    """The smallest value below or at which lies `level` of the weight.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 8.0]), 0.9)
    2.0
    """
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / np.sum(weights)
    return float(values[order][np.searchsorted(reached, level - 1e-12)])


def pooled(runs: Sequence[Run]) -> dict[str, float]:
    """Half-widths in log, their slope in time, and the number of stacks behind them."""
    clean = [run for run in runs if run.job is not None and not run.doubted]
    timed = _unfitted([run for run in clean if run.step_time])
    errors, weights = time_errors(timed, {}), _alike(timed)
    utilisation = [
        mfu(run.job, (run.step_time or 1.0) * float(np.exp(error)))
        for run, error in zip(timed, errors, strict=True)
        if run.job
    ]
    found: dict[str, float] = {}
    shortest = np.inf
    for slope in SLOPES:
        scale = np.array([difficulty(share, slope) for share in utilisation])
        width = weighted_quantile(np.abs(errors) / scale, weights, LEVEL)
        mean = width * float(np.average(scale, weights=weights))
        if mean < shortest * 0.98:
            shortest, found = mean, {"time_extrapolated": width, "time_slope": slope}
    known = _unfitted([run for run in clean if run.memory])
    found["memory_extrapolated"] = weighted_quantile(np.abs(memory_errors(known, {})), _alike(known), LEVEL)
    stacks = [load_stack(name) for name in sorted({run.stack_name for run in timed})]
    for quantity in ("time", "memory"):
        own = [stack.intervals[f"{quantity}_interpolated"] for stack in stacks if f"{quantity}_n" in stack.intervals]
        found[f"{quantity}_interpolated"] = float(np.median(own)) if own else found[f"{quantity}_extrapolated"]
    return found | {"stacks": float(len(stacks))}


def pooled_toml(runs: Sequence[Run], file: str) -> str:
    """presets/intervals.toml."""
    lines = ["# Half-widths in log of 90 % prediction intervals, for stacks without their own.", "[intervals]"]
    lines += [f"{name} = {value:.4g}" for name, value in sorted(pooled(runs).items())]
    source = f"default parameters against the runs of {file}, every stack weighing alike"
    return "\n".join([*lines, "", "[provenance]", f'source = "{source}"', 'date = "2026-11"', ""])


def _unfitted(runs: Sequence[Run]) -> list[Run]:
    """The runs under stacks with the features of theirs and default parameters."""
    return [
        replace(run, job=replace(run.job, stack=Stack(name=run.stack_name, features=run.job.stack.features)))
        for run in runs
        if run.job is not None
    ]


def _alike(runs: Sequence[Run]) -> FloatArray:
    """Weights under which every stack counts the same."""
    counts = {name: len(members) for name, members in gathered(runs, lambda run: run.stack_name).items()}
    return np.array([1.0 / counts[run.stack_name] for run in runs])


if __name__ == "__main__":
    print(pooled_toml(read_runs(Path(sys.argv[1])), Path(sys.argv[1]).name), end="")
