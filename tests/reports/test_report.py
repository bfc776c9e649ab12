"""A report of every kind of block, rendered: the same words everywhere, and each section where it belongs."""

from __future__ import annotations

import json

import pytest

from optimizer.reports.charts.bar_chart import bar_chart
from optimizer.reports.render.html import report_page
from optimizer.reports.render.json import json_text
from optimizer.reports.render.markdown import markdown_text
from optimizer.reports.render.screen import screen_text
from optimizer.reports.report import (
    BulletPoints,
    Heading,
    Pairs,
    Report,
    Table,
    Text,
    Tile,
    Tiles,
    columns,
    notes,
    section,
)

TABLE = Table(
    columns("name ~ | time [s] | share [%] | [bar]"), [("one <b>", 0.5, 0.25, 0.5), ("two", None, 1.0, 1.0)], [1]
)
CHART = bar_chart("c", "Chart", "s", ["x"], [1.0])
REPORT = Report(
    title="Title",
    subject=("Subject.",),
    warning="It does not fit.",
    conclusion=("First.", "Second."),
    sections=(
        section("Everywhere", "Words.", Heading("Within"), Pairs([("a", "b")]), BulletPoints(["point", ""]), TABLE),
        section("Only here", Text("as it is\n  written", block=True), on="screen"),
        section("Only there", Tiles([Tile(name="MFU", value="50%")]), CHART, on="page"),
        notes("Nothing", []),
    ),
    assumed=("a cluster",),
    command="optimize",
)


def test_the_screen_has_its_sections_and_the_page_its_own() -> None:
    screen, page = screen_text(REPORT, width=80, colour=False), report_page(REPORT)
    for words in (
        "Title",
        "Subject.",
        "It does not fit.",
        "First.",
        "Words.",
        "Within",
        "point",
        "500 ms",
        "a cluster",
    ):
        assert words in screen
        assert words in page
    assert "Only here" in screen
    assert "Only here" not in page
    assert "Only there" in page
    assert "Only there" not in screen
    assert "Nothing" not in screen + page
    assert "one &lt;b&gt;" in page
    assert '<tr class="strong">' in page
    assert page.count("<svg") >= 3  # the pattern, the bars, the chart


def test_numbers_stand_to_the_right_and_bars_are_as_long_as_their_share() -> None:
    rows = screen_text(REPORT, width=80, colour=False).splitlines()
    one, two = (next(row for row in rows if row.startswith(f" {name}")) for name in ("one", "two"))
    assert (one.count("█"), two.count("█")) == (18, 36)
    assert one.index("500 ms") + len("500 ms") == two.index("—") + 1


@pytest.mark.parametrize(("width", "gap"), [(80, " "), (120, "  ")])
def test_columns_move_together_where_there_is_little_room(width: int, gap: str) -> None:
    wide = Table(columns(" | ".join(f"heading {number}" for number in range(8))), [[f"value {n}" for n in range(8)]])
    text = screen_text(Report(title="", sections=(section("S", wide),)), width=width, colour=False)
    assert gap.join(f"heading {number}" for number in range(8)) in text
    assert "…" not in text


def test_markdown_has_what_the_screen_has() -> None:
    text = markdown_text(REPORT)
    assert text.startswith("# Title\n")
    assert "| name | time | share |  |" in text
    assert "- a: b" in text
    assert "Only here" in text
    assert "Only there" not in text


def test_json_has_no_number_that_is_none() -> None:
    assert json.loads(json_text({"a": (float("nan"), 1.0)})) == {"schema_version": 1, "a": [None, 1.0]}
