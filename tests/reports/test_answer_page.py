"""The report of one answer as a page: its numbers add up, nothing comes from elsewhere, no plan is a page too."""

import re
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from optimizer.cli import cli
from optimizer.commands.request import Request, job_of
from optimizer.reports.plan_charts import losses, memory_chart, waterfall
from optimizer.reports.plan_report import plan_report
from optimizer.reports.plan_tiles import Budget, tiles
from optimizer.reports.render.html import report_page
from optimizer.search.plan.planner import plan

JOBS = {
    "dense": Request(model="llama3-8b", gpus=64, limits={}),
    "recomputed": Request(model="gpt3", gpus=64, cluster="dgx-a100-80", limits={"fixed": {"recompute": "full"}}),
    "mixture": Request(model="mixtral-8x7b", gpus=64, limits={}),
    "quantised": Request(model="llama3-8b", gpus=64, dtype="fp8", limits={}),
}


@cache
def answer(name: str):
    return plan(job_of(JOBS[name])[0], trials=0)


@pytest.mark.parametrize("name", JOBS)
def test_losses_lead_from_the_peak_to_the_mfu(name: str) -> None:
    found = answer(name)
    shares = {loss.name: loss.share for loss in losses(found.job, found.estimate)}
    assert 1.0 - sum(shares.values()) == pytest.approx(found.estimate.mfu)
    assert all(share > -0.02 for share in shares.values())
    assert ("recomputation" in shares) == (found.estimate.hfu > found.estimate.mfu)


def test_bars_of_the_waterfall_hang_from_each_other() -> None:
    found = answer("dense")
    bars = waterfall(found.job, found.estimate).figure["data"][0]
    ends = [base + size for base, size in zip(bars["base"], bars["x"], strict=True)]
    assert ends[:2] == pytest.approx([100, 100])
    assert ends[2:-1] == pytest.approx(bars["base"][1:-2])
    assert ends[-1] == pytest.approx(100 * found.estimate.mfu)
    assert bars["base"][-2] == pytest.approx(ends[-1], abs=0.1)  # what is too small to be seen is not drawn


def test_memory_adds_up_beside_what_is_usable() -> None:
    found = answer("dense")
    chart = memory_chart(found.job, found.plan, found.estimate)
    bars = [trace["x"][0] for trace in chart.figure["data"] if trace["type"] == "bar"]
    assert sum(bars) == pytest.approx(found.estimate.reserved / 1e9)
    assert f"{found.job.usable_memory / 1e9:.1f} GB usable" in chart.words


def test_days_and_dollars_of_a_run() -> None:
    found = answer("dense")
    tokens = found.job.tokens / found.estimate.step_time * 86400
    asked = Budget(tokens=tokens, price="a quote", charged=lambda steps: (2 * steps, steps / 10))
    tile = tiles(found.job, found.plan, found.estimate, asked)[-1]
    assert tile.value == "2.0 days"
    assert tile.about == "8,640 USD, a quote; with failures"
    free = Budget(tokens=tokens, price="", charged=lambda steps: (steps, None))
    unpriced = tiles(found.job, found.plan, found.estimate, free)[-1]
    assert "no price is known" in unpriced.about


def test_the_page_needs_nothing_else_and_says_the_conclusion_first() -> None:
    found = answer("dense")
    page = report_page(plan_report(found, ["a & b"], command="optimize --model <llama>"))
    assert len(page) < 100_000
    assert "<script" not in page
    assert "<h1>Llama-3 8B on 64 × h100 — MFU" in page
    assert "optimize --model &lt;llama&gt;" in page
    assert "a &amp; b" in page
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    for row in ("element-wise", "products below peak", "MFU"):
        assert f'<div class="label">{row}</div>' in page
        assert f'<th scope="row">{row}</th>' in page


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    done = CliRunner().invoke(cli, ["--model", "llama3-8b", "--gpus", "8", "--trials", "0", "--html", str(path)])
    assert done.exit_code == 0
    assert f"wrote {path}" in done.stderr
    assert "Llama-3 8B on 8 × h100" in path.read_text(encoding="utf-8")


def test_an_answer_without_a_plan_says_which_rules_conflict(tmp_path: Path) -> None:
    path = tmp_path / "none.html"
    arguments = ["--model", "gpt3", "--gpus", "8", "--html", str(path)]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 3
    text = path.read_text(encoding="utf-8")
    assert "satisfies every rule" in text
    assert "cannot" in text
    assert "<svg" not in text.partition("<main>")[2]


def test_a_page_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    arguments = ["--model", "llama3-8b", "--gpus", "8", "--trials", "0", "--html", str(tmp_path / "no" / "plan.html")]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2
    assert "cannot be written: the folder" in done.stderr
