import pytest

from optimizer.reports.render.screen import printable, screen_text, screen_width, wants_colour
from optimizer.reports.report import Report, Table, columns, section


def test_colour_only_when_asked() -> None:
    assert "\x1b[" in screen_text(Report(title="x", tone="bad"), width=80, colour=True)
    assert screen_text(Report(title="x", tone="bad"), width=80, colour=False) == "x\n"


@pytest.mark.parametrize(("columns", "width"), [("40", 80), ("97", 97), ("300", 120)])
def test_width_follows_the_terminal_within_limits(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert screen_width() == width


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no-such-encoding"])
def test_poor_terminals_get_plain_characters(encoding: str) -> None:
    assert printable("— █░", encoding) == "- #."
    assert printable("5 × 3", "utf-8") == "5 × 3"


@pytest.mark.parametrize(
    ("width", "row"),
    [
        (90, f" alpha  some words that explain it in a row  {'█' * 18}{'░' * 18}   1.5 s"),
        (89, f" alpha  some words that explain it in a row  {'█' * 12}{'░' * 12}   1.5 s"),
        (77, f" alpha  some words that explain it in a     {'█' * 12}{'░' * 12}   1.5 s"),
        (50, f" alpha  some     {'█' * 12}{'░' * 12}   1.5 s"),
        (49, f"alpha some words {'█' * 12}{'░' * 12}  1.5 s"),
    ],
)
def test_bars_are_shorter_then_words_wrap_and_then_gaps_are_narrow(width: int, row: str) -> None:
    rows = [["alpha", "some words that explain it in a row", 0.5, 1.5], ["b", "short", 1.0, 0.25]]
    table = Table(columns("name | why ~ | share [bar] | time [s]"), rows)
    text = screen_text(Report(title="T", sections=(section("H", table),)), width=width, colour=False)
    assert text.splitlines()[4] == row
