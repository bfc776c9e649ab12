import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optimizer.cli import cli
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.reports.render.html import report_page
from optimizer.studies.timeline import PipelineStudy, timeline_of
from optimizer.studies.timeline_report import (
    end_charts,
    pass_records,
    pipeline_chart,
    timeline_records,
    timeline_report,
)

COMMAND = ("timeline", "--model", "gpt3", "--gpus", "64", "--global-batch", "32", "--fix", "tp=4", "--fix", "pp=8")


def study(job: Job, **changes: Any) -> PipelineStudy:
    values = {"tp": 8, "pp": 8, "dp": 16, "num_microbatches": 96, "sequence_parallel": True} | changes
    return timeline_of(job, Plan(**values))


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({}, 1e-3),
        ({"vpp": 6, "schedule": "interleaved"}, 1e-3),
        ({"schedule": "zero-bubble"}, 1e-2),
        ({"recompute": "full"}, 1e-3),
    ],
)
def test_the_closed_form_tells_the_simulated_time(gpt3_job: Job, changes: dict[str, object], tolerance: float) -> None:
    assert abs(study(gpt3_job, **changes).error) < tolerance


def test_one_row_per_pass_and_one_per_stage(gpt3_job: Job) -> None:
    found = study(gpt3_job, schedule="zero-bubble")
    assert len(pass_records(found)) == 3 * 96 * 8
    rows = timeline_records(found)
    assert [row["stage"] for row in rows] == list(range(8))
    assert all(row["in flight"] == 8 for row in rows)


def test_the_chart_has_every_pass_and_needs_no_network(gpt3_job: Job) -> None:
    found = study(gpt3_job, vpp=6, schedule="interleaved")
    bars = pipeline_chart(found).figure["data"]
    assert sum(len(bar["x"]) for bar in bars) == 2 * 6 * 96 * 8
    assert len({colour for bar in bars for colour in bar["marker"]["color"]}) == 12
    page = report_page(timeline_report(found))
    assert "<script" not in page
    assert "stage 7" in page
    assert len(page) < 1.5e6


def test_beginning_and_end_are_drawn_once_more_where_there_are_many_micro_batches(gpt3_job: Job) -> None:
    found = study(gpt3_job)
    begin, end = end_charts(found)
    drawn = [int(text) for chart in (begin, end) for bar in chart.figure["data"] for text in bar["text"]]
    assert set(drawn) >= {0, 95}
    assert 48 not in drawn
    assert begin.rows[0] == ("0", "0 s")
    assert begin.words.startswith("Stage 7 waits before its first pass longest")
    assert end.words.startswith("Stage 7 waits after its last pass longest")


def test_the_command_prints_and_draws(tmp_path: Path) -> None:
    page = tmp_path / "gpt3.html"
    result = CliRunner().invoke(cli, [*COMMAND, "--html", str(page)], prog_name="optimize")
    assert result.exit_code == 0, result.output
    assert "the closed form says" in result.stdout
    assert "<svg" in page.read_text(encoding="utf-8")
    assert page.stat().st_size < 1.5e6


@pytest.mark.parametrize("command", ["timeline", "communication"])
@pytest.mark.parametrize(("hbm", "fits"), [("20GB", False), ("900GB", True)])
def test_a_plan_that_does_not_fit_is_said_wherever_it_is_shown(
    command: str, hbm: str, fits: bool, tmp_path: Path
) -> None:
    page = tmp_path / "plan.html"
    job = (
        command,
        "--model",
        "llama3-70b",
        "--gpus",
        "64",
        "--global-batch",
        "64",
        "--hbm-limit",
        hbm,
        "--fix",
        "tp=2",
    )
    runs = [[], ["--json", "--html", str(page)], ["--csv"]]
    runs += [["--network", "infiniband-ndr"], ["--network", "400Gb/s", "--json"]] if command == "communication" else []
    for more in runs:
        result = CliRunner().invoke(cli, [*job, "--fix", "pp=8", *more], prog_name="optimize")
        assert result.exit_code == 0, result.output
        assert ("warning: the plan does not fit in memory" in result.stderr) is not fits
        if "--json" in more:
            found = json.loads(result.stdout)
            assert found["fits"] is fits
            assert (found["reserved_bytes"] <= found["usable_bytes"]) is fits
        elif "--csv" not in more:
            assert ("The plan does not fit in memory" in result.stdout) is not fits
    assert ("The plan does not fit in memory" in page.read_text(encoding="utf-8")) is not fits


@pytest.mark.parametrize("command", ["timeline", "communication"])
def test_the_best_plan_is_studied_at_its_own_knobs(command: str) -> None:
    """Of one GPU, all optimizer state is in the host's memory, or nothing fits."""
    job = (command, "--model", "llama3-8b", "--gpus", "1", "--global-batch", "4", "--best", "--json")
    result = CliRunner().invoke(cli, job, prog_name="optimize")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["fits"] is True


def test_a_schedule_that_cannot_run_is_refused() -> None:
    result = CliRunner().invoke(cli, [*COMMAND, "--fix", "vpp=2", "--fix", "schedule=1f1b"], prog_name="optimize")
    assert result.exit_code == 2
    assert "Traceback" not in result.output
