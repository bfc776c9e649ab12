"""Reports of studies in which a point has no value: the first, the last, or every one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from optimizer.cli import cli
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.step.estimate import Estimate
from optimizer.reports.charts.bar_chart import bar_chart
from optimizer.reports.charts.chart import figure, points
from optimizer.reports.charts.drawing import drawing
from optimizer.reports.render.html import report_page
from optimizer.reports.render.markdown import markdown_text
from optimizer.reports.render.screen import screen_text
from optimizer.reports.report import Report, Table, columns, section
from optimizer.reports.sensitivity_report import sensitivity_report
from optimizer.search.plan.best import Best
from optimizer.search.why.what_binds import Basin, Effect, Ring, Sensitivity, Variation
from optimizer.studies.communication import communication
from optimizer.studies.memory_need import MemoryNeed
from optimizer.studies.networks import bottleneck, network
from optimizer.studies.scaling import SERIES, ScalingPoint, ScalingStudy
from optimizer.studies.scaling_report import scaling_report
from optimizer.studies.strategies import Strategy
from optimizer.studies.strategies_report import networks_report, strategies_report
from tests.reports.test_why_reports import NOTHING

COUNTS = (8, 16, 32)
MISSING = {"none": (), "first": (0,), "last": (2,), "all": (0, 1, 2)}
VALUE = st.sampled_from([None, 0.0, float("nan"), float("inf"), -float("inf")]) | st.floats(1e-15, 1e15)


def shown(report: Report) -> str:
    """The report everywhere; the page."""
    for width in (80, 120):
        assert max(map(len, screen_text(report, width=width, colour=False).splitlines())) <= width
    assert markdown_text(report)
    page = report_page(report)
    assert not re.findall(r"\b(?:nan|inf)\b|>None<", re.sub(r"<(style|head).*?</\1>", "", page, flags=re.DOTALL))
    return page


@given(st.lists(VALUE, max_size=5), st.booleans(), st.booleans())
def test_any_values_can_be_drawn(values: list[float | None], wide: bool, limited: bool) -> None:
    labels = [f"row {number}" for number in range(len(values))]
    chart = bar_chart("c", "Chart", "B", labels, values, wide=wide, limit=3.0 if limited else None)
    assert "nan" not in chart.drawn
    assert "inf" not in chart.drawn
    assert len(chart.rows) == len(values)
    lines = points(list(range(len(values))), values, "#000000", "lines+markers", name="a", marker={"symbol": []})
    for kind in ("log", "linear"):
        drawn = drawing(figure(300, lines, points([], [], "#000000", "lines"), yaxis={"type": kind}), "x")
        assert "nan" not in drawn


@given(st.lists(st.lists(VALUE | st.text(max_size=5), min_size=3, max_size=3), max_size=4))
def test_any_values_stand_in_a_table(rows: list[list[Any]]) -> None:
    table = Table(columns("name ~ | size [B] | share [bar]"), rows)
    report = Report(title="T", sections=(section("S", table),))
    assert screen_text(report, width=80, colour=False)
    assert report_page(report)


@pytest.mark.parametrize("mode", ["strong", "weak"])
@pytest.mark.parametrize("best", MISSING)
@pytest.mark.parametrize("plain", MISSING)
def test_scaling_without_plans(plain: str, best: str, mode: str, gpt3_job: Job, estimate: Estimate) -> None:
    study = ScalingStudy(
        job=gpt3_job,
        mode=mode,
        points=tuple(
            ScalingPoint(series=name, gpus=gpus, global_batch=64, tokens=1000, note="no plan fits")
            if number in missing
            else ScalingPoint(
                series=name, gpus=gpus, global_batch=64, tokens=1000, plan=Plan(dp=gpus), estimate=estimate, fits=True
            )
            for number, gpus in enumerate(COUNTS)
            for name, missing in ((SERIES[0], MISSING[plain]), (SERIES[1], MISSING[best]))
        ),
    )
    assert "scaling" in shown(scaling_report(study, ["assumed"], {16: 0.4}))
    assert "scaling" in shown(scaling_report(study))


@pytest.mark.parametrize("missing", MISSING)
def test_strategies_that_are_not_possible(missing: str, llama_job: Job) -> None:
    plan = Plan(dp=16, num_microbatches=4)
    strategies = [
        Strategy(name=name, plan=plan, study=None, reasons=("the heads do not divide",))
        if number in MISSING[missing]
        else Strategy(name=name, plan=plan, study=communication(llama_job, plan))
        for number, name in enumerate(("dp", "fsdp", "tp"))
    ]
    page = shown(strategies_report(llama_job, strategies))
    assert page.count("is not possible") == len(MISSING[missing])


@pytest.mark.parametrize("names", [(), ("infiniband-ndr",), ("infiniband-ndr", "10Gb/s")])
def test_networks(names: Sequence[str], llama_job: Job) -> None:
    plan = Plan(dp=16, num_microbatches=4)
    verdicts = bottleneck(llama_job, plan, [network(name, llama_job) for name in names])
    silent = [replace(each, communication=0.0, needed=float("inf")) for each in verdicts]
    for found in (verdicts, silent):
        assert shown(networks_report(llama_job, plan, found, MemoryNeed(reserved=1.0, usable=2.0)))


@pytest.mark.parametrize("missing", MISSING)
def test_variations_without_a_plan(missing: str, gpt3_job: Job, gpt3_plan: Plan, estimate: Estimate) -> None:
    base = Best(job=gpt3_job, plan=gpt3_plan, knobs=Knobs(), estimate=estimate, swept=NOTHING)
    effects = tuple(
        Effect(
            variation=Variation(name=name, change="1 -> 2", kind="hardware", job=gpt3_job),
            best=None if number in MISSING[missing] else base,
            gain=-1.0 if number in MISSING[missing] else 0.1 * number,
            changed=(),
        )
        for number, name in enumerate(("NIC", "HBM", "peak"))
    )
    for found in (effects, ()):
        page = shown(
            sensitivity_report(
                Sensitivity(
                    base=base, effects=found, basin=Basin(rings=(Ring(share=0.02, plans=1, structures=0, values={}),))
                )
            )
        )
        assert page.count("no plan fits") == (len(MISSING[missing]) if found else 0)


@pytest.mark.parametrize(
    "command",
    [
        ("scaling", "--model", "gpt3", "--gpus", "8"),
        ("communication", "--model", "mixtral-8x7b", "--gpus", "1024", "--global-batch", "64", "--seq-len", "131072"),
    ],
)
def test_pages_of_jobs_that_nothing_fits(command: Sequence[str], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    done = CliRunner().invoke(cli, [*command, "--html", str(path)], prog_name="optimize")
    assert done.exit_code == 0, done.output
    assert "<h1>" in path.read_text(encoding="utf-8")
