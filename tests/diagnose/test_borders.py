"""Logs where one line, one sign or one number more or less decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from optimizer.diagnose.attempts import Record, _interleaved
from optimizer.diagnose.causes.signs import ENOUGH, signs_of
from optimizer.diagnose.log import read_log
from optimizer.diagnose.measured import read_runs_of
from optimizer.diagnose.steady import PRINTED, RATE, _period, timed_steps
from optimizer.frameworks.log_line import LogLine
from tests.diagnose import written
from tests.diagnose.test_formats import times


@pytest.mark.parametrize(("later", "together"), [(1.0, True), (600.0, False)])
def test_lines_of_one_step_are_of_one_moment_where_they_have_times(later: float, together: bool) -> None:
    first = Record(reading=LogLine(step=3, loss=2.5), line=10, time=100.0)
    assert (
        _interleaved(first, first, Record(reading=LogLine(step=3, loss=2.5), line=11, time=100.0 + later)) is together
    )


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


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
