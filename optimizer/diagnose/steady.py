"""Seconds of every logged step, and the steady part of a run: without warm-up, of the level that holds for most of it.

Seconds are printed, or follow from a rate, or from the times of the lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, erfc, inf, sqrt
from typing import NamedTuple

import numpy as np

from optimizer.base.units import count_in
from optimizer.diagnose.attempts import Record
from optimizer.diagnose.log import LoggedRun
from optimizer.frameworks.log_line import LogLine
from optimizer.job.plan import IntArray
from optimizer.objectives.arrays import FloatArray

PRINTED, RATE, CLOCK = "printed", "rate", "clock"
CLOCK_TICKS = (1.0, 1e-3)  # of clocks in logs [s]
TICKS = 100  # of a clock that tell a time to a hundredth
PARTS = 20  # of a run, of which each tells a time


class Timed(NamedTuple):
    """One logged step: its number, how many steps its time is the mean of, its seconds, and how these were found.

    `attempt` numbers the restarts of a run.
    """

    step: int
    steps: int
    seconds: float
    basis: str
    attempt: int


def timed_steps(run: LoggedRun, facts: Mapping[str, str]) -> list[Timed]:
    """Every step of a run whose seconds are known, in its order; all in the way that most of them are."""
    timed: list[Timed] = []
    # What turns a rate into seconds: sequences of a step, their tokens and the GPUs; 0 where unknown.
    sizes = {name: count_in(facts.get(name, "")) for name in ("global_batch", "seq_len", "gpus")}
    for number, attempt in enumerate(run.stream.attempts):
        before: Record | None = None
        numbers = np.array([record.reading.step for record in attempt])
        usual_gap = float(np.median(np.diff(numbers))) if len(attempt) > 1 else inf
        for record in attempt[:: stride(attempt, sizes)]:
            reading, step = record.reading, record.step
            gap = step - before.step if before else 1
            seconds, basis = _seconds(reading, sizes), PRINTED if reading.seconds is not None else RATE
            if seconds is None and before is not None:
                whole = reading.elapsed is not None and before.reading.elapsed is not None
                basis = PRINTED if whole else CLOCK  # with all that happened between the two lines
                ends = [one.reading.elapsed if whole else one.time for one in (before, record)]
                if gap >= 1 and ends[0] is not None and ends[1] is not None:
                    seconds = (ends[1] - ends[0]) / gap
            if seconds is not None and 0 < seconds < inf:
                several = 1
                if basis == CLOCK or reading.elapsed:
                    several = gap
                elif reading.averaged:  # lines are missing where a gap is longer than usual
                    several = ceil(min(gap, usual_gap))
                timed.append(Timed(step, max(1, several), seconds, basis, number))
            before = record
    ways = [step.basis for step in timed]
    usual = max(set(ways), key=ways.count, default=PRINTED)
    return [step for step in timed if step.basis == usual]


def stride(attempt: Sequence[Record], sizes: Mapping[str, int]) -> int:
    """Lines from one that counts to the next: where only a clock times them, so many that its ticks tell their time.

    >>> lines = [Record(reading=LogLine(step=step, elapsed=5 * step // 2), line=step) for step in range(1, 2001)]
    >>> sizes = dict.fromkeys(("global_batch", "seq_len", "gpus"), 0)
    >>> stride(lines, sizes), stride(lines[:100], sizes), stride([Record(reading=LogLine(seconds=1.0), line=1)], sizes)
    (40, 5, 1)
    """
    if any(_seconds(one.reading, sizes) is not None for one in attempt):
        return 1
    for clock in ([one.reading.elapsed for one in attempt], [one.time for one in attempt]):
        known = [value for value in clock if value is not None]
        if len(known) > 1 and (pace := (known[-1] - known[0]) / (len(known) - 1)) > 0:
            exact = (tick for tick in CLOCK_TICKS if all(abs(one / tick - round(one / tick)) < 0.01 for one in known))
            return max(1, min(ceil(TICKS * next(exact, 0.0) / pace), len(known) // PARTS))
    return 1


def _seconds(reading: LogLine, sizes: Mapping[str, int]) -> float | None:
    """Seconds of one step: as printed, or tokens or sequences of a step over their rate."""
    if reading.seconds is not None:
        return reading.seconds
    batch, gpus = sizes["global_batch"], sizes["gpus"]
    if gpus and batch and sizes["seq_len"] and reading.tokens_rate:
        return batch * sizes["seq_len"] / gpus / reading.tokens_rate
    return batch / reading.sequences_rate if batch and reading.sequences_rate else None


SHORTEST = 5  # steps of a level at least
PENALTY = 4.0  # times log(n) noise variances that a change must explain
LEAST = 0.01  # relative change that counts
TO_SIGMA = 1.4826  # of a normal distribution's median absolute deviation


def noise(values: FloatArray) -> float:
    """Standard deviation of a step to the next, whatever slow changes there are, robust to stalls [as the values].

    >>> round(noise(np.array([1.0, 1.1, 1.0, 1.1, 1.0, 9.0])), 3)
    0.105
    """
    if len(values) < 2:
        return 0.0
    return float(TO_SIGMA * np.median(np.abs(np.diff(values))) / np.sqrt(2.0))


def median_of(values: FloatArray, counts: IntArray) -> float:
    """The median of the steps that lines tell of, each line's value counted as often as it has steps [as the values].

    >>> median_of(np.array([9.0, 1.0, 2.0]), np.array([1, 1, 200])), median_of(np.array([1.0, 2.0]), np.array([5, 5]))
    (2.0, 1.5)
    """
    order = np.argsort(values, kind="stable")
    reached, half = np.cumsum(counts[order]), np.sum(counts) / 2
    low, high = int(np.searchsorted(reached, half)), int(np.searchsorted(reached, half, side="right"))
    return float((values[order[low]] + values[order[high]]) / 2)


def winsorised(values: FloatArray, widths: float = 4.0) -> FloatArray:
    """The values, those further from the median than so many robust deviations pulled in to there."""
    middle = np.median(values)
    reach = widths * max(float(TO_SIGMA * np.median(np.abs(values - middle))), 1e-3)
    return np.asarray(np.clip(values, middle - reach, middle + reach))


def level_starts(logs: FloatArray) -> list[int]:
    """Where each level of the logarithms of step times begins; [0] for a run with one pace.

    A penalty stands against every change, and steps far off are pulled in first, so that a stall is no level.

    Source: binary segmentation, Scott and Knott, Biometrics 30 (1974); Fryzlewicz, Annals of Statistics 42 (2014), for
    a penalty in log n.

    >>> level_starts(np.log(np.array([1.0, 1.01] * 10 + [1.2, 1.21] * 10)))
    [0, 20]
    """
    values = winsorised(logs) if len(logs) else logs
    variance = max(noise(values), 1e-3) ** 2
    starts, open_parts = [0], [(0, len(values))]
    while open_parts:
        first, end = open_parts.pop()
        cut = _best_cut(values[first:end], variance, len(values))
        if cut:
            starts.append(first + cut)
            open_parts += [(first, first + cut), (first + cut, end)]
    return sorted(starts)


def _best_cut(values: FloatArray, variance: float, whole: float) -> int:
    """Where the sum of squares falls most when the values are cut in two, 0 where it does not fall enough."""
    count = len(values)
    if count < 2 * SHORTEST:
        return 0
    sums = np.cumsum(values)
    left = np.arange(1, count)
    means, rest = sums[:-1] / left, (sums[-1] - sums[:-1]) / (count - left)
    gains = left * (count - left) / count * (means - rest) ** 2
    gains[: SHORTEST - 1] = gains[count - SHORTEST :] = 0.0
    best = int(np.argmax(gains))
    enough = gains[best] > PENALTY * variance * np.log(whole) and abs(means[best] - rest[best]) > LEAST
    return best + 1 if enough else 0


WARM = 0.03  # a step this near to the pace, or within 3 deviations, is no warm-up any more
BOGUS = 0.6  # of the pace: a first step that takes less was only dispatched, as JAX does
STALL = 1.3  # times the median: a stall, if it is also 6 deviations above
SLOW_SHARE = 0.01  # a trend or change that is reported
SURE = 0.01  # chance of a trend in noise at which it is reported
ONE_WAY = 0.35  # rank correlation from which steps go one way, up or down
HOLDS = 0.5  # share of the steps from which one level stands for the run
ROUND = 5  # lines of which the number of a stall's step is a multiple, as chance has it once in five
PERIODS = 3  # stalls at least of which a period is reported
EARLY = 0.2  # share of the steps from which those left out as warm-up have a pace of their own
MIXED = 0.2  # share of the steps from which a pace that returns is one of two
TWO_PACES = 8.0  # deviations of either pace by which two lie apart


@dataclass(frozen=True, kw_only=True)
class PaceLevel:
    """A part of the run with one pace: its first and last step, its median [s]."""

    first: int
    last: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Steady:
    """The steady part. Times [s] of single steps, or means of `steps_each` steps as the program prints them.

    spread: 1.4826 x the median absolute deviation / median [1], an estimate of the relative standard deviation that
    stalls do not move. stalls: steps that stood still, stalled: share of the time lost in them [1]; mean: of all steps,
    those between lines of single steps too, in which a stall with a period or at a round number has none; period: steps
    from one stall to the next where these are equal, else 0. trend: change over the run without its warm-up by the
    median of all slopes [1], 0 where steps do not go one way or it could be noise. wander: correlation of a step's time
    with that of the next, jitter: relative standard deviation by the differences between them [1]. tail: how far the
    slowest twentieth lies above the median / the fastest twentieth below [1]. levels: all parts of the run.
    """

    times: FloatArray
    first: int
    last: int
    seconds: float
    spread: float
    mean: float
    steps_used: int
    steps_each: int
    warm_up: int
    stalls: tuple[int, ...] = ()
    stalled: float = 0.0
    period: int = 0
    trend: float = 0.0
    wander: float = 0.0
    jitter: float = 0.0
    tail: float = 1.0
    levels: tuple[PaceLevel, ...] = ()
    early: PaceLevel | None = None
    paces: tuple[float, float, float] | None = None


def steady_part(steps: Sequence[Timed]) -> Steady | None:
    """The steady part of logged steps, None where there are none: the longest level, or all if none holds for half.

    >>> slow, fast = [9.0, 3.0], [1.0, 1.01, 0.99] * 5
    >>> run = [Timed(step=i, steps=1, seconds=s, basis="printed", attempt=0) for i, s in enumerate(slow + fast)]
    >>> found = steady_part(run)
    >>> found.seconds, found.warm_up, found.steps_used
    (1.0, 2, 15)
    """
    if not steps:
        return None
    warm = without_warm_up(steps)
    logs = np.log([timed.seconds for timed in warm])
    starts = [*level_starts(logs), len(warm)]
    parts = [warm[a:b] for a, b in pairwise(starts)]
    levels = tuple(PaceLevel(first=part[0].step, last=part[-1].step, seconds=_pace(part)) for part in parts)
    longest = max(parts, key=lambda part: (_covered(part), part[0].step))
    if _covered(longest) < HOLDS * _covered(warm):  # the pace wanders: no part stands for the run
        longest = warm
    return replace(_described(longest, warm, len(steps) - len(warm), levels), early=_early(steps, warm))


def _early(steps: Sequence[Timed], warm: Sequence[Timed]) -> PaceLevel | None:
    """The steps before the first that counts, None where these are few."""
    before = list(steps[: steps.index(warm[0])])
    if len(before) < SHORTEST or _covered(before) < EARLY * _covered(steps):
        return None
    return PaceLevel(first=before[0].step, last=before[-1].step, seconds=_pace(before))


def _pace(part: Sequence[Timed]) -> float:
    """The median step of a part [s]."""
    return median_of(np.array([timed.seconds for timed in part]), np.array([timed.steps for timed in part]))


def _covered(part: Sequence[Timed]) -> int:
    """How many steps the lines of a part tell of."""
    return sum(timed.steps for timed in part)


def without_warm_up(steps: Sequence[Timed]) -> list[Timed]:
    """The steps from where each attempt has reached its pace; the first line of an attempt never counts.

    At most half of an attempt is warm-up, and nothing of one with less than three lines, if there is no other.
    """
    attempts: dict[int, list[Timed]] = {}
    for timed in steps:
        attempts.setdefault(timed.attempt, []).append(timed)
    warm = [timed for attempt in attempts.values() for timed in _warm(attempt)]
    return warm or list(steps)


def _warm(attempt: list[Timed]) -> list[Timed]:
    if len(attempt) < 3:
        return []
    times = np.array([timed.seconds for timed in attempt])
    late = times[len(times) // 2 :]
    pace = float(np.median(late))
    reach = max(WARM, 3.0 * TO_SIGMA * float(np.median(np.abs(late / pace - 1.0))))
    for start in range(1, len(attempt) // 2 + 1):
        ahead = times[start : start + 3]
        if BOGUS * pace <= times[start] <= pace * (1 + reach) and np.median(ahead) <= pace * (1 + reach):
            return attempt[start:]
    return attempt[len(attempt) // 2 :]


def _described(part: Sequence[Timed], warm: Sequence[Timed], warm_up: int, levels: tuple[PaceLevel, ...]) -> Steady:
    times = np.array([timed.seconds for timed in part])
    counts = np.array([timed.steps for timed in part])
    middle = _pace(part)
    deviation = TO_SIGMA * median_of(np.abs(times - middle), counts)
    stands = times > max(STALL * middle, middle + 6.0 * deviation)
    stalls = tuple(timed.step for timed, stood in zip(part, stands, strict=True) if stood)
    lost = float(np.sum((times - middle)[stands] * counts[stands]))
    period = _period(stalls)
    stride = max(1, int(np.median(np.diff([timed.step for timed in part])))) if len(part) > 1 else 1
    regular = period or all(stall % (ROUND * stride) == 0 for stall in stalls)
    unseen = max(0, part[-1].step - part[0].step + 1 - int(np.sum(counts))) if regular else 0
    whole = float(np.sum(times * counts)) + unseen * middle
    calm = winsorised(np.log(times))
    fast, median, slow = np.quantile(times, (0.05, 0.5, 0.95))
    return Steady(
        times=times,
        first=part[0].step,
        last=part[-1].step,
        seconds=middle,
        spread=deviation / middle,
        steps_used=int(np.sum(counts)),
        steps_each=int(np.median(counts)),
        warm_up=warm_up,
        stalls=stalls,
        stalled=lost / whole,
        mean=whole / (int(np.sum(counts)) + unseen),
        period=period,
        trend=_trend(np.log([timed.seconds for timed in warm])),
        wander=_wander(calm),
        jitter=noise(np.log(times)),
        tail=float((slow - median + 1e-3 * median) / (median - fast + 1e-3 * median)),
        levels=levels,
        paces=two_paces(times, counts),
    )


def two_paces(times: FloatArray, counts: IntArray) -> tuple[float, float, float] | None:
    """The two times of steps that take one or the other, and the share of the faster; None for steps of one pace.

    >>> two_paces(np.array([1.0, 1.2, 1.01, 1.0, 1.2] * 4), np.ones(20, dtype=np.int64))
    (1.0, 1.2, 0.6)
    """
    order = np.argsort(times, kind="stable")
    ordered, reached = times[order], np.cumsum(counts[order]) / np.sum(counts)
    logs = np.log(ordered)
    inner = (reached[:-1] >= MIXED) & (reached[:-1] <= 1 - MIXED)
    gaps = np.where(inner, np.diff(logs), 0.0)
    if len(logs) < 2 * SHORTEST or not np.any(gaps):
        return None
    cut = int(np.argmax(gaps)) + 1
    sides = logs[:cut], logs[cut:]
    middles = [float(np.median(side)) for side in sides]
    spread = max(
        float(TO_SIGMA * np.median(np.abs(side - middle))) for side, middle in zip(sides, middles, strict=True)
    )
    if middles[1] - middles[0] < max(TWO_PACES * spread, WARM):
        return None
    return float(np.median(ordered[:cut])), float(np.median(ordered[cut:])), float(reached[cut - 1])


def _period(stalls: Sequence[int]) -> int:
    """Steps between stalls where most are equally far apart, or multiples of that, else 0."""
    gaps = np.diff(stalls)
    if len(gaps) + 1 < PERIODS or (usual := int(np.median(gaps))) <= 1:
        return 0
    off = gaps % usual
    return usual if np.mean(np.minimum(off, usual - off) <= 1) >= 0.75 else 0


def _trend(logs: FloatArray) -> float:
    """Relative change from the first to the last step, 0 where noise would do [1].

    The median of the slopes between all pairs, if Kendall's rank correlation with the step is significant and large.

    Source: Sen, JASA 63 (1968); Mann, Econometrica 13 (1945).
    """
    if len(logs) < 10:
        return 0.0
    thinned = logs[:: -(-len(logs) // 500)]
    count = len(thinned)
    one, other = np.triu_indices(count, k=1)
    rises = thinned[other] - thinned[one]
    signs = float(np.sum(np.sign(rises)))
    _, ties = np.unique(thinned, return_counts=True)
    untied = sqrt(count * (count - 1) / 2 * np.count_nonzero(rises))
    variance = float(count * (count - 1) * (2 * count + 5) - np.sum(ties * (ties - 1) * (2 * ties + 5))) / 18
    if not untied or abs(signs / untied) <= ONE_WAY or erfc(abs(signs) / sqrt(2 * variance)) >= SURE:
        return 0.0
    change = float(np.expm1(np.median(rises / (other - one)) * (count - 1)))
    return change if abs(change) > SLOW_SHARE else 0.0


def _wander(logs: FloatArray) -> float:
    """Correlation of a step's time with that of the next, without a trend [1]."""
    if len(logs) < 10:
        return 0.0
    place = np.arange(len(logs)) - (len(logs) - 1) / 2
    around = logs - logs.mean() - place * float(np.sum(place * logs) / np.sum(place**2))
    return float(np.sum(around[1:] * around[:-1]) / max(np.sum(around**2), 1e-30))
