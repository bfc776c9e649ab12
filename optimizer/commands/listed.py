"""The options of a command from options.toml, where each stands in a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from optimizer.base.content import content
from optimizer.commands import options
from optimizer.commands.completion import presets_of
from optimizer.commands.options import COMPLETED, Command, Option
from optimizer.commands.values import COUNTS, DOLLARS, FILE, MONEY, NAMED, TOKENS, quantity, whole_number
from optimizer.job.fields import STACKS

TYPES: Mapping[str, Any] = {
    **{"file": FILE, "path": click.Path(path_type=Path), "money": MONEY, "tokens": TOKENS},
    **{"named": NAMED, "counts": COUNTS, "dollars": DOLLARS},
}
SHARED: Mapping[str, Callable[..., Option]] = {
    **{"json": options.as_json, "html": options.html, "force": options.force},
    **{"term": lambda: options.TERM, "provider": lambda: options.PROVIDER, "prices": lambda: options.PRICES},
}


def listed(command: str, **types: Any) -> Callable[[Command], Command]:
    """The options of a command, in the order of its table.

    Args:
        command: Its table in options.toml.
        types: Types by words that this table alone has.

    >>> click.command(listed("timeline")(lambda: None)).params[1].opts
    ['--best']
    """
    return options.given(_options(command, {**TYPES, **types}))


def _options(command: str, types: Mapping[str, Any]) -> Iterator[Option]:
    for name, row in content("optimizer.commands", "options.toml")[command].items():
        if "all" in row:
            yield from _options(row["all"], types)
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
    usual = row.pop("usual", False)
    if row.pop("field", False):
        return (options.usual if usual else options.option)(name, **row, **changes)
    parameter = [row.pop("as")] if "as" in row else []
    return click.option(f"--{name}", *parameter, **row, **changes)
