"""A report as text for stdout: width, colour and characters that the terminal can show."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from io import StringIO
from itertools import accumulate, pairwise
from math import isfinite
from typing import TYPE_CHECKING

from optimizer.base.names import plain_screen
from optimizer.reports.report import BAR, Block, BulletPoints, Cell, Column, Heading, Pairs, Report, Table, Text, cell

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table as Grid

NARROWEST, USUAL, WIDEST = 80, 100, 120
ASCII = str.maketrans(
    {"█": "#", "▓": "=", "▒": "+", "░": ".", "×": "x", "—": "-", "–": "-", "─": "-", "•": "*", "≤": "<", "…": "~"}
)


TONES = {"": "bold", "good": "bold green", "open": "bold yellow", "bad": "bold red"}
LONG, SHORT = 36, 24  # characters of a full bar
STACKED, MARKS = 14, "█▓▒░"  # characters of a bar of parts, and of each part


def screen_text(report: Report, *, width: int | None = None, colour: bool | None = None) -> str:
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
    for part in _parts(report, console):
        console.print(part)
    lines = (line.rstrip() for line in target.getvalue().splitlines())
    return printable(plain_screen("\n".join(lines)) + "\n", sys.stdout.encoding or "ascii")


def bar(share: float, width: int) -> str:
    """A bar filled to `share` of its width, never empty for a share above zero.

    >>> bar(0.5, 8)
    '████░░░░'
    """
    filled = min(width, max(round(share * width), 1 if share > 0 else 0))
    return "█" * filled + "░" * (width - filled)


def stacked(shares: Sequence[float], width: int) -> str:
    """A bar of parts one after the other, each to its share of the width.

    >>> stacked((0.5, 0.25, 0.1, 0.05), 20)
    '██████████▓▓▓▓▓▒▒░  '
    """
    ends = [round(end * width) for end in accumulate(shares, initial=0.0)]
    parts = (mark * (end - start) for mark, (start, end) in zip(MARKS, pairwise(ends), strict=False))
    return "".join(parts)[:width].ljust(width)


def _parts(report: Report, console: Console) -> list[RenderableType]:
    """A report part by part, from its title to what was assumed."""
    from rich.text import Text as Line

    parts: list[RenderableType] = [Line(report.title, style=TONES[report.tone])] if report.title else []
    parts += [Line(line) for line in report.subject if line]
    if report.warning:
        parts.append(Line(report.warning, style=TONES["bad"]))
    if report.conclusion:
        parts.append(_block(BulletPoints(report.conclusion), console))
    for section in report.shown("screen"):
        parts.append(Line(f"\n{section.heading}" if section.heading else "", style="bold"))
        parts += [_block(block, console) for block in section.blocks if block.kind not in ("chart", "tiles")]
    return parts


def _block(block: Block, console: Console) -> RenderableType:
    from rich.padding import Padding
    from rich.table import Table as Grid
    from rich.text import Text as Line

    if isinstance(block, Text | Heading):
        return Padding(Line(block.text, style="dim" if isinstance(block, Heading) else ""), (0, 0, 0, 1))
    grid = Grid(box=None, show_header=False, pad_edge=True, padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column()
    if isinstance(block, BulletPoints | Pairs):
        for name, words in block.rows if isinstance(block, Pairs) else [("•", line) for line in block.lines if line]:
            grid.add_row(Line(name), Line(words))
    if isinstance(block, Table):
        return _table(block, console)
    return grid


def _table(block: Table, console: Console) -> Grid:
    """A table without lines: words to the left, numbers to the right; bars and gaps are as wide as there is room."""
    from rich.table import Table as Grid
    from rich.text import Text as Line

    heads = [column.label for column in block.columns]
    for gap, length in ((1, LONG), (1, SHORT), (0, SHORT)):
        rows = [_texts(row, block.columns, length) for row in block.rows]
        if _needed(block.columns, [heads, *rows], wrapping=length == SHORT) + (1 + gap) * len(heads) <= console.width:
            break
    grid = Grid(box=None, pad_edge=True, padding=(0, 1, 0, gap), header_style="dim", show_header=any(heads))
    for column in block.columns:
        side = "right" if column.unit not in ("", BAR) else "left"
        grid.add_column(column.label, justify=side, no_wrap=not column.wraps)  # type: ignore[arg-type]
    for index, texts in enumerate(rows):
        grid.add_row(*map(Line, texts), style="bold" if index in block.strong else None)
    return grid


def _texts(row: Sequence[Cell], columns: Sequence[Column], length: int) -> list[str]:
    """The cells of a row, bars of a length."""
    return [
        bar(value, length)
        if column.unit == BAR and isinstance(value, int | float) and isfinite(value)
        else stacked(value, STACKED)
        if isinstance(value, tuple)
        else cell(value, column.unit)
        for value, column in zip(row, columns, strict=True)
    ]


def _needed(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, wrapping: bool) -> int:
    """Columns of a screen that the cells need, with those that wrap as narrow as their longest word or as they are."""
    needed = 0
    for column, texts in zip(columns, zip(*rows, strict=True), strict=True):
        parts = (part for text in texts for part in (text.split() if column.wraps and wrapping else text.split("\n")))
        needed += max(map(len, parts), default=0)
    return needed


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
