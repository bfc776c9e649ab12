"""Options: those of a job and its search, made from optimizer.job.fields, and others that several commands have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from optimizer.base.content import content, in_words, texts
from optimizer.base.files import HTML
from optimizer.commands.completion import Complete, paths, presets_of, targets, variables
from optimizer.commands.defaults import Usual
from optimizer.commands.output import OutFile
from optimizer.commands.pins import FIXED, joined
from optimizer.commands.values import (
    COUNTS,
    DOLLARS,
    FILE,
    MONEY,
    NAMED,
    SHARE,
    SIZE,
    TOKENS,
    TextType,
    flex,
    formats,
    gpus_or_fewer,
    quantity,
    seconds,
    size_or_none,
    whole_number,
)
from optimizer.job import fields
from optimizer.job.fields import FIELDS, STACKS, Field

if TYPE_CHECKING:
    from optimizer.catalog.offers import PriceBook

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Any], Any]
CLUSTER_NAMES = presets_of("cluster", "device")
COMPLETED: Mapping[str, Complete] = {
    **{name: presets_of(name) for name in ("model", "device", "stack")},
    **{"cluster": CLUSTER_NAMES, "target": targets, "fix": variables, "study": paths},
}
TYPES: Mapping[str, Callable[[Field], Any]] = {
    fields.NAME: lambda field: click.STRING,
    fields.GPUS: lambda field: TextType("n", gpus_or_fewer),
    fields.WHOLE: lambda field: whole_number(int(field.low), int(field.high)),
    fields.SHARE: lambda field: SHARE,
    fields.SIZE: lambda field: SIZE if field.low else TextType("size", size_or_none),
    fields.TIME: lambda field: seconds(field.high),
    fields.FLEX: lambda field: TextType("batch=share", flex),
    fields.FORMATS: lambda field: formats(several=True),
    fields.PINS: lambda field: FIXED,
    fields.SETTINGS: lambda field: click.STRING,
    fields.CHOICE: lambda field: click.Choice(field.choices),
}
TERMS = ("on_demand", "capacity_block", "reserved_1y", "reserved_3y", "spot")


def option(name: str, **changes: Any) -> Option:
    """The option of a field, with settings of its own where a command needs that; it takes none of the user's defaults.

    >>> click.command(option("seed", help="Seed of those trials. [0]")(lambda: None)).params[0].opts
    ['--seed']
    """
    field = FIELDS[name]
    declared: dict[str, Any] = {
        "type": TYPES[field.kind](field),
        **({} if field.limit or field.default is None else {"default": field.default}),
        "metavar": field.metavar,
        "help": field.described,
        "shell_complete": COMPLETED.get(name),
        "multiple": field.kind in fields.SEVERAL,
        "callback": joined if field.kind == fields.PINS else None,
    }
    return click.option(field.option, field.sets or name, **{**declared, **changes})


def usual(name: str, **changes: Any) -> Option:
    """The option of a field that the user's defaults may fill."""
    field = FIELDS[name]
    return option(name, **changes, **({"cls": Usual, "field": field} if field.usual else {}))


def given(options: Iterable[Option]) -> Callable[[Command], Command]:
    """What gives a command these options, in their order."""

    def with_options(command: Command) -> Command:
        for each in reversed(tuple(options)):
            command = each(command)
        return command

    return with_options


def as_json(help: str = "Print JSON.") -> Option:
    """Whether JSON is printed."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def html(help: str = "Write the report there, a page of its own.") -> Option:
    """Where a report is written."""
    return click.option("--html", type=OutFile(HTML), metavar="FILE", help=help)


def force(help: str = "Overwrite what is there.") -> Option:
    """Whether files are overwritten."""
    return click.option("--force", is_flag=True, help=help)


COUNTED = {"type": whole_number(), "help": "Number of GPUs."}
DTYPE = {"type": formats(several=False), "metavar": "TYPE", "help": "bf16, fp16, fp8 or fp4. [bf16]"}
_JOB = [field.name for field in fields.of_groups(fields.JOB)]
# A job with every limit, the same with what decides its answer, and the job of one plan.
JOB = tuple(usual(name, **COUNTED) if name == "gpus" else usual(name) for name in _JOB)
_AT_MOST = {"gpus": {"help": "Number of GPUs, or at-most:N: fewer where that is faster."}}
ANSWER = tuple(
    usual(field.name, **_AT_MOST.get(field.name, {}))
    for field in fields.of_groups(fields.JOB, fields.ANSWER, fields.SEARCH)
)
STUDIED = tuple(usual(name, **DTYPE) if name == "dtype" else usual(name) for name in _JOB if FIELDS[name].studied)
TERM = click.option(
    "--term",
    default=None,
    type=click.Choice(TERMS),
    callback=lambda ctx, param, value: value or "",
    metavar="TERM",
    help="on_demand, capacity_block, reserved_1y, reserved_3y or spot. [the first of these that the book holds]",
)
PROVIDER = click.option("--provider", default="", metavar="NAME", help="Whose offers to take, such as aws. [all]")
PRICES = click.option(
    "--prices",
    "prices_file",
    type=FILE,
    metavar="FILE",
    help="Your quotes, before the price book: a CSV such as examples/quotes.csv.",
)


def book(asked: dict[str, Any]) -> PriceBook:
    """Take the three options of prices out of the others: the price book that they name.

    Raises InputError for a file or a name that cannot be used.
    """
    from optimizer.catalog.offers import book_of

    return book_of(asked.pop("prices_file"), asked.pop("term"), asked.pop("provider"))


WORDS: Mapping[str, Any] = {
    **{"file": FILE, "path": click.Path(path_type=Path), "money": MONEY, "tokens": TOKENS},
    **{"named": NAMED, "counts": COUNTS, "dollars": DOLLARS},
}
SHARED: Mapping[str, Callable[..., Option]] = {
    **{"json": as_json, "html": html, "force": force},
    **{"term": lambda: TERM, "provider": lambda: PROVIDER, "prices": lambda: PRICES},
}


def listed(command: str, **types: Any) -> Callable[[Command], Command]:
    """The options of a command, in the order of its table.

    Args:
        command: Its table in options.toml.
        types: Types by words that this table alone has.

    >>> click.command(listed("timeline")(lambda: None)).params[1].opts
    ['--best']
    """
    return given(_listed(command, {**WORDS, **types}))


def _listed(command: str, types: Mapping[str, Any]) -> Iterator[Option]:
    for name, row in content("optimizer.commands", "options.toml")[command].items():
        if "all" in row:
            yield from _listed(row["all"], types)
        elif "job" in row:
            yield from JOB
        elif name in SHARED and "as" not in row:
            yield SHARED[name](**row)
        else:
            yield _option(name, dict(row), types)


def _option(name: str, row: dict[str, Any], types: Mapping[str, Any]) -> Option:
    """One option; what click does not know is taken out of its row."""
    changes: dict[str, Any] = {"help": row.pop("help").replace("{STACKS}", STACKS)} if "help" in row else {}
    if "complete" in row:
        kind = row.pop("complete")
        changes["shell_complete"] = (COMPLETED.get(kind) or presets_of(kind)) if kind else None
    for word, read in (
        ("type", types.__getitem__),
        ("whole", lambda ends: whole_number(*ends)),
        ("quantity", lambda words: quantity(*words)),
        ("choices", click.Choice),
    ):
        if word in row:
            changes["type"] = read(row.pop(word))
    fills = row.pop("usual", False)
    if row.pop("field", False):
        return (usual if fills else option)(name, **row, **changes)
    parameter = [row.pop("as")] if "as" in row else []
    return click.option(f"--{name}", *parameter, **row, **changes)


_EXAMPLES = re.compile(r"```bash\n(.*?)\n```", re.DOTALL)


def help_text(command: str) -> str:
    r"""The help of a command; its examples stay as they are written.

    >>> help_text("trial next").splitlines()[-3:]
    ['\x08', 'optimize trial next trials/', 'bash trials/run.sh /path/to/Megatron-LM']
    """
    return _EXAMPLES.sub("\b\n\\1", texts("optimizer.commands", "help.md")[command])


class ReadingCommand(click.Command):
    """A command with {logs} or {configs} in its help: the programs whose logs, or the files that are read."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help with the names filled in."""
        from optimizer.frameworks.every import CONFIGS, LOGS

        names = {
            "{logs}": in_words([log.name for log in LOGS]),
            "{configs}": in_words([file for config in CONFIGS for file in config.files], "or"),
        }
        for place, words in names.items():
            self.help = (self.help or "").replace(place, words)
        super().format_help_text(ctx, formatter)
