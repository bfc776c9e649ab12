"""Planted causes are found in the first two places, and what is said of them holds in the cost model."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from optimizer import plan as best_plan
from optimizer.cli import cli
from optimizer.diagnose.causes.cause import USUAL
from optimizer.diagnose.causes.every import CAUSES
from optimizer.diagnose.causes.signs import signs_of
from optimizer.diagnose.diagnosis import (
    ABOVE,
    BELOW,
    COUNTS,
    WITHIN,
    Diagnosis,
    counted,
    curves_of,
    deviation,
    diagnose,
    shares_of,
)
from optimizer.diagnose.measured import Measured
from optimizer.diagnose.steady import Timed, steady_part
from optimizer.objectives.step.flops import CONVENTIONS, useful_flops
from optimizer.objectives.step.interval import Interval, interval, mfu
from tests.diagnose import written
from tests.diagnose.planted import Array, Case, cases, curves, questions

CASES = 140
ENOUGH = 0.8


def measured(times: Array, **facts: str) -> Measured:
    steps = [
        Timed(step=step, steps=1, seconds=float(seconds), basis="printed", attempt=0)
        for step, seconds in enumerate(times)
    ]
    return Measured(files=("planted",), program="planted", status="ok", steady=steady_part(steps), facts=facts)


def order(case: Case) -> list[str]:
    question, run = questions()[case.place], measured(case.times)
    sigma = deviation(interval(question.job, question.plan, question.predicted))
    assert run.step_time is not None
    shares = shares_of(curves(case.place), signs_of(run, question.predicted, sigma), run.step_time, sigma)
    assert sum(shares.values()) == pytest.approx(1.0)
    return sorted(shares, key=lambda name: -shares[name])


def test_the_planted_cause_is_first_or_second() -> None:
    drawn = cases(CASES, seed=2026)
    places = [(case.cause, order(case).index(case.cause)) for case in drawn]
    hits = Counter(cause for cause, place in places if place < 2)
    assert sum(hits.values()) >= ENOUGH * CASES, hits
    assert min(hits[cause.name] for cause in CAUSES) > CASES / len(CAUSES) / 2, hits


def test_chances_of_every_sign_add_up_to_one() -> None:
    for table in (USUAL, *(cause.words.get("signs", {}) for cause in CAUSES)):
        for name, shares in table.items():
            assert set(shares) == set(USUAL[name])
            assert sum(shares.values()) == pytest.approx(1.0)
            assert min(shares.values()) > 0


@pytest.mark.parametrize("place", range(len(questions())))
def test_every_setting_that_is_told_gives_the_measured_step(place: int) -> None:
    question = questions()[place]
    for gap in (1.15, 1.4):
        times = np.full(60, gap * question.predicted)
        found = diagnose(question, measured(times))
        assert found.gap == pytest.approx(gap - 1)
        assert {one.cause.name for one in found.explanations} | {c.name for c, _ in found.excluded} == {
            cause.name for cause in CAUSES
        }
        for one in found.explanations:
            if one.setting is None:
                assert one.at_worst < gap * question.predicted
            else:
                # Products of experts take whole tiles: their time grows in steps.
                assert one.cause.seconds(question, one.setting) == pytest.approx(gap * question.predicted, rel=0.01)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_a_worse_setting_is_never_faster_and_the_healthy_one_changes_nothing(cause: object) -> None:
    for question in questions():
        found, _ = curves_of(question, [cause])  # type: ignore[list-item]
        for known, curve in found:
            assert known.seconds(question, known.healthy(question)) == pytest.approx(question.predicted)
            assert np.all(np.diff(curve.seconds) >= 0)


def test_causes_that_a_run_cannot_have_are_excluded() -> None:
    dense = {cause.name: reason for cause, reason in curves_of(questions()[0])[1]}
    assert dense["routing"] == "the model has no experts"
    mixture = {cause.name for cause, _ in curves_of(questions()[3])[0]}
    assert "routing" in mixture


def test_a_run_within_the_interval_needs_no_cause_and_a_faster_one_has_none() -> None:
    question = questions()[0]
    within = diagnose(question, measured(np.full(60, 1.02 * question.predicted)))
    assert within.verdict == "within"
    above = diagnose(question, measured(np.full(60, 0.7 * question.predicted)))
    assert (above.verdict, above.explanations) == ("above", ())


def test_a_log_that_prints_that_overlap_is_off_points_at_it() -> None:
    question = questions()[0]
    slow = np.full(60, 1.25 * question.predicted)
    plain, off, on = (
        {one.cause.name: one.share for one in diagnose(question, measured(slow, **facts)).explanations}["overlap"]
        for facts in ({}, {"overlap_grad_reduce": "false"}, {"overlap_grad_reduce": "true"})
    )
    assert on < plain < off
    assert off > 0.8


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    done = CliRunner().invoke(
        cli, ["--model", "llama3-8b", "--gpus", "64", "--fix", "zero=1", "--trials", "0", "--json"]
    )
    path = tmp_path_factory.mktemp("plan") / "answer.json"
    path.write_text(done.stdout)
    return path


def test_read_with_a_plan_says_why(answer: Path, tmp_path: Path) -> None:
    predicted = json.loads(answer.read_text())["estimate"]["step_time_s"]
    log = tmp_path / "train.log"
    log.write_text(written.text(written.nemo([1.4 * predicted] * 60, batch=512)))
    done = CliRunner().invoke(cli, ["read", str(log), "--plan", str(answer), "--json"])
    assert done.exit_code == 0, done.output
    diagnosis = json.loads(done.stdout)["diagnosis"]
    assert diagnosis["predicted_s"] == pytest.approx(predicted)
    assert diagnosis["verdict"] == "below"
    assert diagnosis["cheapest_test"] in {cause["test"] for cause in diagnosis["causes"][:2]}
    screen = CliRunner().invoke(cli, ["read", str(log), "--plan", str(answer)]).stdout
    for words in ("Slower than the interval", "the whole gap, if", "Cheapest test", "fit alike"):
        assert words in screen


def test_an_answer_without_a_plan_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["--model", "gpt3", "--gpus", "8", "--json"])
    path, log = tmp_path / "answer.json", tmp_path / "train.log"
    path.write_text(done.stdout)
    log.write_text(written.text(written.nemo([1.0] * 20)))
    refused = CliRunner().invoke(cli, ["read", str(log), "--plan", str(path)])
    assert refused.exit_code == 2
    assert "no plan" in refused.stderr


def test_the_python_answer_and_the_saved_one_are_priced_alike(answer: Path) -> None:
    from optimizer import Job, load_cluster, load_model, load_stack
    from optimizer.diagnose.causes.cause import SlowStep

    job = Job(
        model=load_model("llama3-8b"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=64,
        seq_len=8192,
        global_batch=512,
    )
    found = best_plan(job, trials=0)
    assert found.plan is not None
    assert found.estimate is not None
    question = SlowStep(job=job, plan=found.plan, knobs=found.knobs)
    assert question.predicted == pytest.approx(found.estimate.step_time)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_printed_operations_are_held_to_ours_by_the_convention_that_gives_them(convention: str) -> None:
    question, run = questions()[0], measured(np.full(30, 10.0))
    printed = useful_flops(question.job, convention) / 10.0 / question.job.gpus
    told = diagnose(question, replace(run, flops_rate=printed)).counted
    assert COUNTS[convention] in told
    assert f"by our count {mfu(question.job, 10.0):.1%}." in told
    assert "1.50 times our count" in counted(
        question.job, replace(run, flops_rate=1.5 * useful_flops(question.job) / 10.0 / question.job.gpus)
    )
    assert diagnose(question, run).counted == ""


@pytest.mark.parametrize(("measured", "verdict"), [(0.89, ABOVE), (0.9, WITHIN), (1.1, WITHIN), (1.11, BELOW)])
def test_the_ends_of_the_interval_are_within_it(measured: float, verdict: str) -> None:
    found = Diagnosis(
        **{"measured": measured, "predicted": 1.0, "interval": Interval(low=0.9, high=1.1), "explanations": ()},
        **{"excluded": (), "signs": (), "test": None, "tested": None},
    )
    assert found.verdict == verdict
