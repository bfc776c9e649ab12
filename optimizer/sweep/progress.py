"""How a batch is going: a bar on a terminal, a line a minute anywhere else; always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, TextIO

from optimizer.sweep.batch import Watch

if TYPE_CHECKING:
    from rich.console import Console

MINUTE = 60.0


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
        self.done += len(statuses)
        self.failed += sum(status == "failed" for status in statuses)
        if self.first:
            # The first news is of what earlier runs did: no part of this run's rate.
            self.known, self.first = self.done, False
        if monotonic() - self.reported >= MINUTE:
            self.say()

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
    with Progress(*columns, console=console, transient=False) as bar:
        task = bar.add_task(title, total=total, rate="", failed="")

        def watch(statuses: Sequence[str]) -> None:
            counted.done += len(statuses)
            counted.failed += sum(status == "failed" for status in statuses)
            if counted.first:
                counted.known, counted.first = counted.done, False
                bar.reset(task, total=total, completed=counted.done)
            seconds = monotonic() - counted.start
            rate = f"{(counted.done - counted.known) / seconds:.1f} jobs/s" if seconds > 1 else ""
            failed = f"{counted.failed:,} failed" if counted.failed else ""
            bar.update(task, completed=counted.done, rate=rate, failed=failed)

        yield watch
