"""The charts of a purchase report, each with its words and the table of its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import TYPE_CHECKING, Any

from optimizer.base.units import DAY
from optimizer.purchase.ranges import Range
from optimizer.purchase.rows import phases
from optimizer.purchase.units import J_PER_MWH, days, dollars, megawatt_hours, quantity
from optimizer.reports.charts.chart import INK, Chart, bars, figure, points
from optimizer.reports.palette import PALETTE

if TYPE_CHECKING:
    from optimizer.purchase.designs.points import Point
    from optimizer.purchase.dossier import Dossier

# Okabe and Ito's colours, which people with any colour vision tell apart; the symbol says the same once more.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4d4d4d")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "pentagon")
LABEL_SIDES = ("top right", "bottom left")  # neighbours on the front are often of different kinds
LIMIT = "#8a1c1c"
ROW = 44  # height of a bar with two lines of label [px]
MOST_SWINGS = 10
NOTICEABLE = 1e-3  # share of the cost that an input must move to be drawn
Axis = tuple[str, float, str]  # a figure of a point, the size of its unit, its title


def charts(dossier: Dossier) -> dict[str, Chart]:
    """Every chart that the purchase has something for, by name."""
    found = {
        "time_cost": time_cost(dossier),
        "cost_energy": cost_energy(dossier),
        "tornado": tornado_chart(dossier),
        "phases": phase_chart(dossier.shown),
        "trace": trace_chart(dossier.purchase.trace),
    }
    return {name: chart for name, chart in found.items() if chart}


def time_cost(dossier: Dossier) -> Chart:
    """Time against cost of every design; the front in full colour with its intervals, the limits as lines."""
    bounds = dossier.purchase.campaign.bounds
    x, y = ("time_to_train", DAY, "time to train, days"), ("cost", 1e6, "cost, million USD")
    return Chart(
        name="time_cost",
        title="Time against cost",
        words="Each mark is one design. Faint marks are beaten or break a limit; lines through a mark are its ranges. "
        "Both axes are logarithmic.",
        figure=_front(dossier, x, y, (bounds.deadline, "deadline", days), (bounds.budget, "budget", dollars)),
        columns=("design", "time", "from", "to", "cost", "from", "to"),
        rows=tuple(
            (name, *_span(point, ranges, "time_to_train", days), *_span(point, ranges, "cost", dollars))
            for name, point, ranges in _numbered(dossier)
        ),
    )


def cost_energy(dossier: Dossier) -> Chart:
    """Cost against energy of the site."""
    bounds = dossier.purchase.campaign.bounds
    x, y = ("cost", 1e6, "cost, million USD"), ("energy", J_PER_MWH * 1e3, "energy of the site, GWh")
    return Chart(
        name="cost_energy",
        title="Cost against energy",
        words="The same designs by what they cost and what the site uses.",
        figure=_front(dossier, x, y, (bounds.budget, "budget", dollars), None),
        columns=("design", "cost", "from", "to", "energy", "from", "to"),
        rows=tuple(
            (name, *_span(point, ranges, "cost", dollars), *_span(point, ranges, "energy", megawatt_hours))
            for name, point, ranges in _numbered(dossier)
        ),
    )


def tornado_chart(dossier: Dossier) -> Chart | None:
    """Cost of the advised design with each input at its low and at its high value."""
    if not dossier.advised:
        return None
    middle = dossier.advised.figures.cost
    swings = [swing for swing in dossier.swings if swing.width("cost") > NOTICEABLE * middle][:MOST_SWINGS]
    names = [
        f"{swing.title}\n{quantity(swing.low, swing.unit, swing.name)} to "
        f"{quantity(swing.high, swing.unit, swing.name)}"
        for swing in swings
    ]
    ends = [cost for swing in swings for cost in swing.results["cost"]] or [middle]
    room = 0.5 * max(max(ends) - min(ends), 0.05 * middle)
    across = [(min([*ends, middle]) - room) / 1e6, (max([*ends, middle]) + room) / 1e6]
    first = f"{swings[0].title} moves it most, " if swings else "Nothing moves it. "
    span = f"from {dollars(min(swings[0].results['cost']))} to {dollars(max(swings[0].results['cost']))}. "
    return Chart(
        name="tornado",
        title="What moves the cost of the advised design",
        words=f"{first}{span if swings else ''}The upright line is the cost with every input in its middle, "
        f"{dollars(middle)}.",
        figure=figure(
            80 + ROW * len(swings),
            *(
                bars(
                    names,
                    [(swing.results["cost"][end] - middle) / 1e6 for swing in swings],
                    COLOURS[end],
                    base=[middle / 1e6] * len(swings),
                    name=side,
                    marker={"pattern": {"shape": "/" if end else ""}},
                    text=[_end(swing.results["cost"], end, middle) for swing in swings],
                )
                for end, side in enumerate(("input at its low value", "input at its high value"))
            ),
            barmode="overlay",
            shapes=[{"x0": middle / 1e6, "line": {"color": INK}}],
            xaxis={"range": across, "title": {"text": "cost, million USD"}},
            yaxis={"autorange": "reversed"},
        ),
        columns=("input", "low", "high", "cost at low", "cost at high"),
        rows=tuple(
            (
                swing.title,
                quantity(swing.low, swing.unit, swing.name),
                quantity(swing.high, swing.unit, swing.name),
                *map(dollars, swing.results["cost"]),
            )
            for swing in swings
        ),
    )


def _end(costs: Sequence[float], end: int, middle: float) -> str:
    """What stands at an end of a bar; nothing where the other end's bar, on the same side, goes on behind it."""
    mine, other = (cost - middle for cost in (costs[end], costs[1 - end]))
    return "" if mine * other > 0 and abs(other) > abs(mine) else dollars(costs[end])


def phase_chart(front: Sequence[Point]) -> Chart | None:
    """What each second of a step goes into, for each of the points."""
    if not front:
        return None
    shares = [{group: value / sum(row.values()) for group, value in row.items()} for row in map(phases, front)]
    names = [f"{number} {point.design.label()}" for number, point in enumerate(front, start=1)]
    groups = list(shares[0])
    return Chart(
        name="phases",
        title="Where a step's time goes",
        words="Of a training step of each design, in its own seconds.",
        figure=figure(
            80 + ROW * len(front),
            *(
                bars(
                    names,
                    [100 * row[group] for row in shares],
                    colour,
                    name=group,
                    text=[f"{row[group]:.0%}" for row in shares],
                    textposition="inside",
                )
                for group, colour in zip(groups, PALETTE, strict=False)
            ),
            barmode="stack",
            xaxis={"range": [0, 100], "ticksuffix": "%"},
            yaxis={"autorange": "reversed"},
        ),
        columns=("design", *groups),
        rows=tuple((name, *(f"{row[group]:.1%}" for group in groups)) for name, row in zip(names, shares, strict=True)),
    )


def trace_chart(trace: Sequence[float]) -> Chart | None:
    """Dominated share of the box after each trial of the continuous search: flat means settled."""
    if not trace:
        return None
    steps = [place for place, value in enumerate(trace) if not place or value != trace[place - 1]]
    return Chart(
        name="trace",
        title="Has the search settled?",
        words=f"After {len(trace):,} trials {trace[-1]:.4f}; it last grew at trial {steps[-1] + 1:,}.",
        figure=figure(
            320,
            points(list(range(1, len(trace) + 1)), trace, COLOURS[0], "lines"),
            xaxis={"title": {"text": "trials of the continuous search"}},
            yaxis={"title": {"text": "hypervolume, share of the box"}},
        ),
        columns=("trial", "hypervolume"),
        rows=tuple((f"{place + 1:,}", f"{trace[place]:.4f}") for place in steps),
    )


def _front(dossier: Dossier, across: Axis, upward: Axis, *limits: tuple[float, str, Any] | None) -> Mapping[str, Any]:
    """Every design as a mark, in the colour and with the symbol of its kind."""
    purchase = dossier.purchase
    kinds = list(dict.fromkeys(point.design.kind for point in purchase.points))
    front = {id(point) for point in purchase.front}
    data = []
    for index, kind in enumerate(kinds):
        mine = sorted((p for p in purchase.points if p.design.kind == kind), key=lambda p: p.design.gpus)
        for chosen in (False, True):
            designs = [point for point in mine if (id(point) in front) is chosen]
            if designs or chosen:  # a kind off the front keeps its entry in the legend
                data.append(_marks(dossier, designs, index, mine[0].design.title, (across, upward), chosen=chosen))
    shapes = []
    for name, (_, size, _), limit in zip("xy", (across, upward), limits, strict=True):
        if limit and limit[0] < float("inf"):
            value, words, text = limit
            line = {"color": LIMIT, "dash": "dash"}
            shapes.append({f"{name}0": value / size, "line": line, "label": {"text": f"{words}: {text(value)}"}})
    ends = [limit[0] if limit and limit[0] < float("inf") else None for limit in limits]
    axes = [_log_axis(dossier, axis, end) for axis, end in zip((across, upward), ends, strict=True)]
    return figure(470, *data, shapes=shapes, xaxis=axes[0], yaxis=axes[1])


def _marks(
    dossier: Dossier, designs: Sequence[Point], index: int, title: str, axes: tuple[Axis, Axis], *, chosen: bool
) -> Mapping[str, Any]:
    """The marks of one kind on the front, numbered as in the tables and with their ranges, or off it."""
    numbers = {id(point): str(number) for number, point in enumerate(dossier.shown, start=1)}
    colour = COLOURS[index % len(COLOURS)]
    ranged = [dossier.range_of(point) if chosen and id(point) in numbers else None for point in designs]
    (x, x_size, _), (y, y_size, _) = axes
    shape = {"symbol": SYMBOLS[index % len(SYMBOLS)]}
    return points(
        [getattr(point.figures, x) / x_size for point in designs],
        [getattr(point.figures, y) / y_size for point in designs],
        colour,
        "markers+text" if chosen else "markers",
        name=title,
        showlegend=chosen,
        text=[numbers.get(id(point), "") for point in designs],
        textposition=LABEL_SIDES[index % len(LABEL_SIDES)],
        hovertext=[_told(point) for point in designs],
        marker=shape | ({"size": 13, "opacity": 1.0} if chosen else {"size": 8, "opacity": 0.35}),
        error_x=_spans(ranged, x, x_size, colour),
        error_y=_spans(ranged, y, y_size, colour),
    )


def _log_axis(dossier: Dossier, axis: Axis, limit: float | None) -> dict[str, Any]:
    """A logarithmic axis around the values, labelled at 1, 2, 3, 5 and 7."""
    name, size, title = axis
    values = [getattr(point.figures, name) / size for point in dossier.purchase.points]
    values += [end / size for ranges in dossier.ranges for end in (ranges[name].low, ranges[name].high) if end > 0]
    values += [limit / size] if limit else []
    if not values:
        return {"title": {"text": title}}
    low, high = min(values) / 1.15, max(values) * 1.2
    ticks = [
        digit * 10.0**power
        for power in range(floor(log10(low)), floor(log10(high)) + 1)
        for digit in (1, 2, 3, 5, 7)
        if low <= digit * 10.0**power <= high
    ]
    return {
        "type": "log",
        "range": [log10(low), log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{tick:,.10g}" for tick in ticks],
        "title": {"text": title},
    }


def _spans(ranges: Sequence[Any], name: str, size: float, colour: str) -> dict[str, Any]:
    found = [each[name] if each else Range.exact(0.0) for each in ranges]
    return {
        "array": [(each.high - each.mid) / size for each in found],
        "arrayminus": [(each.mid - each.low) / size for each in found],
        "color": colour,
    }


def _told(point: Point) -> str:
    found = point.figures
    return (
        f"{point.design.label()}: {days(found.time_to_train)}, {dollars(found.cost)}, "
        f"{megawatt_hours(found.energy)}; MFU {found.mfu:.1%}, goodput {found.goodput:.1%}"
    )


def _numbered(dossier: Dossier) -> list[tuple[str, Point, Any]]:
    """The designs that are shown, each with its number and its ranges."""
    return [
        (f"{number} {point.design.label()}", point, dossier.range_of(point))
        for number, point in enumerate(dossier.shown, start=1)
    ]


def _span(point: Point, ranges: Any, name: str, text: Any) -> tuple[str, str, str]:
    """A figure of a point with its range, as texts."""
    return text(getattr(point.figures, name)), text(ranges[name].low), text(ranges[name].high)
