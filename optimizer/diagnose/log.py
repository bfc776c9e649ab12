"""A log file as runs: which program wrote it, which steps it printed, how it ended."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isfinite
from operator import attrgetter, itemgetter
from pathlib import Path

from optimizer.base.content import in_words
from optimizer.base.errors import InvalidFile
from optimizer.diagnose.attempts import Record, Stream, streams_of, together
from optimizer.diagnose.failures import SIGNALS, Failure, first_failure
from optimizer.diagnose.lines import LoggedLine, LogText, read_lines
from optimizer.frameworks.every import LOGS
from optimizer.frameworks.log_line import LogFormat, LogLine

BUFFERED = 5  # lines by which a failure may stand before the last step, which another rank printed
LAUNCHES = (".sh", ".slurm", ".sbatch", ".py", ".yaml", ".yml", ".toml")  # what no log ends in
FEW = 3  # steps of a second program in a file that make a run of its own


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """One run of one file: its steps by attempt, its settings, memory [B], how it failed, and remarks on reading it.

    `program` is None where a file tells of a failure alone.
    """

    files: tuple[str, ...]
    program: LogFormat | None
    stream: Stream
    failure: Failure | None = None
    ranks: int = 1
    remarks: tuple[str, ...] = ()

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """The steps of all attempts."""
        return self.stream.records

    @cached_property
    def bare(self) -> bool:
        """Whether none of them has a loss."""
        return all(record.reading.loss is None for record in self.records)

    @cached_property
    def broken(self) -> Sequence[Record]:
        """Those whose loss or gradient is no number, or that count such steps."""
        return [
            record
            for record in self.records
            if (one := record.reading).nans or not (isfinite(one.loss or 0.0) and isfinite(one.grad_norm or 0.0))
        ]

    @cached_property
    def by_step(self) -> Mapping[int, Record]:
        """The last of them by its number."""
        return {record.step: record for record in self.records}


def read_log(path: str | Path, formats: Sequence[LogFormat] = LOGS) -> list[LoggedRun]:
    """The runs in a log file, in its order; `formats` are those that its lines may have.

    Raises InvalidFile when it cannot be read, or has no line of a known program and no failure.
    """
    path = Path(path)
    text = read_lines(path, tuple(mark for each in formats for mark in each.marks), SIGNALS)
    runs = list(_runs(path, text, formats))
    if not runs:
        half = next((log.name for log in formats if any(_is_half(record) for _, record in _rows(log, text))), None)
        problem = (
            f"tells of steps as {half} does, but not how long any took; give the log that the program printed, with "
            "its progress bar or the times of its lines"
            if half
            else f"no line of its {text.count:,} tells of a training step of "
            f"{in_words([log.name for log in formats], 'or')}; --pattern reads the lines of any other program; "
            "give the log that the program printed, of the rank that prints the steps"
        )
        if path.suffix.lower() in LAUNCHES:
            problem += f"; a launch is read by `optimize improve {path}`"
        raise InvalidFile(path, [problem])
    return runs


def _runs(path: Path, text: LogText, formats: Sequence[LogFormat]) -> Iterator[LoggedRun]:
    """The runs of each program that wrote into a file; a failure is that of the run before it."""
    spans: list[tuple[int, LogFormat, list[tuple[LoggedLine, Record]]]] = []
    taken: list[tuple[int, int]] = []
    for program in formats:
        if taken and not any(
            _understood(program, line.text) for line in text.marked(program.marks) if not _within(taken, line.number)
        ):
            continue
        rows = _rows(program, text)
        every = [line.number for line, record in rows if _is_step(record)]
        steps = every
        if taken:
            rows = [row for row in rows if not _within(taken, row[0].number)]
            steps = [number for number in every if not _within(taken, number)]
        # Where more are among another's, they are lines of the engine of a run that counts.
        if not steps or (taken and len(steps) < FEW) or len(every) > 2 * len(steps):
            continue
        taken.append((steps[0], steps[-1]))
        spans.append((steps[0], program, rows))
    spans.sort(key=itemgetter(0))
    if not spans:
        if failure := first_failure([line for line in text.lines if line.suspect]):
            yield LoggedRun(
                files=(str(path),), program=None, stream=Stream(attempts=[]), failure=failure, remarks=text.remarks
            )
        return
    starts = [start for start, _, _ in spans]
    for (_, program, rows), (first, end) in zip(spans, pairwise([0, *starts[1:], text.count + 1]), strict=True):
        mine = [row for row in rows if row[0].number < end and (row[0].number >= first or not _is_step(row[1]))]
        yield from _of_program(path, program, mine, text, (first, end))


def _within(taken: Sequence[tuple[int, int]], number: int) -> bool:
    return any(first <= number <= last for first, last in taken)


def _is_step(record: Record) -> bool:
    reading = record.reading
    return reading.step is not None or (reading.alone and reading.seconds is not None)


def _is_half(record: Record) -> bool:
    """Whether a line tells of steps, but of none by its number or its time."""
    return record.reading.last_step is not None or record.reading.loss is not None


def _rows(program: LogFormat, text: LogText) -> list[tuple[LoggedLine, Record]]:
    """The lines that a program understands and what they say, without one that was cut short."""
    marked = text.marked(program.marks)
    if program.tells and not any(program.tells in line.text for line in marked):
        return []
    read = [(line, reading) for line in marked if (reading := _understood(program, line.text)) is not None]
    settled = program.settle([reading for _, reading in read])
    rows = [
        (line, Record(reading=reading, line=line.number, time=line.time))
        for (line, _), reading in zip(read, settled, strict=True)
        if reading is not None
    ]
    if text.unfinished and len(rows) > 1 and rows[-1][0].number == text.count:
        last, before = rows[-1], next((row for row in reversed(rows[:-1]) if _is_step(row[1])), rows[-2])
        if len(last[0].text) < len(before[0].text):
            rows.pop()
    if any(record.reading.step is not None for _, record in rows):
        return [(line, record) for line, record in rows if not record.reading.alone]
    numbered, count = [], 0
    for line, record in rows:
        count += record.reading.alone
        step = 1 if record.reading.summary else count
        reading = record.reading._replace(step=step) if record.reading.alone else record.reading
        numbered.append((line, record._replace(reading=reading)))
    return numbered


def _understood(program: LogFormat, text: str) -> LogLine | None:
    """What a line says, None also for one whose numbers are damaged, as where two processes wrote at once."""
    try:
        return program.read(text)
    except (ValueError, ArithmeticError):
        return None


def _of_program(
    path: Path, program: LogFormat, rows: Sequence[tuple[LoggedLine, Record]], text: LogText, part: tuple[int, int]
) -> Iterator[LoggedRun]:
    """The runs that a program wrote into a part of a file: those of every rank side by side."""
    by_rank: dict[str, list[Record]] = {}
    for line, record in rows:
        by_rank.setdefault(line.rank, []).append(record)
    streams = [streams_of(records) for records in by_rank.values()]
    with_steps = [[run for run in runs if run.attempts] for runs in streams]
    count = max(map(len, with_steps))
    others = [run for runs in streams for run in runs if not run.attempts]
    groups = [[runs[number] for runs in with_steps if number < len(runs)] for number in range(count)]
    starts = [min(run.records[0].line for run in group) for group in groups]
    suspicious = [line for line in text.lines if line.suspect]
    for group, (start, end) in zip(groups, pairwise([part[0], *starts[1:], part[1]]), strict=True):
        first, behind = (bisect_left(suspicious, at, key=attrgetter("number")) for at in (start, end))
        suspects = suspicious[first:behind]
        last = max(run.records[-1].line for run in group)
        failure, earlier = first_failure([s for s in suspects if s.number >= last - BUFFERED]), first_failure(suspects)
        remarks = () if failure or earlier is None else (f"line {earlier.line} tells of a failure, but steps follow",)
        yield LoggedRun(
            files=(str(path),),
            program=program,
            stream=together([*group, *others]),
            failure=failure,
            ranks=len(group),
            remarks=(*text.remarks, *remarks),
        )
