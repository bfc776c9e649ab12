"""A validation as one offline HTML page: predicted against measured, and the errors of every group."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from optimizer.calibration.groups import gathered
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
from optimizer.calibration.validation import Priced, Validation
from optimizer.reports.charts.chart import Chart, layout
from optimizer.reports.palette import GREY, PALETTE
from optimizer.reports.report import Report, Section, Table, report_page
from optimizer.reports.table import Column, cell

WORST = ("run", "measured", "predicted", "error", "suspected reason")
LEGEND = (
    "Errors are predicted / measured − 1; fit/OOM is the balanced accuracy of the verdict on memory; regret is how "
    "much longer than the best measured plan the one ranked first takes."
)
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "x")
MOST_POINTS = 5_000  # in the plot
MARGIN = 0.2  # the dashed lines of the plot: 20 % too fast, 20 % too slow


def validation_page(validation: Validation, file: str) -> str:
    """The whole page; nothing in it is fetched from elsewhere."""
    overall = validation.overall
    said = (headline(validation), coverage_line(overall) if overall else "", set_aside_line(validation))
    groups = [_group(validation, by, name) for by, name in TITLES.items() if validation.by(by)]
    farthest = Table(name="Runs", columns=WORST, rows=tuple(_worst(row) for row in worst(validation.rows)))
    sections = (
        *([Section(heading="Step time", charts=(scatter(validation),))] if overall and overall.time else []),
        *([Section(heading="By group", words=(LEGEND,), tables=tuple(groups))] if groups else []),
        Section(heading="Memory", points=tuple(memory_lines(overall) if overall else ())),
        Section(heading="Choice of plans", points=tuple(choice_lines(overall) if overall else ())),
        Section(heading="Farthest from their measurement", tables=(farthest,) if farthest.rows else ()),
    )
    return report_page(
        Report(
            title="Predicted against measured",
            subject=file,
            note="Predicted by mfu-optimizer; the dotted lines and the groups say how far it is off.",
            conclusion=tuple(line for line in said if line),
            sections=tuple(each for each in sections if each.charts or each.tables or each.points),
        )
    )


def _group(validation: Validation, by: str, name: str) -> Table:
    """The scores of every group, the one of most runs first."""
    scores = sorted(validation.by(by), key=lambda score: -score.rows)
    columns = (Column(label=name), *TIME_COLUMNS)
    return Table.of(f"By {name}", columns, [(score.name, *time_cells(score)) for score in scores])


def _worst(row: Priced) -> tuple[str, ...]:
    error = (row.ratio or 1.0) - 1.0
    return (row.run.id, cell(row.run.step_time, "s"), cell(row.step_time, "s"), f"{error:+.0%}", suspicion(row))


def scatter(validation: Validation) -> Chart:
    """Predicted over measured step time, one colour and symbol per stack, on logarithmic axes."""
    timed = [row for row in validation.rows if row.clean and row.ratio]
    named = gathered(timed, lambda row: row.run.stack_name)
    stacks = sorted(((str(name), rows) for name, rows in named.items()), key=lambda item: -len(item[1]))
    data = [
        {"type": "scatter", "name": f"{name} ({len(rows):,})", **_points(drawn(rows, len(timed)), index)}
        for index, (name, rows) in enumerate(stacks)
    ]
    within = sum(abs((row.ratio or 1.0) - 1.0) <= MARGIN for row in timed)
    shown = f" Every {step}th run is drawn." if (step := -(-len(timed) // MOST_POINTS)) > 1 else ""
    axis = {"type": "log", "exponentformat": "SI", "ticksuffix": "s"}
    return Chart(
        name="runs",
        title="Predicted over measured step time",
        words=f"{within:,} of {len(timed):,} runs lie between the dotted lines, {MARGIN:.0%} too slow and {MARGIN:.0%} "
        f"too fast; on the solid line prediction equals measurement.{shown}",
        figure={
            "data": [*data, *_guides([row.run.step_time or 1.0 for row in timed])],
            "layout": layout(
                560,
                xaxis={**axis, "title": {"text": "measured step time"}},
                yaxis={**axis, "title": {"text": "predicted step time"}},
            ),
        },
        columns=("software stack", "runs", "median error", "within 20%"),
        rows=tuple(_stack_row(name, [(row.ratio or 1.0) - 1.0 for row in rows]) for name, rows in stacks),
    )


def _stack_row(name: str, errors: Sequence[float]) -> tuple[str, ...]:
    within = sum(abs(error) <= MARGIN for error in errors) / len(errors)
    return (name, f"{len(errors):,}", f"{median(map(abs, errors)):.1%}", f"{within:.0%}")


def drawn(rows: Sequence[Priced], of: int) -> Sequence[Priced]:
    """Those of the rows that the plot shows: all, or every so many by their error where there are too many to draw."""
    step = -(-of // MOST_POINTS)
    return rows if step <= 1 else sorted(rows, key=lambda row: row.ratio or 1.0)[::step]


def _points(rows: Sequence[Priced], index: int) -> dict[str, Any]:
    texts = [
        f"{row.run.id}: {row.run.row.get('model', '')}, {row.run.row.get('gpus', '')} × {row.run.row.get('gpu', '')}, "
        f"{f'{row.run.plan.summary()}, ' if row.run.plan else ''}measured {cell(row.run.step_time, 's')}, predicted "
        f"{cell(row.step_time, 's')}, error {(row.ratio or 1.0) - 1.0:+.1%}"
        for row in rows
    ]
    return {
        "x": [row.run.step_time for row in rows],
        "y": [row.step_time for row in rows],
        "mode": "markers",
        "text": texts,
        "marker": {
            "size": 6,
            "opacity": 0.65,
            "color": PALETTE[index % len(PALETTE)],
            "symbol": SYMBOLS[(index // len(PALETTE)) % len(SYMBOLS)],
        },
    }


def _guides(measured: Sequence[float]) -> list[dict[str, Any]]:
    """The diagonal and the lines of MARGIN beside it."""
    ends = [min(measured) / 1.5, max(measured) * 1.5] if measured else []
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": ends,
            "y": [end * factor for end in ends],
            "marker": {"color": GREY},
            "line": {"color": GREY, "width": 1, "dash": dash},
            "showlegend": False,
        }
        for factor, dash in ((1.0, "solid"), (1.0 + MARGIN, "dot"), (1.0 - MARGIN, "dot"))
        if ends
    ]
