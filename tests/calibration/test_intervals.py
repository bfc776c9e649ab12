from collections.abc import Callable
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optimizer.calibration.fit import fit_times
from optimizer.calibration.groups import folds
from optimizer.calibration.intervals import conformal, half_widths, time_errors, weighted_quantile, with_intervals
from optimizer.calibration.leave_out import HeldOut, held_out
from optimizer.calibration.predict import batches, predict, with_parameters
from optimizer.calibration.runs import Run, read_runs
from optimizer.catalog import load_cluster, load_model
from optimizer.catalog.hardware import with_network
from optimizer.catalog.stacks import errors_of_others, pooled_intervals
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.job.stack import Features, Stack
from optimizer.objectives.step.interval import STARVED_MFU, difficulty, interval, mfu, outside

FREE = ("gemm_efficiency", "hbm_efficiency", "launch", "step_overhead")
FITTED = Stack(
    name="mine",
    devices=("h100",),
    intervals={"time_interpolated": 0.1, "time_extrapolated": 0.3, "time_slope": 1.0, "memory_interpolated": 0.05},
    ranges={"hidden": (4096, 12288), "seq_len": (2048, 8192), "fp8": (0, 0)},
)


def job(stack: Stack = FITTED, cluster: str = "dgx-h100", **changes: Any) -> Job:
    base = Job(
        model=load_model("gpt3"), cluster=load_cluster(cluster), stack=stack, gpus=64, seq_len=2048, global_batch=64
    )
    return replace(base, **changes)


def test_conformal_quantile_counts_the_new_score() -> None:
    scores = np.arange(1.0, 100.0)  # 99 scores: the 90th of 100 with the new one
    assert conformal(scores) == 90.0
    assert conformal(np.array([1.0, 5.0])) == 5.0  # too few: the largest seen


def test_an_interpolation() -> None:
    found = interval(job(), Plan(tp=8, pp=8), 5.0)  # 45 % MFU
    assert found.kind == "interpolated"
    assert (found.low, found.high) == (pytest.approx(5 * exp(-0.1)), pytest.approx(5 * exp(0.1)))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (job(cluster="dgx-b200"), "device b200 is not among the fitted h100"),
        (job(seq_len=32768), "seq_len 32,768 is outside of the fitted 2,048 to 8,192"),
        (job(model=load_model("llama3.1-405b")), "hidden 16,384 is outside"),
        (job(dtype="fp8"), "no run with fp8 is among the fitted"),
        (job(stack=Stack(name="new")), "stack new is not fitted"),
    ],
)
def test_what_lies_outside_of_the_fit_is_wider_and_says_why(changed: Job, reason: str) -> None:
    near, far = interval(job(), Plan(), 1.0), interval(changed, Plan(), 1.0)
    assert far.kind == "extrapolated"
    assert any(text.startswith(reason) for text in far.reasons)
    assert far.high > near.high
    assert far.low < near.low


def test_slow_steps_are_less_certain() -> None:
    fast, slow = interval(job(), Plan(), 5.0), interval(job(), Plan(), 50.0)
    assert slow.high / 50.0 > fast.high / 5.0
    assert difficulty(0.05, 1.0) == pytest.approx(8.0)
    assert difficulty(0.0, 1.0) == pytest.approx(40.0)  # bounded below at 1 % MFU


def test_a_stack_without_intervals_takes_the_pooled_ones() -> None:
    found = interval(job(stack=Stack(name="new")), Plan(), 1.0, "memory")
    assert found.high == pytest.approx(exp(pooled_intervals()["memory_extrapolated"]))


def test_memory_of_plans_that_recompute_and_of_mixtures_has_widths_of_its_own() -> None:
    widths = {"memory_interpolated": 0.1, "memory_recomputed_interpolated": 0.3, "memory_experts_interpolated": 0.2}
    far = {name.replace("interpolated", "extrapolated"): 2 * width for name, width in widths.items()}
    mine = job(stack=Stack(name="mine", devices=("h100",), intervals=widths | far))
    mixture = replace(mine, model=load_model("mixtral-8x7b"))
    for question, mode, width in (
        (mine, "none", 0.1),
        (mine, "selective", 0.1),  # flash attention keeps no scores
        (mine, "full", 0.3),
        (mixture, "none", 0.2),
        (mixture, "full", 0.2),
    ):
        found = interval(question, Plan(recompute=mode), 1.0, "memory")
        assert found.high == pytest.approx(exp(width * (1 if found.kind == "interpolated" else 2)))


def test_a_fit_without_peaks_keeps_the_widths_of_other_stacks_runs(gpt_runs: list[Run]) -> None:
    runs = [replace(run, memory=None) for run in gpt_runs if run.job]
    known = Stack(name="mine", intervals={"memory_interpolated": 0.07, "time_interpolated": 9.0})
    found = with_intervals(known, runs, ("gemm_efficiency",)).intervals
    assert found["memory_interpolated"] == 0.07
    assert found["time_interpolated"] < 9.0


def test_pooled_extrapolations_are_wider() -> None:
    widths = pooled_intervals()
    assert widths["time_extrapolated"] >= widths["time_interpolated"]
    assert widths["memory_extrapolated"] >= widths["memory_interpolated"]


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


def test_a_stack_that_was_never_fitted_gets_no_narrow_interval(gpt_runs: list[Run], lab: Stack) -> None:
    """Twice too fast: one step of the fit would mend it, but the stack is used as it is."""
    fast = with_parameters(lab, {"gemm_efficiency": 1.0, "step_overhead": 0.0})
    slow = [replace(run, step_time=2.0 * (run.step_time or 1.0)) for run in gpt_runs]
    assert with_intervals(fast, slow, FREE).intervals["time_interpolated"] > 0.6  # log 2 = 0.69


def test_intervals_cover_new_runs_of_the_same_kind(measured: Callable[..., Path], lab: Stack) -> None:
    runs = [run for run in read_runs(measured({}, noise=0.05, seed=1), lab) if run.job]
    fitted = with_parameters(lab, fit_times(runs, lab, free=FREE, evaluations=10).parameters)
    stack = with_intervals(fitted, runs, FREE)
    new = [
        run for run in read_runs(measured({}, noise=0.05, seed=2, name="new.csv"), stack) if run.job and run.step_time
    ]
    predicted = time_errors(new, stack.parameters)
    hits = []
    for run, error in zip(new, predicted, strict=True):
        assert run.job is not None
        assert run.plan is not None
        assert run.step_time is not None
        span = interval(replace(run.job, stack=stack), run.plan, run.step_time * exp(error))
        assert span.kind == "interpolated"
        hits.append(span.low <= run.step_time <= span.high)
    assert 0.84 <= np.mean(hits) <= 0.97  # 108 runs around 90 %
    assert stack.devices == ("a100-80",)


def test_mixtures_have_widths_of_their_own(gpt_runs: list[Run], lab: Stack) -> None:
    """Dense runs scatter by 2 %, mixtures by 30 %: neither borrows the other's width."""
    random = np.random.default_rng(0)
    runs = []
    for number, run in enumerate(gpt_runs):
        assert run.job is not None
        mixture = number % 2 == 0
        model = load_model("mixtral-8x7b") if mixture else run.job.model
        changed = replace(run, job=replace(run.job, model=model))
        exact = float(predict(batches([changed]), 1, lab.parameters).step_time[0])
        runs.append(replace(changed, step_time=exact * exp(random.normal(0.0, 0.3 if mixture else 0.02))))
    stack = with_intervals(lab, runs, FREE)
    assert stack.intervals["time_experts_interpolated"] > 4 * stack.intervals["time_interpolated"]
    wide, narrow = (interval(job(stack, model=load_model(name)), Plan(), 9.0) for name in ("mixtral-8x7b", "gpt3"))
    assert wide.high > narrow.high


def test_starved_steps_have_widths_of_their_own(gpt_runs: list[Run], lab: Stack) -> None:
    """Steps on a thin network scatter by 30 %, the others by 2 %: neither borrows the other's width."""
    random = np.random.default_rng(0)
    runs, starved = [], 0
    for number, run in enumerate(gpt_runs):
        assert run.job is not None
        if number % 2 == 0:
            thin = with_network(run.job.cluster, scale_up_size=1, nic_bandwidth=1e7)
            run = replace(run, job=replace(run.job, cluster=thin))
        assert run.job is not None
        exact = float(predict(batches([run]), 1, lab.parameters).step_time[0])
        slow = mfu(run.job, exact) < STARVED_MFU
        starved += slow
        runs.append(replace(run, step_time=exact * exp(random.normal(0.0, 0.3 if slow else 0.02))))
    assert 10 <= starved <= len(runs) - 10
    stack = with_intervals(lab, runs, FREE)
    assert stack.intervals["time_starved_interpolated"] > 3 * stack.intervals["time_interpolated"]


def test_the_predicted_mfu_tells_which_width_counts() -> None:
    widths = {"time_interpolated": 0.02, "time_starved_interpolated": 0.3}
    stack = replace(FITTED, intervals=widths)
    fed, starved = interval(job(stack), Plan(), 10.0), interval(job(stack), Plan(), 100.0)
    assert mfu(job(), 100.0) < STARVED_MFU < mfu(job(), 10.0)
    assert fed.high / 10.0 == pytest.approx(exp(0.02))
    assert starved.high / 100.0 == pytest.approx(exp(0.3))
    plain = replace(FITTED, intervals={"time_interpolated": 0.02})
    assert interval(job(plain), Plan(), 100.0).high / 100.0 == pytest.approx(exp(0.02))


def test_an_unfitted_job_lists_one_reason() -> None:
    assert outside(job(stack=Stack(name="new"))) == ("stack new is not fitted to measured runs",)


def test_weighted_quantile_reaches_the_last_value() -> None:
    assert weighted_quantile(np.array([1.0, 2.0]), np.array([1.0, 1.0]), 1.0) == 2.0


def left_out(errors: list[float], parts: list[int], inside: bool = True, again: int = 0) -> HeldOut:
    """Runs left out once with their like, the first `again` of them a second time with their device."""
    scores = np.array(errors + errors[:again])
    return HeldOut(
        places=np.array([*range(len(errors)), *range(again)]),
        errors=scores,
        inside=np.full(len(scores), inside),
        parts=np.array([*parts, *[max(parts) + 1] * again]),
        like=np.arange(len(scores)) < len(errors),
        groups=np.array([*parts, *parts[:again]]),
    )


def intervals_of(quantity: str, left: HeldOut) -> dict[str, float]:
    return half_widths(quantity, np.abs(left.errors), left)


def test_a_run_that_is_left_out_again_with_its_device_counts_once() -> None:
    errors = [0.02] * 15 + [0.3] * 5
    once, twice = (left_out(errors, [n // 4 for n in range(20)], again=again) for again in (0, 15))
    assert intervals_of("memory", once)["memory_interpolated"] == 0.3
    assert intervals_of("memory", twice) == intervals_of("memory", once)


def test_few_groups_share_the_errors_of_others() -> None:
    """Of ten groups the errors of all others are an eleventh, of one the half."""
    others = errors_of_others()["time_interpolated"]
    few, more = (
        intervals_of("time", left_out([0.001] * 20, [n // runs for n in range(20)]))["time_interpolated"]
        for runs in (20, 2)
    )
    assert few == pytest.approx(sorted(others)[15])  # of twenty sixteen, and one's own half: 90 %
    assert more == 0.001
    assert intervals_of("time", left_out([0.9] * 20, [0] * 20))["time_interpolated"] == 0.9


def test_peaks_of_ones_own_are_enough() -> None:
    some, few = (left_out([0.001] * count, [0] * count) for count in (10, 9))
    assert intervals_of("memory", some)["memory_interpolated"] == 0.001
    assert intervals_of("memory", few)["memory_interpolated"] > 0.05


def test_an_extrapolation_is_as_wide_as_errors_outside_and_no_narrower_than_an_interpolation() -> None:
    parts = [n // 2 for n in range(20)]
    found = intervals_of("time", left_out([0.02] * 20, parts, inside=False))
    assert found["time_extrapolated"] == found["time_interpolated"] == 0.02
    assert intervals_of("time", left_out([0.9] * 20, parts))["time_extrapolated"] == 0.9


def test_a_device_without_runs_is_no_surer_than_a_stack_without_runs() -> None:
    narrow = replace(FITTED, intervals={"time_interpolated": 0.01, "time_extrapolated": 0.02})
    other, longer = (
        interval(job(narrow, **change), Plan(), 1.0) for change in ({"cluster": "dgx-b200"}, {"seq_len": 32768})
    )
    assert other.high == pytest.approx(exp(pooled_intervals()["time_extrapolated"]))
    assert longer.high < other.high


@pytest.mark.parametrize("routing", ["trained", "fresh"])
def test_a_router_of_ones_own_is_as_unsure_as_a_stack_without_runs(routing: str) -> None:
    widths = {"time_interpolated": 0.1, "time_extrapolated": 0.15}
    stack = Stack(name="mine", devices=("h100",), intervals=widths, features=Features(routing=routing))
    found = interval(job(stack, model=load_model("mixtral-8x7b")), Plan(), 1.0)
    assert found.high == pytest.approx(exp(pooled_intervals()["time_extrapolated"]))
    assert interval(job(stack), Plan(), 1.0).high == pytest.approx(exp(0.1))
