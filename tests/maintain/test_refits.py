"""Runs judged by fits that did not see a model, a card or a source."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from maintain.refits import fitted_runs, judged, table
from optimizer.calibration.groups import gathered, model_name
from optimizer.calibration.runs import Run, read_runs
from optimizer.catalog.files import presets_folder

EVERY = read_runs(presets_folder() / "finetune-h200.csv")


@pytest.fixture(scope="module")
def few() -> list[Run]:
    """Three timed runs of each of two models."""
    by_model = gathered([run for run in EVERY if run.step_time and run.memory], model_name)
    return [run for members in list(by_model.values())[:2] for run in members[:3]]


def test_runs_of_stacks_that_were_fitted_to_others_are_left_aside() -> None:
    assert len(fitted_runs(EVERY)) == len(EVERY)
    assert not fitted_runs(EVERY[:10])


def test_a_run_is_judged_by_the_other_models_alone(few: list[Run]) -> None:
    """Half as long measured, the runs of one model are told as before, and those of the other one sooner."""
    before = judged(few, model_name)
    first = np.array([model_name(run) == model_name(few[0]) for run in few])
    shorter = [
        replace(run, step_time=(run.step_time or 0) / 2) if mine else run for run, mine in zip(few, first, strict=True)
    ]
    after = judged(shorter, model_name)
    assert after.time[first] == pytest.approx(before.time[first] + np.log(2.0))
    assert (after.time[~first] < before.time[~first] - 0.05).all()
    assert after.memory == pytest.approx(before.memory)


def test_nothing_is_left_out_of_runs_that_are_all_alike(few: list[Run]) -> None:
    alike = judged(few, lambda run: "one")
    assert np.isnan(alike.time).all()
    assert not np.isnan(judged(few, None).time).any()


def test_a_table_has_errors_and_verdicts(few: list[Run]) -> None:
    seen = judged(few, None)
    seen = replace(seen, time=np.log([1.1, 1.1, 1.1, 1.1, 1.1, 0.5]), share=np.array([0.9, 1.2, *[np.nan] * 4]))
    lines = table(few, {"seen": seen}, {"all": np.ones(6, dtype=bool)})
    assert lines[-1].startswith("| all | 16.7%, 10.0% (6) | ")
    assert lines[-1].endswith(" | 1 of 2 |")
