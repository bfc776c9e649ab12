"""Readings in the order of their lines as runs: restarts, repeated steps and further runs are distinguished."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isnan
from statistics import median
from typing import NamedTuple

from optimizer.frameworks.log_line import LogLine

NEAR = 3  # log intervals by which ranks that write into one file may be apart
NOTHING = (None, None, None, None)
TICK = 1.0  # of a bar's clock, by which a state that is drawn again may differ [s]
BACK = 0.25  # share of steps that go back from which several processes wrote: restarts are seldom
LINES, SECONDS = 20, 30.0  # between two of their lines; a program that starts again prints more, and takes longer


class Record(NamedTuple):
    """One step as printed: its reading, the place of its line and the line's time [s]."""

    reading: LogLine
    line: int
    time: float | None = None

    @property
    def step(self) -> int:
        """Its number."""
        return self.reading.step or 0


@dataclass(kw_only=True)
class Stream:
    """What one process wrote of one run.

    Attributes:
        attempts: the steps of every attempt.
        facts: settings, by column of a table of runs.
        reserved: the largest memory reserved [B].
        allocated: the largest memory allocated [B].
        lossy: whether a loss was printed, of whatever step.
    """

    attempts: list[list[Record]]
    facts: dict[str, str] = field(default_factory=dict)
    reserved: float | None = None
    allocated: float | None = None
    lossy: bool = False

    @property
    def records(self) -> tuple[Record, ...]:
        """The steps of all attempts."""
        return tuple(record for attempt in self.attempts for record in attempt)


def streams_of(records: Sequence[Record]) -> list[Stream]:
    """The runs in what one process, or several without labels, wrote.

    A step's number that was just there is another rank's, as is one that was there at the same time or where steps
    often go back; else one that goes back continues from a checkpoint, unless it goes back to where the run began or
    the number of the last step or the batch is another one: then it is a new run.

    >>> def of(*steps):
    ...     rows = [Record(reading=LogLine(step=step, last_step=9, seconds=1.0), line=step) for step in steps]
    ...     return [[len(attempt) for attempt in run.attempts] for run in streams_of(rows)]
    >>> of(1, 2, 3, 4), of(1, 1, 2, 2, 3), of(1, 2, 3, 4, 5, 6, 7, 3, 4, 5), of(1, 2, 3, 4, 5, 6, 1, 2, 3)
    ([[4]], [[3]], [[7, 3]], [[6], [3]])
    >>> drawn = [Record(LogLine(step=step, last_step=9), line) for step, line in ((8, 1), (9, 2), (9, 90))]
    >>> [len(attempt) for attempt in streams_of(drawn)[0].attempts]  # the bar once more after what is saved
    [2]
    """
    steps = [record.reading.step for record in records if record.reading.step is not None]
    several = sum(step <= before for before, step in pairwise(steps)) > BACK * len(steps)
    runs: list[Stream] = []
    current = Stream(attempts=[[]])
    for record in records:
        reading, attempt = record.reading, current.attempts[-1]
        if reading.step is None:
            _note(current, reading)
            values = (reading.seconds, reading.tokens_rate, reading.loss, reading.grad_norm)
            if values != NOTHING and attempt and not reading.alone:  # of the step before
                attempt[-1] = attempt[-1]._replace(reading=filled(attempt[-1].reading, reading))
            continue
        if attempt:
            kind = "other" if reading.summary else _continues(current, attempt, record, several)
            if kind == "again":
                same = _place(attempt, record.step)
                attempt[same] = attempt[same]._replace(
                    reading=filled(reading, attempt[same].reading)
                )  # the later counts
                _note(current, reading)
                continue
            if kind == "restart":
                current.attempts.append([])
            elif kind == "other":
                runs.append(current)
                current = Stream(attempts=[[]], facts=dict(current.facts))
        current.attempts[-1].append(record)
        _note(current, reading)
    runs.append(current)
    for run in runs:
        run.attempts = [attempt for attempt in run.attempts if attempt]
    return [run for run in runs if run.attempts or run.reserved or run.allocated or run.facts or run.lossy]


def _continues(run: Stream, attempt: Sequence[Record], record: Record, several: bool) -> str:
    """What a step is to those before it: the next, again, a restart, or of an other run."""
    last, first, step = attempt[-1], run.attempts[0][0], record.step
    if step > last.step:
        return "next"
    if record.reading.last_step != last.reading.last_step:
        return "other"
    if record.reading.facts.get("global_batch") != last.reading.facts.get("global_batch"):
        return "other"
    interval = attempt[1].step - attempt[0].step if len(attempt) > 1 else 1
    near = last.step - step <= NEAR * max(1, interval)
    if step <= first.step and not near:
        return "other"
    place = _place(attempt, step)
    if step == last.step and (step == record.reading.last_step or _goes_on(last, record)):
        return "again"  # a bar drawn once more, after what is saved or evaluated there
    if attempt[place].step == step and _interleaved(attempt[place], last, record, near, several):
        return "again"
    return "other" if step <= first.step else "restart"


def _goes_on(last: Record, record: Record) -> bool:
    """Whether the clock of a bar's state goes on from that of another: a program that starts again has a new one.

    >>> evaluated = [Record(LogLine(step=50, bar=(50, 90), elapsed=elapsed), line=1) for elapsed in (100.0, 230.0)]
    >>> _goes_on(*evaluated), _goes_on(*evaluated[:1] * 2), _goes_on(*evaluated[::-1])
    (True, True, False)
    """
    before, now = last.reading.elapsed, record.reading.elapsed
    return record.reading.bar is not None and before is not None and now is not None and before <= now


def _place(attempt: Sequence[Record], step: int) -> int:
    """Where the steps of an attempt reach one."""
    return bisect_left(attempt, step, key=lambda record: record.step)


def _interleaved(same: Record, last: Record, record: Record, near: bool, several: bool) -> bool:
    """Whether two lines can be of one step: at the same time or soon after each other, with the same loss, which ranks
    reduce, if they are not seen to print their own.
    """
    if several and near:
        return True
    losses = {loss for known in (same, record) if (loss := known.reading.loss) is not None}
    if len(losses) > 1 and not any(map(isnan, losses)):
        return False
    if same.time is not None and record.time is not None:
        return abs(record.time - same.time) <= SECONDS
    soon = record.line - last.line <= LINES
    clocks = same.reading.elapsed, record.reading.elapsed
    if clocks[0] is not None and clocks[1] is not None:
        return abs(clocks[1] - clocks[0]) <= (SECONDS if soon else TICK)
    return near and soon and (same is last or len(losses) == 1)


def _note(run: Stream, reading: LogLine) -> None:
    """Take what a line says of the whole run: settings, memory and that it has losses."""
    run.lossy |= reading.loss is not None
    if reading.facts:
        run.facts.update(reading.facts)
    if reading.reserved is not None:
        run.reserved = largest(run.reserved, reading.reserved)
    if reading.allocated is not None:
        run.allocated = largest(run.allocated, reading.allocated)


def filled(reading: LogLine, other: LogLine) -> LogLine:
    """A reading, with what it does not say taken from another.

    >>> one, other = (LogLine(step, seconds=s, elapsed=s, tokens_rate=s, sequences_rate=s, loss=s, grad_norm=s)
    ...     for step, s in ((3, 1.5), (3, 2.5)))
    >>> filled(LogLine(step=3), other) == other, filled(one, other) == one
    (True, True)
    """
    return reading._replace(
        seconds=other.seconds if reading.seconds is None else reading.seconds,
        elapsed=other.elapsed if reading.elapsed is None else reading.elapsed,
        tokens_rate=other.tokens_rate if reading.tokens_rate is None else reading.tokens_rate,
        sequences_rate=other.sequences_rate if reading.sequences_rate is None else reading.sequences_rate,
        loss=other.loss if reading.loss is None else reading.loss,
        grad_norm=other.grad_norm if reading.grad_norm is None else reading.grad_norm,
    )


def largest(one: float | None, other: float | None) -> float | None:
    """The larger of two numbers of which any may be missing.

    >>> largest(None, 2.0), largest(3.0, 2.0), largest(None, None)
    (2.0, 3.0, None)
    """
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def together(streams: Sequence[Stream]) -> Stream:
    """What several processes wrote of one run: the median of their values of a step, the largest memory of all."""
    if len(streams) == 1:
        return streams[0]
    longest = max(streams, key=lambda stream: len(stream.records))
    attempts = []
    for number, attempt in enumerate(longest.attempts):
        others: dict[int, list[Record]] = {}
        for stream in streams:
            for record in stream.attempts[number] if number < len(stream.attempts) else ():
                others.setdefault(record.step, []).append(record)
        attempts.append([_middle(record, others.get(record.step, [record])) for record in attempt])
    facts: dict[str, str] = {}
    reserved = allocated = None
    for stream in streams:
        facts |= stream.facts
        reserved, allocated = largest(reserved, stream.reserved), largest(allocated, stream.allocated)
    lossy = any(stream.lossy for stream in streams)
    return Stream(attempts=attempts, facts=facts, reserved=reserved, allocated=allocated, lossy=lossy)


def _middle(record: Record, same: Sequence[Record]) -> Record:
    """A step with the median of the values that its ranks print, of a rank that prints them."""
    names = ("seconds", "tokens_rate", "sequences_rate")
    values = {name: [v for other in same if (v := getattr(other.reading, name)) is not None] for name in names}
    return record._replace(
        reading=record.reading._replace(**{name: median(known) for name, known in values.items() if known})
    )
