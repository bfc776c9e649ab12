"""Files in which several programs, runs and failures stand: which lines are of which run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optimizer.base.errors import InvalidFile
from optimizer.diagnose.attempts import (
    LINES,
    NEAR,
    SECONDS,
    TICK,
    Record,
    Stream,
    _continues,
    _interleaved,
    streams_of,
    together,
)
from optimizer.diagnose.causes.cause import USUAL
from optimizer.diagnose.diagnosis import curves_of, diagnose
from optimizer.diagnose.failures import CRASHED, OOM
from optimizer.diagnose.log import BUFFERED, FEW, LoggedRun, _within, read_log
from optimizer.diagnose.measured import measured
from optimizer.diagnose.pattern import format_of
from optimizer.diagnose.reference import script_reference
from optimizer.diagnose.steady import PRINTED, Timed, steady_part
from optimizer.frameworks.log_line import LogFormat, LogLine
from tests.diagnose.test_borders import slowing, two_seconds
from tests.diagnose.test_cases import part, run_of

ONE, TWO = (
    replace(format_of(rf"{name} step (?P<step>\d+) took (?P<seconds>[\d.]+)"), name=name) for name in ("one", "two")
)
CRASH, FULL = "Traceback (most recent call last):", "torch.OutOfMemoryError: CUDA out of memory"


def steps(name: str, *numbers: int) -> list[str]:
    return [f"{name} step {number} took 2.0" for number in numbers]


def read(
    folder: Path, lines: Sequence[str], formats: Sequence[LogFormat] = (ONE, TWO), end: str = "\n"
) -> list[LoggedRun]:
    path = folder / "a.log"
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return read_log(path, (ONE, TWO))


def told(runs: Sequence[LoggedRun]) -> list[tuple[str, int]]:
    return [(run.program.name if run.program else "", len(run.records)) for run in runs]


def test_programs_that_follow_each_other_are_runs_of_their_own(tmp_path: Path) -> None:
    lines = [*steps("two", *range(1, 6)), *steps("one", *range(1, 9))]
    assert told(read(tmp_path, lines)) == [("two", 5), ("one", 8)]


def test_three_programs_in_a_file_are_three_runs(tmp_path: Path) -> None:
    three = replace(format_of(r"three step (?P<step>\d+) took (?P<seconds>[\d.]+)"), name="three")
    lines = [line for name, last in (("two", 5), ("one", 8), ("three", 6)) for line in steps(name, *range(1, last))]
    path = tmp_path / "a.log"
    path.write_text("\n".join([*lines, CRASH]) + "\n", encoding="utf-8")
    runs = read_log(path, (ONE, TWO, three))
    assert told(runs) == [("two", 4), ("one", 7), ("three", 5)]
    assert [run.failure is not None for run in runs] == [False, False, True]


@pytest.mark.parametrize(("count", "runs"), [(FEW, 2), (FEW - 1, 1)])
def test_a_few_steps_of_a_second_program_are_no_run(tmp_path: Path, count: int, runs: int) -> None:
    lines = [*steps("one", *range(1, 9)), *steps("two", *range(1, count + 1))]
    assert len(read(tmp_path, lines)) == runs


def test_lines_of_a_second_program_among_those_of_a_run_are_of_its_engine(tmp_path: Path) -> None:
    lines = [line for number in range(1, 9) for name in ("one", "two") for line in steps(name, number)]
    assert told(read(tmp_path, lines)) == [("one", 8)]
    # As many before it as within: a run of its own, and a step more within: none.
    for within, found in ((4, [("two", 4), ("one", 6)]), (5, [("one", 6)])):
        inner = [line for number in range(1, 6) for line in steps("two", 10 + number)[: within >= number]]
        mixed = [part for pair in zip(steps("one", *range(1, 6)), inner, strict=False) for part in pair]
        rest = steps("one", *range(1, 6))[len(inner) :]
        both = [*steps("two", *range(1, 5)), *mixed, *rest, *steps("one", 6)]
        assert told(read(tmp_path, both)) == found


def test_a_failure_is_of_the_run_that_it_ends(tmp_path: Path) -> None:
    first, second = steps("one", *range(1, 9)), steps("two", *range(1, 9))
    ended, going = read(tmp_path, [*first, FULL, *second])
    assert ended.failure is not None
    assert (ended.failure.kind, ended.failure.line, going.failure, going.remarks) == (OOM, 9, None, ())
    ended, going = read(tmp_path, [*first, *second, CRASH])
    assert going.failure is not None
    assert (going.failure.kind, going.failure.line, ended.failure) == (CRASHED, 17, None)
    twice = [*steps("one", *range(1, 9)), CRASH, *steps("one", *range(1, 4))]  # starts anew
    once, again = read(tmp_path, twice)
    assert once.failure is not None
    assert again.failure is None


@pytest.mark.parametrize(("after", "failed"), [(BUFFERED, True), (BUFFERED + 1, False)])
def test_a_failure_may_stand_a_few_lines_before_the_last_step(tmp_path: Path, after: int, failed: bool) -> None:
    lines = [*steps("one", 1, 2, 3), CRASH, *steps("one", *range(4, 4 + after))]
    (run,) = read(tmp_path, lines)
    assert (run.failure is not None) is failed
    assert run.remarks == (() if failed else ("line 4 tells of a failure, but steps follow",))


def test_a_file_that_tells_of_a_failure_alone_is_a_run_without_steps(tmp_path: Path) -> None:
    (run,) = read(tmp_path, ["starting", FULL])
    assert (run.program, run.records) == (None, ())
    assert run.failure is not None
    assert run.failure.line == 2


@pytest.mark.parametrize(("last", "end", "count"), [("2.0", "", 9), ("2.", "", 8), ("2.", "\n", 9)])
def test_a_last_line_that_is_shorter_was_cut(tmp_path: Path, last: str, end: str, count: int) -> None:
    (run,) = read(tmp_path, [*steps("one", *range(1, 9)), f"one step 9 took {last}"], end=end)
    assert len(run.records) == count


def test_a_line_alone_is_held_to_none_and_a_second_to_the_first(tmp_path: Path) -> None:
    (run,) = read(tmp_path, steps("one", 1), end="")
    assert len(run.records) == 1
    (run,) = read(tmp_path, ["one step 1 took 2.0", "one step 2 took 2."], end="")
    assert len(run.records) == 1
    (run,) = read(tmp_path, ["one step 1 took 2.000", "one step 2 took 2.0", "one step 3 took 2.00"], end="")
    assert len(run.records) == 3


def test_lines_of_a_program_lie_from_its_first_step_to_its_last() -> None:
    assert [_within([(2, 3), (5, 9)], number) for number in (1, 2, 3, 4, 5, 9, 10)] == [0, 1, 1, 0, 1, 1, 0]


def test_steps_without_numbers_are_counted_from_one(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("took 2.0\ntook 2.5\n", encoding="utf-8")
    (run,) = read_log(path, (format_of(r"took (?P<seconds>[\d.]+)"),))
    assert [record.step for record in run.records] == [1, 2]


@pytest.mark.parametrize(("name", "launch"), [("a.SH", True), ("a.yaml", True), ("a.log", False)])
def test_a_launch_is_shown_the_door_of_launches(tmp_path: Path, name: str, launch: bool) -> None:
    path = tmp_path / name
    path.write_text("torchrun train.py\n", encoding="utf-8")
    with pytest.raises(InvalidFile) as refused:
        read_log(path)
    assert ("`optimize improve" in str(refused.value)) is launch


def test_what_the_launch_does_not_say_the_logs_do(tmp_path: Path) -> None:
    """The batch, but no GPUs where the launch has nodes."""
    script = tmp_path / "train.sh"
    text = Path("examples/llama3-8b.sh").read_text(encoding="utf-8")
    script.write_text(text.replace("--global-batch-size $GLOBAL_BATCH", ""), encoding="utf-8")
    said = run_of(part(), facts={"global_batch": "96", "gpus": "8"})
    found = script_reference([str(script)], {}, [said])
    assert (found.job.global_batch, found.job.gpus) == (96, 64)
    assert [line for line in found.assumed if "as the log says" in line] == ["global_batch 96, as the log says (--set)"]


def test_what_is_assumed_for_the_gpus_of_the_log_is_told_behind_them(tmp_path: Path) -> None:
    config = tmp_path / "train.toml"
    config.write_text('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n')
    alone = script_reference([str(config)], {"gpus": "16"}, [])
    logged = script_reference([str(config)], {}, [run_of(part(), facts={"gpus": "16"})])
    assert (alone.job.gpus, logged.job) == (16, alone.job)
    assert alone.assumed
    assert sorted(logged.assumed) == sorted(("gpus 16, as the log says (--set)", *alone.assumed))


def test_ranks_of_one_file_are_one_run_of_their_medians(tmp_path: Path) -> None:
    lines = [f"[rank{rank}]: one step {n} took {2.0 + 0.1 * rank:.1f}" for n in range(1, 6) for rank in range(3)]
    (run,) = read(tmp_path, lines)
    assert (run.ranks, len(run.records)) == (3, 5)
    assert [record.reading.seconds for record in run.records] == [2.1] * 5


def records(*numbers: int, seconds: float = 2.0) -> list[Record]:
    return [Record(LogLine(step=step, seconds=seconds, loss=1.0), line) for line, step in enumerate(numbers)]


def test_ranks_with_fewer_attempts_or_steps_count_where_they_are() -> None:
    longest = Stream(attempts=[records(1, 2, 3), records(3, 4)], reserved=2e9)
    other = Stream(attempts=[records(1, 2, seconds=3.0)], reserved=5e9, allocated=1e9)
    found = together([longest, other])
    assert [[record.reading.seconds for record in attempt] for attempt in found.attempts] == [
        [2.5, 2.5, 2.0],
        [2.0, 2.0],
    ]
    assert (found.reserved, found.allocated) == (5e9, 1e9)
    assert together([longest]) is longest


def test_a_restart_goes_back_and_another_run_begins_where_the_run_began() -> None:
    def shape(*numbers: int) -> list[list[int]]:
        return [[len(attempt) for attempt in run.attempts] for run in streams_of(records(*numbers))]

    assert shape(*range(1, 31), *range(11, 21)) == [[30, 10]]
    assert shape(*range(1, 31), *range(1, 21)) == [[30], [20]]
    assert shape(*range(5, 31), *range(4, 21)) == [[26], [17]]
    assert shape(*range(5, 31), *range(6, 21)) == [[26, 15]]
    # Of four lines one goes back, with another loss: a restart; of five two do: several processes.
    for losses, shapes in (
        (((1, 1), (2, 2), (3, 3), (3, 9)), [[3, 1]]),
        (((1, 1), (2, 2), (3, 3), (3, 9), (3, 8)), [[3]]),
    ):
        lines = [Record(LogLine(step=step, loss=float(loss)), line) for line, (step, loss) in enumerate(losses)]
        assert [[len(attempt) for attempt in run.attempts] for run in streams_of(lines)] == shapes
    # Near, and where the run began, but with another loss.
    lines = [Record(LogLine(step=step, loss=9.0 - step), step) for step in (5, 6, 7)]
    for step, kind in ((5, "other"), (6, "restart"), (7, "restart"), (8, "next")):
        late = Record(LogLine(step=step, loss=1.0), 8)
        assert _continues(Stream(attempts=[lines]), lines, late, several=False) == kind


@pytest.mark.parametrize(
    ("same", "again", "one"),
    [
        ((2.0, 100.0, None), (2.0, 100.0 + SECONDS, None), True),
        ((2.0, 100.0, None), (2.0, 101.0 + SECONDS, None), False),
        ((2.0, 100.0, None), (2.5, 100.0, None), False),
        ((float("nan"), 100.0, None), (2.5, 100.0, None), True),
        ((2.0, None, 10.0), (2.0, None, 10.0 + SECONDS), True),
        ((2.0, None, 10.0), (2.0, None, 11.0 + SECONDS), False),
        ((2.0, 100.0, None), (2.0, None, None), True),
        ((2.0, None, 10.0), (2.0, None, None), True),
        ((2.0, None, None), (2.0, None, 10.0), True),
    ],
)
def test_two_lines_are_of_one_step_at_one_time_and_with_one_loss(
    same: tuple[float, float | None, float | None], again: tuple[float, float | None, float | None], one: bool
) -> None:
    def line(place: int, loss: float, time: float | None, elapsed: float | None) -> Record:
        return Record(LogLine(step=3, loss=loss, elapsed=elapsed), place, time)

    first, second = line(10, *same), line(11, *again)
    assert _interleaved(first, first, second, near=True, several=False) is one
    assert _interleaved(first, first, second, near=True, several=True)


def test_lines_that_are_far_apart_have_bars_of_one_tick() -> None:
    first = Record(LogLine(step=3, loss=2.0, elapsed=10.0), 10)
    for line, elapsed, one in (
        (10 + LINES, 10.0 + SECONDS, True),
        (11 + LINES, 10.0 + SECONDS, False),
        (11 + LINES, 10.0 + TICK, True),
        (11 + LINES, 10.5 + TICK, False),
    ):
        again = Record(LogLine(step=3, loss=2.0, elapsed=elapsed), line)
        assert _interleaved(first, first, again, near=True, several=False) is one
    bare = Record(LogLine(step=3, loss=2.0), 10)
    for line, near, one in ((10 + LINES, True, True), (11 + LINES, True, False), (10 + LINES, False, False)):
        again = Record(LogLine(step=3, loss=2.0), line)
        assert _interleaved(bare, bare, again, near=near, several=False) is one
    for loss, last, one in ((2.0, 2.0, True), (2.0, 9.0, True), (None, 9.0, False), (None, None, True)):
        same = Record(LogLine(step=3, loss=loss), 10)
        behind = same if last == loss else Record(LogLine(step=4), 11)
        assert _interleaved(same, behind, Record(LogLine(step=3), 12), near=True, several=False) is one
    assert (NEAR, LINES, SECONDS, TICK) == (3, 20, 30.0, 1.0)


@pytest.mark.parametrize(("steps", "kind"), [((10, 20), "again"), ((10, 12, 16), "again"), ((10, 12, 18), "other")])
def test_ranks_may_lag_by_three_times_what_lies_between_two_lines(steps: tuple[int, ...], kind: str) -> None:
    attempt = [Record(LogLine(step=step, loss=2.0), place) for place, step in enumerate(steps)]
    again = Record(LogLine(step=10, loss=2.0), len(steps))
    assert _continues(Stream(attempts=[attempt]), attempt, again, several=False) == kind


def test_stalls_count_the_steps_of_their_lines() -> None:
    lines = [Timed(step, 10, 1.0, PRINTED, 0) for step in range(60)]
    lines[30] = Timed(30, 10, 3.0, PRINTED, 0)
    found = steady_part(lines)
    assert found is not None
    assert found.stalled == pytest.approx(20 / (58 * 10 + 30), rel=0.02)
    mixed = [*lines[:31], *[Timed(step, 1, 1.0, PRINTED, 0) for step in range(31, 61)]]
    found = steady_part(mixed)
    assert found is not None
    assert found.stalled == pytest.approx(20 / (29 * 10 + 30 + 30), rel=0.02)
    assert found.steps_used == 29 * 10 + 10 + 30


def test_a_run_of_no_known_program_is_measured_too() -> None:
    lines = [Record(LogLine(step=step, seconds=2.0), step) for step in range(1, 22)]
    run = LoggedRun(files=("a.log",), program=None, stream=Stream(attempts=[lines]))
    assert (measured(run, {}).program, measured(run, {}).warnings) == ("", ())


def test_a_slow_step_has_causes_with_their_shares_and_how_rare_they_are() -> None:
    question = two_seconds()
    slow = diagnose(question, run_of(part(seconds=2.4, times=np.full(100, 2.4))))
    assert slow.explanations
    assert sum(one.share for one in slow.explanations) == pytest.approx(1.0)
    for one in slow.explanations:
        assert (one.setting is None) == (one.at_worst < 2.4)
        assert one.at_worst == pytest.approx(one.cause.seconds(question, one.cause.worst(question)))
        assert 0.0 <= one.rarer <= 1.0
        assert one.setting is not None or one.rarer == 0.0
    beyond = diagnose(question, run_of(part(seconds=1e6, times=np.full(100, 1e6))))
    assert beyond.explanations
    assert all(one.setting is None and one.rarer == 0.0 for one in beyond.explanations)
    assert diagnose(question, run_of(part(seconds=2.0, times=np.full(100, 2.0)))).explanations == ()
    assert diagnose(question, run_of(part(seconds=2.4)), ("gpus",)).explanations == ()
    with pytest.raises(ValueError, match="without a step time"):
        diagnose(question, run_of(None))


def test_a_cause_has_its_share_of_worse_runs_and_how_much_likelier_each_sign_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question, cause = two_seconds(), slowing(1.1)
    monkeypatch.setattr("optimizer.diagnose.diagnosis.CAUSES", (cause,))
    ((_, curve),), _ = curves_of(question, [cause])
    slow = run_of(part(seconds=curve.likely[1], times=np.full(100, curve.likely[1])))
    (found,) = diagnose(question, slow).explanations
    assert (found.share, found.rarer) == (1.0, pytest.approx(2 / 3))  # 2.1, 2.15 and 2.2 s
    shown = [(sign.name, weight) for sign, weight in found.signs]
    assert [name for name, _ in shown] == ["motion", "tail", "trend"]
    values = {"motion": "steady", "tail": "even", "trend": "flat"}
    assert shown == [(name, cause.chance(name, each) / USUAL[name][each]) for name, each in values.items()]
    assert found.says == cause.says(found.setting or 0.0)
    assert replace(found, setting=None).says == f"{cause.label}: not even the worst explains it all"
