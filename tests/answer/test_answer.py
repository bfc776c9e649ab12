"""What an answer says of its own numbers: gaps, gains, what caution costs, tables and short texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optimizer.answer.answer import WIDEST, Alternative, Answer, Certificate, Clash, Safety, _lines
from optimizer.answer.keys import AnswerKeys, CertificateKeys, JobKeys, row
from optimizer.answer.reading import read_answer
from optimizer.answer.schema import written
from optimizer.base.errors import InvalidFile
from optimizer.job.plan import Plan
from optimizer.objectives.minimised.registry import NAMES
from optimizer.objectives.step.interval import interval

SURE: dict[str, Any] = {"proven": True, "lower_bound": 8.0, "space": 5}


def test_gaps_and_gains_are_ratios_less_one() -> None:
    proof = Certificate(best=10.0, even=12.0, **SURE)
    assert (proof.gap, proof.layout_gain) == (0.25, 0.2)
    assert (replace(proof, even=float("inf")).layout_gain, replace(proof, best=float("inf")).gap) == (
        None,
        float("inf"),
    )
    assert replace(proof, lower_bound=0.5).gap == 19.0
    alike = replace(proof, lower_bound=10.0 - 4e-12, even=10.0 + 4e-12)  # but for rounding
    assert (alike.gap, alike.layout_gain) == (0.0, 0.0)
    for space, candidates, all_held in ((5, 4, False), (5, 5, True), (1, 1, True), (0, 0, False)):
        assert replace(proof, space=space, candidates=candidates).held_all is all_held


def test_caution_costs_what_the_fastest_plan_would_save(gpt3_answer: Answer) -> None:
    (other,) = gpt3_answer.alternatives
    assert Safety().cost == 0.0
    assert Safety(fastest=replace(other, slower=-0.2)).cost == pytest.approx(0.25)


def test_no_run_is_expected_to_beat_the_low_end_less_the_gap(gpt3_answer: Answer) -> None:
    assert gpt3_answer.plan is not None
    assert gpt3_answer.estimate is not None
    low = interval(gpt3_answer.job, gpt3_answer.plan, gpt3_answer.estimate.step_time).low
    open_ = replace(gpt3_answer, certificate=Certificate(best=10.0, **SURE))
    assert (gpt3_answer.run_bound, open_.run_bound) == (pytest.approx(low), pytest.approx(low / 1.25))
    for less in ({"certificate": None}, {"plan": None}, {"estimate": None}):
        assert replace(gpt3_answer, **less).run_bound is None
    assert replace(gpt3_answer, certificate=Certificate(best=10.0, **SURE | {"lower_bound": 0.0})).run_bound is None


def test_an_answer_is_told_in_three_lines_and_in_a_table(gpt3_answer: Answer, infeasible_answer: Answer) -> None:
    step, job = gpt3_answer.estimate, gpt3_answer.job
    assert step is not None
    _, _, last = repr(gpt3_answer).splitlines()
    memory = f"{step.reserved / 1e9:.1f} of {job.usable_memory / 1e9:.1f} GB"
    assert last == f" {memory}, gap 0.00%, 1 runners-up>"
    assert "gap inf%" in repr(replace(gpt3_answer, certificate=None))
    assert repr(infeasible_answer).endswith("these rules cannot all hold: memory>")
    assert repr(replace(infeasible_answer, conflict=())).endswith("no plan was found>")
    assert _lines("a" * WIDEST, "b" * WIDEST) == f"{'a' * WIDEST}\n {'b' * (WIDEST - 1)}…"
    drawn = replace(step, memory={"weights": step.reserved})
    html = replace(gpt3_answer, estimate=drawn)._repr_html_()
    assert html.count(f"<td>{step.reserved / 1e9:.1f} GB</td>") == html.count("<tr><td>") == 2
    assert f"Where the memory goes: {memory} per GPU" in html
    frame = gpt3_answer.to_frame()
    assert frame["slower"].tolist() == [0.0, 0.02]
    assert frame["step_time_low_s"][0] < frame["step_time_s"][0] < frame["step_time_high_s"][0]
    assert frame["peak_reserved_low_bytes"][0] < frame["peak_reserved_high_bytes"][0]
    for less in ({"estimate": None}, {"estimate": None, "plan": None}):
        assert len(replace(gpt3_answer, **less, alternatives=()).to_frame()) == 0
    assert "pp" not in row({**gpt3_answer.to_dict()["alternatives"][0], "plan": {}})


def test_a_model_is_shown_by_its_title_or_else_its_name(gpt3_answer: Answer) -> None:
    for title, shown in (("A <b> model", ("A <b> model", "A &lt;b&gt; model")), ("", ("gpt3", "gpt3"))):
        job = replace(gpt3_answer.job, model=replace(gpt3_answer.job.model, title=title))
        answer = replace(gpt3_answer, job=job)
        text, html = shown
        assert repr(answer).startswith(f"<Answer optimal: {text} on 1,024 x ")
        assert replace(answer, plan=None)._repr_html_().startswith(f"<p><b>{html}</b> on 1,024 × ")


def test_what_is_usual_or_was_not_asked_for_has_no_key(gpt3_answer: Answer) -> None:
    plain, proof = gpt3_answer.to_dict(), Certificate(best=10.0, **SURE)
    assert AnswerKeys.table().keys() - plain.keys() == {"assumptions", "explain", "why_not", "robust"}
    of_job = {"train", "base", "optimizer", "loss", "lengths", "packing", "minimize", "prefer", "try_cost", "own_runs"}
    assert JobKeys.table().keys() - plain["job"].keys() == of_job
    assert CertificateKeys.table().keys() - CertificateKeys.of(proof, gpt3_answer).keys() == {"unit"}
    required = written(AnswerKeys).model_json_schema()["$defs"]["JobKeys"]["required"]
    assert of_job.isdisjoint(required)
    assert {*required, *of_job} == JobKeys.table().keys()


def test_remedies_are_what_is_enough_and_what_was_looked_at() -> None:
    cases = {("more", ""): "enough: more", ("", "tried"): "tried", ("a", "b"): "enough: a; b", ("", ""): ""}
    for (relaxation, note), said in cases.items():
        assert Clash(rule="memory", reason="", relaxation=relaxation, note=note).remedy == said


def test_keys_name_no_seconds_where_values_are_none(gpt3_answer: Answer) -> None:
    proof = Certificate(best=10.0, **SURE)
    other = next(name for name in NAMES if replace(proof, minimize=name).unit != "s")
    plain, valued = (CertificateKeys.of(replace(proof, minimize=name), gpt3_answer) for name in (proof.minimize, other))
    assert (plain["lower_bound_s"], valued["lower_bound"]) == (8.0, 8.0)
    of_values = ("lower_bound", "best", "knob_bound", "even_split")
    assert {f"{name}_s" for name in of_values} <= plain.keys() - valued.keys()
    assert {*of_values} <= valued.keys()
    assert ("unit" in plain, valued["unit"]) == (False, replace(proof, minimize=other).unit)
    assert (plain["even_split_s"], plain["best_s"], plain["gap"]) == (None, 10.0, 0.25)
    memory = gpt3_answer.to_dict()["estimate"]["memory_bytes"]
    assert gpt3_answer.estimate is not None
    assert (memory["peak_reserved"], memory["peak_allocated"]) == (
        gpt3_answer.estimate.reserved,
        gpt3_answer.estimate.allocated,
    )
    assert gpt3_answer.to_dict()["estimate"]["tflops_per_gpu"] == gpt3_answer.estimate.flops_per_gpu / 1e12


def test_the_schema_has_the_ends_of_values() -> None:
    parts = written(AnswerKeys).model_json_schema()["$defs"]
    search, sure = parts["SearchKeys"]["properties"], parts["SureKeys"]["properties"]
    assert (search["trials"]["minimum"], search["trials"]["maximum"]) == (0, 10_000)
    assert (sure["chance_to_fit"]["minimum"], sure["chance_to_fit"]["maximum"]) == (0, 1)
    assert parts["JobKeys"]["properties"]["gpus"]["minimum"] == 1
    assert (sure["step_time_s"]["minimum"], sure["mfu"]["minimum"]) == (0, 0)


def test_the_schema_tells_what_may_be_null_and_what_stands_for_what_is_left_out() -> None:
    whole = written(AnswerKeys).model_json_schema()
    parts = {"AnswerKeys": whole, **whole["$defs"]}
    null = {
        "AnswerKeys": ["plan", "estimate", "certificate", "safety", "why_not", "robust"],
        "CertificateKeys": ["best_s", "best", "run_bound_s", "gap", "even_split_s", "even_split", "layout_gain"],
        "ComparisonKeys": ["slower", "plan", "estimate"],
        "FormatKeys": ["plan", "estimate"],
        "JobKeys": ["own_runs"],
        "SafetyKeys": ["fastest"],
        "OtherKeys": [],
        "SureKeys": [],
    }
    for name, keys in null.items():
        properties = parts[name]["properties"]
        assert [key for key, of in properties.items() if {"type": "null"} in of.get("anyOf", ())] == keys
    properties = parts["CertificateKeys"]["properties"]
    assert {key: of["default"] for key, of in properties.items() if "default" in of} == {
        **{"unit": "s", "lower_bound_s": 0.0, "lower_bound": 0.0, "knob_bound_s": 0.0, "knob_bound": 0.0},
        **dict.fromkeys(("best_s", "best", "even_split_s", "even_split")),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema_version": 1, "status": "feasible"}', "there is no plan to check: the status is"),
        ('{"schema_version": 1, "status": "unknown"}', "job"),
        (f'{{"schema_version": "{"9" * 50}"}}', f'but got "{"9" * 39}'),
        (f'["{"9" * 50}"]', f'but got ["{"9" * 38}'),
    ],
)
def test_what_cannot_be_read_is_told_in_short(text: str, said: str) -> None:
    with pytest.raises(InvalidFile) as refused:
        read_answer(text)
    problem = refused.value.problems[0]
    assert said in problem
    assert problem.endswith("9") or "9" not in problem


def test_a_runner_up_has_knobs_of_its_own(gpt3_answer: Answer) -> None:
    assert gpt3_answer.estimate is not None
    usual = Alternative(plan=Plan(), estimate=gpt3_answer.estimate, slower=0.0).knobs
    assert (usual.bucket, usual.comm_sm_share, usual.offload) == (160e6, 0.12, 0.0)
