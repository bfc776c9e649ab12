"""The steady part of a run at the borders of its rules, from times whose ranks and shares are known by hand."""

from __future__ import annotations

from math import expm1

import numpy as np
import pytest

from optimizer.diagnose.attempts import Record
from optimizer.diagnose.steady import PRINTED, Timed, _described, _early, _trend, stride, two_paces, without_warm_up
from optimizer.frameworks.log_line import LogLine


def lines(*seconds: float, apart: int = 1) -> list[Timed]:
    return [Timed(place * apart, 1, each, PRINTED, 0) for place, each in enumerate(seconds, 1)]


@pytest.mark.parametrize(
    ("ranks", "found"),
    [
        ([8, *range(8), 9], 9),  # 8 of 45 pairs the other way: S = 29, of 125 variance, chance of 0.0095
        ([9, *range(9)], 0),  # S = 27: 0.016
        ([1, 8, *range(2, 8), 0, 9], 0),
        ([0, 0, 0, 0, 6, 1, 2, 3, 4, 5], 36 / 7),  # S = 29 with four equal: 0.007
        ([0, 0, 0, 0, 0, 0, 4, 1, 2, 3], 0),  # S = 24 with six equal: 0.014
        ([0, 0, 0, 0, 0, 0, 3, 1, 2, 4], 18 / 7),  # S = 26: 0.008
        ([*range(9)], 0),  # too few
        ([*range(26, 52), *range(26), *range(52, 65)], 0),  # 676 pairs the other way: a correlation of 0.35
        ([*range(26, 51), 0, 51, *range(1, 26), *range(52, 65)], 896 / 15),  # and one pair less
    ],
)
def test_a_trend_is_told_where_ranks_tell_it(ranks: list[int], found: float) -> None:
    for sign in (1, -1):
        assert _trend(0.01 * sign * np.array(ranks, dtype=np.float64)) == pytest.approx(
            expm1(0.01 * found * sign), rel=1e-9
        )


def test_a_trend_is_more_than_a_hundredth() -> None:
    assert [_trend(step * np.arange(10.0)) > 0 for step in (0.0011, 0.0112)] == [False, True]


@pytest.mark.parametrize(
    ("fast", "slow", "found"),
    [
        (2, 8, (1.0, 2.0, 0.2)),
        (8, 2, (1.0, 2.0, 0.8)),
        (1, 9, None),
        (9, 1, None),
        (5, 4, None),
        (5, 5, (1.0, 2.0, 0.5)),
    ],
)
def test_two_paces_are_of_a_fifth_each(fast: int, slow: int, found: tuple[float, float, float] | None) -> None:
    times = np.array([1.0] * fast + [2.0] * slow)
    assert two_paces(times, np.ones(len(times), dtype=np.int64)) == found


def test_two_paces_are_a_warm_up_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    times, ones = np.array([1.0] * 5 + [2.0] * 5), np.ones(10, dtype=np.int64)
    for apart, told in ((float(np.log(2.0)), True), (0.7, False)):
        monkeypatch.setattr("optimizer.diagnose.steady.WARM", apart)
        assert (two_paces(times, ones) is not None) is told


@pytest.mark.parametrize(("count", "whole", "told"), [(5, 25, True), (5, 26, False), (4, 10, False), (6, 26, True)])
def test_steps_before_the_first_that_counts_have_a_pace_where_they_are_many(count: int, whole: int, told: bool) -> None:
    steps = lines(*[2.0] * count, *[1.0] * (whole - count))
    early = _early(steps, steps[count:])
    assert (early is not None) == told
    if early is not None:
        assert (early.first, early.last, early.seconds) == (1, count, 2.0)


@pytest.mark.parametrize(("first", "begins"), [(1.03, 1), (1.031, 4), (0.6, 1), (0.59, 2)])
def test_warm_up_ends_at_the_pace(first: float, begins: int) -> None:
    steps = lines(5.0, first, *[first if first > 1 else 1.0] * 2, *[1.0] * 6)
    assert without_warm_up(steps) == steps[begins:]


@pytest.mark.parametrize(("apart", "mean"), [(10, 13 / 5), (5, 13 / 5), (1, 13 / 5)])
def test_a_stall_of_two_lines_is_no_round_one(apart: int, mean: float) -> None:
    part = [Timed(apart, 4, 1.0, PRINTED, 0), Timed(2 * apart, 1, 9.0, PRINTED, 0)]
    found = _described(part, part, 0, ())
    assert (found.stalls, found.mean) == ((2 * apart,), mean)


@pytest.mark.parametrize(
    ("pace", "every"),
    [(5.0, 20), (2.5, 1), (0.008, 13), (0.12345, 1), (1.0, 100)],
)
def test_lines_are_taken_so_far_apart_that_a_clock_tells_their_time(pace: float, every: int) -> None:
    attempt = [Record(reading=LogLine(step=step, elapsed=pace * step), line=step) for step in range(1, 2001)]
    assert stride(attempt, dict.fromkeys(("global_batch", "seq_len", "gpus"), 0)) == every
