"""What a command that works for longer than a second tells on a terminal: a word, or a bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from time import monotonic
from typing import TextIO

PATIENCE = 1.0  # s
CLEAR = "\r\x1b[K"


@contextmanager
def waiting(what: str, stream: TextIO | None = None) -> Iterator[Callable[[str], None]]:
    """Tell on stderr, where it is a terminal, what is done and since when; the line is gone before anything is printed.

    The word comes after a second, so that quick answers stay quiet. Yields what prints a line meanwhile.
    """
    stream = stream or sys.stderr
    if not stream.isatty():
        yield lambda text: print(text, file=stream, flush=True)
        return
    done, one, start = Event(), Lock(), monotonic()

    def tell() -> None:
        while not done.wait(PATIENCE):
            write(f"{CLEAR}{what}: {monotonic() - start:.0f} s (Ctrl-C stops)")

    def write(text: str) -> None:
        with one:
            stream.write(text)
            stream.flush()

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield lambda text: write(f"{CLEAR}{text}\n")
    finally:
        done.set()
        teller.join()
        if monotonic() - start > PATIENCE:
            write(CLEAR)


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[], None]]:
    """A bar on stderr when that is a terminal; yields what to call after each step."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)
