"""The purchase reports: contract of the JSON, CSV, Markdown, and a page that needs nothing from elsewhere."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import pytest

from optimizer.answer.answer import Answer
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.offers import PriceBook
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.flops import model_flops
from optimizer.purchase.as_json import purchase_csv, purchase_json
from optimizer.purchase.assumptions import assumptions
from optimizer.purchase.campaign import Campaign, Design, Requirements, TrainingRun
from optimizer.purchase.designs.outer import Grid
from optimizer.purchase.designs.pareto import pareto
from optimizer.purchase.designs.points import bottleneck, phases
from optimizer.purchase.dossier import Dossier, dossier
from optimizer.purchase.report import purchase_report
from optimizer.purchase.units import days, dollars, quantity
from optimizer.purchase.words import summary, vendor_questions
from optimizer.reports.charts.chart import Chart
from optimizer.reports.plan_words import plan_words
from optimizer.reports.render.html import report_page
from optimizer.reports.render.markdown import markdown_text
from optimizer.reports.render.screen import screen_text
from optimizer.reports.report import Pairs

DAY = 86400.0
YEARLY = PriceBook(term="reserved_1y", provider="market")
COMMAND = "optimize pareto --model llama3.1-405b --rent 'h100=<b>2</b>'"


def planner(job: Job) -> Answer:
    """A made-up plan of 40 % MFU, less on more GPUs."""
    mfu = 0.45 / (1 + job.gpus / 60_000)
    flops = model_flops(job.model, job.seq_len, job.tokens)
    step = flops / (mfu * job.gpus * job.peak_flops)
    estimate = Estimate(
        step_time=step,
        mfu=mfu,
        hfu=mfu,
        flops_per_gpu=flops / step / job.gpus,
        tokens_per_s_per_gpu=job.tokens / step / job.gpus,
        bubble_fraction=0.05,
        time={"gemm": 0.7 * step, "tp_communication": 0.2 * step, "bubble": 0.1 * step},
        memory={"weights": 60e9},
        reserved=60e9,
        allocated=58e9,
        all_hidden=0.9 * step,
        none_hidden=1.1 * step,
    )
    return Answer(status="optimal", job=job, plan=Plan(tp=8, pp=8, dp=16, num_microbatches=16), estimate=estimate)


def make(bounds: Requirements, buy: bool = False) -> Dossier:
    run = TrainingRun(model=load_model("llama3.1-405b"), tokens=15.6e12, seq_len=8192, global_batch=2048)
    campaign = Campaign(
        runs=(run,),
        stack=load_stack("megatron-core"),
        assumptions=assumptions(buy),
        bounds=bounds,
        buy=buy,
        book=YEARLY,
    )
    kinds = tuple(Design(kind=name, cluster=load_cluster(name), gpus=1) for name in ("h100", "b200"))
    found = pareto(campaign, Grid(kinds=kinds, gpus=(4096, 8192, 16384)), planner=planner)
    return dossier(found, kinds, deadline_for_fewest=60 * DAY, planner=planner)


@pytest.fixture(scope="module")
def answer() -> Dossier:
    return make(Requirements(deadline=120 * DAY, budget=200e6))


@pytest.fixture(scope="module")
def nothing() -> Dossier:
    return make(Requirements(deadline=1 * DAY, power=1e6))


def test_the_json_holds_the_contract(answer: Dossier) -> None:
    found = json.loads(purchase_json(answer, COMMAND))
    assert found["schema_version"] == 1
    assert found["evaluated"] == 6
    assert 0 < found["hypervolume"] < 1
    for row in found["front"]:
        assert {"device", "gpus", "time_to_train_days", "cost_usd", "energy_mwh", "mfu", "plan"} <= set(row)
        assert row["time_to_train_days"] <= 120
        low, high = row["ranges"]["cost_usd"]
        assert low < row["cost_usd"] < high
    assert found["command"] == COMMAND


def test_an_infeasible_answer_is_json_too(nothing: Dossier) -> None:
    found = json.loads(purchase_json(nothing))
    assert found["status"] == "infeasible"
    assert found["front"] == []
    assert {item["limit"] for item in found["nearest"][0]["excesses"]} == {"deadline", "power"}


def test_the_csv_has_a_line_for_every_design(answer: Dossier) -> None:
    rows = list(csv.DictReader(io.StringIO(purchase_csv(answer))))
    assert len(rows) == 6
    assert {row["front"] for row in rows} == {"True", "False"}
    assert float(rows[0]["energy_mwh"]) > 0


def test_markdown_and_screen_name_the_advice(answer: Dossier) -> None:
    assert answer.advised is not None
    label = answer.advised.design.label()
    assert label in markdown_text(purchase_report(answer, command=COMMAND))
    assert label in screen_text(purchase_report(answer), width=120, colour=False)


def test_the_summary_speaks_plainly_and_with_ranges(answer: Dossier) -> None:
    first = summary(answer)[0]
    assert re.match(r"Take [\d,]+ × B200\. Training ends after \d+ days \(\d+ days to \d+ days\)", first)
    assert any("MFU" in line for line in vendor_questions(answer))


def test_an_infeasible_summary_says_which_limit_and_what_is_nearest(nothing: Dossier) -> None:
    text = " ".join(summary(nothing))
    assert "Deadline: 6 of 6 designs miss it, by at least" in text
    assert "Nearest with B200" in text


def test_the_page_is_whole_and_escaped(answer: Dossier) -> None:
    page = report_page(purchase_report(answer, ["a note with <script>alert(1)</script>"], COMMAND))
    assert "<script" not in page
    assert len(page) < 250_000
    assert not re.findall(r'(?:src|href)="(?!#)[^"]+"', page)
    assert "&lt;script&gt;alert(1)" in page
    assert "&lt;b&gt;2&lt;/b&gt;" in page
    assert 'lang="en"' in page
    assert page.count('<div class="drawn">') == 4


def test_charts_hold_every_design_and_its_numbers(answer: Dossier) -> None:
    blocks = [block for section in purchase_report(answer).sections for block in section.blocks]
    found = {block.name: block for block in blocks if isinstance(block, Chart)}
    assert list(found) == ["time_cost", "cost_energy", "phases", "tornado"]
    marks = [trace["x"] for trace in found["time_cost"].figure["data"]]
    assert sum(map(len, marks)) == len(answer.purchase.points)
    assert [row[0] for row in found["time_cost"].rows] == [
        f"{number} {point.design.label()}" for number, point in enumerate(answer.shown, start=1)
    ]
    limits = [shape["label"]["text"] for shape in found["time_cost"].figure["layout"]["shapes"]]
    assert limits == ["deadline: 120 days", "budget: $200 M"]
    for chart in found.values():
        assert all(len(row) == len(chart.columns) for row in chart.rows)
        assert chart.rows
        assert chart.words
    moved = answer.swings[0].results["cost"]
    assert f"from {dollars(min(moved))} to {dollars(max(moved))}. " in found["tornado"].words
    ends = [shown.figures.cost for shown in answer.shown]
    drawn = found["time_cost"].drawn
    assert drawn.count('stroke-width="2"/>') >= 4 * len(ends)  # a range across and a range upward, each with caps
    assert sum(trace["x"][0] for trace in found["phases"].figure["data"]) == pytest.approx(100)


def test_a_choice_says_which_plan_it_runs_and_what_of_the_memory_it_takes(answer: Dossier) -> None:
    blocks = [block for section in purchase_report(answer).sections for block in section.blocks]
    cards = [dict(block.rows) for block in blocks if isinstance(block, Pairs) and "Bottleneck" in dict(block.rows)]
    assert len(cards) == len(answer.shown)
    for point, card in zip(answer.shown, cards, strict=True):
        (planned,) = point.answers
        assert planned.plan is not None
        assert planned.estimate is not None
        assert card["Plan"].startswith(f"{planned.plan.summary()}; ")
        assert card["Plan"].endswith(f", {planned.estimate.step_time:.2f} s a step of 2,048 sequences")
        assert (plan_words(planned.plan) in card["Plan"]) is (card is cards[0])  # of the first, in words
        assert card["Memory"] == f"60 of {planned.job.usable_memory / 1e9:.0f} GB per GPU"


def test_the_page_is_the_same_every_time(answer: Dossier) -> None:
    assert report_page(purchase_report(answer)) == report_page(purchase_report(answer))


def test_pages_without_an_answer_and_of_bought_machines_are_made_too(nothing: Dossier) -> None:
    assert "No design meets every limit" in report_page(purchase_report(nothing))
    assert "Price per GPU" in report_page(purchase_report(make(Requirements(), buy=True)))


def test_phases_add_up_to_the_step(answer: Dossier) -> None:
    point = answer.purchase.front[0]
    estimate = point.answers[0].estimate
    assert estimate is not None
    assert sum(phases(point).values()) == pytest.approx(estimate.step_time)
    assert bottleneck(point) == "communication (20% of the step)"


def test_what_is_beaten_is_beaten_in_everything(answer: Dossier) -> None:
    assert answer.dominated
    for item in answer.dominated:
        mine, theirs = item.point.figures, item.by.figures
        assert theirs.time_to_train <= mine.time_to_train
        assert theirs.cost <= mine.cost
        assert theirs.energy <= mine.energy


def test_units_for_people() -> None:
    assert days(float("inf")) == "never"
    assert quantity(5 * 365.25 * DAY, "s") == "5 years"
    assert quantity(50e9, "B/s") == "400 Gb/s"


def test_the_advised_design_is_on_the_front(answer: Dossier) -> None:
    assert answer.advised in answer.purchase.front
    assert replace(answer.purchase, seed=1).front == answer.purchase.front
