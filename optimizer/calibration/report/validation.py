"""The report on a validation for the terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from optimizer.calibration.report.validation_words import (
    TIME_COLUMNS,
    TITLES,
    choice_lines,
    coverage_line,
    headline,
    memory_lines,
    set_aside_line,
    time_cells,
)
from optimizer.calibration.suspects import suspicion, worst
from optimizer.calibration.validation import Validation
from optimizer.reports.plan_report import notes, title
from optimizer.reports.table import Column, table

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

MOST_ROWS, MOST_NAMES = 20, 4
NAMED, SOME = re.compile(r"'[^']*'"), "…"  # what a reason quotes from its row, and what stands for it where rows differ
WORST = (
    Column(label="run", wraps=True),
    Column(label="measured", unit="s"),
    Column(label="predicted", unit="s"),
    Column(label="error", unit="%"),
    Column(label="suspected reason", wraps=True),
)


def validation_report(validation: Validation) -> Group:
    """Errors by source, stack, device and model; memory; choice of plans; the worst rows."""
    from rich.console import Group
    from rich.text import Text

    overall = validation.overall
    parts: list[RenderableType] = [Text(headline(validation), style="bold")]
    parts += [Text(line) for line in (coverage_line(overall) if overall else "", set_aside_line(validation)) if line]
    for by, name in TITLES.items():
        parts += _groups(validation, by, name)
    if overall:
        parts += notes("Memory", memory_lines(overall)) + notes("Choice of plans", choice_lines(overall))
    parts += _worst(validation)
    parts += notes("Rows that cannot be priced", _refusals(validation))
    return Group(*parts)


def _groups(validation: Validation, by: str, name: str) -> list[RenderableType]:
    scores = sorted(validation.by(by), key=lambda score: -score.rows)
    if not scores:
        return []
    shown = scores[:MOST_ROWS]
    rows = [[score.name, *time_cells(score)] for score in shown]
    heading = f"By {name}" + (f", the {MOST_ROWS} with most rows of {len(scores)}" if len(scores) > MOST_ROWS else "")
    return [title(heading), table([Column(label=name, wraps=True), *TIME_COLUMNS], rows)]


def _worst(validation: Validation) -> list[RenderableType]:
    rows = [
        [row.run.id, row.run.step_time, row.step_time, (row.ratio or 1.0) - 1.0, suspicion(row)]
        for row in worst(validation.rows)
    ]
    return [title("Farthest from their measurement"), table(WORST, rows)] if rows else []


def _refusals(validation: Validation) -> list[str]:
    """The reasons for refusal with their counts, the most frequent first, and what each names that rows differ in."""
    named: dict[str, list[str]] = {}
    for row in validation.rows:
        if row.run.refused:
            named.setdefault(NAMED.sub(SOME, row.run.refused), []).extend(NAMED.findall(row.run.refused) or [""])
    lines = []
    for reason, names in sorted(named.items(), key=lambda item: -len(item[1])):
        distinct = [name for name in dict.fromkeys(names) if name]
        count = len(names) // max(1, reason.count(SOME))
        if len(distinct) == reason.count(SOME):
            reason, distinct = _filled(reason, distinct), []
        shown = ", ".join(distinct[:MOST_NAMES]) + (", ..." if len(distinct) > MOST_NAMES else "")
        lines.append(f"{count:,} × {reason}" + (f": {shown}" if distinct else ""))
    return lines


def _filled(reason: str, names: list[str]) -> str:
    """A reason with the names that it had."""
    for name in names:
        reason = reason.replace(SOME, name, 1)
    return reason
