"""Measured runs answered at a risk: what would have gone out of memory, and what it would have cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from maintain.risk_replay import RISKS, answer, replay, table
from optimizer.calibration.runs import Run
from optimizer.calibration.validation import PricedRun
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from tests.measured import MEASURED, measured_runs


@pytest.fixture
def members(gpt3_job: Job) -> list[PricedRun]:
    """A fast plan that just fits by prediction and went out of memory, and a slower one with room that ran."""
    usable = gpt3_job.usable_memory

    def run(micro_batch: int, failed: bool, seconds: float | None) -> Run:
        plan = Plan(tp=8, pp=8, dp=16, micro_batch=micro_batch)
        return Run(
            id=str(micro_batch),
            row={},
            stack_name="x",
            job=gpt3_job,
            plan=plan,
            step_time=seconds,
            out_of_memory=failed,
        )

    return [
        PricedRun(run=run(2, True, None), step_time=6.0, reserved=0.98 * usable),
        PricedRun(run=run(1, False, 7.0), step_time=6.5, reserved=0.5 * usable),
    ]


def test_less_risk_picks_the_plan_with_room(members: list[PricedRun]) -> None:
    bold, safe = answer(members, 0.5), answer(members, 0.1)
    assert bold is members[0]
    assert safe is members[1]
    assert answer([replace(members[0], reserved=1e15)], 0.5) is None


@pytest.mark.skipif(not MEASURED.exists(), reason="needs the measured runs")
def test_answers_at_ten_percent_rarely_go_out_of_memory_and_cost_little() -> None:
    runs = [run for run in measured_runs() if run.job is not None]
    bold, safe = replay(runs, (0.5, 0.1))
    assert bold.groups == safe.groups >= 20
    assert safe.rate < 0.10
    assert safe.rate <= bold.rate
    assert safe.dearer <= 0.02


def test_the_table_has_a_row_for_each_risk() -> None:
    lines = table(replay([], RISKS))
    assert len(lines) == 2 + len(RISKS)
    assert lines[2].startswith("| 50% | 0 | 0 | 0 | 0.0% |")
