"""The shipped stacks against the runs that they were fitted to: each fitted parameter is identified by them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from optimizer.calibration.fit import fit_times
from optimizer.calibration.least_squares import IDENTIFIED
from optimizer.calibration.memory_fit import MEMORY_PARAMETERS
from optimizer.calibration.runs import Run, read_runs
from optimizer.catalog import load_stack, stack_names
from optimizer.catalog.files import presets_folder
from tests.measured import MEASURED, measured_runs, published_runs
from tests.thorough import sampled

FILES = ("runs.csv", "moe_runs.csv", "finetune_runs.csv", "longcontext_runs.csv")
HERE = all((MEASURED / file).exists() for file in FILES)
FITTED_TO = {"megatron-core": ("nemo-2024", "megatron-bridge-2025")}  # the stacks whose runs tell it
MARGIN = 1.15  # numbers in the files are rounded, and fits to part of the runs judged by all of them


@cache
def measured() -> tuple[Run, ...]:
    rows = [run for file in FILES for run in measured_runs(file)]
    rows += read_runs(presets_folder() / "finetune-h200.csv")
    return tuple(run for run in rows if run.job is not None and not run.doubted and run.step_time)


@pytest.mark.skipif(not HERE, reason="the measured runs are not beside the checkout")
@pytest.mark.parametrize("name", sampled((name for name in stack_names() if load_stack(name).runs), 5))
def test_the_runs_tell_each_fitted_parameter_of_time(name: str) -> None:
    """The spread after the runs, at the shipped values, is at most IDENTIFIED of the prior's."""
    stack = load_stack(name)
    own = [run for run in measured() if run.stack_name in FITTED_TO.get(name, (name,))]
    runs = own or [run for run in measured() if run.stack_name == stack.parent]
    fitted = [key for key in stack.parameters if key not in MEMORY_PARAMETERS]
    fit = fit_times(runs, stack, free=fitted, evaluations=1)
    assert runs
    assert max(fit.spreads.values(), default=0.0) <= IDENTIFIED * MARGIN
    assert np.isfinite(fit.errors).all()


@pytest.mark.parametrize(
    ("name", "identified"),
    [
        ("megatron-2021", ("gemm_efficiency", "network_efficiency", "step_overhead", "elementwise_passes")),
        ("nemo-2024", ("gemm_efficiency", "attention_efficiency", "tp_overlap", "step_overhead", "straggler")),
        ("llm-foundry-fsdp-2023", ("gemm_efficiency", "attention_efficiency", "elementwise_passes", "step_overhead")),
        ("megatron-bridge-2025", ("launch", "dp_overlap")),
    ],
)
def test_the_published_runs_alone_tell_the_main_parameters(name: str, identified: tuple[str, ...]) -> None:
    stack = load_stack(name)
    fitted = [key for key in stack.parameters if key not in MEMORY_PARAMETERS]
    spreads = fit_times(published_runs(name), stack, free=fitted, evaluations=1).spreads
    assert max(spreads[key] for key in identified) <= IDENTIFIED
