"""What a shell offers after Tab: names of presets, the user's own too, and files where a path is begun."""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

from optimizer.base.errors import OptimizerError

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def presets_of(*kinds: str) -> Complete:
    """Names of these kinds of presets; else files, where one may be given. Of a list the last word is completed."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from optimizer.catalog import names_of

        if incomplete.startswith((".", "/", "~")):
            return paths(ctx, param, incomplete)
        before, comma, begun = incomplete.rpartition(",")
        try:
            known = [name for kind in kinds for name in names_of(kind)]
        except OptimizerError:  # a shell has no place for messages: the command says it
            return []
        items = [CompletionItem(f"{before}{comma}{name}") for name in known if name.startswith(begun.lower())]
        return items or (paths(ctx, param, incomplete) if "FILE" in str(param.metavar) else [])

    return complete


def paths(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, which the shell finds."""
    return [CompletionItem(incomplete, type="file")]


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Launchers of a plan."""
    from optimizer.catalog.targets import launchers
    from optimizer.job.target import ANY

    return [CompletionItem(name) for name in (*launchers(), ANY) if name.startswith(incomplete)]


def variables(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Variables of a plan, as `--fix` pins them."""
    from optimizer.job.plan import Plan

    names = (name.replace("_", "-") for name in Plan.__dataclass_fields__)
    return [CompletionItem(f"{name}=") for name in names if name.startswith(incomplete)]
