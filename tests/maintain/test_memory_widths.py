"""Widths of memory from runs of stacks that allocate alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maintain.memory_widths import ALIKE, errors_of_kind, memory_widths
from optimizer.calibration.runs import read_runs
from optimizer.catalog import load_stack

MEASURED = Path(__file__).parents[3] / "shared" / "measured"
pytestmark = pytest.mark.skipif(not MEASURED.exists(), reason="needs ../shared")


def test_the_default_stack_has_the_widths_that_the_runs_give() -> None:
    runs = [run for name in ("runs.csv", "moe_runs.csv") for run in read_runs(MEASURED / name)]
    stack = load_stack("megatron-core")
    widths = memory_widths(stack, runs)
    assert {name: pytest.approx(width, rel=1e-3) for name, width in widths.items()} == {
        name: width for name, width in stack.intervals.items() if name.startswith("memory")
    }
    # Plain plans are narrow enough to tell 83 GB from 72, and their runs are covered without themselves.
    assert widths["memory_interpolated"] < np.log(83 / 72)
    for name in ALIKE[""]:
        others = memory_widths(stack, [run for run in runs if run.stack_name != name])["memory_interpolated"]
        assert np.mean(np.abs(errors_of_kind(stack, [r for r in runs if r.stack_name == name], "")) <= others) > 0.8
