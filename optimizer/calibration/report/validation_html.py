"""A validation as one offline HTML page: predicted against measured, and the errors of every group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
from optimizer.reports.figure import figure_fragment
from optimizer.reports.page import rendered
from optimizer.reports.palette import FONT, GREY, GRID, PALETTE
from optimizer.reports.table import cell

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

TEMPLATE = "validation.html"
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "x")
MOST_POINTS = 10_000  # in the plot, which SVG draws: WebGL's programs would need a laxer content security policy
MARGIN = 0.2  # the dashed lines of the plot: 20 % too fast, 20 % too slow


def validation_page(validation: Validation, file: str) -> str:
    """The whole page; nothing in it is fetched from elsewhere."""
    from markupsafe import Markup

    overall = validation.overall
    chart = figure_fragment(scatter(validation), "chart", {"displaylogo": False}, library=True)
    return rendered(
        "optimizer.calibration.report",
        TEMPLATE,
        file=file,
        headline=headline(validation),
        lines=[line for line in (coverage_line(overall) if overall else "", set_aside_line(validation)) if line],
        chart=Markup(chart),
        columns=[column.label for column in TIME_COLUMNS],
        groups=[(name, _rows(validation, by)) for by, name in TITLES.items() if validation.by(by)],
        memory=memory_lines(overall) if overall else [],
        choice=choice_lines(overall) if overall else [],
        worst=[_worst(row) for row in worst(validation.rows)],
    )


def _rows(validation: Validation, by: str) -> list[list[str]]:
    scores = sorted(validation.by(by), key=lambda score: -score.rows)
    units = [column.unit for column in TIME_COLUMNS]
    return [
        [score.name, *(cell(value, unit) for value, unit in zip(time_cells(score), units, strict=True))]
        for score in scores
    ]


def _worst(row: Priced) -> list[str]:
    error = (row.ratio or 1.0) - 1.0
    return [row.run.id, cell(row.run.step_time, "s"), cell(row.step_time, "s"), f"{error:+.0%}", suspicion(row)]


def scatter(validation: Validation) -> Figure:
    """Predicted over measured step time, one colour and symbol per stack, on logarithmic axes."""
    from plotly.graph_objects import Figure

    figure = Figure()
    timed = [row for row in validation.rows if row.clean and row.ratio]
    stacks = gathered(timed, lambda row: row.run.stack_name)
    for index, (name, rows) in enumerate(sorted(stacks.items(), key=lambda item: -len(item[1]))):
        figure.add_scatter(name=f"{name} ({len(rows):,})", **_points(drawn(rows, len(timed)), index))
    _guides(figure, [row.run.step_time or 1.0 for row in timed])
    axis = {"type": "log", "gridcolor": GRID, "exponentformat": "SI", "dtick": 1, "ticksuffix": " s"}
    figure.update_xaxes(title="measured step time", **axis)
    figure.update_yaxes(title="predicted step time", **axis)
    shown = f", every {step}th drawn" if (step := -(-len(timed) // MOST_POINTS)) > 1 else ""
    figure.update_layout(
        template="plotly_white",
        font={"family": FONT, "size": 13},
        height=640,
        margin={"l": 80, "r": 10, "t": 40, "b": 60},
        legend={"title": {"text": f"software stack (runs{shown})"}},
    )
    return figure


def drawn(rows: Sequence[Priced], of: int) -> Sequence[Priced]:
    """Those of the rows that the plot shows: all, or every so many by their error where there are too many to draw."""
    step = -(-of // MOST_POINTS)
    return rows if step <= 1 else sorted(rows, key=lambda row: row.ratio or 1.0)[::step]


def _points(rows: Sequence[Priced], index: int) -> dict[str, Any]:
    texts = [
        f"{row.run.id}<br>{row.run.row.get('model', '')}, {row.run.row.get('gpus', '')} × {row.run.row.get('gpu', '')}"
        f"<br>{row.run.plan.summary() if row.run.plan else ''}<br>error {(row.ratio or 1.0) - 1.0:+.1%}"
        for row in rows
    ]
    return {
        "x": [row.run.step_time for row in rows],
        "y": [row.step_time for row in rows],
        "mode": "markers",
        "text": texts,
        "hovertemplate": "%{text}<br>measured %{x:.4g} s, predicted %{y:.4g} s<extra></extra>",
        "marker": {
            "size": 6,
            "opacity": 0.65,
            "color": PALETTE[index % len(PALETTE)],
            "symbol": SYMBOLS[(index // len(PALETTE)) % len(SYMBOLS)],
        },
    }


def _guides(figure: Figure, measured: Sequence[float]) -> None:
    """The diagonal and the lines of MARGIN beside it."""
    if not measured:
        return
    ends = [min(measured) / 1.5, max(measured) * 1.5]
    for factor, dash in ((1.0, "solid"), (1.0 + MARGIN, "dot"), (1.0 - MARGIN, "dot")):
        figure.add_scatter(
            x=ends,
            y=[end * factor for end in ends],
            mode="lines",
            line={"color": GREY, "width": 1, "dash": dash},
            showlegend=False,
            hoverinfo="skip",
        )
