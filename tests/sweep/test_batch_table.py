"""A batch on the screen: counts by family, reasons, and names that are shown as they are."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.catalog import load_model
from optimizer.reports.render.screen import screen_text
from optimizer.sweep.progress import GUESSED, Forecast, forecast, outlook_lines
from optimizer.sweep.report import _family, _job, _listed, batch_report, family_rows, summary
from tests.sweep.fakes import tasks
from tests.sweep.test_results import results


def test_the_summary_counts_by_family_and_reason() -> None:
    found = summary("families", results())
    assert (found["jobs"], found["statuses"]) == (4, {"failed": 1, "infeasible": 1, "optimal": 2})
    llama = found["families"]["llama"]
    assert (llama["jobs"], llama["planned"], llama["infeasible"], llama["failed"]) == (4, 2, 1, 1)
    assert llama["best_mfu"] == max(whole["estimate"]["mfu"] for whole in results()[:2])
    assert (found["infeasible"], found["failures"]) == ({"memory": 1}, {"bad luck": 1})


def test_a_family_is_told_by_its_best_for_a_dollar_and_its_fastest() -> None:
    def whole(gpus: int, mfu: float, tokens: float | None, usd: float | None, status: str = "optimal") -> Any:
        return {
            "status": status,
            "job": {"model": "m", "gpus": gpus, "device": "h100", "family": "f"},
            "estimate": {"mfu": mfu},
            "costs": {"tokens_per_usd": tokens, "usd_per_mtoken": usd, "tokens_per_joule": gpus / 1e3},
        }

    fast, cheap, small = whole(2048, 0.5, 1e6, 0.3), whole(8, 0.4, 4e6, 0.2), whole(1, 0.3, None, None, "feasible")
    rest = [whole(4, 0.9, 9e9, 0.1, status) for status in ("failed", "failed", "infeasible")]
    found = _family([fast, cheap, small, *rest])
    assert found == {
        **{"jobs": 6, "planned": 3, "infeasible": 1, "failed": 2, "best_mfu": 0.5, "best_at": "m, 2,048 x h100"},
        **{"most_tokens_per_usd": 4e6, "most_tokens_at": "m, 8 x h100", "mfu_there": 0.4, "tokens_per_joule": 8e-3},
        "cheapest_usd_per_mtoken": 0.2,
    }
    assert family_rows({"f": found}) == [
        ("f", "6", "3", "1", "2", "4,000,000", "m, 8 x h100", "0.01", "40.0%"),
    ]
    (line,) = family_rows({"f": _family([small])})
    assert line == ("f", "1", "1", "0", "0", "", "m, 1 x h100", "", "30.0%")
    (line,) = family_rows({"f": _family(rest)})
    assert line == ("f", "3", "0", "1", "2", "", "", "", "")


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


def test_a_job_is_told_as_far_as_it_is_known() -> None:
    planned, *_, clash = results()
    planned["job"] |= {"gpus": 1024, "global_batch": None, "seq_len": 8192}
    planned["estimate"] |= {"mfu": 0.4567, "step_time_s": 2.5}
    planned["costs"]["tokens_per_usd"] = 1234567.8
    plan = "TP 8 SP, PP 1, DP 8, micro-batch 1, ZeRO-1"
    assert _job(planned) == ("llama3-8b", "dgx-h100", "1,024", "", "8,192", "1,234,568", "45.7%", "2.5 s", plan)
    assert _job(clash) == ("llama3-8b", "dgx-h100", "32", "512", "8,192", "", "", "", "infeasible: memory")


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


@pytest.mark.parametrize(("workers", "processes"), [(0, 1), (1, 1), (3, 3)])
def test_a_forecast_is_the_mean_of_each_kind_over_the_processes(workers: int, processes: int) -> None:
    """Of ten, dense but for the last, three took 1, 2 and 6 s, one is answered and one failed; one cannot be a job."""
    *asked, last = tasks(10)
    assert last.job is not None
    asked[8:] = replace(asked[8], job=None), replace(last, job=replace(last.job, model=load_model("mixtral-8x7b")))
    answered = [("optimal", 1.0), ("failed", 2.0), ("pending", 6.0), ("running", 0.0)]
    rows: list[Any] = [
        SimpleNamespace(key=task.key, status=status, seconds=seconds)
        for task, (status, seconds) in zip(asked, answered, strict=False)
    ]
    found = forecast(asked, rows, workers)
    assert (found.jobs, found.answered, found.impossible, found.measured) == (10, 1, 1, 3)
    assert found.seconds == pytest.approx(((10 - 3) * 3.0 + GUESSED["mixture of experts"]) / processes)
    guessed = forecast(asked, rows[3:], workers)
    assert (guessed.measured, guessed.answered) == (0, 0)
    assert guessed.seconds == pytest.approx((8 * GUESSED["dense"] + GUESSED["mixture of experts"]) / processes)


@pytest.mark.parametrize(
    ("seconds", "takes"), [(9.9, "some seconds"), (10.0, "about 10 s"), (99.4, "about 99 s"), (99.5, "about 2 min")]
)
def test_less_than_workers_take_to_start_is_some_seconds(seconds: float, takes: str) -> None:
    outlook = Forecast(jobs=2000, answered=1500, impossible=0, seconds=seconds, workers=1, measured=1200)
    assert outlook_lines("many", outlook) == [
        "many: 2,000 jobs",
        "1,500 of them have their answer in the store",
        f"{takes} on 1 local process (from 1,200 jobs measured in this store)",
    ]
    assert "3 of them cannot be jobs" in outlook_lines("many", replace(outlook, impossible=3))[2]


@pytest.mark.parametrize(("count", "lines"), [(12, 12), (13, 13), (15, 13)])
def test_twelve_reasons_are_listed(count: int, lines: int) -> None:
    reasons = {f"reason {n}": 1000 - n for n in range(count)}
    found = _listed(reasons)
    assert len(found) == lines
    assert found[:2] == ["1,000 x reason 0", "999 x reason 1"]
    assert (found[-1] == f"and {count - 12} other reasons") is (count > 12)


@pytest.mark.parametrize(("length", "kept"), [(150, 150), (151, 150)])
def test_a_long_reason_is_cut(length: int, kept: int) -> None:
    (line,) = _listed({"x" * length: 1})
    assert len(line) == len("1 x ") + kept
    assert line.endswith("…") is (length > kept)


@pytest.mark.parametrize(("rows", "more"), [(0, ""), (1, "3 more; "), (3, "1 more; "), (4, "")])
def test_jobs_that_are_not_shown_are_counted(rows: int, more: str) -> None:
    text = screen_text(batch_report("b", results(), rows=rows), width=120, colour=False)
    assert (f"{more}--rows or --export" in text) is bool(more)
    assert ("--rows" in text) is bool(more)


def test_the_outlook_says_what_it_rests_on() -> None:
    seconds = 400 * GUESSED["dense"] / 2
    assert outlook_lines("study", forecast(tasks(400), [], 2)) == [
        "study: 400 jobs",
        f"about {seconds:.0f} s on 2 local processes (a guess; no job was measured yet)",
    ]
    few = outlook_lines("study", forecast(tasks(4), [], 2))
    assert few[1] == "some seconds on 2 local processes (a guess; no job was measured yet)"
    assert outlook_lines("none", forecast([], [], 2)) == ["none: 0 jobs", "nothing is left to plan"]
