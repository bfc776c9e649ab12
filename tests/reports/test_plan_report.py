from dataclasses import replace
from math import log

import pytest

from optimizer.answer.answer import Alternative, Answer, Certificate, NearTies, Safety
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.job.stack import Stack
from optimizer.objectives.step import interval as intervals
from optimizer.objectives.step.estimate import Estimate
from optimizer.objectives.step.interval import SIDES
from optimizer.reports.plan_charts import losses
from optimizer.reports.plan_report import plan_report
from optimizer.reports.plan_words import headline
from optimizer.reports.proof_lines import layout_line, ties_line
from optimizer.reports.render.screen import screen_text


def text(answer: Answer, width: int = 100, *, whole: bool = True) -> str:
    report = plan_report(answer, ["cluster dgx-h100 (--cluster)"], whole=whole)
    return screen_text(report, width=width, colour=False)


def row(report: str, start: str) -> str:
    return next(line for line in report.splitlines() if line.strip().startswith(start))


def test_headline(gpt3_answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "error_of", lambda *_: (0.0, log(1.25) / SIDES))
    answer = replace(gpt3_answer, job=replace(gpt3_answer.job, stack=Stack(name="mine", devices=("h100",))))
    # a step of 4 to 6.25 s: 48.2 x 5 / 6.25 = 38.6 %, 48.2 x 5 / 4 = 60.3 %
    assert headline(answer) == "GPT-3 175B on 1,024 × h100 — MFU 48.2% (38.6-60.2 at 90%), 5 s per step"
    assert "4 s to 6.25 s" in text(answer)
    assert "interpolated between measured runs" in " ".join(text(answer).split())


def test_a_step_whose_ends_are_a_factor_of_five_apart_is_not_known(
    gpt3_answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "error_of", lambda *_: (0.0, log(5) / 2 / SIDES))
    answer = gpt3_answer
    # 5 s / sqrt(5) to 5 s x sqrt(5)
    assert (
        headline(answer) == "GPT-3 175B on 1,024 × h100 — step time not known, a factor of 5: 2.24 s to 11.2 s at 90%"
    )
    shown = text(answer)
    assert "Where the time goes — not known" in shown
    assert "48.2%" not in shown
    assert "5 s per step" not in shown
    written = answer.to_dict()["estimate"]
    assert (written["interval_known"], written["step_time_s"]) == (False, 5.0)


def test_what_the_fastest_on_paper_would_gain_and_risk_is_told(gpt3_answer: Answer) -> None:
    assert gpt3_answer.plan is not None
    assert gpt3_answer.estimate is not None
    weighed = replace(gpt3_answer, job=replace(gpt3_answer.job, prefer="expected"))
    assert "on paper" not in text(replace(weighed, safety=Safety()), whole=False)
    other = replace(gpt3_answer.plan, tp=1, sequence_parallel=False)
    bold = Alternative(plan=other, knobs=Knobs(offload=0.5), estimate=gpt3_answer.estimate, slower=-0.013)
    told = text(replace(weighed, safety=Safety(fastest=bold)), whole=False)
    assert "1.3% faster on paper, fits with " in row(told, "fastest")
    assert row(told, "fastest").endswith(": optimizer on the host")
    hosted = replace(weighed, knobs=Knobs(offload=0.9))
    alike = replace(bold, plan=gpt3_answer.plan)
    told = text(replace(hosted, safety=Safety(fastest=alike)), whole=False)
    assert row(told, "fastest").endswith(": 50% of states on host")
    explained = " ".join(text(replace(weighed, safety=Safety(fastest=bold))).split())
    assert "1.3% slower than the fastest plan on paper" in explained


def test_time_and_memory_are_shares_of_the_step_and_of_the_usable_memory(gpt3_answer: Answer) -> None:
    report = text(gpt3_answer)
    assert "80.0%" in row(report, "matrix products")  # 4 of 5 s
    assert "15.0%" in row(report, "TP communication")  # 0.75 of 5 s
    usable = gpt3_answer.job.usable_memory
    assert f"{18e9 / usable:.1%}" in row(report, "activations")
    assert f"40.0 of {usable / 1e9:.1f} GB" in report
    assert "CP communication" not in report


def test_every_section_is_there(gpt3_answer: Answer) -> None:
    report = text(gpt3_answer)
    for part in (
        "TP 8 SP, PP 8 x VPP 6, DP 16",
        "96 of 1 per step, interleaved schedule",
        "Runners-up",
        "+2.0%",
        "Proven optimal, each plan at its own knobs: lower bound 5 s in this model, best 5 s, gap 0.00%,",
        "With what the model may err by at 90%, no run is expected to take less than",
        "3 other plans lie within 1 % of the best, 21 within 5 %",
        "by exhaustion",
        "exceeds anything measured",
        "cluster dgx-h100 (--cluster)",
        "Search: total 500 ms",
    ):
        assert part in report


def test_tp_at_the_edge_of_the_domain_binds_and_memory_at_half_does_not(gpt3_answer: Answer) -> None:
    report = text(gpt3_answer)
    limits = report[report.index("What binds") :]
    assert row(limits, "tp").endswith("binds")
    assert not row(limits, "memory").endswith("binds")


@pytest.mark.parametrize("width", [80, 100, 120])
def test_it_fits_the_width_and_has_no_colour(gpt3_answer: Answer, width: int) -> None:
    report = text(gpt3_answer, width)
    assert max(map(len, report.splitlines())) <= width
    assert "\x1b" not in report


def test_layers_of_uneven_stages_are_listed(gpt3_answer: Answer) -> None:
    answer = replace(gpt3_answer, plan=Plan(pp=4, dp=256, layers_per_stage=(23, 25, 25, 23)))
    assert "23 25 25 23" in text(answer)


def test_an_infeasible_job_shows_the_conflict(infeasible_answer: Answer) -> None:
    report = text(infeasible_answer)
    assert "This rule alone cannot hold" in report
    assert "the smallest plan needs 410 GB of 80 GB" in report
    assert "enough: 48 GPUs instead of 8" in report


def test_no_plan_in_time_says_what_to_do(infeasible_answer: Answer) -> None:
    report = text(replace(infeasible_answer, status="unknown", conflict=()))
    assert "no plan found within the time limit" in report
    assert "--time-limit" in report


def test_the_bound_over_all_knobs_is_told_as_best_over_bound(gpt3_answer: Answer) -> None:
    assert gpt3_answer.certificate is not None
    certificate = replace(gpt3_answer.certificate, knob_bound=4.9)
    report = " ".join(text(replace(gpt3_answer, certificate=certificate)).split())
    assert "takes less than 4.9 s in this model: this answer is within 2.0% of that bound" in report


def test_an_unproven_answer_says_so(gpt3_answer: Answer) -> None:
    assert gpt3_answer.certificate is not None
    certificate = replace(gpt3_answer.certificate, proven=False, lower_bound=4.0)
    report = text(replace(gpt3_answer, status="feasible", certificate=certificate))
    assert "Not proven optimal: lower bound 4 s in this model, best 5 s, gap 25.00%" in report


def test_on_one_stage_it_is_the_recomputing_that_gains() -> None:
    certificate = Certificate(proven=True, lower_bound=10.0, best=10.0, space=1, even=11.0)
    assert layout_line(certificate, 4) == "The layout gains 10.0% over the best even split, 11 s."
    words = "Recomputing some of the layers gains 10.0% over all of them or none, 11 s."
    assert layout_line(certificate, 1) == words


@pytest.mark.parametrize(
    ("one", "five", "words"),
    [
        (0, 0, "No other plan lies within 5 %"),
        (0, 1, "No other plan lies within 1 % of the best, 1 does within 5 %"),
        (1, 2, "1 other plan lies within 1 % of the best, 2 within 5 %"),
        (2, 1200, "2 other plans lie within 1 % of the best, 1,200 within 5 %"),
    ],
)
def test_near_ties_are_counted_in_words(one: int, five: int, words: str) -> None:
    assert ties_line(NearTies(within_1_percent=one, within_5_percent=five)).startswith(words)


def test_attention_loses_what_it_takes_above_its_scores_at_the_peak(gpt3_job: Job, estimate: Estimate) -> None:
    """Of a layer and a token: 2 products, forward and twice backward, of half the sequence by all heads."""
    spent = replace(estimate, time={"gemm": 3.0, "attention": 1.5, "bubble": 0.5}, hfu=0.55)
    model, peak = gpt3_job.model, gpt3_job.peak_flops
    flops = 3 * 2 * 2 * model.layers * (gpt3_job.seq_len + 1) / 2 * model.hidden * gpt3_job.tokens
    scores = flops / (gpt3_job.gpus * peak * spent.step_time)
    found = {loss.name: loss.share for loss in losses(gpt3_job, spent)}
    assert found["attention"] == pytest.approx(1.5 / 5 - scores, rel=1e-2)
    assert found["products"] == pytest.approx(3.0 / 5 - (0.55 - scores), rel=1e-2)
    assert found["recomputation"] == pytest.approx(0.55 - spent.mfu)
    assert "recomputation" not in {loss.name for loss in losses(gpt3_job, replace(spent, hfu=spent.mfu))}
