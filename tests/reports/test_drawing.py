"""Charts drawn without a program: what is drawn where, nothing outside, and reports that are the same shell."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from optimizer.cli import cli
from optimizer.reports.charts.axis import axis_of
from optimizer.reports.charts.chart import Chart, layout
from optimizer.reports.charts.drawing import drawing
from optimizer.reports.render.html import report_page
from optimizer.reports.report import Report, section

JOB = ("--model", "llama3-8b", "--gpus", "16", "--global-batch", "64")
STUDIES = {
    "timeline": ("timeline", *JOB, "--fix", "pp=2", "--fix", "tp=2"),
    "strategies": ("communication", *JOB),
    "plan": ("communication", *JOB, "--fix", "tp=4"),
    "networks": ("communication", *JOB, "--fix", "tp=4", "--network", "infiniband-ndr"),
    "scaling": ("scaling", *JOB[:2], *JOB[4:], "--gpus", "8,16"),
    "validate": ("validate",),
}


def bars(**more: Any) -> dict[str, Any]:
    trace = {"type": "bar", "orientation": "h", "y": ["a", "b"], "x": [1, 3], **more}
    return {"data": [trace], "layout": layout(200, xaxis={"range": [0, 4]}, yaxis={"autorange": "reversed"})}


@given(st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=9), st.sampled_from(["log", "linear"]))
def test_every_value_lies_on_its_axis_and_so_does_every_tick(values: list[float], kind: str) -> None:
    axis = axis_of({"type": kind}, values)
    assert all(-0.01 <= axis.at(value) <= 100.01 for value in values)
    assert all(-0.01 <= axis.at(value) <= 100.01 for value, _ in axis.ticks)
    assert len(axis.ticks) <= 9


def test_bars_are_as_long_as_their_values_and_rows_keep_their_order() -> None:
    found = drawing(bars(text=["one", "three"], textposition="outside"), "x")
    assert re.findall(r'<rect x="([\d.]+)%" y="12%" width="([\d.]+)%"', found) == [
        ("0.000", "25.000"),
        ("0.000", "75.000"),
    ]
    assert re.findall(r'<div class="label">(\w)</div>', found) == ["a", "b"]
    assert '<text x="75.000%" dx="5" y="50%">three</text>' in found


def test_stacked_bars_follow_each_other() -> None:
    figure = bars()
    figure["data"] = [*figure["data"], {**figure["data"][0], "name": "more", "x": [2, 1]}]
    figure["layout"] = {**figure["layout"], "barmode": "stack"}
    starts = re.findall(r'<rect x="([\d.]+)%"', drawing(figure, "x"))
    assert starts == ["0.000", "25.000", "0.000", "75.000"]


def test_names_are_texts_wherever_they_stand() -> None:
    attack = "</title><script>alert(1)</script>"
    figure = bars(name=attack, text=[attack, attack], hovertext=[attack, attack], textposition="outside")
    figure["data"][0]["y"] = [attack, "b"]
    found = drawing(figure, attack)
    assert "<script" not in found
    assert found.count("</title>") == 2


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="upright"):
        drawing(bars(orientation="v"), "x")
    with pytest.raises(ValueError, match="pie"):
        drawing({"data": [{"type": "pie"}], "layout": layout(100)}, "x")


def test_many_bars_are_one_path_and_can_be_widened() -> None:
    figure = bars()
    figure["data"][0].update(y=["a"] * 5000, x=[0.0004] * 5000, base=[at / 1250 for at in range(5000)])
    found = drawing(figure, "x")
    assert found.count("<path") == 1
    assert "16 times as wide" in found
    assert len(found) < 200_000


def test_a_report_says_its_conclusion_before_anything_is_drawn() -> None:
    chart = Chart(name="c", title="Chart", words="Words.", figure=bars(), columns=("a", "b"), rows=(("x", "1"),))
    page = report_page(
        Report(title="T", subject=("S",), conclusion=("First.", "Second."), sections=(section("H", chart),))
    )
    order = [
        page.index(text) for text in ("<h1>T</h1>", "First.", "<h2>H</h2>", '<div class="drawn"', "Words.", "<table>")
    ]
    assert order == sorted(order)


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The page that the command of a study writes, written once."""
    folder = tmp_path_factory.mktemp("pages")

    def page(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            done = CliRunner().invoke(cli, [*STUDIES[name], "--html", str(path)], prog_name="optimize")
            assert done.exit_code == 0, done.output
        return path

    return page


@pytest.mark.parametrize("name", STUDIES)
def test_every_report_is_the_same_shell_and_small(name: str, page_of: Callable[[str], Path]) -> None:
    page = page_of(name).read_text(encoding="utf-8")
    assert len(page) < 400_000
    assert "<script" not in page
    assert page.count("<h1>") == 1
    assert page.index('class="lead"') < page.index("<h2>")
    charts = page.count('<section class="chart"')
    assert charts >= 1
    assert len(re.findall(r'<p class="soft">[^<]{10,}</p>', page)) == charts
    assert page.count("<table>") >= charts


def test_reports_are_cut_nowhere_on_a_phone_or_on_paper(page_of: Callable[[str], Path], browser: Any) -> None:
    paths = [page_of(name) for name in ("plan", "validate", "timeline")]
    for width, media in ((420, "screen"), (688, "print")):  # A4 between margins of 14 mm
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.emulate_media(media=media)
        for path in paths:
            page.goto(f"file://{path}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate("document.documentElement.scrollHeight") < 10_000
            rows = "[...document.querySelectorAll('tr')].map(each => each.getBoundingClientRect().height)"
            assert (
                max(page.evaluate(rows)) < 150
            )  # words have room for themselves, at the price of a table that is moved sideways
            outside = page.evaluate(
                "width => [...document.querySelectorAll('.drawn text, .drawn rect, .label, .ticks span')]"
                ".filter(each => getComputedStyle(each).visibility !== 'hidden')"
                ".map(each => [each.textContent, each.getBoundingClientRect()])"
                ".filter(([, box]) => box.width && (box.right > width + 1 || box.left < -1)).map(([text]) => text)",
                width,
            )
            assert outside == []
        page.close()


def test_a_level_line_is_within_the_axis_it_stands_on() -> None:
    points = {"type": "scatter", "mode": "markers", "x": [1, 2], "y": [10, 20]}
    line = {"type": "line", "y0": 50, "y1": 50, "line": {"color": "#000"}, "label": {"text": "<ideal>"}}
    found = drawing({"data": [points], "layout": layout(300, shapes=[line])}, "x")
    (at,) = re.findall(r'<text class="named" x="100%" y="([\d.]+)%" dy="-8">&lt;ideal&gt;</text>', found)
    assert 0 < float(at) < 50
