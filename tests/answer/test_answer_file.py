"""Saved answers: what was written comes back, and everything wrong is said at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optimizer.answer.answer import Answer
from optimizer.answer.reading import read_answer
from optimizer.answer.saved import SavedPlan
from optimizer.base.errors import InvalidFile, UnknownName


@pytest.fixture
def document(gpt3_answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(gpt3_answer.to_dict()))
    return found


def problems(document: object) -> tuple[str, ...]:
    with pytest.raises(InvalidFile) as caught:
        read_answer(document if isinstance(document, str) else json.dumps(document), "plan.json")
    assert str(caught.value).startswith("plan.json: ")
    return caught.value.problems


def test_what_was_written_comes_back(gpt3_answer: Answer, document: dict[str, Any]) -> None:
    saved = read_answer(json.dumps(document))
    assert saved.job == gpt3_answer.job
    assert saved.plan == gpt3_answer.plan
    assert saved.knobs == gpt3_answer.knobs
    assert saved.alternatives == tuple(
        SavedPlan(plan=other.plan, knobs=other.knobs) for other in gpt3_answer.alternatives
    )
    assert saved.claims is not None
    assert (saved.claims.proven, saved.claims.lower_bound, saved.claims.space) == (True, 5.0, 12345)
    assert saved.document == document


def test_pins_ranges_and_lists_come_back(document: dict[str, Any]) -> None:
    document["job"]["limits"] |= {
        "fixed": {"tp": 8, "recompute": "full"},
        "ranges": {"pp": [2, 8]},
        "choices": {"vpp": [1, 6]},
    }
    limits = read_answer(json.dumps(document)).job.limits
    assert limits.fixed == {"tp": 8, "recompute": "full"}
    assert limits.ranges == {"pp": (2, 8)}
    assert limits.choices == {"vpp": (1, 6)}


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "7", '{"schema_version": 1'])
def test_what_is_no_answer_is_one_problem(text: str) -> None:
    (problem,) = problems(text)
    assert "optimize --json" in problem


def test_another_version_and_an_answer_without_a_plan_are_refused(document: dict[str, Any]) -> None:
    assert problems(document | {"schema_version": 2}) == ("schema_version must be 1, but got 2",)
    (problem,) = problems(document | {"plan": None})
    assert "no plan to check" in problem
    assert "optimal" in problem


def test_an_answer_that_there_is_no_plan_is_read(infeasible_answer: Answer) -> None:
    saved = read_answer(json.dumps(infeasible_answer.to_dict()))
    assert (saved.job, saved.plan, saved.claims) == (infeasible_answer.job, None, None)


def test_every_problem_is_said_at_once(document: dict[str, Any]) -> None:
    document["plan"] |= {"tp": 0, "pp": "eight", "recompute": "some", "sequence_parallel": 1, "layers_per_stage": 8}
    document["plan"] |= {"vpp": 9999, "activation_offload": 101, "colour": "red", "zero_stag": 1}
    document["alternatives"][0]["plan"]["schedule"] = "later"
    document["certificate"]["proven"] = "yes"
    del document["plan"]["dp"]
    document["job"] |= {"gpus": 10.5, "stack": ""}
    document["job"]["limits"] |= {"fixed": {"tq": 8, "tp": [8]}, "ranges": {"pp": 4}, "choices": {"vpp": 6}}
    document["estimate"]["step_time_s"] = "fast"
    document["estimate"]["time_s"]["gemm"] = -1
    found = " ".join(problems(document))
    for part in (
        "plan.tp: expected a whole number above 0, but got 0",
        'plan.pp: expected a whole number above 0, but got "eight"',
        "plan.recompute: expected one of none, selective, full, or modules joined by +, but got",
        "plan.sequence_parallel: expected true or false",
        "plan.layers_per_stage: expected a list of whole numbers",
        "plan.vpp: expected a whole number from 1 to 4,096, but got 9999",
        "plan.activation_offload: expected a whole number from 0 to 100, but got 101",
        "plan.colour: unknown key",
        "plan.zero_stag: unknown key; did you mean zero_stage",
        "alternatives[0].plan.schedule: expected one of 1f1b, interleaved",
        "certificate.proven: expected true or false",
        "plan.dp: missing",
        "job.gpus: expected a whole number",
        "job.stack: expected a name",
        "job.limits.fixed.tp: expected a value, but got [8]",
        "job.limits.ranges.pp: expected two numbers for each variable",
        "job.limits.choices.vpp: expected a list of values for each variable",
        "estimate.step_time_s: expected a number",
        "estimate.time_s.gemm: expected a number",
    ):
        assert part in found


def test_pins_are_of_variables_that_there_are(document: dict[str, Any]) -> None:
    document["job"]["limits"] |= {"fixed": {"tq": 8}, "choices": {"vx": [6]}}
    assert problems(document) == (
        "job.limits.fixed: tq is no variable of a plan",
        "job.limits.choices: vx is no variable of a plan",
    )


def test_layers_and_shares_are_numbers(document: dict[str, Any]) -> None:
    document["plan"]["layers_per_stage"] = [12, 12, "x"]
    document["plan"]["recompute_layers"] = [1, -1]
    document["knobs"]["offload"] = 3
    assert problems(document) == (
        'plan.layers_per_stage: expected a list of whole numbers, but got [12, 12, "x"]',
        "plan.recompute_layers: expected a list of whole numbers, but got [1, -1]",
        "knobs.offload: expected a share from 0 to 1, but got 3",
    )


def test_a_file_of_the_user_takes_the_place_of_a_name(document: dict[str, Any], tmp_path: Path) -> None:
    document["job"]["model"] = "my-own"
    with pytest.raises(UnknownName, match="my-own"):
        read_answer(json.dumps(document))
    assert read_answer(json.dumps(document), model="gpt3").job.model.name == "gpt3"


def test_values_at_their_ends_are_read_and_those_beyond_are_not(document: dict[str, Any]) -> None:
    ends: list[tuple[str, str, Any, Any]] = [
        *(("plan", "vpp", 4096, 4097), ("plan", "activation_offload", 100, 101), ("plan", "activation_offload", 0, -1)),
        *(("plan", "tp", 1, 0), ("knobs", "offload", 1.0, 1.01), ("knobs", "offload", 0.0, -0.01)),
        *(("limits", "oom_risk", 0.5, 0.51), ("limits", "bubble", 1.0, 1.01), ("search", "trials", 10_000, 10_001)),
    ]
    for part, name, right, wrong in ends:
        for value, read in ((right, True), (wrong, False)):
            changed = json.loads(json.dumps(document))
            (changed["job"][part] if part == "limits" else changed[part])[name] = value
            if read:
                read_answer(json.dumps(changed))
            else:
                assert len(problems(changed)) == 1


@pytest.mark.parametrize(
    ("place", "left_out", "null"),
    [
        *(("estimate", True, True), ("certificate", True, True), ("safety", True, True), ("why_not", True, True)),
        *(("alternatives", True, False), ("formats", True, False), ("search.trials", True, False)),
        *(("search.seed", True, False), ("job.settings", True, False), ("job.train", True, False)),
        *(("plan", False, True), ("knobs", False, False), ("search", True, False), ("job.gpus", False, False)),
        *(
            ("certificate.space", False, False),
            ("certificate.proven", False, False),
            ("certificate.best_s", True, True),
        ),
        *(("certificate.lower_bound_s", False, False), ("alternatives.0.plan", False, False)),
        *(("estimate.mfu", True, True), ("estimate.interval_known", False, False), ("status", True, True)),
    ],
)
def test_a_key_may_be_left_out_or_null_where_something_stands_for_it(
    document: dict[str, Any], place: str, left_out: bool, null: bool
) -> None:
    *way, name = place.split(".")
    for missing, fine in ((True, left_out), (False, null)):
        changed: Any = json.loads(json.dumps(document))
        holder = changed
        for step in way:
            holder = holder[int(step) if step.isdigit() else step]
        if missing:
            holder.pop(name, None)
        else:
            holder[name] = None
        if fine and not (place == "plan" and changed["status"] != "infeasible"):
            read = read_answer(json.dumps(changed))
            assert (read.trials, read.seed) == (0, 0)
        else:
            assert problems(changed)


def test_the_certificate_of_each_format_has_none_of_others(document: dict[str, Any]) -> None:
    inner = {key: value for key, value in document["certificate"].items() if key != "by_format"}
    document["certificate"]["by_format"] = {"bf16": inner}
    claims = read_answer(json.dumps(document)).claims
    assert claims is not None
    assert claims.by_format["bf16"].space == 12345
    assert claims.by_format["bf16"].by_format == {}
    del inner["space"]
    (problem,) = problems(document)
    assert problem.startswith("certificate.by_format.bf16.space: missing")
