"""The report of a command as a page of its own: the same words, with their columns and colours, and nothing fetched."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from markupsafe import Markup

from optimizer.base.names import one_line, terminal_text
from optimizer.reports.render.html import rendered
from optimizer.reports.render.screen import USUAL

if TYPE_CHECKING:
    from rich.console import RenderableType


def screen_page(title: str, command: str, report: RenderableType) -> str:
    """The page; `command` is what was typed. Names are texts: neither rich's markup nor HTML in them mean anything."""
    from rich.console import Console

    console = Console(
        file=StringIO(),
        record=True,
        width=USUAL,
        color_system="standard",
        force_terminal=True,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    console.print(report)
    shown = console.export_html(inline_styles=True, code_format="{code}")
    lines = Markup("\n".join(line.rstrip() for line in terminal_text(shown).split("\n")))
    typed = one_line(command)
    return rendered("optimizer.reports", "screen.html", title=one_line(title), command=typed, report=lines)
