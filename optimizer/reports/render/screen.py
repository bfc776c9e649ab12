"""Rich renderables as text for stdout: width, colour and characters that the terminal can show."""

from __future__ import annotations

import os
import shutil
import sys
from io import StringIO
from typing import TYPE_CHECKING

from optimizer.base.names import plain_screen

if TYPE_CHECKING:
    from rich.console import RenderableType

NARROWEST, USUAL, WIDEST = 80, 100, 120
ASCII = str.maketrans({"█": "#", "░": ".", "×": "x", "—": "-", "–": "-", "─": "-", "•": "*", "≤": "<", "…": "~"})


def screen_text(renderable: RenderableType, *, width: int | None = None, colour: bool | None = None) -> str:
    """The text of a report, 80 to 120 columns wide.

    Colour only on a terminal and never under NO_COLOR; plain ASCII where stdout cannot print anything else. Names are
    texts: neither rich's markup nor a terminal's escapes in them mean anything.
    """
    from rich.console import Console

    colour = wants_colour() if colour is None else colour
    target = StringIO()
    console = Console(
        file=target,
        width=width or screen_width(),
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    console.print(renderable)
    lines = (line.rstrip() for line in target.getvalue().splitlines())
    return printable(plain_screen("\n".join(lines)) + "\n", sys.stdout.encoding or "ascii")


def wants_colour() -> bool:
    """Whether stdout is a terminal on which colour is welcome (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def screen_width() -> int:
    """Columns of the terminal within what the reports are made for."""
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((USUAL, 24)).columns))


def printable(text: str, encoding: str) -> str:
    """The text in characters of this encoding.

    >>> printable("2 × 3 ██", "ascii")
    '2 x 3 ##'
    """
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return text.translate(ASCII).encode("ascii", "replace").decode("ascii")
    return text
