"""Which parameters a fit keeps: those that the runs tell, off their bounds; and what it minimises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from optimizer.calibration import calibrate as calibration
from optimizer.calibration.calibrate import calibrate
from optimizer.calibration.fit import fit_times, table_weights
from optimizer.calibration.least_squares import IDENTIFIED, PRIOR, RUNS_PER_PARAMETER, SCALE, Optimum
from optimizer.calibration.memory_fit import MemoryFit
from optimizer.calibration.runs import Run, read_runs
from optimizer.calibration.settle import NOT_IDENTIFIED, anew
from optimizer.job.stack import PARAMETERS, Fixed, Stack

TRUTH = {"gemm_efficiency": 0.72, "scale_up_efficiency": 0.5, "step_overhead": 0.08}


@pytest.fixture
def runs(measured: Callable[..., Path], lab: Stack) -> list[Run]:
    return read_runs(measured(TRUTH, noise=0.02), lab)[::3]


def test_the_cost_is_what_the_fit_minimises(runs: list[Run], lab: Stack) -> None:
    """The start of least cost is the best fit only if the cost is the fitted loss: tables, soft-L1 and prior alike."""
    names = ("gemm_efficiency", "scale_up_efficiency", "launch")
    fit = fit_times(runs, lab, free=names)
    losses = table_weights(runs) * (np.sqrt(1 + (fit.errors / SCALE) ** 2) - 1)
    pulls = PRIOR**2 * (fit.unit - fit.home) ** 2 / (2 * SCALE**2)
    assert fit.cost == pytest.approx(losses.sum() + pulls.sum(), rel=1e-9)


def test_another_guess_is_pulled_to_the_same_home(runs: list[Run], lab: Stack) -> None:
    names = ("gemm_efficiency", "launch")
    one, other = fit_times(runs, lab, free=names), fit_times(runs, lab, free=names, guess={"launch": 3e-5})
    assert one.home == pytest.approx(other.home)
    assert one.cost == pytest.approx(other.cost, rel=1e-3)


def test_what_is_fitted_is_told_and_off_its_bounds(runs: list[Run], lab: Stack) -> None:
    found = calibrate(runs, lab, evaluations=4)
    assert {"gemm_efficiency", "step_overhead"} <= set(found.stack.parameters)
    assert set(found.spreads) == set(found.stack.parameters)
    assert max(found.spreads.values()) <= IDENTIFIED * 1.1
    for name, value in found.stack.parameters.items():
        assert PARAMETERS[name].low < value < PARAMETERS[name].high
    assert sum(found.stack.counts) == len(PARAMETERS)


def test_a_parameter_on_its_bound_becomes_a_fact(measured: Callable[..., Path], lab: Stack) -> None:
    runs = read_runs(measured(TRUTH | {"step_overhead": 0.0}), lab)[::4]
    found = calibrate(runs, lab, evaluations=6)
    assert found.stack.fixed["step_overhead"] == Fixed(value=0.0, why="no host time per step shows")
    assert "step_overhead" not in anew(found.stack, tuple(PARAMETERS)).fixed


def test_what_the_runs_do_not_tell_stays_as_in_the_stack_it_started_from(runs: list[Run], lab: Stack) -> None:
    start = replace(lab, name="origin", parameters={"p2p_overlap": 0.31, "launch": 5e-6})
    few = calibrate(runs[:6], start, evaluations=6)
    assert len(few.spreads) <= 6 // RUNS_PER_PARAMETER
    assert few.stack.fixed["launch"] == Fixed(value=5e-6, why=f"as in origin; {NOT_IDENTIFIED}")
    assert few.stack["p2p_overlap"] == 0.31
    assert (
        calibrate(runs[:6], start, evaluations=6, anew=True).stack["p2p_overlap"] == PARAMETERS["p2p_overlap"].default
    )


def test_a_fit_anew_or_of_some_begins_at_the_values_of_the_parent(
    monkeypatch: pytest.MonkeyPatch, runs: list[Run], lab: Stack
) -> None:
    """What the fit begins at, and what those left out are predicted from; one value is fixed by an earlier fit."""
    values = {"launch": 5e-6, "context_memory": 1e9}
    earlier = {"p2p_overlap": Fixed(value=0.31, why=f"as in base; {NOT_IDENTIFIED}")}
    base = replace(lab, name="base", parameters={"launch": 2e-6, "context_memory": 3e9, "p2p_overlap": 0.7})
    start = replace(lab, name="mine", parent="base", parameters=values, fixed=earlier)
    begun, predicted_from = [], []

    def unfitted(clean: object, home: Stack, *rest: object) -> tuple[Stack, MemoryFit]:
        begun.append(home)
        return home, MemoryFit(solution=None, residuals=np.zeros(0), informative=0, verdicts=0, wrong_verdicts=0)

    def known(stack: Stack, clean: object, home: Stack) -> Stack:
        predicted_from.append(home)
        return stack

    empty = Optimum(names=(), unit=np.zeros(0), home=np.zeros(0), information=np.zeros((0, 0)), cost=0, evaluations=1)
    monkeypatch.setattr(calibration, "load_stack", {"base": base}.__getitem__)
    monkeypatch.setattr(calibration, "_settled_times", lambda clean, home, *rest: (home, empty))
    monkeypatch.setattr(calibration, "_settled_memory", unfitted)
    monkeypatch.setattr(calibration, "with_known", known)
    odd = (replace(runs[0], doubt="odd"), Run(id="no", row={}, stack_name="mine", refused="no model"))
    for keep, again in product(("", "times", "all"), (False, True)):
        found = calibrate([*runs[:2], *odd], start, keep=keep, anew=again)
        assert (found.stack.parent, len(found.timed), found.doubtful, found.refused) == ("base", 2, 1, odd[1:])

    def shown(stacks: list[Stack]) -> list[tuple[float, ...]]:
        return [tuple(stack[name] for name in ("launch", "context_memory", "p2p_overlap")) for stack in stacks]

    own, of_parent = (5e-6, 1e9, 0.31), (2e-6, 3e9, 0.7)
    assert shown(begun) == [own, of_parent, own, (5e-6, 3e9, 0.31), own, own]
    assert shown(predicted_from) == [own, *[of_parent] * 5]


def test_a_fact_is_not_fitted(runs: list[Run], lab: Stack) -> None:
    one_width = [run for run in runs if run.row["hidden"] == "4096"]
    start = replace(lab, fixed={"gemm_efficiency": Fixed(value=0.8, why="measured")})
    found = calibrate(one_width, start, evaluations=6, anew=True)
    assert found.stack.fixed["gemm_efficiency"].value == 0.8
    assert "gemm_efficiency" not in found.stack.parameters


def test_of_two_parameters_that_only_their_sum_tells_one_goes() -> None:
    told = np.array([[1.0, 1.0], [1.0, 1.0]]) * 1e4 + np.eye(2) * 16
    solution = Optimum(
        names=("launch", "gemm_efficiency"),
        unit=np.array([0.5, 0.9]),
        home=np.array([0.45, 0.5]),
        information=told,
        cost=0.0,
        evaluations=1,
    )
    assert solution.unidentified(most=9) == ("launch",)
    assert solution.unidentified(most=0) == ("launch", "gemm_efficiency")
