"""What a shell offers after Tab: names of presets, the user's own too, and files where a path is begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from optimizer.errors import OptimizerError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def presets_of(*kinds: str) -> Complete:
    """Names of these kinds of presets; a path is completed as one, and the last word of a list alone."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from optimizer.presets import names_of

        if incomplete.startswith((".", "/", "~")):
            return [CompletionItem(incomplete, type="file")]
        before, comma, begun = incomplete.rpartition(",")
        try:
            known = [name for kind in kinds for name in names_of(kind)]
        except OptimizerError:  # a shell has no place for messages: the command says it
            return []
        return [CompletionItem(f"{before}{comma}{name}") for name in known if name.startswith(begun.lower())]

    return complete


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Launchers of a plan."""
    from click.shell_completion import CompletionItem

    from optimizer.target import TARGETS

    return [CompletionItem(name) for name in TARGETS if name.startswith(incomplete)]


def variables(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Variables of a plan, as `--fix` pins them."""
    from click.shell_completion import CompletionItem

    from optimizer.plan import Plan

    names = (name.replace("_", "-") for name in Plan.__dataclass_fields__)
    return [CompletionItem(f"{name}=") for name in names if name.startswith(incomplete)]
