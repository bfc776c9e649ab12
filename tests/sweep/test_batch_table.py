"""A batch on the screen: counts by family, reasons, and names that are shown as they are."""

from __future__ import annotations

from optimizer.reports.render.screen import screen_text
from optimizer.sweep.progress import GUESSED, forecast, outlook_lines
from optimizer.sweep.report import batch_report, summary
from tests.sweep.fakes import tasks
from tests.sweep.test_results import results


def test_the_summary_counts_by_family_and_reason() -> None:
    found = summary("families", results())
    assert (found["jobs"], found["statuses"]) == (4, {"failed": 1, "infeasible": 1, "optimal": 2})
    llama = found["families"]["llama"]
    assert (llama["jobs"], llama["planned"], llama["infeasible"], llama["failed"]) == (4, 2, 1, 1)
    assert llama["best_mfu"] == max(whole["estimate"]["mfu"] for whole in results()[:2])
    assert (found["infeasible"], found["failures"]) == ({"memory": 1}, {"bad luck": 1})


def test_the_screen_shows_jobs_plans_and_reasons() -> None:
    text = screen_text(batch_report("families", results(), rows=3), width=120, colour=False)
    for part in (
        "families: 4 jobs, 1 failed, 1 infeasible, 2 optimal",
        "1 x memory",
        "1 x bad luck",
        "TP 8 SP",
        "1 more",
    ):
        assert part in text


def test_names_are_no_markup() -> None:
    wicked = results()
    wicked[0]["job"]["model"] = "[red]x[/red]"
    wicked[2]["error"] = "[link=http://example.com]click[/link]"
    text = screen_text(batch_report("[bold]b[/bold]", wicked, rows=4), width=120, colour=False)
    assert "[red]x[/red]" in text
    assert "[bold]b[/bold]" in text
    assert "[link=http://example.com]click[/link]" in text


def test_an_empty_choice_is_no_error() -> None:
    assert "0 jobs" in screen_text(batch_report("none", [], rows=5), width=80, colour=False)


def test_the_outlook_says_what_it_rests_on() -> None:
    seconds = 400 * GUESSED["dense"] / 2
    assert outlook_lines("study", forecast(tasks(400), [], 2)) == [
        "study: 400 jobs",
        f"about {seconds:.0f} s on 2 local processes (a guess; no job was measured yet)",
    ]
    few = outlook_lines("study", forecast(tasks(4), [], 2))
    assert few[1] == "some seconds on 2 local processes (a guess; no job was measured yet)"
    assert outlook_lines("none", forecast([], [], 2)) == ["none: 0 jobs", "nothing is left to plan"]
