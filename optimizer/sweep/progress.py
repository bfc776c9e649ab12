"""How long a batch will take, and how it is going: a bar on a terminal, else a line a minute; always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from time import monotonic
from typing import TYPE_CHECKING, TextIO

from optimizer.job.job import Job
from optimizer.sweep.batch import Watch
from optimizer.sweep.store import PENDING, RUNNING, StoredRow
from optimizer.sweep.task import Task

if TYPE_CHECKING:
    from rich.console import Console

MINUTE = 60.0
STARTED = 10  # s, in which workers start
# Seconds on one core of a 2.x GHz server for a job of up to some thousand GPUs; a guess until the store knows better.
GUESSED = {"dense": 0.08, "mixture of experts": 1.0}


@contextmanager
def progress(total: int, title: str, stream: TextIO | None = None) -> Iterator[Watch]:
    """What `run_batch` tells the status of each job to."""
    stream = stream or sys.stderr
    if stream.isatty():
        from rich.console import Console

        with _bar(total, title, Console(file=stream)) as watch:
            yield watch
        return
    lines = Lines(total, title, stream)
    lines.say()
    yield lines.watch
    lines.say()


class Lines:
    """One line at the start, one a minute, one at the end."""

    def __init__(self, total: int, title: str, stream: TextIO) -> None:
        self.total, self.title, self.stream = total, title, stream
        self.done = self.failed = self.known = 0
        self.start = self.reported = monotonic()
        self.first = True

    def watch(self, statuses: Sequence[str]) -> None:
        """Count; speak when a minute has passed."""
        self.count(statuses)
        if monotonic() - self.reported >= MINUTE:
            self.say()

    def count(self, statuses: Sequence[str]) -> bool:
        """Add jobs; whether they are the first news, of what earlier runs did, which are no part of this run's rate."""
        self.done += len(statuses)
        self.failed += sum(status == "failed" for status in statuses)
        first, self.first = self.first, False
        self.known = self.done if first else self.known
        return first

    def say(self) -> None:
        """One line: how many, how fast, how long still."""
        self.reported = monotonic()
        here, seconds = self.done - self.known, self.reported - self.start
        line = f"{self.done:,} of {self.total:,} jobs on {self.title}"
        if self.failed:
            line += f", {self.failed:,} failed"
        if here and seconds:
            rate = here / seconds
            line += f", {rate:.1f} jobs/s"
            if left := self.total - self.done:
                line += f", {duration(left / rate)} left"
        print(line, file=self.stream, flush=True)


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(42), duration(600), duration(7300)
    ('42 s', '10 min', '2.0 h')
    """
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def _bar(total: int, title: str, console: Console) -> Iterator[Watch]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("[red]{task.fields[failed]}"),
    )
    counted = Lines(total, title, sys.stderr)
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=total, rate="", failed="")

        def watch(statuses: Sequence[str]) -> None:
            if counted.count(statuses):
                bar.reset(task, total=total, completed=counted.done)
            seconds = monotonic() - counted.start
            rate = f"{(counted.done - counted.known) / seconds:.1f} jobs/s" if seconds > 1 else ""
            failed = f"{counted.failed:,} failed" if counted.failed else ""
            bar.update(task, completed=counted.done, rate=rate, failed=failed)

        yield watch


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a batch will take."""

    jobs: int  # in all
    answered: int  # jobs of them whose answer is in the store
    impossible: int  # combinations of them that cannot be jobs
    seconds: float  # time of the others [s]
    workers: int  # processes that plan them
    measured: int  # jobs whose times stand behind that time; 0: it is guessed


def forecast(tasks: Sequence[Task], rows: Iterable[StoredRow], workers: int) -> Forecast:
    """The outlook for these tasks, given the rows of the store they would go to."""
    known = {row.key: row for row in rows}
    asked = [(task.key, kind(task.job)) for task in tasks if task.job is not None]
    took: dict[str, list[float]] = {}
    for key, name in asked:
        if key in known and known[key].seconds:
            took.setdefault(name, []).append(known[key].seconds)
    each = {name: fmean(took[name]) if name in took else guess for name, guess in GUESSED.items()}
    answered = {key for key, row in known.items() if row.status not in (PENDING, RUNNING, "failed")}
    return Forecast(
        jobs=len(tasks),
        answered=sum(task.key in answered for task in tasks),
        impossible=len(tasks) - len(asked),
        seconds=sum(each[name] for key, name in asked if key not in answered) / max(1, workers),
        workers=workers,
        measured=sum(map(len, took.values())),
    )


def kind(job: Job) -> str:
    """What a job's time mostly depends on."""
    return "mixture of experts" if job.model.experts else "dense"


def outlook_lines(name: str, outlook: Forecast) -> list[str]:
    """What a dry run prints."""
    lines = [f"{name}: {outlook.jobs:,} jobs"]
    if outlook.answered:
        lines.append(f"{outlook.answered:,} of them have their answer in the store")
    if outlook.impossible:
        lines.append(f"{outlook.impossible:,} of them cannot be jobs, and will be listed as failed with the reason")
    basis = (
        f"from {outlook.measured:,} jobs measured in this store"
        if outlook.measured
        else "a guess; no job was measured yet"
    )
    processes = f"{outlook.workers} local process{'es' * (outlook.workers != 1)}"
    if not outlook.seconds:
        return [*lines, "nothing is left to plan"]
    # Workers start within seconds, whatever their jobs take.
    takes = f"about {duration(outlook.seconds)}" if outlook.seconds >= STARTED else "some seconds"
    lines.append(f"{takes} on {processes} ({basis})")
    return lines
