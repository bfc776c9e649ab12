"""Logs where one line, one sign or one number more or less decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from optimizer.diagnose.attempts import Record, Stream, _continues, _interleaved, streams_of
from optimizer.diagnose.causes.cause import Cause, SlowStep
from optimizer.diagnose.causes.every import no_network
from optimizer.diagnose.causes.signs import ENOUGH, _tail, signs_of
from optimizer.diagnose.diagnosis import ABOVE, BELOW, WITHIN, curves_of
from optimizer.diagnose.log import LoggedRun, _is_step, read_log
from optimizer.diagnose.measured import SHIFTED, _of_steady, merged, read_runs_of, same_run
from optimizer.diagnose.report import _reasons, verdict
from optimizer.diagnose.steady import PRINTED, RATE, Timed, _period, steady_part, timed_steps, without_warm_up
from optimizer.frameworks.every import LOGS
from optimizer.frameworks.log_line import LogLine
from optimizer.job.plan import Plan
from tests.diagnose import written
from tests.diagnose.test_formats import times
from tests.search.jobs import small_job


@pytest.mark.parametrize(("later", "together"), [(1.0, True), (600.0, False)])
def test_lines_of_one_step_are_of_one_moment_where_they_have_times(later: float, together: bool) -> None:
    first = Record(reading=LogLine(step=3, loss=2.5), line=10, time=100.0)
    again = Record(reading=LogLine(step=3, loss=2.5), line=11, time=100.0 + later)
    assert _interleaved(first, first, again, near=True, several=False) is together


def test_a_last_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    whole = written.text(written.megatron(times(30)))
    cut = whole.rstrip("\n")
    cut = cut[: cut.rindex("| lm loss") + 1]
    (complete,), (short,) = (
        read_log(_write(tmp_path / name, text)) for name, text in (("whole.log", whole), ("cut.log", cut))
    )
    assert len(short.stream.records) == len(complete.stream.records) - 1


def test_a_log_without_steps_that_says_how_full_memory_was_is_a_run() -> None:
    """A line of memory, of a fact; one of nothing is none."""
    told = [LogLine(reserved=7e9), LogLine(allocated=6e9), LogLine()]
    assert [len(streams_of([Record(reading=reading, line=1)])) for reading in told] == [1, 1, 0]


def test_a_rate_is_the_basis_only_where_no_seconds_are_printed(tmp_path: Path) -> None:
    (run,) = read_log(_write(tmp_path / "a.log", written.text(written.megatron(times(30)))))
    assert {step.basis for step in timed_steps(run, {})} == {PRINTED}
    rates = [
        [Record(reading=LogLine(step=step, tokens_rate=1000.0), line=step) for step in range(1, 9)],
    ]
    run.stream.attempts[:] = rates
    facts = {"global_batch": "64", "seq_len": "2048", "gpus": "8"}
    assert {step.basis for step in timed_steps(run, facts)} == {RATE}


@pytest.mark.parametrize(
    ("reading", "step"),
    [
        (LogLine(step=0), True),
        (LogLine(seconds=1.0), False),
        (LogLine(seconds=1.0, alone=True), True),
        (LogLine(alone=True), False),
    ],
)
def test_a_time_without_a_number_is_a_step_where_it_says_so(reading: LogLine, step: bool) -> None:
    assert _is_step(Record(reading=reading, line=1)) is step


@pytest.mark.parametrize(("count", "shown"), [(ENOUGH, True), (ENOUGH - 1, False)])
def test_so_many_lines_are_enough_for_the_shape_of_the_spread(tmp_path: Path, count: int, shown: bool) -> None:
    (run,) = read_runs_of([_write(tmp_path / "a.log", written.text(written.megatron(times(60))))], {})
    assert run.steady is not None
    few = replace(run, steady=replace(run.steady, times=run.steady.times[:count]))
    assert bool({sign.name for sign in signs_of(few, 1.0, 0.1)} & {"motion", "trend"}) is shown


@pytest.mark.parametrize(("stall", "among"), [(250, 481), (170, 49), (260, 49)])
def test_a_stall_at_a_round_number_stands_in_no_step_between_printed_ones(stall: int, among: int) -> None:
    """nanoGPT prints every tenth step, among them each that evaluates; one elsewhere is one of many."""
    steps = [
        Timed(step=step, steps=1, seconds=1.0 if step == stall else 0.1, basis=PRINTED, attempt=0)
        for step in range(10, 501, 10)
    ]
    found = steady_part(steps)
    assert found is not None
    assert found.mean == pytest.approx(0.1 + 0.9 / among)


@pytest.mark.parametrize(("stalls", "period"), [([50, 100, 150, 200, 250], 50), ([3, 50, 77, 190, 211, 300], 0)])
def test_stalls_have_a_period_only_where_they_are_equally_far_apart(stalls: list[int], period: int) -> None:
    assert _period(stalls) == period


@pytest.mark.parametrize(("step", "kind"), [(7, "next"), (3, "again"), (2, "restart"), (1, "other")])
def test_ranks_are_apart_by_no_more_than_a_few_lines(step: int, kind: str) -> None:
    """Six lines, one a step, then another: of a rank that lags by up to three steps, or of a run that went back."""
    lines = [Record(reading=LogLine(step=number, loss=9.0 - number), line=number) for number in range(1, 7)]
    late = Record(reading=LogLine(step=step, loss=9.0 - step), line=7)
    assert _continues(Stream(attempts=[lines]), lines, late, several=False) == kind


@pytest.mark.parametrize(
    ("place", "words"), [(BELOW, "Slower than"), (ABOVE, "Faster than"), (WITHIN, "Within the interval")]
)
def test_the_verdict_says_on_which_side_of_the_interval_the_log_lies(place: str, words: str) -> None:
    assert verdict(SimpleNamespace(unlike=(), verdict=place)).startswith(words)


@pytest.mark.parametrize(("given", "told"), [("32", True), ("64", False), ("64.0", False)])
def test_a_batch_that_is_not_that_of_the_log_is_remarked(tmp_path: Path, given: str, told: bool) -> None:
    log = _write(tmp_path / "a.log", written.text(written.megatron(times(60))))
    (run,) = read_runs_of([log], {"global_batch": given})
    assert any("not 32: another run" in remark for remark in run.warnings) is told


def test_files_of_two_programs_tell_of_two_runs(tmp_path: Path) -> None:
    (run,) = read_log(_write(tmp_path / "a.log", written.text(written.megatron(times(30)))))
    assert same_run(run, replace(run, files=("b.log",)))
    other = next(log for log in LOGS if log is not run.program)
    assert not same_run(run, replace(run, files=("b.log",), program=other))


@pytest.mark.parametrize("files", [1, 2])
def test_hundreds_of_runs_in_a_file_are_not_held_to_each_other(files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(number: int, file: str) -> LoggedRun:
        readings = (LogLine(step=step, loss=float(number), seconds=1.0) for step in range(1, 4))
        records = [Record(reading=reading, line=place) for place, reading in enumerate(readings)]
        return LoggedRun(files=(file,), program=LOGS[0], stream=Stream(attempts=[records]))

    held: list[bool] = []

    def counted(one: LoggedRun, other: LoggedRun) -> bool:
        held.append(same_run(one, other))
        return held[-1]

    monkeypatch.setattr("optimizer.diagnose.measured.same_run", counted)
    runs = [run(number + 5 * place, f"{place}.log") for place in range(files) for number in range(400)]
    found = merged(runs)
    assert len(found) == 400 + 5 * (files - 1)
    assert sum(one.ranks == 2 for one in found) == 395 * (files - 1)
    assert len(held) <= len(runs) * (2 * SHIFTED + 1) * files


@pytest.mark.parametrize(("shift", "together"), [(SHIFTED, True), (SHIFTED + 1, False)])
def test_runs_of_ranks_stand_near_to_each_other_in_their_files(shift: int, together: bool) -> None:
    def run(number: int, file: str) -> LoggedRun:
        records = [Record(reading=LogLine(step=step, loss=float(number), seconds=1.0), line=step) for step in (1, 2, 3)]
        return LoggedRun(files=(file,), program=LOGS[0], stream=Stream(attempts=[records]))

    many, one = [run(number, "a.log") for number in range(shift + 1)], run(shift, "b.log")
    for runs in ([*many, one], [one, *many]):
        assert len(merged(runs)) == shift + 2 - together


def timed(seconds: Sequence[float]) -> list[Timed]:
    return [Timed(step=step, steps=1, seconds=each, basis=PRINTED, attempt=0) for step, each in enumerate(seconds)]


def test_a_part_at_another_pace_is_told_with_its_steps() -> None:
    steady = steady_part(timed([1.0, 1.01] * 10 + [1.2, 1.21] * 20))
    assert steady is not None
    assert [(level.first, level.last) for level in steady.levels] == [(1, 19), (20, 59)]
    assert list(_of_steady(steady)) == ["steps 1 to 19 took 1.01 s, 16.2% less than the steady part"]


@pytest.mark.parametrize(("second", "left"), [(0.59, 2), (0.6, 1), (1.03, 1), (1.04, 2)])
def test_what_is_near_to_the_pace_is_no_warm_up(second: float, left: int) -> None:
    """Steps of 1 s after a slow first: a second from 0.6 to 1.03 s counts."""
    assert without_warm_up(timed([9.0, second, *[1.0] * 8]))[0].step == left


@pytest.mark.parametrize(
    ("slow", "first"), [((1.0, 1.0, 5.0, 5.0), 1), ((1.0, 5.0, 5.0, 1.0), 4), ((5.0, 1.0, 5.0), 2)]
)
def test_a_pace_is_reached_where_most_of_three_steps_keep_it(slow: tuple[float, ...], first: int) -> None:
    assert without_warm_up(timed([9.0, *slow, *[1.0] * 8]))[0].step == first


def test_at_most_half_of_an_attempt_is_warm_up() -> None:
    assert without_warm_up(timed([9.0] * 6 + [1.0] * 4))[0].step == 5


@pytest.mark.parametrize(
    ("stalls", "stalled", "value"),
    [(4, 0.02, "stalls"), (3, 0.02, "even"), (4, 0.01, "even"), (4, 0.2, "standstill"), (4, 0.1, "stalls")],
)
def test_four_stalls_are_often_in_a_hundred_steps(stalls: int, stalled: float, value: str) -> None:
    for count, often in ((100, True), (200, False)):
        steady = SimpleNamespace(stalled=stalled, stalls=range(stalls), times=range(count), period=0, tail=1.0)
        assert _tail(steady).value == (value if often else "even")


@pytest.mark.parametrize(("gpus", "alone"), [(4, True), (8, True), (16, False)])
def test_a_run_in_one_node_has_no_network(gpus: int, alone: bool) -> None:
    assert bool(no_network(SlowStep(job=small_job(gpus), plan=Plan(dp=gpus)))) is alone


@pytest.mark.parametrize(
    ("worst", "why"),
    [(1.004, "at its worst it would add 0.4%"), (1.0046, "at its worst it would add 0.5%"), (1.005, "")],
)
def test_a_cause_that_hardly_matters_is_excluded(worst: float, why: str) -> None:
    """Of a step of 2 s, which it slows down by its setting."""
    curves, excluded = curves_of(two_seconds(), [slowing(worst)])
    assert len(curves) == (not why)
    assert [said for _, said in excluded] == [why] * bool(why)


@pytest.mark.parametrize(("worst", "second"), [(3.0, 1 + 2 / 24**2), (3.1, 3.1 ** (1 / 24))])
def test_settings_of_more_than_a_factor_of_three_are_equal_factors_apart(worst: float, second: float) -> None:
    ((_, curve),), _ = curves_of(two_seconds(), [slowing(worst)])
    assert curve.settings[1] == pytest.approx(second, rel=1e-12)


@pytest.mark.parametrize(("weight", "said"), [(0.5, True), (0.6, False), (1.9, False), (2.0, True)])
def test_signs_that_speak_are_twice_or_half_as_likely(weight: float, said: bool) -> None:
    cause = SimpleNamespace(label="the network", words={"why": "seldom bad"})
    explanation = SimpleNamespace(cause=cause, signs=[(SimpleNamespace(text="steps vary"), weight)])
    lines = _reasons(SimpleNamespace(alike=(), explanations=[explanation], tested=None))
    assert any("steps vary" in line for line in lines) is said


def two_seconds() -> SlowStep:
    question = SlowStep(job=small_job(), plan=Plan(dp=8))
    vars(question)["predicted"] = 2.0
    return question


def slowing(worst: float) -> Cause:
    return Cause(
        name="network",
        seconds=lambda question, setting: setting * question.predicted,
        healthy=lambda question: 1.0,
        worst=lambda question: worst,
        settings=lambda question: np.linspace(1.0, worst, 5),
    )


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
