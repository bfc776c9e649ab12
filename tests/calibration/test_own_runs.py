"""The runs of fine-tuning that were made for this project: presets/finetune-h200.csv, one H200, 26 November 2026."""

from __future__ import annotations

from statistics import fmean, median

import pytest

from optimizer.calibration.runs import Run, read_runs
from optimizer.catalog.files import presets_folder
from optimizer.job.plan import Plans
from optimizer.objectives.step.price import price


@pytest.fixture(scope="module")
def errors() -> dict[str, tuple[float, float]]:
    """Errors of step time and of reserved memory, predicted over measured less one, by run."""
    return {run.id: _error(run) for run in read_runs(presets_folder() / "finetune-h200.csv")}


def _error(run: Run) -> tuple[float, float]:
    assert run.job is not None, run.refused
    assert run.plan is not None
    assert run.step_time
    assert run.memory
    costs = price(run.job, Plans.of([run.plan]))
    return float(costs.step_time[0]) / run.step_time - 1, float(costs.reserved[0]) / run.memory - 1


def test_every_run_is_priced(errors: dict[str, tuple[float, float]]) -> None:
    times, memories = zip(*errors.values(), strict=True)
    assert len(errors) == 45
    assert fmean(map(abs, times)) < 0.15
    assert median(map(abs, times)) < 0.09
    assert fmean(map(abs, memories)) < 0.05


def test_temporaries_and_pages_are_those_of_the_kernels(errors: dict[str, tuple[float, float]]) -> None:
    """Adafactor's copies of the embedding, DoRA's scaled outputs, and moments in unified memory that finds room."""
    assert abs(errors["H200-l1-full-adafactor"][0]) < 0.05
    assert abs(errors["H200-l1-full-adafactor"][1]) < 0.07
    assert abs(errors["H200-l1-dora"][1]) < 0.02
    paged, resident = (errors[f"H200-l1-full-{name}"][0] for name in ("paged", "8bit"))
    assert paged == pytest.approx(resident, abs=0.02)


def test_runs_that_the_gpu_bounds_are_within_seven_per_cent(errors: dict[str, tuple[float, float]]) -> None:
    """Steps of 8,192 tokens through adapters of 8 B parameters, where the host is ahead."""
    bound = {name: each for name, each in errors.items() if name.startswith(("H200-l8-lora", "H200-l8-qlora"))}
    large = {name: each for name, each in bound.items() if not name.endswith(("-1", "-none"))}
    assert len(large) == 7
    assert all(abs(time) < 0.07 and abs(memory) < 0.07 for time, memory in large.values()), large
