"""What a fit leaves out together, and its errors there."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optimizer.calibration.fit import fit_times, time_errors
from optimizer.calibration.groups import folds
from optimizer.calibration.leave_out import held_out
from optimizer.calibration.predict import with_parameters
from optimizer.calibration.runs import Run, read_runs
from optimizer.job.stack import Stack

FREE = ("gemm_efficiency", "hbm_efficiency", "launch", "step_overhead")


def test_folds_leave_every_run_out_and_keep_a_model_together(gpt_runs: list[Run]) -> None:
    runs = [run for run in gpt_runs if run.job]
    parts = folds(runs)
    assert set(np.concatenate(parts)) == set(range(len(runs)))
    models = [{run.job.model.hidden for run in (runs[place] for place in part) if run.job} for part in parts[:3]]
    assert models == [{2048}, {4096}, {6144}]


def test_a_left_out_fit_is_the_fit_without_these_runs(measured: Callable[..., Path], lab: Stack) -> None:
    """The linear step against a whole refit, for runs of which one model is 20 % slower than the others."""
    runs = [run for run in read_runs(measured({"launch": 9e-6}), lab) if run.job]
    runs = [
        replace(run, step_time=1.2 * (run.step_time or 1.0)) if run.row["hidden"] == "6144" else run for run in runs
    ]
    fitted = with_parameters(lab, fit_times(runs, lab, free=FREE, prior=1e-3).parameters)
    part = np.array([place for place, run in enumerate(runs) if run.row["hidden"] == "6144"])
    found = held_out(runs, [part], fitted, FREE, time_errors)
    rest = [run for run in runs if run.row["hidden"] != "6144"]
    refit = fit_times(rest, lab, free=FREE, prior=1e-3)
    exact = time_errors([runs[place] for place in part], refit.parameters)
    assert np.median(found.errors) == pytest.approx(np.median(exact), abs=0.02)
    assert np.median(np.abs(found.errors)) > np.median(np.abs(time_errors([runs[p] for p in part], fitted.parameters)))
    assert not found.inside.any()  # the widest model lies outside of the narrower ones
