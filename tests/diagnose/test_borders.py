"""Logs where one line, one sign or one number more or less decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from optimizer.diagnose.attempts import Record, Stream, _continues, _interleaved
from optimizer.diagnose.causes.signs import ENOUGH, signs_of
from optimizer.diagnose.diagnosis import ABOVE, BELOW, WITHIN
from optimizer.diagnose.log import LoggedRun, read_log
from optimizer.diagnose.measured import SHIFTED, merged, read_runs_of, same_run
from optimizer.diagnose.report import verdict
from optimizer.diagnose.steady import PRINTED, RATE, _period, timed_steps
from optimizer.frameworks.every import LOGS
from optimizer.frameworks.log_line import LogLine
from tests.diagnose import written
from tests.diagnose.test_formats import times


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


def test_a_rate_is_the_basis_only_where_no_seconds_are_printed(tmp_path: Path) -> None:
    (run,) = read_log(_write(tmp_path / "a.log", written.text(written.megatron(times(30)))))
    assert {step.basis for step in timed_steps(run, {})} == {PRINTED}
    rates = [
        [Record(reading=LogLine(step=step, tokens_rate=1000.0), line=step) for step in range(1, 9)],
    ]
    run.stream.attempts[:] = rates
    facts = {"global_batch": "64", "seq_len": "2048", "gpus": "8"}
    assert {step.basis for step in timed_steps(run, facts)} == {RATE}


@pytest.mark.parametrize(("count", "shown"), [(ENOUGH, True), (ENOUGH - 1, False)])
def test_so_many_lines_are_enough_for_the_shape_of_the_spread(tmp_path: Path, count: int, shown: bool) -> None:
    (run,) = read_runs_of([_write(tmp_path / "a.log", written.text(written.megatron(times(60))))], {})
    assert run.steady is not None
    few = replace(run, steady=replace(run.steady, times=run.steady.times[:count]))
    assert bool({sign.name for sign in signs_of(few, 1.0, 0.1)} & {"motion", "trend"}) is shown


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


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
