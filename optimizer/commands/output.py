"""How an answer leaves the program: on the screen, as JSON or CSV, as a page; never over a file that was read."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optimizer.base.errors import InputError
from optimizer.base.files import HTML, free_for, replace_file
from optimizer.base.names import without_passwords
from optimizer.commands.waiting import waiting

if TYPE_CHECKING:
    from optimizer.reports.report import Record, Report

OUTPUTS = ("html", "csv_file", "out")  # parameters of commands that name what is written


class OutFile(click.Path):
    """A file to be written, of one kind; what stands in its way is an error before the work begins."""

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
    context: click.Context | None = click.get_current_context()
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


def show(html: Path | None, as_json: bool, report: Callable[[], Report], content: Callable[[], object]) -> None:
    """Print a report for people, or its JSON instead; write the report as a page where one was asked for.

    Args:
        html: where the page goes.
        as_json: whether JSON is printed.
        report: what makes the report.
        content: what makes the JSON, as text or as plain values.
    """
    if as_json:
        values = content()
        click.echo(values if isinstance(values, str) else json.dumps(values, indent=2, allow_nan=False))
    else:
        print_screen(report())
    write_page(html, report)


def check_new(path: Path, force: bool, ending: str = "") -> None:
    """Raise InputError for a file of another ending, or one that is there and may not be overwritten."""
    if ending and path.suffix != ending:
        raise InputError(f"--out {path}: --cluster takes files that end in {ending}; write {path.stem}{ending}")
    if path.exists() and not force:
        raise InputError(f"{path} exists already; give --force to overwrite it, or another --out")
    free_for(path)


def typed() -> str:
    """The command as it was typed, without passwords."""
    return without_passwords(shlex.join(["optimize", *sys.argv[1:]]))


def print_screen(report: Report) -> None:
    """Print a report for people."""
    from optimizer.reports.render.screen import screen_text

    click.echo(screen_text(report), nl=False)


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where a study goes: JSON, CSV or the screen, and a page where one was asked for."""

    as_json: bool
    as_csv: bool
    html: Path | None

    @classmethod
    def taken(cls, options: dict[str, Any]) -> Output:
        """Take the options of the output out of the others; refuse two formats at once."""
        if options["as_json"] and options["as_csv"]:
            raise click.UsageError("--json and --csv exclude each other; give one of them")
        return cls(**{field.name: options.pop(field.name) for field in fields(cls)})

    def show(
        self,
        content: Mapping[str, Any],
        assumed: tuple[str, ...],
        records: Sequence[Record],
        report: Callable[[], Report],
    ) -> None:
        """Print the content and what was assumed, or the records, or the report; write the page."""
        from optimizer.reports.render.csv import csv_text
        from optimizer.reports.render.json import json_text

        if self.as_json:
            click.echo(json_text({**content, "assumptions": list(assumed)}))
        elif self.as_csv:
            click.echo(csv_text(records), nl=False)
        else:
            print_screen(report())
        write_page(self.html, report)


def write_page(path: Path | None, report: Callable[[], Report]) -> None:
    """Write a report as a page where one was asked for, with the command that was typed, and say so on stderr.

    Raises InputError when the file cannot be written.
    """
    if path is not None:
        from optimizer.reports.render.html import report_page

        with waiting("drawing"):
            text = report_page(replace(report(), command=typed()))
        write_output(path, text, HTML)
