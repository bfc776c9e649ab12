from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optimizer.base.errors import InputError
from optimizer.base.files import replace_file
from optimizer.calibration.calibrate import calibrate, informed
from optimizer.calibration.fit import fit_times, table_weights
from optimizer.calibration.memory_fit import MEMORY_PARAMETERS
from optimizer.calibration.runs import Run, nothing_to_fit, read_runs
from optimizer.calibration.stack_file import stack_toml
from optimizer.catalog import load_stack
from optimizer.catalog.readers.stack_file import read_stack
from optimizer.job.stack import PARAMETERS, Stack
from tests.looped import looped
from tests.measured import published_runs

TRUTH = {"gemm_efficiency": 0.72, "hbm_efficiency": 0.6, "scale_up_efficiency": 0.5, "step_overhead": 0.08}


@looped(name=PARAMETERS, share=[0.0, 0.3, 1.0])
def test_unit_scale_and_back(name: str, share: float) -> None:
    value = PARAMETERS[name].at(share)
    assert PARAMETERS[name].low <= value * (1 + 1e-12)
    assert value <= PARAMETERS[name].high * (1 + 1e-12)
    assert PARAMETERS[name].place(value) == pytest.approx(share, abs=1e-9)


def test_known_parameters_are_recovered(measured: Callable[..., Path], lab: Stack) -> None:
    runs = read_runs(measured(TRUTH), lab)
    fit = fit_times(runs, lab, free=tuple(TRUTH), prior=1e-4)
    for name, value in TRUTH.items():
        assert fit.parameters[name] == pytest.approx(value, rel=0.03), name
    assert np.max(np.abs(fit.errors)) < 0.005
    assert fit.at_bound == {}


def test_a_few_wrong_rows_do_not_move_the_fit_and_are_named(measured: Callable[..., Path], lab: Stack) -> None:
    runs = read_runs(measured(TRUTH, noise=0.01), lab)[::2]
    bad = {1, 20, 33}
    runs = [
        replace(run, step_time=(run.step_time or 1.0) * 3.0) if place in bad else run for place, run in enumerate(runs)
    ]
    found = calibrate(runs, lab, evaluations=4)
    assert {run.id for run, _ in found.suspects} == {runs[place].id for place in bad}
    assert found.stack["gemm_efficiency"] == pytest.approx(TRUTH["gemm_efficiency"], rel=0.05)
    assert all(z < -4 for _, z in found.suspects)  # predicted far below what these rows say


def test_a_calibrated_stack_survives_its_file(measured: Callable[..., Path], tmp_path: Path, lab: Stack) -> None:
    runs = read_runs(measured(TRUTH, noise=0.02), lab)[::3]
    found = calibrate(runs, lab, name="mine", date="2026-11", evaluations=4)
    path = tmp_path / "mine.toml"
    replace_file(path, stack_toml(found.stack), "toml")
    again = read_stack(path)
    assert again.name == "mine"
    assert again.features == lab.features
    assert again.devices == ("a100-80",)
    assert again.ranges == {
        "hidden": (2048, 6144),
        "seq_len": (2048, 2048),
        "gpus": (8, 64),
        "experts": (0, 0),
        "fp8": (0, 0),
    }
    assert again.known == found.stack.known
    assert {row.software for row in again.known} == {"mine"}
    assert again.runs == 3 * 2 * 4  # every width, GPU count and layout
    assert again.residuals["mape"] < 0.03


def test_only_parameters_that_a_run_depends_on_are_fitted(gpt_runs: list[Run]) -> None:
    one_node = [run for run in gpt_runs if run.plan and run.plan.gpus == 8 and run.plan.pp == 1]
    free = informed(one_node)
    assert "p2p_overlap" not in free
    assert "network_efficiency" not in free
    assert "attention_efficiency" not in free  # the laboratory has no fused attention
    assert {"gemm_efficiency", "score_passes", "tp_overlap", "launch"} <= set(free)


def test_kept_parameters_stay(gpt_runs: list[Run], lab: Stack) -> None:
    found = calibrate(gpt_runs, lab, keep="all")
    assert found.stack.parameters == lab.parameters
    assert found.stack.residuals["mape"] < 1e-6


def test_nothing_to_fit_says_why(lab: Stack) -> None:
    runs = [Run(id="1", row={}, stack_name="x", refused="the row has no micro_batch")]
    with pytest.raises(InputError, match=r"none of 1 rows has a step time.*no micro_batch"):
        calibrate(runs, lab)
    many = [replace(runs[0], refused=f"{number}") for number in (1, 2, 2, 3, 4)]
    assert nothing_to_fit(many).endswith("all that pricing needs: 1; 2; 3")
    assert nothing_to_fit([replace(runs[0], refused="")]).endswith("all that pricing needs")


def test_a_long_table_counts_less_per_run_but_more_in_all(gpt_runs: list[Run]) -> None:
    runs = [replace(run, row={"source": "long" if place else "short"}) for place, run in enumerate(gpt_runs)]
    weights = table_weights(runs)
    assert weights.mean() == pytest.approx(1.0)
    assert weights[0] > weights[1]
    assert weights[1:].sum() > weights[0]


def test_few_runs_leave_a_parameter_near_its_default(measured: Callable[..., Path], lab: Stack) -> None:
    runs = read_runs(measured({"gemm_efficiency": 0.6}), lab)
    few, many = (fit_times(chosen, lab, free=("gemm_efficiency",)).parameters for chosen in (runs[:1], runs))
    assert abs(many["gemm_efficiency"] - 0.6) < abs(few["gemm_efficiency"] - 0.6)


def test_the_published_runs_give_the_shipped_stack_back() -> None:
    """From the defaults, by the 22 rows of Narayanan et al. (arXiv 2104.04473): what they tell."""
    shipped = load_stack("megatron-2021")
    free = [name for name in shipped.parameters if name not in MEMORY_PARAMETERS]
    bare = replace(shipped, parameters={name: shipped.parameters[name] for name in shipped.parameters.keys() - free})
    found = fit_times(published_runs(shipped.name), bare, free=free)
    assert np.mean(np.abs(np.expm1(found.errors))) < 0.04
    assert found.parameters["gemm_efficiency"] == pytest.approx(shipped["gemm_efficiency"], rel=0.1)
    assert found.parameters["network_efficiency"] == pytest.approx(shipped["network_efficiency"], rel=0.2)
