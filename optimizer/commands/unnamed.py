"""Groups of commands of which one needs no name: `optimize batch study.toml` is `optimize batch run study.toml`."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

ALIKE = 0.7  # from which on a word is a misspelt command [share of its letters, as difflib counts them]


class UnnamedCommand(click.Group):
    """A group that puts the command `unnamed` before a first word that is no command, nor nearly one."""

    def __init__(self, *arguments: Any, unnamed: str, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self.unnamed = unnamed

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises UsageError for a misspelt command."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            near = get_close_matches(args[0], self.commands, n=1, cutoff=ALIKE)
            if near and not Path(args[0]).exists():
                ctx.fail(f"No such command or file {args[0]!r}. Did you mean {near[0]!r}?")
            args = [self.unnamed, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, and what the unnamed one takes: its options behind a dash, else its first argument."""
        unnamed = self.commands[self.unnamed]
        if incomplete.startswith("-"):
            return unnamed.shell_complete(ctx, incomplete)
        first = next((param for param in unnamed.params if isinstance(param, click.Argument)), None)
        return [*(first.shell_complete(ctx, incomplete) if first else []), *super().shell_complete(ctx, incomplete)]
