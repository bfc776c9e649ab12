"""What a reader sees in the charts of a purchase."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from optimizer.purchase.campaign import Requirements
from optimizer.purchase.charts import TIME, _log_axis, cost_energy, phase_chart, time_cost, tornado_chart, trace_chart
from optimizer.purchase.dossier import Dossier
from optimizer.purchase.uncertainty.sensitivity import Swing
from tests.purchase.by_hand import DAY, by_hand, machine
from tests.purchase.campaigns import campaign


def moved(*widths: float) -> Dossier:
    """The dossier by hand, with inputs that move the cost of 50 million USD up by so much [USD]."""
    return by_hand(
        swings=tuple(
            Swing(name=f"{at}", title=f"{at}", low=1.0, high=2.0, unit="1", results={"cost": (50e6, 50e6 + width)})
            for at, width in enumerate(widths)
        )
    )


def tornado(*widths: float) -> Any:
    made = moved(*widths)
    assert made.advised is not None
    return tornado_chart(made, made.advised)


def test_the_ten_inputs_that_move_the_cost_by_more_than_a_thousandth_are_drawn() -> None:
    assert [row[0] for row in tornado(*[1e6] * 12).rows] == [str(at) for at in range(10)]
    assert [row[0] for row in tornado(50_001.0, 50_000.0, 49_999.0).rows] == ["0"]


def test_rows_of_bars_are_as_high_however_many_there_are() -> None:
    """Two lines of label of about 20 px each fit into one."""
    made = by_hand()
    charts = [tornado(*[1e6] * count) for count in (1, 4, 10)]
    charts += [phase_chart(made.shown * count) for count in (1, 4)]
    heights = {int(height) for chart in charts for height in re.findall(r"--row:(\d+)px", chart.drawn)}
    assert len(heights) == 1
    assert 40 <= heights.pop() <= 50


def test_a_search_is_drawn_trial_by_trial() -> None:
    trace = [0.1, 0.1, 0.2, 0.2]
    (line,) = trace_chart(trace).figure["data"]
    assert (line["x"], line["y"], line["mode"]) == ([1, 2, 3, 4], trace, "lines")


def test_what_is_chosen_is_the_larger_and_the_darker_of_two_marks() -> None:
    made = by_hand()
    second, first = made.purchase.points
    beaten = replace(first, figures=replace(first.figures, time_to_train=200 * DAY))
    drawn = time_cost(replace(made, purchase=replace(made.purchase, points=(second, first, beaten)))).drawn
    looks = [
        (float(opacity), float(scale))
        for opacity, scale in re.findall(r'opacity="(\S+)" transform="scale\((\S+)\)"', drawn)
    ]
    chosen, faint = {look for look in looks if look[0] == 1.0}, {look for look in looks if look[0] != 1.0}
    assert len(looks) == 3
    (((_, large),), ((pale, small),)) = chosen, faint
    assert 0.0 < pale < 0.5
    assert small < large


def test_a_kind_of_machine_has_a_look_of_its_own() -> None:
    """Its colour and symbol, of which there are seven, on the front and off it."""
    made = by_hand()
    kinds = ["a100", "h100", "h200", "b200", "gb200-nvl72", "mi300x", "mi355x", "tpu-v5p"]
    points = [machine("h100", time_to_train=(100 + at) * DAY, cost=50e6) for at in range(len(kinds))]
    points = [
        replace(point, design=replace(point.design, kind=kind)) for point, kind in zip(points, kinds, strict=True)
    ]
    front = tuple(points[:1])
    found = replace(made.purchase, points=tuple(points), front=front)
    marks = time_cost(replace(made, purchase=found, shown=front, ranges=made.ranges[:1])).figure["data"]
    looks = {mark["name"]: (mark["marker"]["color"], mark["marker"]["symbol"]) for mark in marks}
    assert len(looks) == len(kinds)
    assert len(set(looks.values())) == len({colour for colour, _ in looks.values()}) == 7
    assert looks["A100"] == looks["TPU V5P"]
    assert [mark["showlegend"] for mark in marks] == [True, *[False, True] * 7]
    assert [len(mark["x"]) for mark in marks] == [1, *[1, 0] * 7]
    sides = [mark["textposition"] for mark in marks if mark["showlegend"]]
    assert sides == ["top right", "bottom left"] * 4


def test_of_a_long_front_those_that_are_shown_have_numbers_and_ranges() -> None:
    made = by_hand()
    marks = {mark["name"]: mark for mark in time_cost(replace(made, shown=made.shown[1:])).figure["data"]}
    assert [marks[name]["text"] for name in ("MI300X", "H100")] == [[""], ["1"]]
    assert [bool(marks[name]["error_x"]["array"][0]) for name in ("MI300X", "H100")] == [False, True]


def test_only_limits_that_there_are_are_drawn() -> None:
    none, late = by_hand(), by_hand(campaign(bounds=Requirements(deadline=300 * DAY)))
    for chart in (time_cost, cost_energy):
        assert not chart(none).figure["layout"]["shapes"]
    (line,) = time_cost(late).figure["layout"]["shapes"]
    assert line["x0"] == 300
    low, high = time_cost(late).figure["layout"]["xaxis"]["range"]
    assert 10**low < 80 < 300 < 10**high
    assert time_cost(none).figure["layout"]["xaxis"]["range"][1] < high


@pytest.mark.parametrize("size", [1, 100])
def test_an_axis_is_labelled_up_to_both_its_ends(size: int) -> None:
    """Values from 1.15 to 2.5 have an axis from 1 to 3."""
    made = by_hand()
    points = tuple(machine("h100", time_to_train=value * size * DAY) for value in (1.15, 2.5))
    axis = _log_axis(replace(made, purchase=replace(made.purchase, points=points), ranges=()), TIME, None)
    assert [10**end for end in axis["range"]] == pytest.approx([size, 3 * size])
    assert axis["tickvals"] == [size, 2 * size, 3 * size]
    assert axis["ticktext"] == [f"{count * size}" for count in (1, 2, 3)]
