"""Progress bars: what each step took comes back from the running means that they show, and training's are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.frameworks.bars import (
    DRAWN,
    FAST,
    FORGOTTEN,
    MANY,
    SEVERAL,
    SMOOTHING,
    TICKS,
    Bar,
    _by_clock,
    _lasts,
    _unmixed,
    _untold,
    bars_in,
    timed_by_bars,
    training_bars,
)
from optimizer.frameworks.log_line import LogLine

SECONDS = st.lists(st.floats(0.5, 8.0), min_size=4, max_size=FORGOTTEN)


def shown(steps: list[float], corrected: bool) -> list[LogLine]:
    """The states of a bar, which is drawn after each step: tqdm's mean of the steps, with its correction or without."""
    lines, mean, elapsed = [], 0.0, 0.0
    for state, seconds in enumerate(steps, 1):
        first = state == 1 and not corrected
        mean = seconds if first else SMOOTHING * seconds + (1 - SMOOTHING) * mean
        elapsed += seconds
        told = mean / (1 - (1 - SMOOTHING) ** state) if corrected else mean
        bar = (state, len(steps))
        lines.append(LogLine(step=state, bar=bar, seconds=told, averaged=True, elapsed=elapsed))
    return lines


@pytest.mark.parametrize("corrected", [True, False])
@given(steps=SECONDS)
def test_steps_come_back_from_running_means(corrected: bool, steps: list[float]) -> None:
    timed = timed_by_bars(shown(steps, corrected))
    assert [line.seconds for line in timed if line] == pytest.approx(steps)


def test_steps_faster_than_a_bar_is_drawn_keep_their_mean() -> None:
    for seconds, known in ((DRAWN / 2, False), (DRAWN, True)):
        lines = [LogLine(step=n, bar=(n, 9), seconds=seconds, averaged=True, elapsed=n * seconds) for n in range(1, 6)]
        mixed = [*lines[:2], *lines[3:]]  # of which one was not drawn
        assert [line.seconds for line in timed_by_bars(lines) if line] == pytest.approx([seconds] * 5)
        assert [line.seconds for line in timed_by_bars(mixed) if line] == pytest.approx([seconds] * 4)
        assert known is (seconds >= DRAWN)


def test_a_first_step_whose_rate_is_not_known_tells_nothing_of_the_next() -> None:
    steps = [2.0, 4.0, 3.0]
    lines = shown(steps, True)
    unknown = [LogLine(bar=(0, 3), elapsed=0.0), lines[0]._replace(seconds=None), *lines[1:]]
    means = [line.seconds for line in lines]
    assert [line.seconds for line in timed_by_bars(unknown) if line] == [None, *means[1:]]


def test_an_excerpt_begins_with_a_mean_that_has_forgotten_the_first_steps() -> None:
    """Of 45 steps of 2 s, one of 2.5 s and one of 4 s: the second moves the mean for long, so that it is told alone."""
    steps = [2.0] * 45
    steps[26], steps[30] = 2.5, 4.0
    timed = [line.seconds for line in timed_by_bars(shown(steps, True)[FORGOTTEN + 1 :]) if line]
    assert timed == pytest.approx(steps[FORGOTTEN + 1 :], rel=0.01)
    before = shown(steps, True)
    whole = [line.seconds for line in timed_by_bars(before) if line]
    assert whole[: FORGOTTEN + 1] == pytest.approx(steps[: FORGOTTEN + 1])


def bars(length: int, count: int, begin: int = 1) -> list[LogLine]:
    return [LogLine(bar=(state, length), elapsed=2.0 * state) for state in range(begin, count + 1)]


LOSS = LogLine(loss=1.0)


def test_a_state_goes_on_with_the_bar_that_is_not_further() -> None:
    lines = [*bars(9, 3), *bars(9, 2), LogLine(bar=(4, 9), elapsed=8.0), LogLine(bar=(3, 9), elapsed=6.0)]
    assert [bar.places for bar in bars_in(lines)] == [[0, 1, 2, 5], [3, 4, 6]]
    ended = [*bars(2, 2), LogLine(bar=(2, 2), elapsed=9.0), LogLine(bar=(2, 2), elapsed=9.0)]
    assert [bar.places for bar in bars_in(ended)] == [[0, 1, 2, 3]]  # as it closes


def test_bars_with_losses_between_their_states_are_trainings() -> None:
    """Whichever is longer; with fewer than three losses the longest is."""
    for count, lengths in ((SEVERAL, [9]), (SEVERAL - 1, [50])):
        train = [line for state in range(1, count + 2) for line in (LogLine(bar=(state, 9), elapsed=2.0 * state), LOSS)]
        assert {bar.length for bar in training_bars([*train, *bars(50, 50)])} == {*lengths}
    counted = bars_in([LOSS, *bars(9, 2), LOSS, LogLine(bar=(3, 9), elapsed=6.0), LOSS])
    assert [bar.losses for bar in counted] == [1]  # neither before the first state nor after the last


def test_bars_half_as_long_are_kept() -> None:
    for count, kept in ((25, 2), (24, 1)):
        assert len(training_bars([*bars(30, count), *bars(50, 50)])) == kept


def test_evaluations_lie_between_two_states_of_training() -> None:
    lines = [*bars(9, 4), *bars(50, 50), *bars(9, 9, 5), *bars(50, 50)]
    assert [(bar.length, bar.around, bar.nested) for bar in bars_in(lines)] == [
        (9, True, False),
        (50, False, True),
        (50, False, False),
    ]
    assert [bar.length for bar in training_bars(lines)] == [9]


def test_a_bar_that_shows_its_end_alone_trains_nothing_unless_something_else_does() -> None:
    alone = [LogLine(bar=(0, 50), elapsed=0.0), LogLine(bar=(50, 50), elapsed=4.0)]
    assert training_bars(alone) == []
    assert [bar.length for bar in training_bars([*alone, LOSS])] == [50]
    assert [bar.length for bar in training_bars([*alone, LogLine(seconds=1.0, alone=True)])] == [50]
    assert [bar.length for bar in training_bars([alone[0], LogLine(bar=(25, 50), elapsed=2.0), alone[1]])] == [50]


def test_a_run_that_is_shorter_than_the_next_is_kept_where_losses_tell_it() -> None:
    def losses(length: int, count: int) -> list[LogLine]:
        return [line for bar in bars(length, count) for line in (bar, LOSS)]

    assert [bar.length for bar in training_bars([*losses(30, 9), *losses(50, 50)])] == [30, 50]


def test_a_bar_of_another_time_than_the_run_that_is_told_is_not_its() -> None:
    told = LogLine(alone=True, seconds=2.0, elapsed=100.0)
    assert [bar.length for bar in training_bars([*bars(50, 50), told])] == [50]
    assert [bar.length for bar in training_bars([*bars(25, 25), told])] == [25]  # what is loaded takes the rest
    assert training_bars([*bars(20, 20), told]) == []
    assert training_bars([*bars(60, 60), told]) == []
    assert [bar.length for bar in training_bars([*bars(90, 20), told])] == [90]  # which did not end
    assert [bar.length for bar in training_bars([*bars(60, 60), told._replace(elapsed=None)])] == [60]


def test_a_bar_that_ended_before_a_longer_one_moved_trains_nothing() -> None:
    begins = LogLine(bar=(0, 900), elapsed=0.0)
    assert [bar.length for bar in training_bars([*bars(9, 9), begins])] == [900]
    assert [bar.length for bar in training_bars([*bars(9, 8), begins])] == [9]
    assert [bar.length for bar in training_bars([*bars(9, 9), begins._replace(bar=(0, 9))])] == [9, 9]
    assert [bar.length for bar in training_bars([*bars(9, 9), begins, LOSS])] == [9]


@pytest.mark.parametrize(("elapsed", "lasts"), [(2.9, False), (3.0, True), (10.0, True), (13.0, True), (13.1, False)])
def test_a_bar_lasts_from_half_a_run_to_a_tenth_longer_and_two_seconds_beside(elapsed: float, lasts: bool) -> None:
    assert _lasts(Bar(length=9, state=9, elapsed=elapsed), 10.0) is lasts


@pytest.mark.parametrize(
    ("states", "fast", "untold"),
    [
        *(((3, 4, 5, 6), 2, False), ((3, 4, 5, 6), 3, True)),  # of more than half the states
        *(((0, 90), 0, True), ((0, 89, 90), 0, False)),  # its end
        *(((1,), 0, False), ((2,), 0, True), ((20, 20), 0, True), ((21,), 0, False)),  # a piece of a line
    ],
)
def test_a_bar_tells_of_steps_that_are_no_models_or_of_none(states: tuple[int, ...], fast: int, untold: bool) -> None:
    seconds = [FAST / 2] * fast + [FAST] * len(states)
    lines = [LogLine(bar=(state, 90), seconds=each) for state, each in zip(states, seconds, strict=False)]
    assert _untold(Bar(length=90, state=0, elapsed=0.0, places=[*range(len(lines))]), lines) is untold


@pytest.mark.parametrize(
    ("state", "end", "between", "seconds"),
    [
        *((MANY, TICKS, LOSS, 2.0), (MANY, TICKS, LogLine(bar=(1, 9)), 0.0)),
        *((MANY - 1, TICKS, LOSS, 0.0), (MANY, TICKS - 1, LOSS, 0.0)),
    ],
)
def test_a_clock_tells_steps_that_are_many_and_long(state: int, end: int, between: LogLine, seconds: float) -> None:
    first, last = LogLine(bar=(300, 900), elapsed=50.0), LogLine(bar=(300 + state, 900), elapsed=50.0 + end)
    assert _by_clock([first, between, last]) == seconds


def test_states_far_apart_are_timed_from_one_to_the_next_alone() -> None:
    lines = [LogLine(bar=(state, 900), seconds=0.5, elapsed=0.25 * state) for state in (200, 300, 400)]
    assert [line.seconds for line in timed_by_bars([*lines, LOSS]) if line and line.bar] == [0.5, 0.25, 0.25]


@pytest.mark.parametrize("corrected", [True, False])
def test_a_stall_beyond_the_first_states_hides_the_next_twenty(corrected: bool) -> None:
    """Of steps of 2 s one takes 2.99 s, not 1.5 times the mean, and a later one 3.1 s."""
    steps = [2.0] * 120
    steps[40], steps[80] = 2.99, 3.1
    found, off = _unmixed(shown(steps, corrected), corrected)
    told = [place for place, seconds in enumerate(found) if seconds > 0]
    assert told == [*range(FORGOTTEN), *range(80, 80 + FORGOTTEN + 1)]
    assert [found[place] for place in told] == pytest.approx([steps[place] for place in told])
    assert off == pytest.approx(0.0, abs=1e-9)
