"""Reading what a visitor pasted without opening any file that it names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optimizer.catalog.files import presets_folder

FILES, DEEDS = ("open", "os.listdir", "os.scandir"), ("subprocess.Popen", "os.system", "socket.connect")
_sealed: list[Path] = []  # while something is read: the folder in which alone files may be opened besides the program's
_hooked: list[bool] = []


@contextmanager
def sealed(folder: Path) -> Iterator[None]:
    """Inside, only files of the program, of Python and of this folder open: any other raises PermissionError.

    For a process that does one thing at a time; a script may name files to source, which are a visitor's words here.
    """
    if not _hooked:
        sys.addaudithook(_look)
        _hooked.append(True)
    _sealed.append(folder.resolve())
    try:
        yield
    finally:
        _sealed.pop()


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if not _sealed or event not in (*FILES, *DEEDS):
        return
    if event == "open" and isinstance(arguments[0], int):
        return
    if event in FILES and _ours(arguments[0]):
        return
    raise PermissionError(f"a pasted text may not open {arguments[0]!r}")


def _ours(path: Any) -> bool:
    place = os.path.realpath(os.fsdecode(path or "."))
    homes = (sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[2]), str(presets_folder().resolve()))
    return any(place.startswith(home + os.sep) or place == home for home in (*homes, *map(str, _sealed)))
