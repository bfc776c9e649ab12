from dataclasses import replace

import numpy as np
import pytest

from optimizer.calibration.runs import Run
from optimizer.calibration.scores import Verdicts, choice_of, errors_of, ranks, regret, spearman
from optimizer.calibration.validation import suspicion, validate, worst
from tests.measured import MEASURED, measured_runs, published_runs, published_validation
from tests.thorough import sampled


def changed(run: Run, factor: float = 1.0, **row: str) -> Run:
    return replace(run, step_time=(run.step_time or 1.0) * factor, row={**run.row, **row})


def test_errors() -> None:
    found = errors_of([1.2, 0.9, 1.0], [1.0, 1.0, 1.0])
    assert found is not None
    assert found.mape == pytest.approx(0.1)
    assert found.median == pytest.approx(0.1)
    assert found.bias == pytest.approx(0.1 / 3)
    assert errors_of([], []) is None


def test_balanced_accuracy_weighs_both_outcomes_alike() -> None:
    verdicts = Verdicts(fits_predicted_fits=90, fits_predicted_oom=10, oom_predicted_fits=1, oom_predicted_oom=1)
    assert verdicts.balanced_accuracy == pytest.approx(0.7)
    assert Verdicts().balanced_accuracy is None


def test_regret_and_rank_correlation() -> None:
    predicted, measured = np.array([1.0, 2.0, 3.0]), np.array([2.0, 1.0, 3.0])
    assert regret(predicted, measured) == 1.0  # the plan ranked first takes twice the best
    assert spearman(predicted, measured) == pytest.approx(0.5)
    assert spearman(predicted, -measured) == pytest.approx(-0.5)
    assert ranks(np.array([2.0, 2.0, 1.0])).tolist() == [1.5, 1.5, 0.0]
    found = choice_of([(predicted, measured), (predicted[:2], predicted[:2])])
    assert found is not None
    assert (found.groups, found.mean_regret, found.worst_regret) == (2, 0.5, 1.0)
    assert found.rank_correlation == pytest.approx(0.5)  # of the one group with three runs
    assert choice_of([]) is None


def test_a_perfect_model_has_no_error(gpt_runs: list[Run]) -> None:
    overall = validate(gpt_runs).overall
    assert overall is not None
    assert overall.time is not None
    assert overall.time.mape < 1e-8
    assert overall.coverage == 1.0
    assert overall.choice is not None
    assert overall.choice.mean_regret == 0.0


def test_groups_by_source_stack_device_and_model(gpt_runs: list[Run]) -> None:
    slow = [changed(run, 2.0) if run.row["hidden"] == "4096" else run for run in gpt_runs]
    found = {(score.by, score.name): score for score in validate(slow).scores}
    wrong, right = found["source", "lab 4096"].time, found["model", "GPT 2048"].time
    assert wrong is not None
    assert right is not None
    assert wrong.mape == pytest.approx(0.5)
    assert wrong.bias == pytest.approx(-0.5)
    assert right.mape < 1e-8
    assert ("stack", "lab") in found
    assert ("device", "a100-80") in found


def test_doubtful_rows_are_priced_but_not_counted(gpt_runs: list[Run]) -> None:
    runs = [changed(gpt_runs[0], 5.0, quality="suspect"), *gpt_runs[1:]]
    found = validate(runs)
    assert found.doubtful == 1
    assert found.rows[0].step_time is not None
    assert found.overall is not None
    assert found.overall.time is not None
    assert found.overall.time.mape < 1e-8


def test_refused_rows_keep_their_place(gpt_runs: list[Run]) -> None:
    found = validate([Run(id="no", row={}, stack_name="x", refused="no model"), gpt_runs[0]])
    assert found.refused == 1 + (gpt_runs[0].job is None)
    assert found.rows[0].step_time is None
    assert found.rows[1].run is gpt_runs[0]


def test_given_runs_are_those_that_tell_something(gpt_runs: list[Run]) -> None:
    told, doubted = gpt_runs[0], replace(gpt_runs[1], doubt="odd")
    found = validate([], given=[told, doubted, Run(id="no", row={}, stack_name="x", refused="no model")])
    assert (found.given, found.rows, found.scores) == (1, (), ())


def test_only_refused_rows_have_no_score() -> None:
    found = validate([Run(id="no", row={}, stack_name="x", refused="no model")])
    assert found.overall is None
    assert found.scores == ()


def test_the_worst_rows_come_first_with_a_reason(gpt_runs: list[Run]) -> None:
    priced = [run for run in gpt_runs if run.job]
    runs = [changed(priced[0], 1.5), changed(priced[1], 0.2), *priced[2:]]
    first, second = worst(validate(runs).rows, 2)
    assert (first.run.id, second.run.id) == (priced[1].id, priced[0].id)  # off by 5 and by 1.5
    assert "of the predicted time" in suspicion(first)


def test_extrapolation_and_assumptions_are_reasons(gpt_runs: list[Run]) -> None:
    run = replace(next(run for run in gpt_runs if run.job), assumed=("vocabulary 51200",))
    assert run.job is not None
    run = replace(run, job=replace(run.job, stack=replace(run.job.stack, devices=("h100",))))
    text = suspicion(validate([run]).rows[0])
    assert "device a100-80 is not among the fitted h100" in text
    assert "assumed vocabulary 51200" in text


def test_published_runs_are_cited_priced_and_few() -> None:
    runs = published_runs()
    assert 100 <= len(runs) <= 150
    assert [run.id for run in runs if run.refused] == []
    assert len({run.id for run in runs}) == len(runs)
    assert all(run.row["source"] and run.row["table"] and run.row["step_time_s"] for run in runs)
    forbidden = ("vtrain", "nanotron", "ultra-scale", "hagemann")
    assert not [run.id for run in runs if any(word in run.row["source"].lower() for word in forbidden)]


def test_published_runs_are_predicted() -> None:
    overall = published_validation().overall
    assert overall is not None
    assert overall.time is not None
    assert overall.time.median < 0.10
    assert overall.coverage is not None
    assert overall.coverage > 0.80


@pytest.mark.parametrize("published", [True, False])
def test_every_row_has_an_answer(published: bool) -> None:
    if not published and not MEASURED.exists():
        pytest.skip("the measured runs are not here")
    runs = published_runs() if published else sampled(measured_runs(), 12)
    found = published_validation() if published else validate(runs)
    assert [row.run.id for row in found.rows] == [run.id for run in runs]
    for row in found.rows:
        assert (row.step_time is None) == bool(row.run.refused)
        if row.interval and row.step_time:
            assert 0 < row.interval.low < row.step_time < row.interval.high < float("inf")
