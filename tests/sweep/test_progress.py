"""Progress: a line at the start, one a minute, one at the end; a bar on a terminal."""

from __future__ import annotations

import io
import re

import pytest

from optimizer.sweep import progress as module
from optimizer.sweep.progress import Lines, duration, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    stream = io.StringIO()
    with progress(100, "2 local processes", stream) as watch:
        watch(["optimal"] * 40)
        for _ in range(30):
            now[0] += 4.0
            watch(["optimal"])
        watch(["failed"] * 30)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "0 of 100 jobs on 2 local processes"
    # 15 in the first minute; the 40 of earlier runs are no part of the rate: (100 - 55) / (15 / 60 s) = 180 s
    assert lines[1] == "55 of 100 jobs on 2 local processes, 0.2 jobs/s, 3 min left"
    assert lines[-1] == "100 of 100 jobs on 2 local processes, 30 failed, 0.5 jobs/s"
    assert len(lines) == 4


def test_a_line_is_there_at_once() -> None:
    file = io.BytesIO()
    stream = io.TextIOWrapper(file)
    Lines(2, "one", stream).say()
    assert file.getvalue() == b"0 of 2 jobs on one\n"


def test_a_bar_on_a_terminal() -> None:
    stream = Terminal()
    with progress(4, "2 local processes", stream) as watch:
        watch([])
        watch(["optimal"] * 3 + ["failed"])
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "2 local processes" in text
    assert "4/4" in text
    assert "1 failed" in text


@pytest.mark.parametrize(("seconds", "rate"), [(1.0, ""), (2.0, "5.0 jobs/s")])
def test_a_bar_has_a_rate_after_a_second(seconds: float, rate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten jobs since it began; the 40 of earlier runs are none of them."""
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    stream = Terminal()
    with progress(100, "one", stream) as watch:
        watch(["optimal"] * 40)
        now[0] = 1000.0 + seconds
        watch(["optimal"] * 10)
    assert ("jobs/s" in stream.getvalue()) is bool(rate)
    assert rate in stream.getvalue()
    assert "50/100" in stream.getvalue()
    assert "failed" not in stream.getvalue()


def test_a_line_has_no_rate_where_nothing_was_done_or_no_time_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    now, stream = [1000.0], io.StringIO()
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    lines = Lines(10, "one", stream)
    for seconds, statuses in ((60.0, []), (60.0, ["optimal"] * 3), (0.0, ["failed"])):
        now[0] = 1000.0 + seconds
        lines.count(statuses)
        lines.say()
    assert stream.getvalue().splitlines() == [
        "0 of 10 jobs on one",
        "3 of 10 jobs on one, 0.1 jobs/s, 2 min left",
        "4 of 10 jobs on one, 1 failed",
    ]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0 s"), (99.4, "99 s"), (99.5, "2 min"), (5399.0, "90 min"), (5400.0, "1.5 h"), (86400.0, "24.0 h")],
)
def test_durations(seconds: float, told: str) -> None:
    assert duration(seconds) == told
