"""The bar of a notebook, sign by sign."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from optimizer.base.picture import COLOURS, REST, SMALL, WIDTH, bar

SVG = "{http://www.w3.org/2000/svg}"


def test_segments_are_shares_of_the_whole_and_each_has_its_place_in_the_legend() -> None:
    parts = {"c": 10.0, "a": 30.0, "b": 20.0, "d": 5.0, "none": 0.0, "x": 100 * SMALL, "y": 99.9 * SMALL, "z": 0.1}
    drawn = ET.fromstring(bar("A & B", parts, 100.0))
    boxes = [[each.get(name) for name in ("x", "y", "width", "height", "fill")] for each in drawn.iter(f"{SVG}rect")]
    texts = [(each.get("x"), each.get("y"), each.text) for each in drawn.iter(f"{SVG}text")]
    assert drawn.attrib == {
        "viewBox": f"0 0 {WIDTH} 90",
        "width": "720",
        "role": "img",
        "aria-label": "A & B: a 30.0%, b 20.0%, c 10.0%, d 5.0%, x 0.4%, the rest 0.5%",
        "style": "max-width:100%;font:12px sans-serif;fill:currentColor",
    }
    assert boxes[0] == ["0.0", "18", "720.0", "26", "none"]
    fills = [*COLOURS[:5], REST]
    ends = (("0.0", "216.0"), ("216.0", "144.0"), ("360.0", "72.0"), ("432.0", "36.0"), ("468.0", "2.9"))
    assert boxes[1::2] == [
        [x, "18", width, "26", fill] for (x, width), fill in zip((*ends, ("470.9", "3.6")), fills, strict=True)
    ]
    places = [("0.0", "52"), ("240.0", "52"), ("480.0", "52"), ("0.0", "70"), ("240.0", "70"), ("480.0", "70")]
    assert boxes[2::2] == [[x, y, "10.0", "10", fill] for (x, y), fill in zip(places, fills, strict=True)]
    assert texts == [
        ("0.0", "13", "A & B"),
        *(("15.0", "62", "a 30.0%"), ("255.0", "62", "b 20.0%"), ("495.0", "62", "c 10.0%")),
        *(("15.0", "80", "d 5.0%"), ("255.0", "80", "x 0.4%"), ("495.0", "80", "the rest 0.5%")),
    ]


def test_no_more_segments_than_colours_are_told_apart() -> None:
    drawn = ET.fromstring(bar("", {str(number): 1.0 for number in range(len(COLOURS) + 2)}, 20.0))
    names = [each.text for each in drawn.iter(f"{SVG}text")][1:]
    assert names == [*(f"{number} 5.0%" for number in range(len(COLOURS))), "the rest 10.0%"]
    assert "the rest" not in bar("", {str(number): 1.0 for number in range(len(COLOURS))}, 20.0)
