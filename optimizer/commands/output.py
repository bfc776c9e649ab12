"""Files that commands write: never over what a command reads, and never half of one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from optimizer.base.errors import InputError
from optimizer.base.files import free_for, replace_file

OUTPUTS = ("html", "csv_file", "out")  # parameters of commands that name what is written


class OutFile(click.Path):
    """A file to be written, of one kind; what stands in its way is told before the work begins."""

    def __init__(self, kind: str) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, where such a file may be written."""
        if str(value) == "-":
            self.fail("'-' is no name of a file, and this is not printed; write the name of one", param, ctx)
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        free_for(path, self.kind)
        return path


def write_output(path: Path, text: str, kind: str) -> None:
    """Write a file in one step, and say so on stderr.

    Raises InputError for an input of the running command, and as optimizer.base.files.replace_file.
    """
    refuse_inputs(path)
    replace_file(path, text, kind)
    click.echo(f"wrote {path}", err=True)


def refuse_inputs(path: Path) -> None:
    """Raise InputError where the path is one that the command was given to read."""
    context = click.get_current_context(silent=True)
    while context is not None:
        for name, value in context.params.items():
            if name not in OUTPUTS and any(_same_file(path, text) for text in _texts(value)):
                raise InputError(f"{path} is an input of this command, and stays as it is; name another file")
        context = context.parent


def _same_file(path: Path, text: str) -> bool:
    try:
        return os.path.samefile(path, os.path.expanduser(text))
    except (OSError, ValueError):
        return False


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str | Path):
        yield str(value)
    elif isinstance(value, Mapping):
        yield from map(str, value)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
