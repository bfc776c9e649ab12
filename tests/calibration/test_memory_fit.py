from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optimizer.calibration import memory_fit as module
from optimizer.calibration.memory_fit import counted, fit_memory, predicted_memory
from optimizer.calibration.predict import batches, predict
from optimizer.calibration.runs import Run, read_runs
from optimizer.job.plan import Plan
from optimizer.job.stack import Stack
from optimizer.objectives.arrays import FloatArray

TRUTH = {"fragmentation": 0.12, "workspace": 0.8e9, "activation_factor": 1.3, "logit_memory": 12.0}


def test_known_memory_parameters_are_recovered(measured: Callable[..., Path], lab: Stack) -> None:
    runs = read_runs(measured(TRUTH, memory=True), lab)
    assert any(run.out_of_memory for run in runs)
    fit = fit_memory(runs, lab, prior=1e-4)
    assert np.max(np.abs(fit.residuals)) < 0.01
    assert fit.wrong_verdicts == 0
    assert fit.verdicts == len(runs)
    assert fit.parameters["activation_factor"] * (1 + fit.parameters["fragmentation"]) == pytest.approx(
        1.3 * 1.12, rel=0.02
    )


def test_verdicts_alone_move_the_memory(measured: Callable[..., Path], lab: Stack) -> None:
    """Without a single measured peak, which runs failed tells how much the activations take."""
    runs = [replace(run, memory=None) for run in read_runs(measured({"activation_factor": 1.9}, memory=True), lab)]
    before = fit_memory(runs, lab, free=())
    after = fit_memory(runs, lab)
    assert before.wrong_verdicts > 0
    assert after.wrong_verdicts < before.wrong_verdicts
    assert after.parameters["activation_factor"] > 1.2


def test_memory_alone_is_priced_as_with_the_time(gpt_runs: list[Run]) -> None:
    runs, parameters = gpt_runs[::5], {"workspace": 1e9}
    reserved, allocated, used, first = predicted_memory(batches(runs), len(runs), parameters)
    whole = predict(batches(runs), len(runs), parameters)
    np.testing.assert_allclose(reserved, whole.reserved, rtol=1e-12)
    np.testing.assert_allclose(allocated, whole.allocated, rtol=1e-12)
    context = [run.job.stack["context_memory"] for run in runs if run.job]
    np.testing.assert_allclose(used, whole.reserved + context, rtol=1e-12)
    assert np.all(first <= reserved)


def test_the_first_stage_has_no_logits(gpt_runs: list[Run]) -> None:
    """Of a pipeline that one micro-batch goes through the last stage is the fullest."""
    runs = [replace(gpt_runs[0], plan=Plan(pp=pp, dp=8 // pp, num_microbatches=1)) for pp in (1, 2)]
    reserved, _, _, first = predicted_memory(batches(runs), len(runs), {"logit_memory": 24.0})
    assert first[0] == reserved[0]
    assert first[1] < reserved[1]


def test_nothing_known_leaves_the_stack_alone(lab: Stack) -> None:
    fit = fit_memory([Run(id="1", row={}, stack_name="x")], lab)
    assert fit.parameters == {}
    assert len(fit.residuals) == 0


@pytest.mark.parametrize(
    ("kind", "notes", "found"),
    [
        ("torch reserved", "", "reserved"),
        ("torch reserved by the first stage", "", "reserved by the first stage"),
        ("torch allocated", "", "allocated"),
        ("as printed", "", "reserved"),
        ("as printed", "max of mem-max-allocated-bytes", "allocated"),
        ("torch reserved", "mem allocated 25 GB reserved 50 GB", "reserved"),
        ("used of the device, GiB", "", "used of the device"),
    ],
)
def test_what_a_printed_memory_counts(kind: str, notes: str, found: str) -> None:
    assert counted(Run(id="1", row={"notes": notes}, stack_name="x", memory_kind=kind)) == found


def test_verdicts_weigh_half_as_much_as_peaks_and_either_kind_alike(
    gpt_runs: list[Run], lab: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten runs with a verdict two failed: each of these weighs four times as much as one of the eight others."""
    asked: list[Callable[..., FloatArray]] = []

    def solve(errors: Callable[..., FloatArray], *_: object, **options: object) -> None:
        asked.append(errors)
        assert (options["prior"], options["evaluations"]) == (0.5, 30)

    monkeypatch.setattr(module, "solve", solve)
    peaks = [replace(run, memory=40e9, memory_kind="reserved", out_of_memory=None) for run in gpt_runs[:12]]
    judged = [replace(run, memory=None, out_of_memory=place < 2) for place, run in enumerate(gpt_runs[12:22])]
    fit_memory([*peaks, *judged], lab, prior=0.5)
    found = asked[0](lab.parameters)
    predicted = predicted_memory(batches(peaks), 12, lab.parameters)[0]
    assert found[:12] == pytest.approx(np.log(predicted / 40e9))
    excess = np.log(
        predicted_memory(batches(judged), 10, lab.parameters)[0]
        / [run.job.cluster.device.memory - lab["context_memory"] for run in judged if run.job]
    )
    wrong = np.array([-1.0] * 2 + [1.0] * 8) * excess / 0.02
    weight = np.sqrt(0.5 * 12 * np.array([0.5 / 2] * 2 + [0.5 / 8] * 8))
    assert found[12:] == pytest.approx(weight * 0.05 * np.sqrt(np.logaddexp(0.0, wrong)))


@pytest.mark.parametrize(("peaks", "fits"), [(9, False), (10, True)])
def test_fewer_than_ten_peaks_fit_nothing(
    peaks: int, fits: bool, gpt_runs: list[Run], lab: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(module, "solve", lambda *words, **_: asked.append(words))
    runs = [replace(run, memory=40e9, out_of_memory=None) for run in gpt_runs[:peaks]]
    assert fit_memory(runs, lab).informative == peaks
    assert bool(asked) is fits


def test_a_limit_of_its_own_is_what_a_run_may_use(gpt_runs: list[Run], lab: Stack) -> None:
    runs = gpt_runs[:2]
    limited = [replace(run, job=replace(run.job, limits=replace(run.job.limits, hbm=30e9))) for run in runs if run.job]
    before, after = (module._excess(batches(each), each, lab, lab.parameters) for each in (runs, limited))
    context = lab["context_memory"]
    usable = [run.job.cluster.device.memory - context for run in runs if run.job]
    assert after - before == pytest.approx(np.log(np.array(usable) / (30e9 - context)))
