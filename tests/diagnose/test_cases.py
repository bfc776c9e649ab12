"""What logs say, case by case: the steady part, signs, warnings, causes and the words of the report, to the number."""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from dataclasses import replace
from math import e, log, sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog import load_model
from optimizer.diagnose import lines
from optimizer.diagnose.attempts import Record, Stream
from optimizer.diagnose.causes.cause import DRAWS, SlowStep, exponential, log_uniform
from optimizer.diagnose.causes.every import (
    CAUSES,
    CLOCKS,
    DATA_LOADING,
    HOST_LAUNCHES,
    NETWORK,
    OVERLAP,
    OVERLAPS,
    ROUTING,
    STRAGGLER,
    SWITCHED,
)
from optimizer.diagnose.causes.signs import Sign, _floor, _motion, _settings, _tail, _trend, signs_of
from optimizer.diagnose.diagnosis import (
    ABOVE,
    ALIKE,
    BELOW,
    WITHIN,
    CauseExplanation,
    Curve,
    Diagnosis,
    cheapest,
    counted,
    curves_of,
    shares_of,
    solved,
)
from optimizer.diagnose.failures import CRASHED, OK, OOM, Failure
from optimizer.diagnose.lines import read_lines, time_of, unlabelled
from optimizer.diagnose.log import BUFFERED, LoggedRun
from optimizer.diagnose.measured import (
    APART,
    ENOUGH,
    LOOSE,
    STALLED,
    Measured,
    _like,
    _of_steady,
    measured,
    same_run,
)
from optimizer.diagnose.reference import Reference, answer_reference
from optimizer.diagnose.report import _measured, _reasons, _sign, diagnosis_dict, headline, logs_report, run_dict
from optimizer.diagnose.row import append_rows, contradictions, row_of
from optimizer.diagnose.steady import (
    CLOCK,
    PRINTED,
    RATE,
    STALL,
    PaceLevel,
    Steady,
    Timed,
    _best_cut,
    _period,
    _wander,
    level_starts,
    median_of,
    noise,
    steady_part,
    stride,
    timed_steps,
    winsorised,
    without_warm_up,
)
from optimizer.diagnose.steady import (
    _trend as trend_of,
)
from optimizer.frameworks.every import LOGS
from optimizer.frameworks.log_line import LogLine
from optimizer.job.plan import Plan
from optimizer.objectives.step.flops import ALL_SCORES, CAUSAL, useful_flops
from optimizer.objectives.step.interval import Interval
from optimizer.reports.render.markdown import markdown_text
from tests.diagnose.test_borders import slowing, two_seconds
from tests.search.jobs import small_job

MEGATRON = next(log for log in LOGS if log.name == "Megatron-LM")


def timed(seconds: Sequence[float], steps: int = 1) -> list[Timed]:
    return [Timed(step, steps, each, PRINTED, 0) for step, each in enumerate(seconds)]


def logged(readings: Sequence[LogLine], times: Sequence[float | None] = (), **values: Any) -> LoggedRun:
    """One attempt of these lines, at these times."""
    clock = (*times, *[None] * (len(readings) - len(times)))
    records = [Record(reading, place, clock[place]) for place, reading in enumerate(readings)]
    given = {"files": ("a.log",), "program": MEGATRON, "stream": Stream(attempts=[records])}
    return LoggedRun(**given | values)


def part(**values: Any) -> Steady:
    """A steady part of 100 steps of 2 s."""
    usual: dict[str, Any] = {
        **{"times": np.full(100, 2.0), "first": 11, "last": 110, "seconds": 2.0, "spread": 0.001},
        **{"mean": 2.0, "steps_used": 100, "steps_each": 1, "warm_up": 1},
    }
    return Steady(**usual | values)


def run_of(steady: Steady | None = None, **values: Any) -> Measured:
    usual: dict[str, Any] = {"files": ("a.log",), "program": "Megatron-LM", "status": OK, "facts": {}}
    return Measured(steady=steady, **usual | values)


# Lines


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"one needle\ntwo\n", ["one needle"]),
        ("\ufeffa needle\n".encode("utf-16-le"), ["a needle"]),
        ("a needle\n".encode("utf-16-le"), ["a needle"]),
        ("a needle\n".encode("utf-16-be"), ["a needle"]),
        (b"a needle" + b"\0" * 3 + b"\n" + b"text " * 40, ["a needle"]),
        (gzip.compress(b"a needle\n" * 3, mtime=0), ["a needle"] * 3),
        (b"NEEDLE\nneedle", ["needle"]),
        ("Э: a needle игла\n".encode("utf-16-le"), ["Э: a needle игла"]),
    ],
)
def test_lines_are_found_whatever_the_file_is_written_in(tmp_path: Path, data: bytes, said: list[str]) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(data)
    found = read_lines(path, ("needle",), ())
    assert [line.text for line in found.lines] == said
    assert found.unfinished is not data.endswith((b"\n", b"\n\0", b"\0\n")) or data[:2] == b"\x1f\x8b"


@pytest.mark.parametrize(
    "data", [b"\xff\xd8" * 300, b"\0" * 100, b"\x1f\x8b short", gzip.compress(b""), b"needle\n" + b"\0" * 3]
)
def test_what_is_no_text_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(data)
    with pytest.raises(InvalidFile):
        read_lines(path, ("needle",), ())


@pytest.mark.parametrize("cut", [0, 4])
def test_so_much_is_unpacked(tmp_path: Path, cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines.MOST == 4e8
    path = tmp_path / "a.log"
    for most, taken in ((100, True), (99, False)):
        monkeypatch.setattr(lines, "MOST", most)
        data = gzip.compress(b"a needle\n" + b"x" * 91)
        path.write_bytes(data[: len(data) - cut])
        if taken:
            assert len(read_lines(path, ("needle", "x"), ()).lines) == 2
        else:
            with pytest.raises(InvalidFile, match="unpacks to more than"):
                read_lines(path, (), ())


def test_a_process_is_named_at_the_front_of_a_line() -> None:
    rank = re.compile(r"rank (\d+)")
    for before, known in (("", "3"), (" " * 194, "3"), (" " * 195, "")):
        assert unlabelled(f"{before}rank 3", ranks=(rank,)) == (f"{before}rank 3", known)


@pytest.mark.parametrize(("broken", "text"), [(5, True), (6, False)])
def test_one_broken_character_of_twenty_is_text(tmp_path: Path, broken: int, text: bool) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"\xff" * broken + b"x" * (100 - broken))
    if text:
        assert read_lines(path, (), ()).remarks == (f"{broken} characters could not be decoded",)
    else:
        with pytest.raises(InvalidFile, match="is no text"):
            read_lines(path, (), ())


def test_lines_are_numbered_counted_and_told_apart_by_what_is_in_them(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("\n[rank2]: one two\n\ntwo\nSIGKILL\nend", encoding="utf-8")
    found = read_lines(path, ("one", "two"), ("sigkill",))
    assert [(line.number, line.text, line.rank, line.suspect) for line in found.lines] == [
        (2, "one two", "2", False),
        (4, "two", "", False),
        (5, "SIGKILL", "", True),
    ]
    assert [line.number for line in found.marked(["one"])] == [2]
    assert [line.number for line in found.marked(["two"])] == [2, 4]
    assert (found.count, found.unfinished) == (6, True)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02 10:00:00,250 x", 0.25),
        ("[2026-01-02T10:00:01.5] x", 1.5),
        ("20260102 10:01:00 x", 60.0),
        ("01/02/2026 11:00:00 x", 3600.0),
        ("2026-13-02 10:00:00 x", None),
        ("x" * 119 + " 2026-01-02 10:00:00", None),
        ("nothing", None),
    ],
)
def test_the_time_at_the_front_of_a_line_is_read(text: str, moment: float | None) -> None:
    start = time_of("2026-01-02 10:00:00")
    assert start is not None
    assert time_of(text) == (None if moment is None else start + moment)


def test_a_process_is_named_by_its_launcher_or_by_its_program() -> None:
    assert unlabelled("[default7]:x") == ("x", "7")
    assert unlabelled("node-3: [2026") == ("[2026", "node-3")
    assert unlabelled("plain text") == ("plain text", "")


# The steady part


def test_seconds_come_from_what_is_printed_or_a_rate_or_a_clock() -> None:
    facts = {"global_batch": "64", "seq_len": "2048", "gpus": "8"}
    steps = range(1, 5)
    by_tokens = logged([LogLine(step=step, tokens_rate=8192.0) for step in steps])
    assert [(step.seconds, step.basis) for step in timed_steps(by_tokens, facts)] == [(2.0, RATE)] * 4
    assert timed_steps(by_tokens, {**facts, "gpus": ""}) == []
    by_sequences = logged([LogLine(step=step, sequences_rate=32.0) for step in steps])
    assert [(step.seconds, step.basis) for step in timed_steps(by_sequences, facts)] == [(2.0, RATE)] * 4
    assert timed_steps(by_sequences, {}) == []
    clock = logged([LogLine(step=10 * step) for step in steps], [0.0, 20.0, 40.0, 60.0])
    assert [(one.step, one.steps, one.seconds, one.basis) for one in timed_steps(clock, {})] == [
        (step, 10, 2.0, CLOCK) for step in (20, 30, 40)
    ]
    elapsed = logged([LogLine(step=step, elapsed=2 * step) for step in steps])
    assert [(one.seconds, one.basis) for one in timed_steps(elapsed, {})] == [(2.0, PRINTED)] * 3
    half = logged([LogLine(step=step, elapsed=9.0 if step % 2 else None) for step in steps], [0.0, 2.0, 4.0, 6.0])
    assert [(one.seconds, one.basis) for one in timed_steps(half, {})] == [(2.0, CLOCK)] * 3
    mean = logged([LogLine(step=5 * step, seconds=2.0, averaged=True) for step in steps])
    assert [one.steps for one in timed_steps(mean, {})] == [1, 5, 5, 5]
    single = logged([LogLine(step=5 * step, seconds=2.0) for step in steps])
    assert [one.steps for one in timed_steps(single, {})] == [1] * 4
    wrong = logged([LogLine(step=step, seconds=value) for step, value in enumerate((2.0, 0.0, -1.0, float("inf")))])
    assert [one.seconds for one in timed_steps(wrong, {})] == [2.0]


def test_a_clock_of_whole_seconds_is_read_in_strides_and_one_of_milliseconds_is_not() -> None:
    sizes = dict.fromkeys(("global_batch", "seq_len", "gpus"), 0)
    coarse = [Record(LogLine(step=step), step, float(step)) for step in range(4000)]
    fine = [Record(LogLine(step=step), step, 1.001 * step) for step in range(4000)]
    assert (stride(coarse, sizes), stride(fine, sizes)) == (100, 1)
    assert stride(coarse[:200], sizes) == 10
    off = [Record(LogLine(step=0), 0, 0.01), *coarse[1:]]  # a hundredth of a tick off is no tick
    assert stride(off, sizes) == 1
    assert stride(coarse[:1], sizes) == 1
    assert stride([Record(LogLine(step=step), step, 5.0) for step in range(9)], sizes) == 1


def test_noise_and_medians_are_those_of_the_steps() -> None:
    assert noise(np.array([1.0])) == 0.0
    assert noise(np.array([1.0, 1.2])) == pytest.approx(0.2 * 1.4826 / sqrt(2))
    random = np.random.default_rng(0)
    assert noise(random.normal(5.0, 0.25, 20_000)) == pytest.approx(0.25, rel=0.03)
    assert median_of(np.array([3.0, 1.0, 2.0]), np.array([1, 1, 1])) == 2.0
    assert median_of(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1, 1, 1, 1])) == 2.5
    assert median_of(np.array([1.0, 5.0]), np.array([3, 1])) == 1.0
    assert winsorised(np.array([0.0, 1.0, 2.0, 3.0, 99.0])).max() == pytest.approx(2.0 + 4 * 1.4826)
    assert winsorised(np.array([1.0] * 9 + [5.0])).max() == pytest.approx(1.004)


@pytest.mark.parametrize(
    ("first", "second", "count", "starts"),
    [
        (1.0, 1.009, 40, [0]),  # less than a percent
        (1.0, 1.011, 40, [0, 40]),
        (1.0, 1.2, 5, [0, 5]),  # five steps are a level
        (1.0, 1.2, 4, [0]),
    ],
)
def test_a_level_is_five_steps_that_differ_by_a_percent(
    first: float, second: float, count: int, starts: list[int]
) -> None:
    assert level_starts(np.log([first] * count + [second] * count)) == starts


def test_fewer_than_five_steps_at_an_end_are_no_level() -> None:
    """Four steps of another pace: the best cut that leaves five on either side takes one more to them."""
    few, many = np.zeros(4), np.ones(20)
    assert _best_cut(np.concatenate([few, many]), 1e-6, 24) == 5
    assert _best_cut(np.concatenate([many, few]), 1e-6, 24) == 19


@pytest.mark.parametrize(("variance", "least", "cut"), [(0.039, 0.2, 5), (0.0390625, 0.2, 0), (0.039, 0.25, 0)])
def test_a_change_explains_four_variances(
    variance: float, least: float, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten steps, five a quarter higher: squares fall by 10 / 4 x 1 / 4 ** 2, over a variance times log(e)."""
    monkeypatch.setattr("optimizer.diagnose.steady.LEAST", least)
    assert _best_cut(np.repeat([0.0, 0.25], 5), variance, e) == cut


def test_a_level_begins_where_the_squares_fall_most() -> None:
    random = np.random.default_rng(4)
    for _ in range(40):
        count, place = 40, int(random.integers(5, 36))
        values = random.normal(0, 0.03, count) + 0.12 * (np.arange(count) >= place)
        left = {cut: np.var(values[:cut]) * cut + np.var(values[cut:]) * (count - cut) for cut in range(5, 36)}
        assert _best_cut(values, 0.03**2, count) == min(left, key=lambda cut: left[cut])


def test_a_pace_that_holds_for_half_of_the_steps_stands_for_the_run() -> None:
    parts = steady_part(timed([9.0, *[1.0] * 20, *[1.5] * 12, *[2.0] * 8]))
    assert parts is not None
    assert (parts.seconds, parts.first, parts.last, parts.warm_up) == (1.0, 1, 20, 1)
    wanders = steady_part(timed([9.0, *[1.0] * 18, *[1.5] * 12, *[2.0] * 10]))
    assert wanders is not None
    assert (wanders.first, wanders.last, wanders.seconds) == (1, 40, 1.5)
    assert [(level.first, level.last, level.seconds) for level in wanders.levels] == [
        (1, 18, 1.0),
        (19, 30, 1.5),
        (31, 40, 2.0),
    ]
    later = steady_part(timed([9.0, *[1.0] * 20, *[2.0] * 20]))
    assert later is not None
    assert later.seconds == 2.0  # of two equal parts the later one


def test_stalls_stand_out_by_a_third_and_six_deviations() -> None:
    assert STALL == 1.3
    for seconds, stands in ((1.29, False), (1.3, False), (1.31, True)):
        found = steady_part(timed([1.0] * 50 + [seconds] + [1.0] * 50))
        assert found is not None
        assert bool(found.stalls) is stands
        assert found.stalls == ((50,) if stands else ())
        lost = (seconds - 1) / (100 + seconds - 1)
        assert found.stalled == (pytest.approx(lost, rel=0.02) if stands else 0.0)
    loose = [0.9, 1.0, 1.1] * 30  # a deviation of 0.148 s: six are 0.89
    for seconds, stands in ((1.8, False), (2.0, True)):
        found = steady_part(timed([1.0, *loose, seconds, *loose]))
        assert found is not None
        assert bool(found.stalls) is stands


def test_a_run_without_stalls_is_described_by_its_numbers() -> None:
    found = steady_part(timed([5.0, *[1.9, 2.0, 2.1] * 20], steps=4))
    assert found is not None
    assert (found.seconds, found.steps_used, found.steps_each, found.warm_up) == (2.0, 240, 4, 1)
    assert found.spread == pytest.approx(1.4826 * 0.1 / 2.0)
    assert found.tail == pytest.approx(1.0, rel=0.05)
    assert (found.stalled, found.period, found.trend, found.stalls) == (0.0, 0, 0.0, ())
    assert steady_part([]) is None
    usual = part()
    assert (usual.stalled, usual.period, usual.trend, usual.wander, usual.jitter, usual.tail) == (0, 0, 0, 0, 0, 1)


@pytest.mark.parametrize(
    ("stalls", "period"),
    [
        *(((10, 20), 0), ((10, 20, 30), 10), ((10, 20, 40), 0), ((1, 2, 3), 0), ((1, 3, 5), 2), ((), 0)),
        *(((10, 21, 30, 40, 60), 10), ((10, 20, 31, 41, 52), 10)),  # one step more or less, or twice as far
        *(((10, 20, 30, 42, 52, 64), 0), ((10, 20, 30, 40, 45), 10), ((10, 20, 30, 35, 40), 0)),  # three of four
    ],
)
def test_three_stalls_that_are_equally_far_apart_have_a_period(stalls: tuple[int, ...], period: int) -> None:
    assert _period(stalls) == period


def test_a_trend_is_the_median_slope_where_noise_would_not_do_it() -> None:
    place = np.arange(40)
    rising = np.log(1 + 0.05 * place / 39)
    assert trend_of(rising) == pytest.approx(0.05, rel=0.02)
    assert trend_of(-rising) == pytest.approx(-0.0476, rel=0.02)
    assert trend_of(rising[:9]) == 0.0  # too few
    assert trend_of(rising[:10]) == pytest.approx(np.expm1(rising[9]), rel=0.02)
    assert trend_of(0.19 * rising) == 0.0  # less than a percent
    assert trend_of(0.21 * rising) == pytest.approx(0.0103, rel=0.03)
    assert trend_of(np.zeros(40)) == 0.0
    noisy = np.random.default_rng(1).normal(0, 1, 40)
    assert trend_of(noisy) == 0.0
    assert trend_of(np.where(place % 8 == 0, 0.5, rising)) == pytest.approx(0.05, rel=0.1)
    many = np.log(1 + 0.05 * np.arange(5000) / 4999)
    assert trend_of(many) == pytest.approx(0.05, rel=0.01)


def test_a_trend_is_significant_by_kendalls_rank_correlation() -> None:
    """Against scipy's, with its normal limit and ties, on rows of few values whose chances lie around a percent."""
    from scipy.stats import kendalltau

    random, near = np.random.default_rng(0), 0
    for _ in range(400):
        count = int(random.integers(10, 15))
        place = np.arange(count)
        logs = np.round(0.06 * place + random.normal(0, 0.22, count), 1)
        tau, chance = kendalltau(place, logs, method="asymptotic")
        change = np.expm1(np.median([(logs[b] - logs[a]) / (b - a) for b in place for a in place[:b]]) * (count - 1))
        told = chance < 0.01 and abs(tau) > 0.35 and abs(change) > 0.01
        assert (trend_of(logs) != 0.0) is bool(told)
        near += 0.005 < chance < 0.02
    assert near > 20


def test_steps_that_follow_the_one_before_wander() -> None:
    random = np.random.default_rng(0)
    white = random.normal(0, 0.01, 4000)
    slow = np.zeros(4000)
    for place in range(1, 4000):
        slow[place] = 0.8 * slow[place - 1] + white[place]
    assert _wander(white) == pytest.approx(0.0, abs=0.05)
    assert _wander(slow) == pytest.approx(0.8, abs=0.05)
    assert _wander(slow + np.linspace(0, 1, 4000)) == pytest.approx(0.8, abs=0.05)  # without the trend
    assert (_wander(slow[:9]), _wander(np.ones(50))) == (0.0, 0.0)
    assert _wander(slow[:10]) != 0.0
    assert _wander(1e-3 * slow[:400]) == pytest.approx(_wander(slow[:400]))  # whatever its size


def test_what_wanders_is_the_correlation_of_what_a_straight_line_leaves() -> None:
    random = np.random.default_rng(2)
    for count in (10, 11, 30):
        logs = 0.1 * np.arange(count) + random.normal(0, 0.1, count)
        left = logs - np.polyval(np.polyfit(np.arange(count), logs, 1), np.arange(count))
        assert _wander(logs) == pytest.approx(np.sum(left[1:] * left[:-1]) / np.sum(left**2))


def test_a_trend_goes_one_way_by_a_third_of_its_pairs() -> None:
    """Of 150 steps a rank correlation of 0.2 is no chance, but goes up and down."""
    from scipy.stats import kendalltau

    random, near = np.random.default_rng(3), 0
    place = np.arange(150)
    for slope in np.linspace(0.006, 0.009, 120):
        logs = slope * place + random.normal(0, 0.55, place.size)
        tau, chance = kendalltau(place, logs, method="asymptotic")
        assert chance < 0.01 or abs(tau) < 0.3
        assert (trend_of(logs) != 0.0) is bool(chance < 0.01 and tau > 0.35)
        near += 0.34 < tau < 0.36
    assert near > 5


def test_thirty_steps_go_one_way_by_a_rank_correlation_over_0_35() -> None:
    """Of 435 pairs 153 more rise than fall; one pair in 435 less is 0.347."""
    logs = np.arange(30.0)
    falling = 0
    while falling < (435 - 153) // 2:  # each exchange of two neighbours turns one pair
        for place in range(29):
            if logs[place] < logs[place + 1] and falling < (435 - 153) // 2:
                logs[place], logs[place + 1] = logs[place + 1], logs[place]
                falling += 1
    assert trend_of(0.01 * logs) > 0.0
    place = next(place for place in range(29) if logs[place] < logs[place + 1])
    logs[place], logs[place + 1] = logs[place + 1], logs[place]
    assert trend_of(0.01 * logs) == 0.0


@pytest.mark.parametrize(
    ("seconds", "first"),
    [
        ([9.0, *[1.0] * 9], 1),
        ([9.0, 1.0, 1.1, 1.1, *[1.0] * 8], 4),  # of the next three steps two are slow
        ([9.0, 1.0, 1.1, *[1.0] * 8], 1),  # one is
        ([*[5.0] * 3, *[2.0, 1.0] * 4], 3),  # an uneven pace: 1.5 s, and a third more is within three deviations
        ([5.0, 1.8, 1.8, 1.8, *[1.0] * 4, *[1.1, 0.9] * 4], 4),  # an even one: later steps tell the deviation
        ([5.0, 5.0, *[0.7, 1.0, 1.0, 1.0] * 3], 2),
    ],
)
def test_warm_up_ends_where_a_step_and_the_next_are_near_to_the_later_pace(seconds: list[float], first: int) -> None:
    assert without_warm_up(timed(seconds))[0].step == first


def test_the_tail_is_the_slowest_twentieth_over_the_fastest() -> None:
    found = steady_part(timed([9.0, *[0.99, *[1.0] * 9, 1.02] * 20]))
    assert found is not None
    assert found.tail == pytest.approx(0.021 / 0.011, rel=0.01)


def test_two_lines_of_an_attempt_are_warm_up_if_there_is_another() -> None:
    short = [Timed(step, 1, 1.0, PRINTED, 0) for step in range(2)]
    later = [Timed(step, 1, 1.0, PRINTED, 1) for step in range(3)]
    assert without_warm_up(short) == short
    assert without_warm_up([*short, *later]) == later[1:]


# Signs


@pytest.mark.parametrize(
    ("values", "name", "text"),
    [
        ({"spread": 0.015}, "steady", "steps vary by only 1.5%"),
        ({"spread": 0.016}, "jitter", "steps vary by 1.6%, each on its own"),
        ({"spread": 0.016, "wander": 0.41}, "wander", "steps vary by 1.6%, slowly: 41% of it lasts to the next"),
        ({"spread": 0.016, "wander": 0.4}, "jitter", "steps vary by 1.6%, each on its own"),
        ({"spread": 0.008, "steps_each": 4}, "jitter", "steps vary by 1.6%, each on its own"),
        ({"spread": 0.007, "steps_each": 4}, "steady", "steps vary by only 1.4%"),
    ],
)
def test_the_motion_of_a_run(values: dict[str, Any], name: str, text: str) -> None:
    assert _motion(part(**values)) == Sign(name="motion", value=name, text=text)


def test_a_part_is_of_another_pace_beyond_what_is_shifted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.diagnose.causes.signs.SHIFTED", 0.25)
    levels = [(PaceLevel(first=1, last=9, seconds=pace),) for pace in (2.5, 1.5, 2.6, 1.4)]
    assert [_motion(part(levels=each)).value for each in levels] == ["steady", "steady", "wander", "wander"]


@pytest.mark.parametrize(
    ("paces", "trend", "value"),
    [
        ((2.0, 2.03), 0.0, "wander"),  # a percent is no other pace, two are
        ((2.0, 2.05), 0.0, "wander"),
        ((2.0, 2.05, 2.1), 0.05, "steady"),  # a trend is a sign of its own
        ((2.1, 2.05, 2.0), -0.05, "steady"),
        ((2.0, 2.1, 2.05), 0.05, "wander"),
    ],
)
def test_parts_of_another_pace(paces: tuple[float, ...], trend: float, value: str) -> None:
    levels = tuple(PaceLevel(first=at, last=at, seconds=pace) for at, pace in enumerate(paces))
    steady = part(levels=levels, trend=trend)
    others = sum(pace / 2.0 - 1 > 0.02 for pace in paces)
    expected = value if others or value == "steady" else "steady"
    found = _motion(steady)
    assert found.value == expected
    if expected == "wander":
        assert found.text == f"{others} part{'s' * (others > 1)} of the run had another pace"


def test_the_tail_of_a_run() -> None:
    assert _tail(part(tail=2.0)).value == "even"
    assert _tail(part(tail=2.1)) == Sign(name="tail", value="skewed", text="slow side of the spread 2.1 x the fast one")
    stalls = part(stalls=(1, 2, 3, 4), stalled=0.05, period=0)
    assert _tail(stalls) == Sign(name="tail", value="stalls", text="4 stalls without a period take 5.0% of the time")
    still = _tail(replace(stalls, stalled=0.2, period=10))
    assert still == Sign(name="tail", value="standstill", text="4 stalls every 10 steps take 20.0% of the time")


def test_the_trend_and_the_floor_of_a_run() -> None:
    assert _trend(part()) == Sign(name="trend", value="flat", text="no trend")
    assert _trend(part(trend=0.02)) == Sign(name="trend", value="rises", text="steps get 2.0% longer")
    assert _trend(part(trend=-0.02)) == Sign(name="trend", value="falls", text="steps get 2.0% shorter")
    fast = part(times=np.array([1.0] * 10 + [2.0] * 90))
    assert _floor(fast, 1.0, 0.1) == Sign(
        name="floor", value="reached", text="the fastest twentieth of the steps takes 1.00 x the predicted time"
    )
    assert _floor(fast, 0.9, 0.1).value == "above"
    assert _floor(part(), 2.0, 0.1).value == "above"  # all are as fast
    # As far from the usual step, or from the predicted one, as a deviation.
    assert [_floor(part(times=np.ones(20), seconds=each), 1.0, 0.5).value for each in (1.5, 1.75)] == [
        "above",
        "reached",
    ]
    assert [_floor(part(times=np.ones(20), seconds=3.0), 0.5, each).value for each in (0.9, 1.0)] == [
        "above",
        "reached",
    ]
    assert "floor" not in {sign.name for sign in signs_of(run_of(part()), 1.0, 1.0)}


def test_a_floor_is_told_of_single_steps_that_are_slower_than_predicted() -> None:
    names = {
        (seconds, each): {sign.name for sign in signs_of(run_of(part(steps_each=each)), seconds, 0.1)}
        for seconds in (1.8, 1.83)
        for each in (1, 2)
    }
    assert {key: "floor" in found for key, found in names.items()} == {
        (1.8, 1): True,
        (1.8, 2): False,
        (1.83, 1): False,
        (1.83, 2): False,
    }


@pytest.mark.parametrize(
    ("facts", "signs"),
    [
        ({"overlap_grad_reduce": "False"}, [("overlap", "off")]),
        ({"overlap_comm": "True"}, [("overlap", "on")]),
        ({"overlap_comm": "perhaps"}, []),
        ({"num_workers": "0"}, [("loaders", "none")]),
        ({"num_workers": "2"}, [("loaders", "some")]),
        ({"num_workers": "x"}, []),
    ],
)
def test_settings_that_a_log_prints_are_signs(facts: dict[str, str], signs: list[tuple[str, str]]) -> None:
    assert [(sign.name, sign.value) for sign in _settings(facts)] == signs


# What to mind


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"steps_used": ENOUGH - 1}, ["only 9 steady steps: the median says little"]),
        ({"steps_used": 1}, ["only 1 steady step: the median says little"]),
        ({"steps_used": ENOUGH}, []),
        ({"spread": LOOSE}, []),
        ({"spread": 0.031}, ["steps vary by 3.1%, more than the 0.3-3 % of published runs"]),
        ({"stalled": STALLED}, []),
        ({"stalled": 0.05}, ["stalls take 5.0% of the time: the mean step is 2 s, the median 2 s"]),
    ],
)
def test_what_to_mind_about_a_steady_part(values: dict[str, Any], said: list[str]) -> None:
    assert (LOOSE, STALLED) == (0.03, 0.03)
    assert [line.replace("2.00 s", "2 s") for line in _of_steady(part(**values))] == said


@pytest.mark.parametrize(("every", "mean"), [(1, 2.8), (10, 1.18)])
def test_single_steps_of_which_one_in_five_stalls_stand_for_those_between(every: int, mean: float) -> None:
    """Stalls of 10 s in steps of 1 s, every fifth line: of lines of each tenth step, 1 in 50 steps stalls."""
    lines = [
        Timed(step=at * every, steps=1, seconds=1.0 if at % 5 else 10.0, basis="printed", attempt=0)
        for at in range(1, 501)
    ]
    found = steady_part(lines)
    assert found is not None
    assert found.period == 5 * every
    assert found.mean == pytest.approx(mean, rel=0.01)
    assert found.stalled == pytest.approx(1 - 1 / mean, rel=0.01)


def test_a_pace_that_was_left_out_as_warm_up_is_told() -> None:
    slow = [Timed(step=at, steps=1, seconds=3.0, basis="printed", attempt=0) for at in range(12)]
    fast = [Timed(step=at, steps=1, seconds=1.0, basis="printed", attempt=0) for at in range(12, 30)]
    found = steady_part([*slow, *fast])
    assert found is not None
    assert (found.seconds, found.early) == (1.0, PaceLevel(first=0, last=11, seconds=3.0))
    (told,) = _of_steady(found)
    assert told.startswith("steps 0 to 11, left out as warm-up, took 3 s:")
    usual = steady_part([*slow[:3], *fast])
    assert usual is not None
    assert usual.early is None


def test_two_paces_that_alternate_are_told() -> None:
    def found(*seconds: float) -> Steady:
        steps = [Timed(step=at, steps=1, seconds=one, basis="printed", attempt=0) for at, one in enumerate(seconds * 8)]
        steady = steady_part(steps)
        assert steady is not None
        return steady

    assert found(1.0, 1.2, 1.01, 1.21, 1.0).paces == pytest.approx((1.0, 1.205, 0.6), rel=0.03)
    assert any("two paces: 6" in told for told in _of_steady(found(1.0, 1.2, 1.0, 1.2, 1.0)))
    assert found(1.0, 1.02, 1.01, 1.03, 1.04).paces is None  # noise
    assert found(1.0, 1.01, 1.0, 1.01, 1.0, 1.01, 1.0, 1.01, 2.0).paces is None  # stalls


def test_other_paces_are_told_one_by_one_or_together() -> None:
    def levels(*paces: float) -> Steady:
        return part(levels=tuple(PaceLevel(first=at, last=at + 9, seconds=pace) for at, pace in enumerate(paces)))

    assert list(_of_steady(levels(2.0, 2.019, 1.981))) == []
    (slower,) = _of_steady(levels(2.0, 2.2))
    assert slower.endswith("10.0% more than the steady part")
    assert slower.startswith("steps 1 to 10 took 2.2")
    (faster,) = _of_steady(levels(1.8, 2.0))
    assert faster.endswith("10.0% less than the steady part")
    assert len(list(_of_steady(levels(1.0, 2.0, 3.0, 4.0)))) == 3
    (wanders,) = _of_steady(levels(1.0, 2.0, 3.0, 4.0, 5.0))
    assert wanders.startswith("the pace wanders: 5 parts of 1")


def test_what_is_measured_of_a_run() -> None:
    lines = [
        LogLine(step=step, seconds=2.0, tokens_rate=float(step), flops_rate=1e12 * step, loss=9.0 - step)
        for step in range(1, 22)
    ]
    run = measured(logged(lines), {})
    assert (run.first, run.last, run.step_time, run.loss, run.restarts) == (1, 21, 2.0, -12.0, 0)
    assert (run.tokens_rate, run.flops_rate) == (12.0, pytest.approx(11.5e12))  # without the first
    assert (run.nans, run.skipped, run.status, run.ranks, run.memory, run.memory_kind) == (0, 0, OK, 1, None, "")
    nan, bad = float("nan"), [*lines[:19], lines[19]._replace(loss=float("nan")), lines[20]._replace(nans=2)]
    found = measured(logged([*bad, lines[20]._replace(step=22, grad_norm=nan, skipped=3)]), {})
    assert (found.nans, found.skipped) == (4, 3)
    assert any(line == "3 lines have a loss or gradient that is no number, from step 20 on" for line in found.warnings)
    few = measured(logged(bad[:20]), {})
    assert few.loss is None
    assert "1 line has a loss or gradient that is no number, from step 20 on" in few.warnings
    one = measured(logged(lines[:1]), {})
    assert (one.steady, one.tokens_rate) == (None, 1.0)
    assert "the time of the first step alone, which is warm-up: give a log of more steps" in one.warnings
    assert measured(logged([lines[1]]), {}).steady is not None
    stream = Stream(attempts=[], reserved=None, allocated=3e9)
    assert measured(logged([], stream=stream), {}).memory_kind == "allocated"
    for reserved, kind in ((2.9e9, "allocated"), (3e9, "reserved")):
        assert measured(logged([], stream=replace_stream(stream, reserved=reserved)), {}).memory_kind == kind
    both = measured(logged([], stream=replace_stream(stream, reserved=5e9)), {})
    assert (both.memory, both.memory_kind, both.first, both.last) == (5e9, "reserved", 0, 0)
    told = [LogLine(1, loss=1.0), LogLine(2, grad_norm=float("inf")), LogLine(3, loss=float("nan")), LogLine(4, nans=2)]
    broken = logged(told)
    assert [record.step for record in broken.broken] == [2, 3, 4]
    assert measured(broken, {}).nans == 4


def replace_stream(stream: Stream, **values: Any) -> Stream:
    return Stream(**{**vars(stream), **values})


def test_restarts_and_failures_are_told() -> None:
    def attempt(first: int) -> list[Record]:
        return [Record(LogLine(step=step, seconds=2.0), step) for step in range(first, first + 9)]

    for count, said in ((1, ""), (2, "1 restart; "), (3, "2 restarts; ")):
        stream = Stream(attempts=[attempt(10 * number) for number in range(count)])
        run = measured(logged([], stream=stream), {})
        assert run.restarts == count - 1
        assert any("left out" in line for line in run.warnings) is bool(said)
        assert not said or any(line.startswith(said) for line in run.warnings)
    for kind, words in ((OOM, "out of memory: line 7"), (CRASHED, "the run failed: line 7")):
        failed = measured(logged([], stream=stream, failure=Failure(kind=kind, line=7, text="gone")), {})
        assert (failed.status, failed.failure, failed.warnings[0]) == (kind, "line 7: gone", words)
        assert not any("left out" in line for line in failed.warnings)


@pytest.mark.parametrize(("printed", "told"), [(1000.0, False), (1029.0, False), (1032.0, True), (960.0, True)])
def test_tokens_that_are_not_those_of_the_batch_are_told(printed: float, told: bool) -> None:
    facts = {"global_batch": "8", "seq_len": "1000", "gpus": "4"}  # 2,000 tokens a GPU in 2 s
    lines = [LogLine(step=step, seconds=2.0, tokens_rate=printed) for step in range(1, 22)]
    run = measured(logged(lines), facts)
    words = f"the log prints {printed:,.0f} tokens/s per GPU; 8 x 1,000 tokens on 4 GPUs in "
    assert any(line.startswith(words) and " are 1,000: " in line for line in run.warnings) is told


def test_tokens_are_held_to_lines_that_print_both_and_may_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.diagnose.measured.LOOSE", 0.25)
    facts = {"global_batch": "8", "seq_len": "1000", "gpus": "4"}
    for printed, told in ((1250.0, False), (750.0, False), (1260.0, True)):
        lines = [LogLine(step=step, seconds=2.0, tokens_rate=printed) for step in range(1, 22)]
        run = measured(logged([*lines, LogLine(step=22, tokens_rate=9.0)]), facts)
        assert any(line.startswith(f"the log prints {printed:,.0f} tokens/s") for line in run.warnings) is told


@pytest.mark.parametrize(("seconds", "digits"), [(20.0, ""), (25.0, "; its rate has three decimals: exact to 1%")])
def test_the_rate_of_a_summary_is_as_exact_as_its_decimals(seconds: float, digits: str) -> None:
    told = measured(logged([LogLine(step=1, seconds=seconds, alone=True, summary=True)]), {}).warnings
    assert f"the mean of the whole run, with its first steps, evaluations and saves{digits}" in told


def test_rates_are_told_to_be_seconds_by_somebody_elses_batch() -> None:
    lines = [LogLine(step=step, tokens_rate=1000.0) for step in range(1, 22)]
    facts = {"global_batch": "8", "seq_len": "1000", "gpus": "4"}
    assert any(line.startswith("rates became seconds") for line in measured(logged(lines), facts).warnings)
    own = Stream(attempts=logged(lines).stream.attempts, facts={"seq_len": "1000"})
    assert not any(line.startswith("rates became") for line in measured(logged(lines, stream=own), facts).warnings)
    assert any(line.startswith("rates alone") for line in measured(logged(lines), {}).warnings)
    clock = logged([LogLine(step=step) for step in range(1, 22)], [2.0 * step for step in range(21)])
    assert any(line.startswith("step times are differences") for line in measured(clock, {}).warnings)


# Ranks of one run


@pytest.mark.parametrize(
    ("later", "slower", "same"),
    [(0.0, 1.0, True), (APART, 1.0, True), (APART + 1, 1.0, False), (0.0, 1.049, True), (0.0, 1.06, False)],
)
def test_files_of_one_moment_and_one_pace_are_of_one_run(later: float, slower: float, same: bool) -> None:
    def file(name: str, later: float, slower: float) -> LoggedRun:
        readings = [LogLine(step=step, seconds=2.0 * slower) for step in range(1, 9)]
        return logged(readings, [2.0 * step + later for step in range(8)], files=(name,))

    assert same_run(file("a", 0.0, 1.0), file("b", later, slower)) is same


@pytest.mark.parametrize(("loss", "slower", "same"), [(0.0, 1.004, True), (0.0, 1.006, False), (0.1, 1.0, False)])
def test_files_without_times_are_of_one_run_by_loss_and_pace(loss: float, slower: float, same: bool) -> None:
    def file(name: str, loss: float, slower: float) -> LoggedRun:
        return logged([LogLine(step=s, seconds=2.0 * slower, loss=9 - s + loss) for s in range(1, 9)], files=(name,))

    assert same_run(file("a", 0.0, 1.0), file("b", loss, slower)) is same


def test_steps_that_differ_by_what_is_allowed_are_alike() -> None:
    def pair(one: float | None, other: float | None) -> tuple[Record, Record]:
        return Record(LogLine(step=1, seconds=one), 1), Record(LogLine(step=1, seconds=other), 1)

    assert _like([pair(1.5, 1.0)], 0.5)
    assert not _like([pair(1.75, 1.0)], 0.5)
    assert not _like([pair(None, 1.0)], 0.5)
    assert _like([pair(9.0, 1.0), pair(1.0, 1.0), pair(1.25, 1.0)], 0.5)


@pytest.mark.parametrize(("times", "one"), [(0, True), (1, True), (2, False), (4, False)])
def test_bars_in_one_file_are_of_ranks_where_few_lines_have_a_time(times: int, one: bool) -> None:
    bars = [logged([LogLine(step=step, seconds=2.0) for step in range(4)], [1.0] * times) for _ in range(2)]
    assert same_run(*bars) is one
    assert not same_run(*(replace(bar, stream=Stream(attempts=[list(bar.records[:2])])) for bar in bars))


def test_half_of_the_steps_are_shared_by_files_of_one_run() -> None:
    def file(name: str, steps: range) -> LoggedRun:
        return logged([LogLine(step=step, seconds=2.0, loss=9.0) for step in steps], files=(name,))

    assert same_run(file("a", range(8)), file("b", range(4, 12)))
    assert not same_run(file("a", range(8)), file("b", range(5, 13)))
    assert not same_run(file("a", range(0)), file("b", range(8)))


# Causes


def test_equally_likely_settings_are_the_quantiles_of_their_distributions() -> None:
    assert DRAWS == 201
    shares = (np.arange(DRAWS) + 0.5) / DRAWS
    assert log_uniform(0.07, 0.9) == pytest.approx(0.07 * (0.9 / 0.07) ** shares)
    cut = exponential(0.15, 3.0)
    assert np.mean(cut) == pytest.approx(0.15, rel=0.02)
    assert cut[-1] < 3.0
    assert -np.expm1(-cut / 0.15) == pytest.approx(shares * -np.expm1(-20.0))
    tight = exponential(0.15, 0.1)
    assert tight.max() < 0.1
    assert tight.max() > 0.099


def test_what_each_cause_is_at_its_best_at_its_worst_and_usually() -> None:
    question = two_seconds()
    stack = question.job.stack
    ends = {cause.name: (cause.healthy(question), cause.worst(question)) for cause in CAUSES}
    assert ends == {
        "network": (1.0, 0.02),  # of its bandwidth
        "launches": (stack["launch"], pytest.approx(1e-4, rel=100)),
        "straggler": (0.0, 3.0),  # times slower, minus one
        "clocks": (1.0, 0.4),
        "overlap": (0.0, 1.0),
        "routing": (stack.imbalance, 8.0),
        "data": (0.0, 20.0),  # ten predicted steps
    }
    assert {cause.name: cause.prior_odds for cause in CAUSES} == {**dict.fromkeys(ends, 1.0), "network": 2.0}
    usual = {cause.name: np.asarray(cause.settings(question)) for cause in CAUSES}
    assert usual["network"] == pytest.approx(log_uniform(0.07, 0.9))
    assert usual["launches"] == pytest.approx(log_uniform(stack["launch"], max(1e-4, stack["launch"])))
    assert usual["straggler"] == pytest.approx(exponential(0.15, 3.0))
    assert usual["clocks"] == pytest.approx(1 - exponential(0.15, 0.6))
    assert usual["routing"] == pytest.approx(log_uniform(stack.imbalance, 4.0))
    assert usual["data"] == pytest.approx(2.0 * exponential(0.3, 10.0))
    lost = usual["overlap"]
    assert len(lost) == DRAWS
    assert np.mean(lost == 1.0) == pytest.approx(SWITCHED, abs=0.01)
    assert np.mean(lost[lost < 1]) == pytest.approx(0.5)
    assert 0 < lost.min() < 0.01 < 0.99 < lost[lost < 1].max()


def test_what_each_cause_does_to_a_step() -> None:
    job = small_job(64)
    question = SlowStep(job=job, plan=Plan(tp=2, dp=32, sequence_parallel=True, zero_stage=1))
    base, terms = question.predicted, question.terms
    assert NETWORK.seconds(question, 1.0) == pytest.approx(base)
    assert NETWORK.seconds(question, 0.1) > NETWORK.seconds(question, 0.5) > base
    computed = (STRAGGLER.seconds(question, 1.0) - base, STRAGGLER.seconds(question, 2.0) - base)
    assert computed[1] == pytest.approx(2 * computed[0])
    assert terms["gemm"] < computed[0] < base
    assert DATA_LOADING.seconds(question, 0.5) - base == pytest.approx(0.5, rel=0.02)  # and stragglers of it
    assert OVERLAP.seconds(question, 0.0) == pytest.approx(base)
    assert OVERLAP.seconds(question, 1.0) == pytest.approx(question.with_stack(**dict.fromkeys(OVERLAPS, 0.0)))
    half = {name: 0.5 * job.stack[name] for name in OVERLAPS}
    assert OVERLAP.seconds(question, 0.5) == pytest.approx(question.with_stack(**half))
    slower = question.with_stack(
        gemm_efficiency=0.5 * job.stack["gemm_efficiency"], attention_efficiency=0.5 * job.stack["attention_efficiency"]
    )
    assert CLOCKS.seconds(question, 0.5) == pytest.approx(slower)
    assert HOST_LAUNCHES.seconds(question, 1e-4) == pytest.approx(question.with_stack(launch=1e-4))
    assert ROUTING.absent(question) == "the model has no experts"
    node = SlowStep(job=small_job(8), plan=Plan(dp=8))
    assert (STRAGGLER.absent(question), STRAGGLER.absent(node)) == ("", "the run has one node")
    graphs = replace(job.stack, features=replace(job.stack.features, cuda_graphs=True))
    assert HOST_LAUNCHES.absent(SlowStep(job=replace(job, stack=graphs), plan=question.plan))
    assert HOST_LAUNCHES.absent(question) == ""
    mixture = SlowStep(job=replace(job, model=load_model("mixtral-8x7b")), plan=Plan(dp=64))
    assert ROUTING.absent(mixture) == "every rank holds all experts"
    spread = replace(mixture, plan=Plan(dp=64, ep=8))
    assert ROUTING.absent(spread) == ""
    assert ROUTING.seconds(spread, 4.0) > ROUTING.seconds(spread, 2.0) > ROUTING.seconds(spread, 1.0)


# The diagnosis


def curve(*likely: float) -> Curve:
    values = np.array(likely)
    return Curve(settings=values / 2.0, seconds=values, likely=values)


def cause(name: str, odds: float = 1.0, minutes: float = 10.0, **signs: float) -> Any:
    return SimpleNamespace(
        name=name,
        label=name,
        prior_odds=odds,
        chance=lambda sign, value: signs.get(value, 1.0),
        test=SimpleNamespace(minutes=minutes, what=f"try {name}", shows="that"),
        shows=lambda setting: f"it at {setting}",
        says=lambda setting: f"{name} at {setting}",
        words={"why": f"why {name}"},
    )


def test_a_cause_is_priced_from_healthy_to_worst_and_at_what_is_noticed() -> None:
    """Settings of less than a factor of three are evenly far apart; of likely ones a slowdown of 3 % is noticed."""
    question = two_seconds()
    ((_, priced),), _ = curves_of(question, [replace(slowing(9.0), healthy=lambda _: 6.0)])
    assert priced.settings[1] == pytest.approx(6 + 3 / 24**2)
    assert priced.likely == pytest.approx([12.0, 12.0, 12.0, 14.0, 18.0], rel=1e-4)  # healthy at the least
    ((_, priced),), _ = curves_of(question, [slowing(1.1)])
    assert priced.likely == pytest.approx([2.1, 2.15, 2.2], rel=1e-3)
    ((_, priced),), _ = curves_of(question, [slowing(1.02)])
    assert len(priced.likely) == 5  # nothing to notice


def test_a_setting_that_is_nearly_all_is_said_to_be_all() -> None:
    assert OVERLAP.says(0.97) == "97% of the communication that should hide under computation does not"
    assert OVERLAP.says(0.98) == "no communication is hidden under computation"
    assert "under computation" not in NETWORK.says(0.98)


def test_shares_are_the_posterior_of_gap_and_signs() -> None:
    one, other = cause("a", odds=2.0, jitter=0.5), cause("b", jitter=0.25)
    shown = (Sign(name="motion", value="jitter", text=""),)
    curves = [(one, curve(3.0)), (other, curve(4.0, 3.0))]
    found = shares_of(curves, shown, 3.0, 0.1)
    off = np.exp(-0.5 * (log(4 / 3) / 0.1) ** 2)
    weights = {"a": 2.0 * 0.5 * 1.0, "b": 1.0 * 0.25 * (1 + off) / 2}
    assert found == pytest.approx({name: weight / sum(weights.values()) for name, weight in weights.items()})
    assert sum(found.values()) == pytest.approx(1.0)
    assert shares_of([], shown, 3.0, 0.1) == {}
    # Thirty and forty deviations off are alike: neither explains it.
    far = [(cause("a"), curve(3.0 * np.exp(3.0))), (cause("b"), curve(3.0 * np.exp(4.0)))]
    assert shares_of(far, (), 3.0, 0.1) == pytest.approx({"a": 0.5, "b": 0.5})


def test_the_setting_that_explains_a_gap_is_solved_for() -> None:
    question, slow = two_seconds(), slowing(2.0)
    grid = np.linspace(1.0, 2.0, 5)
    steps = Curve(settings=grid, seconds=2.0 * grid, likely=grid)
    assert solved(question, slow, steps, 3.0) == pytest.approx(1.5)
    assert solved(question, slow, steps, 2.7) == pytest.approx(1.35, rel=1e-3)
    assert solved(question, slow, steps, 4.0) == pytest.approx(2.0, rel=1e-3)
    assert solved(question, slow, steps, 4.1) is None
    assert solved(question, slow, steps, 1.9) == 1.0
    jump = Curve(settings=grid, seconds=np.array([2.0, 2.0, 9.0, 9.0, 9.0]), likely=grid)
    assert solved(question, replace(slow, seconds=lambda *_: 9.0), jump, 5.0) == 1.5


def explained(name: str, share: float, setting: float | None = 0.5, minutes: float = 10.0, weight: float = 1.0) -> Any:
    sign = (Sign(name="motion", value="jitter", text="steps vary"), weight)
    return CauseExplanation(
        cause=cause(name, minutes=minutes), setting=setting, at_worst=9.0, share=share, rarer=0.25, signs=(sign,)
    )


def diagnosed(*explanations: CauseExplanation, measured: float = 3.0) -> Diagnosis:
    tested = cheapest(explanations)
    return Diagnosis(
        measured=measured,
        predicted=2.0,
        interval=Interval(low=1.8, high=2.2),
        explanations=explanations,
        excluded=(),
        signs=(),
        test=tested.cause.test if tested else None,
        tested=tested,
    )


def test_a_gap_lies_below_within_or_above_the_interval() -> None:
    sides = {seconds: diagnosed(measured=seconds).verdict for seconds in (1.79, 1.8, 2.2, 2.21)}
    assert sides == {1.79: ABOVE, 1.8: WITHIN, 2.2: WITHIN, 2.21: BELOW}
    assert diagnosed().gap == pytest.approx(0.5)


def test_causes_within_a_factor_of_three_fit_alike() -> None:
    first, second, third = explained("a", 0.75), explained("b", 0.25), explained("c", 0.24)
    assert ALIKE == 3.0
    assert diagnosed(first, second, third).alike == (first, second)
    lines = _reasons(diagnosed(first, second, third))
    assert lines[0] == "These fit alike, within a factor of 3: a, b. Several at once fit as well."
    assert not any("alike" in line for line in _reasons(diagnosed(first, third)))


def test_of_the_first_two_causes_the_cheaper_test_is_advised() -> None:
    dear, cheap, third = explained("a", 0.6, minutes=30), explained("b", 0.3, minutes=5), explained("c", 0.1, minutes=1)
    assert cheapest((dear, cheap, third)) is cheap
    assert cheapest((dear,)) is dear
    assert cheapest(()) is None
    lines = _reasons(diagnosed(dear, cheap, third))
    assert "Cheapest test, 5 min: try b. If it is b: it at 0.5, else a is left." in lines
    worst = _reasons(diagnosed(explained("a", 1.0, setting=None, minutes=2.5)))
    assert "Cheapest test, 2.5 min: try a. If it is a: it at its worst." in worst
    assert any("why b" in line for line in lines)
    assert not any("why c" in line for line in lines)


def test_causes_are_told_with_their_shares_and_how_rare_they_are() -> None:
    found = diagnosed(explained("a", 0.6), explained("b", 0.3, setting=None))
    text = markdown_text(logs_report([run_of(part())], [found]))
    assert "| 60% | a at 0.5 | 25% |" in text
    assert "| 30% | b: not even the worst explains it all | — |" in text
    assert "## Why" in text


def test_signs_are_told_with_how_much_likelier_they_are() -> None:
    assert _sign("steps vary", 1.0) == "steps vary (1.0 x as likely)"
    assert _sign("steps vary", 4.0) == "steps vary (4.0 x as likely)"
    assert _sign("steps vary", 0.25) == "steps vary (4.0 x less likely)"


def test_a_count_within_what_is_the_same_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.diagnose.diagnosis.SAME_COUNT", 0.0)
    job = small_job(8)
    each = useful_flops(job, CAUSAL) / 2.0 / 8
    assert "counted as here" in counted(job, run_of(part(), flops_rate=each))
    assert "1.00 times our count" in counted(job, run_of(part(), flops_rate=1.001 * each))


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (1.0, "counted as here; "),
        (1.019, "counted as here; "),
        (1.021, "1.02 times our count; "),
        (1.5, "1.50 times our count; "),
        (0.0, "the masked scores of attention counted too; "),
    ],
)
def test_operations_are_counted_by_the_nearest_convention(rate: float, said: str) -> None:
    job = small_job(8)
    each = useful_flops(job, CAUSAL if rate else ALL_SCORES) / 2.0 / 8
    run = run_of(part(), flops_rate=each * (rate or 1.0))
    assert said in counted(job, run)
    assert counted(job, replace(run, flops_rate=0.0)) == ""
    assert counted(job, replace(run, flops_rate=None)) == ""
    assert counted(job, replace(run, steady=None)) == ""
    share = each * (rate or 1.0) / job.peak_flops
    assert f"per GPU, {share:.1%} of the peak of bf16" in counted(job, run)


# The report


def test_the_headline_names_three_files_at_most() -> None:
    def files(count: int) -> Measured:
        return run_of(part(spread=0.0123), files=tuple("abcde"[:count]))

    assert headline(files(3)).startswith("a, b, c: Megatron-LM, 2")
    assert headline(files(3)).endswith("per step ± 1.2%")
    assert headline(files(4)).startswith("a, b, c and 1 more: ")
    assert headline(files(5)).startswith("a, b, c and 2 more: ")
    none = run_of(None, status=OOM, tokens_rate=1234.5)
    assert headline(none) == "a.log: Megatron-LM, 1,234 tokens/s per GPU, out of memory, no step time"
    assert headline(run_of(None, program="")) == "a.log: a run without steps, no step time"


def test_the_rows_of_a_run_are_its_numbers() -> None:
    run = run_of(
        part(stalls=(20, 40), stalled=0.05, trend=0.02, warm_up=2, period=20),
        first=1,
        last=110,
        memory=45e9,
        memory_kind="reserved",
        tokens_rate=1234.0,
        flops_rate=4.5e14,
        loss=2.5,
        nans=1,
        skipped=2,
        restarts=3,
    )
    rows = dict(_measured(run))
    assert rows["steady part"] == "100 steps, 11 to 110 of 1 to 110; 2 lines of warm-up left out"
    assert rows["stalls"] == "2, every 20 steps, 5.0% of the time"
    assert rows["trend"] == "+2.0% over the steady part"
    assert rows["memory"] == "45.0 GB reserved on the fullest rank that says"
    assert rows["tokens"] == "1,234 per second and GPU"
    assert rows["operations"] == "450 TFLOP/s per GPU, as its program counts them"
    assert rows["last loss"] == "2.5"
    assert any("1 not a number" in text and "2 skipped" in text and "3 restarts" in text for text in rows.values())
    few = dict(_measured(run_of(part())))
    assert few["steady part"].endswith("; 1 line of warm-up left out")
    assert set(few) == {"steady part"}
    assert _measured(run_of(None, failure="line 3: gone")) == [("ended", "line 3: gone")]
    assert _measured(run_of(None)) == []


def test_a_report_numbers_its_runs_where_there_are_several() -> None:
    one, two = run_of(part()), run_of(part(), files=("b.log",))
    assert logs_report([one], [None]).title == headline(one)
    assert logs_report([one], [None]).sections[0].heading == "What was measured"
    both = logs_report([one, two], [None, None])
    assert both.title == "2 runs"
    headings = [section.heading for section in both.sections if section.heading.startswith("Run ")]
    assert headings == [f"Run 1 of 2: {headline(one)}", f"Run 2 of 2: {headline(two)}"]


def test_json_has_the_numbers_of_the_run_and_of_its_causes() -> None:
    run = run_of(part(), first=1, last=110)
    row = run_dict(run)
    assert (row["step_time_s"], row["steps_used"], row["first_step"], row["last_step"]) == (2.0, 100, 1, 110)
    assert (row["steady"]["first_step"], row["steady"]["lines"]) == (11, 100)
    assert run_dict(run_of(None)) == {
        **dict.fromkeys(run_dict(run_of(None))),
        **{"files": ("a.log",), "program": "Megatron-LM", "status": OK, "facts": {}, "warnings": (), "ranks": 1},
        **dict.fromkeys(("steps_used", "first_step", "last_step", "nans", "skipped", "restarts"), 0),
    }
    found = diagnosis_dict(diagnosed(explained("a", 0.6), explained("b", 0.1)))
    assert (found["measured_s"], found["predicted_s"], found["interval_s"]) == (3.0, 2.0, [1.8, 2.2])
    assert [(one["name"], one["share"], one["worst_step_time_s"]) for one in found["causes"]] == [
        ("a", 0.6, 9.0),
        ("b", 0.1, 9.0),
    ]
    assert found["fit_alike"] == ["a"]


# A row of runs


def test_a_plan_is_held_to_the_settings_that_a_log_prints() -> None:
    job, plan = small_job(16), Plan(tp=2, dp=8, num_microbatches=6)
    assert contradictions({"tp": "2", "gpus": "16", "id": "x"}, job, plan) == ""
    assert contradictions({"tp": "4", "gpus": "16", "pp": "2"}, job, plan) == "tp 4, not 2, pp 2, not 1"
    with pytest.raises(InputError, match="needs model, gpu, gpus, micro_batch, global_batch; give --plan"):
        row_of(run_of(part()), job)
    planless: Any = SimpleNamespace(plan=None)
    with pytest.raises(InputError, match="has no plan"):
        answer_reference(planless, "a.json")


def test_rows_of_other_columns_are_named_three_at_most(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("gpu,gpus,step_time_s\n" + "h100,8\n" * 4)
    with pytest.raises(InvalidFile) as refused:
        append_rows(table, [])
    assert [f"line {number}: " in str(refused.value) for number in range(1, 7)] == [0, 1, 1, 1, 0, 0]


def test_a_row_has_what_the_plan_and_the_log_say() -> None:
    job = replace(small_job(16, model=load_model("llama3-8b")), global_batch=64)
    plan = Plan(tp=2, dp=8, num_microbatches=4, micro_batch=2, zero_stage=3, shard=4)
    run = run_of(part(spread=0.0123), memory=45.67e9, memory_kind="reserved")
    row = row_of(run, job, plan)
    assert (row["gpus"], row["tp"], row["dp"], row["global_batch"], row["micro_batch"]) == ("16", "2", "8", "64", "2")
    assert (row["step_time_s"], row["step_time_basis"]) == ("2", "median of steps 11 to 110")
    assert (row["mem_gb"], row["mem_kind"], row["status"]) == ("45.67", "max reserved", "ok")
    assert (row["sharding"], row["notes"]) == ("3 within 4", "spread 1.23%")
    assert "Gb/s per GPU" in row["inter_link"]
    assert "dispatcher" not in row
    spread = row_of(run, job, replace(plan, ep=2, dispatcher="deepep", recompute="full"))
    assert (spread["ep"], spread["dispatcher"], spread["recompute"]) == ("2", "deepep", "full")
    some = row_of(run, job, replace(plan, recompute="core_attn"))
    assert (some["recompute"], "recompute_modules=[core_attn]" in some["notes"]) == ("selective", True)
    assert "inter_link" not in row_of(run, replace(job, gpus=8), replace(plan, dp=4, num_microbatches=8))
    assert row_of(run, job, replace(plan, shard=0))["sharding"] == "3"
    crashed = row_of(replace(run, status=CRASHED), job, plan)
    assert crashed["status"] == "ok"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_rows_are_appended_with_the_ends_of_lines_of_the_table(tmp_path: Path, end: str) -> None:
    table, rows = tmp_path / "runs.csv", [{"id": "a", "gpu": "h100", "gpus": "16", "step_time_s": "1.5"}]
    before = f"id,gpu,gpus,step_time_s{end}a,h100,8,2.0{end}"
    table.write_bytes(before.encode())
    append_rows(table, rows)
    assert table.read_bytes().decode() == f"{before}a-2,h100,16,1.5{end}"
    table.write_bytes(before.removesuffix(end).encode())
    append_rows(table, rows)
    assert table.read_bytes().decode() == f"{before}a-2,h100,16,1.5{end}"
    table.write_bytes(before.encode("utf-16"))
    with pytest.raises(InputError, match="stays as it is"):
        append_rows(table, rows)
    assert table.read_bytes() == before.encode("utf-16")


def test_a_log_of_another_size_is_of_another_run() -> None:
    reference = Reference(job=small_job(8), plan=Plan(dp=8), knobs=SlowStep(job=small_job(8), plan=Plan(dp=8)).knobs)
    assert reference.sizes == {"global_batch": "48", "seq_len": "4096", "gpus": "8"}
    assert reference.unlike(run_of(facts={"gpus": "8", "seq_len": "4096"})) == ()
    assert reference.unlike(run_of(facts={"gpus": "1024"})) == ("gpus 1,024 in the log, 8 in the plan",)
    assert reference.unlike(run_of(facts={})) == ()
    assert BUFFERED == 5
