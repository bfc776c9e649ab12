"""The charts of a purchase report, each with its words and the table of its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from optimizer.base.units import DAY
from optimizer.purchase.designs.points import Point, phases
from optimizer.purchase.dossier import Dossier
from optimizer.purchase.ranges import Range
from optimizer.purchase.units import J_PER_MWH, days, dollars, megawatt_hours
from optimizer.purchase.wording import filled
from optimizer.reports.charts.chart import INK, Chart, bars, figure, points
from optimizer.reports.charts.palette import PALETTE

# Okabe and Ito's colours, which people with any colour vision tell apart; the symbol says the same once more.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4d4d4d")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "pentagon")
LABEL_SIDES = ("top right", "bottom left")  # neighbours on the front are often of different kinds
LIMIT = "#8a1c1c"
ROW = 44  # height of a bar with two lines of label; the legend and the axis are as high [px]
SWING_CELLS = ("{swing.title}", "{swing:low}", "{swing:high}", "{costs[0]:dollars}", "{costs[1]:dollars}")
POINTED_AT = (  # what a pointer over a mark is shown
    "{design:label}: {f.time_to_train:days}, {f.cost:dollars}, {f.energy:megawatt_hours}; MFU {f.mfu:.1%}, "
    "goodput {f.goodput:.1%}"
)
MOST_SWINGS = 10
NOTICEABLE = 1e-3  # share of the cost that an input must move to be drawn
Limit = tuple[float, str] | None  # the value and its name


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A figure of the points, drawn along an axis: its name, the size of its unit, its title, and how it is written."""

    name: str
    size: float
    title: str
    write: Callable[[float], str]


TIME = Measure(name="time_to_train", size=DAY, title="time to train, days", write=days)
COST = Measure(name="cost", size=1e6, title="cost, million USD", write=dollars)
ENERGY = Measure(name="energy", size=J_PER_MWH * 1e3, title="energy of the site, GWh", write=megawatt_hours)


def time_cost(dossier: Dossier) -> Chart:
    """Time against cost of every design; the front in full colour with its intervals, the limits as lines."""
    bounds = dossier.purchase.campaign.bounds
    return _plane(
        dossier,
        ("time", TIME, (bounds.deadline, "deadline")),
        ("cost", COST, (bounds.budget, "budget")),
        title="Time against cost",
        words="Each mark is one design. Faint marks are beaten or break a limit; lines through a mark are its ranges. "
        "Both axes are logarithmic.",
    )


def cost_energy(dossier: Dossier) -> Chart:
    """Cost against energy of the site."""
    return _plane(
        dossier,
        ("cost", COST, (dossier.purchase.campaign.bounds.budget, "budget")),
        ("energy", ENERGY, None),
        title="Cost against energy",
        words="The same designs by what they cost and what the site uses.",
    )


def _plane(
    dossier: Dossier, across: tuple[str, Measure, Limit], upward: tuple[str, Measure, Limit], *, title: str, words: str
) -> Chart:
    """Every design as a mark between two axes; the table has those that are shown, with their ranges."""
    rows = []
    for number, point in enumerate(dossier.shown, start=1):
        row, ranges = [f"{number} {point.design.label()}"], dossier.range_of(point)
        for _, axis, _ in (across, upward):
            span = ranges[axis.name]
            row += map(axis.write, (getattr(point.figures, axis.name), span.low, span.high))
        rows.append(tuple(row))
    return Chart(
        name=f"{across[0]}_{upward[0]}",
        title=title,
        words=words,
        figure=_front(dossier, (across[1], upward[1]), (across[2], upward[2])),
        columns=("design", across[0], "from", "to", upward[0], "from", "to"),
        rows=tuple(rows),
    )


def tornado_chart(dossier: Dossier, advised: Point) -> Chart:
    """Cost of the advised design with each input at its low and at its high value."""
    middle = advised.figures.cost
    swings = [swing for swing in dossier.swings if swing.width("cost") > NOTICEABLE * middle][:MOST_SWINGS]
    ends = [cost for swing in swings for cost in swing.results["cost"]] or [middle]
    margin = 0.5 * max(max(ends) - min(ends), 0.05 * middle)
    across = [(min([*ends, middle]) - margin) / 1e6, (max([*ends, middle]) + margin) / 1e6]
    words = "Nothing moves it. "
    if swings:
        least, most = min(swings[0].results["cost"]), max(swings[0].results["cost"])
        words = f"{swings[0].title} moves it most, from {dollars(least)} to {dollars(most)}. "
    rows = [tuple(filled(cell, swing=swing, costs=swing.results["cost"]) for cell in SWING_CELLS) for swing in swings]
    return Chart(
        name="tornado",
        title="What moves the cost of the advised design",
        words=f"{words}The upright line is the cost with every input in its middle, {dollars(middle)}.",
        figure=figure(
            ROW * (len(swings) + 2),
            *(
                bars(
                    [f"{title}\n{low} to {high}" for title, low, high, *_ in rows],
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
            xaxis={"range": across, "title": {"text": COST.title}},
            yaxis={"autorange": "reversed"},
        ),
        columns=("input", "low", "high", "cost at low", "cost at high"),
        rows=tuple(rows),
    )


def _end(costs: Sequence[float], end: int, middle: float) -> str:
    """What stands at an end of a bar; nothing where the other end's bar, on the same side, goes on behind it."""
    mine, other = (cost - middle for cost in (costs[end], costs[1 - end]))
    return "" if mine * other > 0 and abs(other) > abs(mine) else dollars(costs[end])


def phase_chart(front: Sequence[Point]) -> Chart:
    """What each second of a step goes into, for each of the points."""
    shares = [{group: value / sum(row.values()) for group, value in row.items()} for row in map(phases, front)]
    names = [f"{number} {point.design.label()}" for number, point in enumerate(front, start=1)]
    groups = list(shares[0])
    return Chart(
        name="phases",
        title="Where a step's time goes",
        words="Of a training step of each design, in its own seconds.",
        figure=figure(
            ROW * (len(front) + 2),
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


def trace_chart(trace: Sequence[float]) -> Chart:
    """Dominated share of the box after each trial of the continuous search: flat means settled."""
    steps = [place for place, value in enumerate(trace) if not place or value != trace[place - 1]]
    return Chart(
        name="trace",
        title="Has the search settled?",
        words=f"After {len(trace):,} trials {trace[-1]:.4f}; it last grew at trial {steps[-1] + 1:,}.",
        figure=figure(
            320,
            points(range(1, len(trace) + 1), trace, COLOURS[0], "lines"),
            xaxis={"title": {"text": "trials of the continuous search"}},
            yaxis={"title": {"text": "hypervolume, share of the box"}},
        ),
        columns=("trial", "hypervolume"),
        rows=tuple((f"{place + 1:,}", f"{trace[place]:.4f}") for place in steps),
    )


def _front(dossier: Dossier, axes: tuple[Measure, Measure], limits: tuple[Limit, Limit]) -> Mapping[str, Any]:
    """Every design as a mark, in the colour and with the symbol of its kind."""
    purchase = dossier.purchase
    front = {id(point) for point in purchase.front}
    data = []
    for index, kind in enumerate(dict.fromkeys(point.design.kind for point in purchase.points)):
        mine = sorted((p for p in purchase.points if p.design.kind == kind), key=lambda p: p.design.gpus)
        for chosen in (False, True):
            designs = [point for point in mine if (id(point) in front) is chosen]
            if designs or chosen:  # a kind off the front keeps its entry in the legend
                data.append(_marks(dossier, designs, index, mine[0].design.title, axes, chosen=chosen))
    shapes, drawn = [], {}
    for name, axis, limit in zip("xy", axes, limits, strict=True):
        known = limit if limit and limit[0] < float("inf") else None
        drawn[f"{name}axis"] = _log_axis(dossier, axis, known[0] if known else None)
        if known:
            label = {"text": f"{known[1]}: {axis.write(known[0])}"}
            shapes.append({f"{name}0": known[0] / axis.size, "line": {"color": LIMIT, "dash": "dash"}, "label": label})
    return figure(470, *data, shapes=shapes, **drawn)


def _marks(
    dossier: Dossier, designs: Sequence[Point], index: int, title: str, axes: tuple[Measure, Measure], *, chosen: bool
) -> Mapping[str, Any]:
    """The marks of one kind on the front, numbered as in the tables and with their ranges, or off it."""
    numbers = {id(point): str(number) for number, point in enumerate(dossier.shown, start=1)}
    colour = COLOURS[index % len(COLOURS)]
    ranged = [dossier.range_of(point) if id(point) in numbers else None for point in designs]
    x, y = ([getattr(point.figures, axis.name) / axis.size for point in designs] for axis in axes)
    shape = {"symbol": SYMBOLS[index % len(SYMBOLS)]}
    return points(
        x,
        y,
        colour,
        "markers+text" if chosen else "markers",
        name=title,
        showlegend=chosen,
        text=[numbers.get(id(point), "") for point in designs],
        textposition=LABEL_SIDES[index % len(LABEL_SIDES)],
        hovertext=[filled(POINTED_AT, design=point.design, f=point.figures) for point in designs],
        marker=shape | ({"size": 13} if chosen else {"opacity": 0.35}),
        **{f"error_{name}": _spans(ranged, axis, colour) for name, axis in zip("xy", axes, strict=True)},
    )


def _spans(ranges: Sequence[Mapping[str, Range] | None], axis: Measure, colour: str) -> dict[str, Any]:
    """The error bars of marks; none where a mark has no ranges."""
    spans = [each and each[axis.name] for each in ranges]
    return {
        "array": [(span.high - span.mid) / axis.size if span else 0.0 for span in spans],
        "arrayminus": [(span.mid - span.low) / axis.size if span else 0.0 for span in spans],
        "color": colour,
    }


def _log_axis(dossier: Dossier, axis: Measure, limit: float | None) -> dict[str, Any]:
    """A logarithmic axis around the values, labelled at 1, 2, 3, 5 and 7."""
    values = [getattr(point.figures, axis.name) for point in dossier.purchase.points]
    values += [end for ranges in dossier.ranges for end in (ranges[axis.name].low, ranges[axis.name].high) if end > 0]
    values += [limit] if limit else []
    title = {"text": axis.title}
    if not values:
        return {"title": title}
    low, high = min(values) / axis.size / 1.15, max(values) / axis.size * 1.2
    powers = range(floor(log10(low)), ceil(log10(high)))
    ticks = [tick for power in powers for digit in (1, 2, 3, 5, 7) if low <= (tick := digit * 10.0**power) <= high]
    return {
        "type": "log",
        "range": [log10(low), log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{tick:,.10g}" for tick in ticks],
        "title": title,
    }
