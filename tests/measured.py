"""The measured runs beside the checkout, read once for all tests that only look at them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from optimizer.calibration.runs import Run, read_runs

MEASURED = Path(__file__).resolve().parents[2] / "shared" / "measured"


@cache
def measured_runs(name: str = "runs.csv") -> tuple[Run, ...]:
    """The runs of one of its tables."""
    return tuple(read_runs(MEASURED / name))
