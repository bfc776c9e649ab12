"""A purchase as short Markdown and as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optimizer.purchase.report.decision import COUNTED, tables
from optimizer.purchase.report.rows import bottleneck
from optimizer.purchase.report.running import STANDBY_HEADINGS, standby_cells
from optimizer.purchase.report.units import days, dollars, megawatt_hours, megawatts
from optimizer.purchase.report.words import (
    fewest_sentence,
    question,
    rent_or_buy_sentence,
    summary,
)
from optimizer.reports.glossary import words_in
from optimizer.reports.plan_words import plan_words

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

    from optimizer.answer.answer import Answer
    from optimizer.purchase.designs.points import Point
    from optimizer.purchase.dossier import Dossier

HEADINGS = ("design", "time", "cost", "energy", "tokens/$", "tokens/J", "site", "bottleneck")
NUMBERS = HEADINGS[1:7]


def purchase_markdown(dossier: Dossier, command: str = "") -> str:
    """Summary, front, answers and command, for a message or a wiki."""
    lines = ["# Which machines to take", "", question(dossier.purchase.campaign), ""]
    lines += [f"- {line}" for line in summary(dossier)]
    for name, headings, rows in tables(dossier):
        lines += ["", f"## The best of each machine, {name}", "", _markdown_row(headings)]
        lines.append(_markdown_row(["---"] * len(headings)))
        lines += [_markdown_row(row) for row in rows]
    if dossier.purchase.front:
        lines += ["", "## The choices that nothing beats", "", _markdown_row(HEADINGS)]
        lines.append(_markdown_row(["---:" if heading in NUMBERS else "---" for heading in HEADINGS]))
        lines += [_markdown_row(_cells(point)) for point in dossier.shown]
        lines += _left_out(dossier)
    for heading, sentences in _backwards(dossier):
        lines += ["", f"## {heading}", "", *(f"- {sentence}" for sentence in sentences)]
    if command:
        lines += ["", "## How to reproduce this", "", "```", command, "```"]
    return "\n".join(lines) + "\n"


def purchase_report(dossier: Dossier, notes: Sequence[str] = ()) -> Group:
    """The same for the terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    colour = "green" if dossier.purchase.front else "red"
    first, *rest = summary(dossier)
    parts: list[RenderableType] = [Text(question(dossier.purchase.campaign)), Text("")]
    parts += [Text(first, style=f"bold {colour}"), *(_bullet(line) for line in rest)]
    if dossier.purchase.front:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for heading in HEADINGS[:7]:
            table.add_column(heading, justify="right" if heading in NUMBERS else "left", no_wrap=heading in NUMBERS)
        for point in dossier.shown:
            mark = " *" if point is dossier.advised else ""
            table.add_row(*[f"{_cells(point)[0]}{mark}", *_cells(point)[1:7]])
        parts += [
            Text("\nThe choices that nothing beats (* advised)", style="bold"),
            table,
            *(Text(line) for line in _left_out(dossier) if line),
        ]
        parts += [Text("\nPlans", style="bold"), *(_bullet(line) for line in _plans(dossier))]
    parts += _machines(dossier)
    parts += _spares(dossier)
    for heading, sentences in _backwards(dossier):
        parts += [Text(f"\n{heading}", style="bold"), *(_bullet(sentence) for sentence in sentences)]
    if notes:
        parts += [Text("\nAssumed", style="bold"), *(_bullet(note) for note in notes)]
    words = words_in([*HEADINGS, *(answer.plan.summary() for answer in _answers(dossier) if answer.plan), "MFU"])
    parts += [Text("\nWords", style="bold"), *(_bullet(f"{word}: {meaning}") for word, meaning in words.items())]
    return Group(*parts)


def _plans(dossier: Dossier) -> list[str]:
    """The plan of each design that is shown; the first one of a spelling tells its short names in words."""
    lines, told = [], set[str]()
    for point in dossier.shown:
        for answer in point.answers:
            if answer.plan is None:
                continue
            summary = answer.plan.summary()
            new = set(words_in([summary])) - told
            words = f" ({plan_words(answer.plan)})" if new else ""
            told |= new
            lines.append(f"{point.design.label()}{_run_of(point, answer)}: {summary}{words}")
    return lines


def _answers(dossier: Dossier) -> list[Answer]:
    return [answer for point in dossier.shown for answer in point.answers]


def _run_of(point: Point, answer: Answer) -> str:
    """The model of a plan, where a portfolio has several runs."""
    return f", {answer.job.model.title or answer.job.model.name}" if len(point.answers) > 1 else ""


def _machines(dossier: Dossier) -> list[RenderableType]:
    """What each machine would take to be the cheapest, and those of each vendor with software, price and power."""
    from rich.table import Table
    from rich.text import Text

    found: list[RenderableType] = []
    for name, headings, rows in tables(dossier):
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for heading in headings:
            table.add_column(heading, justify="right" if heading in COUNTED else "left")
        for row in rows:
            table.add_row(*row)
        found += [Text(f"\nThe best of each machine, {name}", style="bold"), table]
    return found


def _spares(dossier: Dossier) -> list[RenderableType]:
    """Spare nodes around the number that pays, where they are kept by the buyer."""
    from rich.table import Table
    from rich.text import Text

    if dossier.advised is None or dossier.advised.design.spares is None or len(dossier.standby) < 2:
        return []
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in STANDBY_HEADINGS:
        table.add_column(heading, justify="right")
    for item in dossier.standby:
        table.add_row(*standby_cells(item))
    return [Text("\nHow many spare nodes pay", style="bold"), table]


def _cells(point: Point) -> list[str]:
    found = point.figures
    return [
        point.design.label(),
        days(found.time_to_train),
        dollars(found.cost),
        megawatt_hours(found.energy),
        f"{1 / found.cost_per_token:,.0f}",
        f"{found.tokens_per_joule:.2f}",
        megawatts(found.peak_power),
        bottleneck(point),
    ]


def _left_out(dossier: Dossier) -> list[str]:
    """A line on the points of the front that are not shown."""
    front, shown = len(dossier.purchase.front), len(dossier.shown)
    return (
        ["", f"{shown} of the {front} designs that nothing beats; --json and --csv hold all."] if front > shown else []
    )


def _backwards(dossier: Dossier) -> list[tuple[str, list[str]]]:
    """The questions asked backwards that have answers."""
    found = []
    if dossier.fewest:
        heading = f"Fewest GPUs for {days(dossier.fewest[0].deadline)}"
        found.append((heading, [fewest_sentence(item) for item in dossier.fewest]))
    if dossier.rent_or_buy:
        found.append(("Rent or buy", [rent_or_buy_sentence(item) for item in dossier.rent_or_buy]))
    return found


def _bullet(text: str) -> RenderableType:
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(f"• {text}"), (0, 0, 0, 1))


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
