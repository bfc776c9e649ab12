"""Progress bars of tqdm: which of a log's bars is training's, and what each step took whose running mean they show.

Source: tqdm/tqdm, tqdm/std.py (format_meter, EMA, close).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from optimizer.frameworks.log_line import LogLine

SMOOTHING = 0.3  # weight of the last step in a bar's running mean
FORGOTTEN = 20  # states after which the first step is 0.1 % of the mean
STALL = 1.5  # times the mean, from which a step moves it for long
DRAWN = 0.1  # a bar is drawn no more often, and faster steps share a state [s]
MANY = 10  # steps from a state to the next, of which two thirds of the running mean are the last three
TICKS = 20  # of a bar's clock, from which on they tell a time to 5 % [s]
FAST = 5e-3  # in which a GPU is given no more than the thousand kernels that a dozen layers need [s]
OPEN = 8  # bars of one length that may go on side by side, as those of ranks
LEAST, MOST, DRAWN_BY = 0.5, 1.1, 2.0  # shares of a run's time that its bar may show, to some seconds [s]
SEVERAL = 3  # losses between states of a bar, which tell that it is training's


@dataclass(kw_only=True, eq=False)
class Bar:
    """One bar: the places of its states among the readings, and which other bars it has to do with.

    nested: it began and ended between two states of another, as evaluations do; around: another did so in it; losses:
    how often one was printed between two of its states.
    """

    length: int
    state: int
    elapsed: float
    places: list[int] = field(default_factory=list)
    nested: bool = False
    around: bool = False
    losses: int = 0


def bars_in(readings: Sequence[LogLine]) -> list[Bar]:
    """The bars: a state goes on with the furthest of those of its length that were not further, nor longer under way.

    >>> def bar(state, length, elapsed):
    ...     return LogLine(bar=(state, length), elapsed=elapsed)
    >>> train = [bar(1, 9, 2.0), bar(2, 9, 4.0)]
    >>> [one.places for one in bars_in([*train, bar(1, 9, 0.0), bar(2, 9, 1.0), bar(3, 9, 7.0)])]
    [[0, 1, 4], [2, 3]]
    """
    bars: list[Bar] = []
    of_length: dict[int, list[Bar]] = {}
    begun: list[Bar] = []  # that may lie between two states of an earlier one
    loss, last = -1, None
    for place, reading in enumerate(readings):
        if reading.bar is None:
            loss = place if reading.loss is not None else loss
            continue
        (state, length), elapsed = reading.bar, reading.elapsed or 0.0
        alike = of_length.setdefault(length, [])
        bar = None
        for one in alike[-OPEN:]:
            mine = one.state <= state and one.elapsed <= elapsed and (one.state < length or one is last or one.around)
            if mine and (bar is None or (one.state, one.elapsed) >= (bar.state, bar.elapsed)):
                bar = one
        if bar is None:
            bar = Bar(length=length, state=state, elapsed=elapsed)
            bars.append(bar)
            alike.append(bar)
            begun.append(bar)
        else:
            before = bar.places[-1]
            while begun and begun[-1].places[0] > before:
                begun.pop().nested = bar.around = True
            bar.nested = False
            bar.losses += before < loss < place
        bar.places.append(place)
        bar.state, bar.elapsed, last = state, elapsed, bar
    return bars


def training_bars(readings: Sequence[LogLine]) -> list[Bar]:
    """The bars of training: around those of evaluations, or with losses in them, else at least half as long as any,
    and of the time that a run's summary tells.

    >>> def bars(length, count):
    ...     return [LogLine(bar=(state, length), elapsed=2.0 * state) for state in range(1, count + 1)]
    >>> train, check = bars(9, 9), bars(50, 50)
    >>> [bar.length for bar in training_bars([*train[:5], *check, *train[5:], *check])]
    [9]
    >>> [bar.length for bar in training_bars([*train, *check])]
    [50]
    >>> training_bars([LogLine(bar=(0, 50)), LogLine(bar=(50, 50), elapsed=4.0)])  # no loss, and its end alone
    []
    """
    bars = bars_in(readings)
    around = {bar.length for bar in bars if bar.around}
    nested = {bar.length for bar in bars if bar.nested}
    lossy = {bar.length for bar in bars if bar.losses >= SEVERAL} - (nested - around)
    trains = any(reading.loss is not None or reading.alone for reading in readings)
    begun = max((bar.length for bar in bars if not bar.state), default=0)
    runtimes = [reading.elapsed for reading in readings if reading.alone and reading.elapsed]
    left = [bar for bar in bars if (bar.around or bar.length not in nested) and (trains or not _untold(bar, readings))]
    left = [bar for bar in left if not (lossy or around) or bar.length in lossy | around]
    if not lossy | around:  # a bar that ended before a longer one began to move, or took another time than the run
        left = [
            bar
            for bar in left
            if bar.state < bar.length
            or (begun <= bar.length if not trains else not runtimes or any(_lasts(bar, time) for time in runtimes))
        ]
    states: dict[int, set[tuple[int, int] | None]] = {}
    for bar in left:
        states.setdefault(bar.length, set()).update([readings[place].bar for place in bar.places])
    most = max(map(len, states.values()), default=0)
    return [bar for bar in left if bar.length in lossy or 2 * len(states[bar.length]) >= most]


def _lasts(bar: Bar, runtime: float) -> bool:
    """Whether a bar that ended can be of a run of so many seconds, which may load a checkpoint before and after it."""
    return LEAST * runtime - DRAWN_BY <= bar.elapsed <= MOST * runtime + DRAWN_BY


def _untold(bar: Bar, readings: Sequence[LogLine]) -> bool:
    """Whether a bar shows its end alone, as what is done before and after training does, steps too fast for a model's,
    or one state that has the first step in its mean, as a piece of a line that ranks tore does.
    """
    if sum((readings[place].seconds or FAST) < FAST for place in bar.places) > len(bar.places) / 2:
        return True
    begun = {state for place in bar.places if (one := readings[place].bar) and (state := one[0])}
    return begun == {bar.length} or (len(begun) == 1 and 1 < max(begun) <= FORGOTTEN)


def timed_by_bars(readings: Sequence[LogLine]) -> list[LogLine | None]:
    """The readings of training, the first states of whose bars say what each step took; None for other bars.

    A bar shows the running mean, which has the slow first step for long, and as it closes that of all steps.

    mean of n steps = s x last step + (1 - s) x mean of n - 1 steps, both means x (1 - (1 - s)^n) where it is corrected;
    the clock of the bar tells which.

    >>> means = (5.54, 2.41, 1.41, 1 / 1.06, 1 / 1.46, 1 / 1.46, 0.66)
    >>> states = zip((1, 2, 3, 4, 5, 5, 5), means)
    >>> bars = [LogLine(step=n, bar=(n, 9), seconds=s, averaged=True) for n, s in states]
    >>> [round(bar.seconds or 0.0, 2) for bar in timed_by_bars(bars) if bar]
    [5.54, 0.22, 0.22, 0.23, 0.23, 0.23, 0.23]
    """
    timed = [reading if reading.bar is None else None for reading in readings]
    for bar in training_bars(readings):
        states = [readings[place] for place in bar.places]
        ways = [_unmixed(states, corrected) for corrected in (True, False)]
        steps = min(ways, key=lambda way: way[1])[0]
        for at, (place, reading, seconds) in enumerate(zip(bar.places, states, steps, strict=True)):
            if reading.bar and reading.bar[0]:
                before = bar.places[max(0, at - 1)]
                same = timed[before] if states[at - 1].bar == reading.bar else None  # drawn once more
                seconds = seconds or (same and same.seconds) or _by_clock(readings[before : place + 1])
                timed[place] = reading._replace(seconds=seconds) if seconds else reading
    return timed


def _by_clock(readings: Sequence[LogLine]) -> float:
    """The seconds of a step from the first to the last state of a bar, where no other bar stands between them and its
    running mean has forgotten most of their steps, 0 else [s].

    >>> states = [LogLine(bar=(200, 900), elapsed=81.0), LogLine(loss=1.0), LogLine(bar=(300, 900), elapsed=113.0)]
    >>> _by_clock(states), _by_clock(states[1:])
    (0.32, 0.0)
    """
    bars = [(reading.bar[0], reading.elapsed or 0.0) for reading in readings if reading.bar]
    (before, begun), (state, end) = bars[0], bars[-1]
    alone = len(bars) == 2 and state >= before + MANY and end >= begun + TICKS
    return (end - begun) / (state - before) if alone else 0.0


def _unmixed(states: Sequence[LogLine], corrected: bool) -> tuple[list[float], float]:
    """What the step of each state of a bar took, 0 where its mean does not tell, and how far that is off its clock [s].

    Older releases of tqdm begin with the first step as the mean; newer ones correct for that.
    """
    steps: list[float] = []
    begun, drawn, before, shown, seconds, sum_of_steps, off = 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0
    for reading in states:
        state, mean = reading.bar[0] if reading.bar else 0, reading.seconds or 0.0
        if not drawn and state > FORGOTTEN:  # an excerpt, which begins with a mean of steps before it
            begun = drawn = state
            before = shown = mean
        elif state == drawn + 1 and mean >= DRAWN:
            total = mean * (1.0 - (1.0 - SMOOTHING) ** state) if corrected else mean
            first = not corrected and state == 1
            seconds = mean if first else (total - (1.0 - SMOOTHING) * before) / SMOOTHING
            if state > FORGOTTEN and seconds > STALL * shown:  # the mean has it for as long as it had the first step
                begun = state
            drawn, before, shown = state, total, mean
            if state - begun > FORGOTTEN:
                seconds = 0.0
            elif not begun:  # of the steps from the first on
                sum_of_steps += seconds
                off = abs(sum_of_steps - (reading.elapsed or sum_of_steps))
        steps.append(max(0.0, seconds) if state == drawn else 0.0)
    return steps, off
