"""Reading what a stranger wrote: meanwhile no file opens but those of the program and of one folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optimizer.base.files import lies_in
from optimizer.catalog.files import presets_folder

FILE_EVENTS, DEEDS = ("open", "os.listdir", "os.scandir"), ("subprocess.Popen", "os.system", "socket.connect")
_sealed: list[Path] = []
_hooked: list[bool] = []


def sealed_folder() -> Path | None:
    """The folder in which alone files may be opened now, besides the program's; None where any may be."""
    return _sealed[-1] if _sealed else None


@contextmanager
def sealed(folder: Path) -> Iterator[None]:
    """Inside, only files of the program, of Python and of this folder open: any other raises PermissionError.

    For a process that does one thing at a time; a script may name files to source, which are a visitor's words here.
    """
    if not _hooked:
        sys.addaudithook(_look)
        _hooked.append(True)
    _sealed.append(folder)
    try:
        yield
    finally:
        _sealed.pop()


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if not _sealed or event not in (*FILE_EVENTS, *DEEDS):
        return
    if isinstance(arguments[0], int):  # opened before, as it might
        return
    homes: tuple[str | Path, ...] = (sys.prefix, sys.base_prefix, Path(__file__).parents[2], presets_folder(), *_sealed)
    if event in FILE_EVENTS and lies_in(os.fsdecode(arguments[0] or "."), homes):
        return
    raise PermissionError(f"a pasted text may not open {arguments[0]!r}")
