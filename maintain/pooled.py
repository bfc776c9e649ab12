"""presets/intervals.toml, from stacks with measured runs: `python -m maintain.pooled FILE [FILE]`.

Widths of stacks without runs: every stack's runs are priced with default parameters, as an unfitted stack would be;
each stack weighs alike. Errors that stacks with runs share: those of runs left out of the fits.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from maintain.left_out import errors_of, left_out
from optimizer.calibration.groups import gathered
from optimizer.calibration.intervals import SLOPES, memory_errors, time_errors, weighted_quantile
from optimizer.calibration.runs import Run, read_runs
from optimizer.catalog import load_stack
from optimizer.job.stack import Stack
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.interval import LEVEL, difficulty, mfu


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
    widths: dict[str, float] = {}
    shortest = np.inf
    for slope in SLOPES:
        scale = np.array([difficulty(share, slope) for share in utilisation])
        width = weighted_quantile(np.abs(errors) / scale, weights, LEVEL)
        mean = width * float(np.average(scale, weights=weights))
        if mean < shortest * 0.98:
            shortest, widths = mean, {"time_extrapolated": width, "time_slope": slope}
    known = _unfitted([run for run in clean if run.memory])
    widths["memory_extrapolated"] = weighted_quantile(np.abs(memory_errors(known, {})), _alike(known), LEVEL)
    stacks = [load_stack(name) for name in sorted({run.stack_name for run in timed})]
    for quantity in ("time", "memory"):
        own = [stack.intervals[f"{quantity}_interpolated"] for stack in stacks if f"{quantity}_n" in stack.intervals]
        widths[f"{quantity}_interpolated"] = float(np.median(own)) if own else widths[f"{quantity}_extrapolated"]
    return widths | {"stacks": float(len(stacks))}


def pooled_toml(runs: Sequence[Run], files: Sequence[str]) -> str:
    """presets/intervals.toml."""
    lines = ["# Half-widths in log of 90 % prediction intervals, for stacks without their own.", "[intervals]"]
    lines += [f"{name} = {value:.4g}" for name, value in sorted(pooled(runs).items())]
    lines += [
        "",
        "# Errors in log of runs left out of the fits of all stacks: quantiles from 2.5 to 97.5 %.",
        "[errors]",
    ]
    for quantity in ("time", "memory"):
        for name, values in errors_of(left_out(runs, quantity), quantity).items():
            lines.append(f"{name} = [{', '.join(f'{value:.4g}' for value in values)}]")
    source = f"the runs of {' and '.join(files)}, every stack weighing alike; intervals with default parameters"
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
    measured = [run for file in sys.argv[1:] for run in read_runs(Path(file))]
    print(pooled_toml(measured, [Path(file).name for file in sys.argv[1:]]), end="")
