"""The charts of a purchase report, as plotly figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor, log10
from typing import TYPE_CHECKING, Any

from optimizer.purchase.ranges import Range
from optimizer.purchase.report.rows import phases
from optimizer.purchase.report.units import J_PER_MWH, days, dollars, megawatt_hours, quantity
from optimizer.reports.figure import figure_fragment
from optimizer.units import DAY

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from optimizer.purchase.dossier import Dossier
    from optimizer.purchase.points import Point

# Okabe and Ito's colours, which people with any colour vision tell apart; the symbol says the same once more.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4d4d4d")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "pentagon")
PHASE_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#999999")
LABEL_SIDES = ("top right", "bottom left")  # neighbours on the front are often of different kinds
WIDTH = 1000
EMPTY = [None]  # a trace without marks, so that a kind off the front keeps its entry in the legend
INK, FAINT, LIMIT = "#1f2933", "#d9dee3", "#8a1c1c"


def charts(dossier: Dossier) -> dict[str, str]:
    """Every chart as an HTML fragment, by name; the page embeds plotly itself once."""
    figures = {
        "time_cost": time_cost(dossier),
        "cost_energy": cost_energy(dossier),
        "tornado": tornado_chart(dossier),
        "phases": phase_chart(dossier.shown),
        "trace": trace_chart(dossier.purchase.trace),
    }
    config = {"displaylogo": False, "displayModeBar": False, "staticPlot": False}
    return {
        name: figure_fragment(figure, f"chart-{name}", config) for name, figure in figures.items() if figure is not None
    }


def time_cost(dossier: Dossier) -> Figure:
    """Time against cost of every design; the front in full colour with its intervals, the limits as lines."""
    bounds = dossier.purchase.campaign.bounds
    figure = _front_chart(
        dossier,
        ("time_to_train", DAY, "time to train, days"),
        ("cost", 1e6, "cost, million USD"),
        f"deadline: {days(bounds.deadline)}" if bounds.deadline < float("inf") else "",
        f"budget: {dollars(bounds.budget)}" if bounds.budget < float("inf") else "",
        (bounds.deadline / DAY, bounds.budget / 1e6),
    )
    return figure


def cost_energy(dossier: Dossier) -> Figure:
    """Cost against energy of the site."""
    bounds = dossier.purchase.campaign.bounds
    return _front_chart(
        dossier,
        ("cost", 1e6, "cost, million USD"),
        ("energy", J_PER_MWH * 1e3, "energy of the site, GWh"),
        f"budget: {dollars(bounds.budget)}" if bounds.budget < float("inf") else "",
        "",
        (bounds.budget / 1e6, float("inf")),
    )


def tornado_chart(dossier: Dossier) -> Figure | None:
    """Cost of the advised design with each input at its low and at its high value."""
    from plotly.graph_objects import Bar, Figure

    if not dossier.advised:
        return None
    middle = dossier.advised.figures.cost
    swings = [swing for swing in dossier.swings if swing.width("cost") > 1e-3 * middle][:10][::-1]
    labels = [
        f"{swing.title}<br><span style='font-size:11px;color:#5b6770'>{quantity(swing.low, swing.unit, swing.name)} … "
        f"{quantity(swing.high, swing.unit, swing.name)}</span>"
        for swing in swings
    ]
    figure = Figure()
    for end, side, colour in ((0, "input at its low value", COLOURS[0]), (1, "input at its high value", COLOURS[1])):
        figure.add_trace(
            Bar(
                y=labels,
                x=[(swing.results["cost"][end] - middle) / 1e6 for swing in swings],
                base=middle / 1e6,
                orientation="h",
                name=side,
                marker={"color": colour, "pattern": {"shape": "" if end == 0 else "/"}},
                text=[_end_text(swing.results["cost"], end, middle) for swing in swings],
                textposition="outside",
                cliponaxis=False,
                hoverinfo="skip",
            )
        )
    figure.update_layout(barmode="overlay", bargap=0.35)
    _dress(figure, "cost, million USD", "", 110 + 52 * len(swings))
    ends = [cost for swing in swings for cost in swing.results["cost"]] or [middle]
    room = 0.12 * max(max(ends) - min(ends), 0.05 * middle)
    figure.update_xaxes(range=[(min([*ends, middle]) - room) / 1e6, (max([*ends, middle]) + room) / 1e6])
    figure.update_layout(margin={"l": 250})
    figure.add_vline(x=middle / 1e6, line={"color": INK, "width": 1})
    return figure


def _end_text(costs: tuple[float, float], end: int, middle: float) -> str:
    """The cost at one end of a swing; "" where the bar of the other end covers it."""
    mine, other = (abs(costs[index] - middle) for index in (end, 1 - end))
    covered = (costs[0] - middle) * (costs[1] - middle) > 0 and mine < other
    return "" if covered else dollars(costs[end])


def phase_chart(front: Sequence[Point]) -> Figure | None:
    """What each second of a step goes into, for each of the points."""
    from plotly.graph_objects import Bar, Figure

    if not front:
        return None
    rows = [phases(point) for point in front][::-1]
    names = [point.design.label() for point in front][::-1]
    figure = Figure()
    for group, colour in zip(rows[0], PHASE_COLOURS, strict=True):
        shares = [row[group] / sum(row.values()) for row in rows]
        figure.add_trace(
            Bar(
                y=names,
                x=shares,
                name=group,
                orientation="h",
                marker={"color": colour, "line": {"color": "white", "width": 1}},
                text=[f"{share:.0%}" if share >= 0.04 else "" for share in shares],
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
            )
        )
    figure.update_layout(barmode="stack", bargap=0.3)
    _dress(figure, "share of a training step", "", 130 + 34 * len(front))
    figure.update_xaxes(tickformat=".0%", range=[0, 1])
    figure.update_layout(margin={"l": 260}, legend={"traceorder": "normal"})
    return figure


def trace_chart(trace: Sequence[float]) -> Figure | None:
    """Dominated share of the box after each trial of the continuous search: flat means settled."""
    from plotly.graph_objects import Figure, Scatter

    if not trace:
        return None
    figure = Figure(Scatter(y=list(trace), mode="lines", line={"color": COLOURS[0], "width": 2, "shape": "hv"}))
    _dress(figure, "trials of the continuous search", "hypervolume, share of the box", 320)
    return figure


def _front_chart(
    dossier: Dossier,
    across: tuple[str, float, str],
    upward: tuple[str, float, str],
    limit_across: str,
    limit_upward: str,
    limits: tuple[float, float],
) -> Figure:
    from plotly.graph_objects import Figure, Scatter

    purchase = dossier.purchase
    (x, x_size, x_title), (y, y_size, y_title) = across, upward
    figure = Figure()
    kinds = list(dict.fromkeys(point.design.kind for point in purchase.points))
    front = {id(point) for point in purchase.front}
    numbers = {id(point): str(number) for number, point in enumerate(dossier.shown, start=1)}
    values = _values(purchase.points, x, x_size), _values(purchase.points, y, y_size)
    for index, kind in enumerate(kinds):
        colour, symbol = COLOURS[index % len(COLOURS)], SYMBOLS[index % len(SYMBOLS)]
        mine = sorted((p for p in purchase.points if p.design.kind == kind), key=lambda p: p.design.gpus)
        for chosen in (False, True):
            points = [point for point in mine if (id(point) in front) is chosen]
            if not points and not chosen:
                continue
            bars = [dossier.range_of(point) if id(point) in numbers else None for point in points] if chosen else []
            figure.add_trace(
                Scatter(
                    x=_values(points, x, x_size) or EMPTY,
                    y=_values(points, y, y_size) or EMPTY,
                    mode="markers+text" if chosen else "markers",
                    name=mine[0].design.title,
                    legendgroup=kind,
                    showlegend=chosen,
                    text=[numbers.get(id(point), "") for point in points],
                    textposition=LABEL_SIDES[index % len(LABEL_SIDES)],
                    textfont={"size": 12, "color": INK, "weight": 700},
                    hovertext=[_hover(point) for point in points],
                    hoverinfo="text",
                    marker={
                        "symbol": symbol,
                        "size": 13 if chosen else 8,
                        "color": colour,
                        "opacity": 1.0 if chosen else 0.35,
                        "line": {"color": "white" if chosen else colour, "width": 1},
                    },
                    error_x=_bars(bars, x, x_size, colour),
                    error_y=_bars(bars, y, y_size, colour),
                )
            )
    _dress(figure, x_title, y_title, 470)
    _log_axis(figure.update_xaxes, [*values[0], *_spread(dossier, x, x_size), *_finite(limits[0])])
    _log_axis(figure.update_yaxes, [*values[1], *_spread(dossier, y, y_size), *_finite(limits[1])])
    for axis, value, text in (("x", limits[0], limit_across), ("y", limits[1], limit_upward)):
        if text:
            _limit_line(figure, axis, value, text)
    return figure


def _limit_line(figure: Figure, axis: str, value: float, text: str) -> None:
    """A dashed line with its name. Annotations on a logarithmic axis are placed by the logarithm, lines are not."""
    line = {"color": LIMIT, "width": 1.5, "dash": "dash"}
    note = {"text": text, "showarrow": False, "font": {"color": LIMIT, "size": 12}}
    if axis == "x":
        figure.add_vline(x=value, line=line)
        figure.add_annotation(x=log10(value), yref="paper", y=0.02, xanchor="right", xshift=-4, **note)
    else:
        figure.add_hline(y=value, line=line)
        figure.add_annotation(y=log10(value), xref="paper", x=1.0, xanchor="right", yshift=10, **note)


def _dress(figure: Figure, x_title: str, y_title: str, height: int) -> None:
    figure.update_layout(
        template="plotly_white",
        width=WIDTH,
        height=height,
        margin={"l": 70, "r": 30, "t": 50, "b": 60},
        font={"family": "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif", "size": 13, "color": INK},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.04, "xanchor": "left", "x": 0},
    )
    figure.update_xaxes(title=x_title, gridcolor=FAINT, zeroline=False)
    figure.update_yaxes(title=y_title, gridcolor=FAINT, zeroline=False)


def _log_axis(update: Callable[..., Any], values: Sequence[float]) -> None:
    """A logarithmic axis around the values, labelled at 1, 2 and 5."""
    if not values:
        return
    low, high = min(values) / 1.15, max(values) * 1.2
    ticks = [
        digit * 10.0**power
        for power in range(floor(log10(low)), floor(log10(high)) + 1)
        for digit in (1, 2, 3, 5, 7)
        if low <= digit * 10.0**power <= high
    ]
    update(
        type="log",
        range=[log10(low), log10(high)],
        tickmode="array",
        tickvals=ticks,
        ticktext=[f"{tick:,.10g}" for tick in ticks],
    )


def _values(points: Sequence[Point], name: str, size: float) -> list[float]:
    return [getattr(point.figures, name) / size for point in points]


def _spread(dossier: Dossier, name: str, size: float) -> list[float]:
    return [end / size for ranges in dossier.ranges for end in (ranges[name].low, ranges[name].high) if end > 0]


def _finite(value: float) -> list[float]:
    return [value] if value < float("inf") else []


def _bars(ranges: Sequence[Any], name: str, size: float, colour: str) -> dict[str, Any]:
    found = [each[name] if each else Range.exact(0.0) for each in ranges]
    return {
        "type": "data",
        "symmetric": False,
        "array": [(each.high - each.mid) / size for each in found],
        "arrayminus": [(each.mid - each.low) / size for each in found],
        "color": colour,
        "thickness": 0.8,
        "width": 3,
    }


def _hover(point: Point) -> str:
    found = point.figures
    return (
        f"<b>{point.design.label()}</b><br>{days(found.time_to_train)}, {dollars(found.cost)}, "
        f"{megawatt_hours(found.energy)}<br>MFU {found.mfu:.1%}, goodput {found.goodput:.1%}"
    )
