"""The published runs, which every checkout has, and the measured ones beside it, read once for all tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from optimizer.calibration.runs import Run, read_runs
from optimizer.calibration.validation import Validation, validate
from optimizer.catalog.files import presets_folder

MEASURED = Path(__file__).resolve().parents[2] / "shared" / "measured"


@cache
def measured_runs(name: str = "runs.csv") -> tuple[Run, ...]:
    """The runs of one of its tables."""
    return tuple(read_runs(MEASURED / name))


@cache
def published_runs(stack: str = "") -> tuple[Run, ...]:
    """The runs of the project itself, of one stack or of all; each row names the page that it is from."""
    runs = tuple(read_runs(presets_folder() / "published.csv"))
    return tuple(run for run in runs if run.stack_name == stack) if stack else runs


@cache
def published_validation() -> Validation:
    """The published runs beside what is predicted for them."""
    return validate(published_runs())
