"""What a validation report says of scores that are known, and what rows measured, line by line."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.calibration import memory_fit
from optimizer.calibration.calibration_report import _memory, _not_counted, _parameters
from optimizer.calibration.memory_fit import _balance
from optimizer.calibration.runs import _measured, chips, rate_alone, usual_micro_batches
from optimizer.calibration.scores import Errors, PlanChoice, Verdicts
from optimizer.calibration.validation import Score, Validation, worst
from optimizer.calibration.validation_report import (
    _groups,
    choice_lines,
    coverage_line,
    doubtful_line,
    headline,
    memory_lines,
    refusals,
    row_record,
    scatter,
    validation_json,
    validation_record,
    verdict_lines,
)
from optimizer.job.stack import PARAMETERS, Stack
from optimizer.objectives.step.interval import Interval
from optimizer.reports.report import Table
from tests.calibration.test_pieces import row
from tests.search.jobs import small_job

ERRORS = Errors(runs=1200, mape=0.1, median=0.08, p90=0.25, bias=-0.03)
UNKNOWN: dict[str, Any] = dict.fromkeys(
    ("coverage", "allocated", "reserved", "memory", "memory_coverage", "choice"), None
) | {"extrapolated": 0, "verdicts": Verdicts()}
SCORE = Score(by="all", name="all", rows=1200, time=ERRORS, **UNKNOWN)


def test_a_fit_says_which_parameters_it_fitted_and_what_it_set_aside() -> None:
    stack = Stack(name="mine", parameters={"launch": 6e-6, "gemm_efficiency": 0.5}, fixed={})
    start = replace(stack, parameters={"launch": 5e-6})
    refused = [SimpleNamespace(refused=why) for why in ("no model", "no tp", "no model")]
    fit: Any = SimpleNamespace(stack=stack, start=start, spreads={"launch": 0.25}, doubtful=1200, refused=refused)
    launch, gemm = (PARAMETERS[name] for name in ("launch", "gemm_efficiency"))
    assert sorted(_parameters(fit)) == [
        ("gemm_efficiency", "0.5", f"{gemm.default:.4g}", f"{gemm.low:g} to {gemm.high:g}", "", "", gemm.meaning),
        ("launch", "6e-06", "5e-06", f"{launch.low:g} to {launch.high:g}", "s", "0.25", launch.meaning),
    ]
    doubts = "1,200 rows that their source doubts (column quality) or that name no micro_batch"
    assert _not_counted(fit) == [doubts, "2 × no model", "1 × no tp"]
    fit.doubtful = 0
    assert _not_counted(fit) == ["2 × no model", "1 × no tp"]
    fit.memory = SimpleNamespace(residuals=np.log([1.1, 0.9, 1.4]), verdicts=1200, wrong_verdicts=12)
    assert _memory(fit) == [
        "3 measured peaks: MAPE 20.0%, median 10.0%",
        "12 of 1,200 runs fit, or run out of memory, against the model",
    ]
    fit.memory = SimpleNamespace(residuals=(), verdicts=0)
    assert _memory(fit) == []


def test_errors_are_told_in_a_line() -> None:
    validation = Validation(rows=(), scores=(replace(SCORE, by="stack"), SCORE))
    assert validation.overall is SCORE
    assert headline(validation) == "Step time of 1,200 runs: MAPE 10.0%, median 8.0%, bias -3.0%"
    untimed = Validation(rows=(), scores=(replace(SCORE, time=None),))
    assert headline(untimed) == "No clean row has a measured step time to compare with"
    covered = replace(SCORE, coverage=0.905, extrapolated=12)
    assert coverage_line(covered) == (
        "90.5% of the measured times lie in their 90% interval; 12 of 1,200 are extrapolated from what their stack was "
        "fitted to."
    )
    assert coverage_line(SCORE) == coverage_line(replace(covered, time=None)) == ""
    memory = replace(SCORE, reserved=replace(ERRORS, runs=7), allocated=ERRORS, memory_coverage=0.5)
    assert memory_lines(memory) == [
        "Allocated memory of 1,200 runs: MAPE 10.0%, median 8.0%, bias -3.0%",
        "Reserved memory of 7 runs: MAPE 10.0%, median 8.0%, bias -3.0%",
        "50.0% of the measured peaks lie in their 90% interval.",
    ]
    assert memory_lines(SCORE) == []


@pytest.mark.parametrize(
    ("verdicts", "lines"),
    [
        (Verdicts(), []),
        (
            Verdicts(fits_predicted_fits=1, fits_predicted_oom=0),
            ["Of 1 run that fitted, 0 were predicted to run out of memory."],
        ),
        (
            Verdicts(fits_predicted_fits=3, fits_predicted_oom=1, oom_predicted_fits=2, oom_predicted_oom=2),
            [
                "Of 4 runs that fitted, 1 was predicted to run out of memory.",
                "Of 4 runs out of memory, 2 were predicted to fit.",
                "Balanced accuracy 62.5%.",
            ],
        ),
    ],
)
def test_verdicts_are_told(verdicts: Verdicts, lines: list[str]) -> None:
    assert verdict_lines(verdicts) == lines


def test_a_choice_is_told_by_its_regret() -> None:
    choice = PlanChoice(groups=1, mean_regret=0.012, p90_regret=0.03, worst_regret=0.2, rank_correlation=None)
    (line,) = choice_lines(replace(SCORE, choice=choice))
    assert line.startswith("In 1 group of runs")
    assert "takes 1.2% longer" in line
    assert "20.0% at worst" in line
    first, second = choice_lines(replace(SCORE, choice=replace(choice, groups=2, rank_correlation=0.871)))
    assert first.startswith("In 2 groups of runs")
    assert second == "Mean rank correlation of predicted and measured times: 0.87."
    assert choice_lines(SCORE) == []


@pytest.mark.parametrize(("count", "sections"), [(20, [20]), (21, [20, 21])])
def test_a_screen_has_the_twenty_groups_of_most_rows(count: int, sections: list[int]) -> None:
    scores = tuple(Score(by="model", name=f"{number}", rows=number, time=ERRORS, **UNKNOWN) for number in range(count))
    found = _groups(Validation(rows=(), scores=scores), "model", "model")
    tables = [block for each in found for block in each.blocks if isinstance(block, Table)]
    assert [len(table.rows) for table in tables] == sections
    assert [table.rows[0][0] for table in tables] == [f"{count - 1}"] * len(sections)


def test_methods_are_no_groups_where_everything_is_trained() -> None:
    whole = Score(by="method", name="full", rows=1, time=ERRORS, **UNKNOWN)
    assert _groups(Validation(rows=(), scores=(whole,)), "method", "method") == []
    both = (whole, replace(whole, name="lora"))
    assert len(_groups(Validation(rows=(), scores=both), "method", "method")) == 1


def refused(*reasons: str) -> Validation:
    return Validation(rows=tuple(row(1.0, None, plan=None, refused=reason) for reason in reasons), scores=())


@pytest.mark.parametrize(
    ("reasons", "lines"),
    [
        (["no model 'a'"] * 3, ["3 × no model 'a'"]),
        (["no model 'a'", "no model 'b'"], ["2 × no model …: 'a', 'b'"]),
        ([f"no model '{name}'" for name in "abcd"], ["4 × no model …: 'a', 'b', 'c', 'd'"]),
        ([f"no model '{name}'" for name in "abcde"], ["5 × no model …: 'a', 'b', 'c', 'd', ..."]),
        (["'a' is not 'b'"] * 2, ["2 × 'a' is not 'b'"]),
        (["too old", "no tp", "no tp"], ["2 × no tp", "1 × too old"]),
    ],
)
def test_reasons_are_counted_with_what_they_name(reasons: list[str], lines: list[str]) -> None:
    assert refusals(refused(*reasons)) == lines


def test_rows_that_do_not_count_are_told() -> None:
    assert doubtful_line(Validation(rows=(row(),), scores=())) == ""
    doubted = doubtful_line(Validation(rows=(row(1.0, 1.0, doubt="odd"),), scores=()))
    assert doubted.startswith("1 rows that their source doubts")
    assert doubtful_line(refused("no tp", "no tp")).endswith("2 rows cannot be priced.")


def test_the_ten_farthest_rows_are_listed() -> None:
    rows = [row(1.0, 1.0 + 0.01 * number) for number in range(15)]
    assert [round(each.error, 2) for each in worst(rows)] == [round(0.14 - 0.01 * place, 2) for place in range(10)]


def test_a_row_of_a_validation_as_values() -> None:
    interval = Interval(low=0.5, high=2.0)
    found = row(2.0, 1.0, interval=interval, fits=True, memory=8e9, memory_kind="reserved", cells={"status": "ok"})
    record: dict[str, Any] = dict(validation_record(found))
    assert (record["predicted_step_time_s"], record["measured_step_time_s"], record["error"]) == (1.0, 2.0, -0.5)
    assert (record["low_s"], record["high_s"], record["fits"], record["refused"]) == (0.5, 2.0, True, None)
    assert (record["measured_memory_bytes"], record["memory_kind"], record["status"]) == (8e9, "reserved", "ok")
    bare = row_record(row(1.0, None, plan=None, refused="no tp"))
    assert (bare["low_s"], bare["high_s"], bare["refused"]) == (None, None, "no tp")
    assert validation_record(row(1.0, None, plan=None))["error"] is None
    text = json.loads(validation_json(Validation(rows=(found,), scores=(SCORE,))))
    assert text["rows"][0]["low_s"] == 0.5
    assert text["groups"][0]["verdicts"]["balanced_accuracy"] is None


def test_the_plot_has_lines_a_fifth_to_either_side() -> None:
    rows = (row(1.0, 1.2), row(2.0, 1.6), row(3.0, 2.3), row(4.0, 4.0, stack_name="other"))
    chart = scatter(Validation(rows=rows, scores=()))
    assert chart.words.startswith("3 of 4 runs lie between the dotted lines, 20% too slow and 20% too fast")
    mine, other, *guides = chart.figure["data"]
    assert (list(mine["x"]), list(other["x"])) == ([1.0, 2.0, 3.0], [4.0])
    assert [(list(line["x"]), [y / x for x, y in zip(line["x"], line["y"], strict=True)]) for line in guides] == [
        ([1 / 1.5, 6.0], pytest.approx([factor] * 2)) for factor in (1.0, 1.2, 0.8)
    ]
    assert [line["line"]["dash"] for line in guides] == ["solid", "dot", "dot"]
    assert [cells[:2] for cells in chart.rows] == [("mine", "3"), ("other", "1")]


@pytest.mark.parametrize(
    ("gpu", "gpus", "devices"),
    [
        *(("TPU v5p-1024", 1024, 512), ("TPU v5p-1024", 512, 512), ("TPU v4-8", 8, 4), ("TPU v3-7", 7, 7)),
        *(("TPU v5e-16", 16, 16), ("H100", 8, 8), ("TPU v2-32", 32, 16)),
    ],
)
def test_two_cores_that_a_slice_counts_are_one_chip(gpu: str, gpus: int, devices: int) -> None:
    assumed: list[str] = []
    assert chips({"gpu": gpu, "gpus": f"{gpus}"}, assumed) == devices
    assert assumed == [f"{devices} chips of two cores each"] * (devices < gpus)


@pytest.mark.parametrize(
    ("cells", "step", "memory", "oom"),
    [
        ({"step_time_s": "2", "mem_gb": "8"}, 2.0, 8e9, False),
        ({"step_time_s": "2", "status": "ok", "mem_gb": "8", "mem_gb_unit": "GiB"}, 2.0, 8 * 2**30, False),
        ({"mem_gb": "8", "mem_unit": "GiB of 80"}, None, 8 * 2**30, None),
        ({"mem_gb": "8", "mem_kind": "Sum over the GPUs"}, None, 2e9, None),
        ({"status": "oom", "step_time_s": "2"}, 2.0, None, True),
        ({"status": "failed", "step_time_s": "2"}, 2.0, None, None),
    ],
)
def test_what_a_row_measured(cells: dict[str, str], step: float | None, memory: float | None, oom: bool | None) -> None:
    found = _measured({"gpus": "4", **cells})
    assert (found["step_time"], found["memory"], found["out_of_memory"]) == (step, memory, oom)
    assert found["memory_kind"] == cells.get("mem_kind", "")


@pytest.mark.parametrize(
    ("cells", "pp", "count"), [({"micro_batch": "8"}, 1, 1), ({}, 1, 16), ({"micro_batch": "2"}, 4, 64), ({}, 2, 32)]
)
def test_a_rate_is_of_so_many_micro_batches(cells: dict[str, str], pp: int, count: int) -> None:
    assert usual_micro_batches(cells, pp) == count
    rated = {**cells, "tokens_per_s_per_gpu": "1000"}
    assert rate_alone(rated)
    for other in ({"global_batch": "8"}, {"step_time_s": "2"}, {"tokens_per_s_per_gpu": ""}):
        assert not rate_alone({**rated, **other})


@pytest.mark.parametrize(
    ("failed", "weights"),
    [
        ([], []),
        ([True, False, False], [0.5, 0.25, 0.25]),
        ([True, True, False], [0.25, 0.25, 0.5]),
        ([False, False], [0.25, 0.25]),
        ([True], [0.5]),
    ],
)
def test_runs_out_of_memory_count_as_much_as_those_that_fitted(failed: list[bool], weights: list[float]) -> None:
    assert (_balance(np.array(failed, dtype=bool)) ** 2).tolist() == pytest.approx(weights)


def test_the_excess_is_of_the_memory_left_by_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 GB or a limit of 60 GB, less 5 GB of the context."""
    monkeypatch.setattr(memory_fit, "predicted_memory", lambda *_: (np.array([75e9, 110e9]),))
    job = small_job()
    device, start = job.cluster.device, job.stack
    runs = [row(job=each).run for each in (job, job.with_limits(hbm=60e9))]
    found = memory_fit._excess([], runs, start, {"context_memory": 5e9})
    assert found.tolist() == pytest.approx([np.log(75e9 / (device.memory - 5e9)), np.log(2.0)])
    assert memory_fit._excess([], [], start, {}).tolist() == []
    usual = memory_fit._excess([], runs, start, {})
    assert usual[1] == pytest.approx(np.log(110e9 / (60e9 - start["context_memory"])))
