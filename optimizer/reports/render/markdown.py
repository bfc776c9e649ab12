"""A report as Markdown, for a message or a wiki."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from optimizer.reports.report import Block, BulletPoints, Heading, Pairs, Report, Table, Text


def markdown_text(report: Report) -> str:
    """What the screen shows of a report, as Markdown."""
    lines = [f"# {report.title}", "", *report.subject, "", *(f"- {line}" for line in report.conclusion if line)]
    for section in report.shown("screen"):
        lines += ["", f"## {section.heading}"]
        for block in section.blocks:
            lines += ["", *_lines(block)]
    if report.command:
        lines += ["", "## How to reproduce this", "", "```", report.command, "```"]
    return "\n".join(lines) + "\n"


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, Text | Heading):
        yield block.text
    elif isinstance(block, BulletPoints):
        yield from (f"- {line}" for line in block.lines if line)
    elif isinstance(block, Pairs):
        yield from (f"- {name}: {words}" for name, words in block.rows)
    elif isinstance(block, Table):
        yield _row(block.labels)
        yield _row(["---:" if place in block.right else "---" for place in range(len(block.columns))])
        yield from map(_row, block.texts)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
