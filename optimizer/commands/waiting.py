"""A word on a terminal while a command works for longer than a second."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import TextIO

PATIENCE = 1.0  # s


@contextmanager
def waiting(what: str, stream: TextIO | None = None) -> Iterator[None]:
    """Tell on stderr, where it is a terminal, what is done and since when; the line is gone before anything is printed.

    The word comes after a second, so that quick answers stay quiet.
    """
    stream = stream or sys.stderr
    if not stream.isatty():
        yield
        return
    done, start = Event(), monotonic()

    def tell() -> None:
        while not done.wait(PATIENCE):
            stream.write(f"\r\x1b[K{what}: {monotonic() - start:.0f} s (Ctrl-C stops)")
            stream.flush()

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
        if monotonic() - start > PATIENCE:
            stream.write("\r\x1b[K")
            stream.flush()
