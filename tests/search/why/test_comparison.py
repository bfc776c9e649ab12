"""Why not your plan: the differences add up, rules are named with numbers, ours is not beaten in its own space."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.answer.answer import Answer, Clash
from optimizer.base.errors import InputError
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.job.stack import Features
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.plan.alternatives import estimate_of_plan, value_of
from optimizer.search.plan.planner import plan
from optimizer.search.why import comparison
from optimizer.search.why.comparison import broken_alone, broken_rules, differences, pinned_job, why_not
from tests.search.jobs import small_job


@pytest.fixture(scope="module")
def answer(gpt3_job: Job) -> Answer:
    return plan(gpt3_job, trials=0)


@pytest.mark.parametrize("pins", [{"tp": 8, "pp": 8}, {"pp": (16, 32)}, {"recompute": "full"}, {"vpp": 1}])
def test_the_terms_add_up_to_the_difference(gpt3_job: Job, answer: Answer, pins: dict[str, int]) -> None:
    found = why_not(gpt3_job, answer, pins)
    assert answer.estimate is not None
    assert found.estimate is not None
    assert found.verdict == "slower"
    lost = found.estimate.step_time - answer.estimate.step_time
    assert sum(item.more for item in found.time) == pytest.approx(lost, abs=1e-9)
    assert sum(item.more for item in found.memory) == pytest.approx(found.estimate.reserved - answer.estimate.reserved)
    assert found.slower == pytest.approx(lost / answer.estimate.step_time)
    assert found.broken == ()


def test_the_plan_has_the_pins_and_terms_come_largest_first(gpt3_job: Job, answer: Answer) -> None:
    found = why_not(gpt3_job, answer, {"tp": 8, "pp": 8})
    assert found.plan is not None
    assert (found.plan.tp, found.plan.pp, found.plan.gpus) == (8, 8, 1024)
    sizes = [abs(item.more) for item in found.time]
    assert sizes == sorted(sizes, reverse=True)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["verdict"] == "slower"


@pytest.mark.parametrize(
    ("more", "verdict"), [(0.0, "same"), (0.5, "same"), (-0.5, "same"), (2.0, "slower"), (-2.0, "faster")]
)
def test_values_that_differ_by_rounding_are_the_same(
    gpt3_job: Job, answer: Answer, more: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = SimpleNamespace(plan=answer.plan, estimate=answer.estimate, value=3.0 * (1 + more * comparison.SAME))
    monkeypatch.setattr(comparison, "best_plan", lambda _: theirs)
    monkeypatch.setattr(comparison, "value_of", lambda *_: 3.0)
    assert why_not(gpt3_job, answer, {"tp": 8}).verdict == verdict


def test_our_own_plan_is_the_same(gpt3_job: Job, answer: Answer) -> None:
    assert answer.plan is not None
    found = why_not(gpt3_job, answer, {"tp": answer.plan.tp, "pp": answer.plan.pp})
    assert found.verdict == "same"
    assert all(item.more == 0 for item in found.time)


def test_ours_is_never_beaten_in_its_own_space(gpt3_job: Job, answer: Answer) -> None:
    for tp in (1, 2, 4, 8):
        assert why_not(gpt3_job, answer, {"tp": tp}).verdict != "faster"


def test_undoing_a_pin_of_the_job_may_be_faster(gpt3_job: Job) -> None:
    pinned = replace(gpt3_job, gpus=256, global_batch=384).with_limits(fixed={"tp": 8, "vpp": 1})
    found = why_not(
        pinned, plan(pinned, trials=0, top=0, priced_risk=False, explained=False), {"vpp": (1, 16), "tp": (1, 8)}
    )
    assert found.verdict == "faster"
    assert found.slower < 0


def test_a_tensor_group_larger_than_the_domain_names_the_rule(gpt3_job: Job, answer: Answer) -> None:
    found = why_not(gpt3_job, answer, {"tp": 16})
    assert found.verdict == "infeasible"
    rules = {clash.rule: clash for clash in found.broken}
    assert rules.keys() == {"tp-scale-up"}
    assert "at most 8" in rules["tp-scale-up"].reason
    assert rules["tp-scale-up"].relaxation == "largest tp 8 -> 16"


def test_every_rule_that_the_pins_break_alone_is_named(gpt3_job: Job) -> None:
    """Five divides neither 96 heads nor 12,288, nor the 8 GPUs of a node."""
    broken = broken_alone(pinned_job(gpt3_job, {"tp": 5}))
    assert broken.keys() == {"heads", "kv-heads", "mlp-width", "tp-scale-up"}
    assert "96 attention heads" in broken["heads"]
    assert broken_alone(pinned_job(gpt3_job, {"tp": 8, "pp": 8})) == {}
    assert broken_alone(pinned_job(gpt3_job, {"tp": 8, "cp": 1, "pp": 8, "dp": 17})).keys() >= {"gpu-product"}


@pytest.mark.parametrize(
    ("degrees", "fit"),
    [((2, 1, 1), True), ((2, 2, 2), True), ((3, 1, 1), False), ((1, 3, 1), False), ((4, 2, 2), False)],
)
def test_replicas_are_the_gpus_over_all_other_degrees(degrees: tuple[int, int, int], fit: bool) -> None:
    pins = dict(zip(("tp", "cp", "pp"), degrees, strict=True))
    assert ("gpu-product" not in broken_alone(pinned_job(small_job(8), pins))) is fit


def test_a_pin_of_what_the_software_cannot_have_is_named_itself() -> None:
    job = small_job(4, features=Features(recompute_by="virtual stage"))
    pins = {"recompute_layers": "1,2"}
    (clash,) = broken_rules(pinned_job(job, pins), pins)
    assert clash.rule == "fix recompute_layers=1,2"


def test_too_little_memory_gives_the_leanest_plan_and_its_bytes(gpt3_job: Job, answer: Answer) -> None:
    found = why_not(gpt3_job, answer, {"tp": 2, "pp": 4})
    assert found.verdict == "infeasible"
    assert "memory" in {clash.rule for clash in found.broken}
    assert found.estimate is not None
    assert found.estimate.reserved > safe_memory(gpt3_job)


def test_an_answer_without_a_plan_or_an_unknown_variable_is_refused(gpt3_job: Job, answer: Answer) -> None:
    with pytest.raises(InputError, match="no plan to compare with"):
        why_not(gpt3_job, replace(answer, plan=None, status="infeasible"), {"tp": 4})
    with pytest.raises(InputError, match="no such variable"):
        why_not(gpt3_job, answer, {"tq": 4})


def test_a_term_of_one_plan_only_counts_whole() -> None:
    (item,) = differences({}, {"ep_communication": 0.5})
    assert (item.ours, item.theirs, item.more) == (0.0, 0.5, 0.5)


def test_without_a_plan_the_leanest_is_priced_and_told_with_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """By dollars a step: of 8 GPUs that reserve more than they have, and of none where the pins leave nothing."""
    job = replace(small_job(8, hbm=9e9, fixed={"recompute": "none"}), minimize="cost", prefer="expected")
    ours, knobs = Plan(tp=2, dp=4, num_microbatches=12), Knobs(offload=0.25)
    estimate = estimate_of_plan(job, ours, knobs)
    answer = Answer(status="optimal", job=job, plan=ours, knobs=knobs, estimate=estimate)
    clashes = (Clash(rule="memory", reason=""),)
    monkeypatch.setattr(comparison, "best_plan", lambda _: None)
    monkeypatch.setattr(comparison, "conflict", lambda _: clashes)
    found = why_not(job, answer, {"tp": 1, "pp": 1, "cp": 1})
    assert (found.verdict, found.broken, found.minimize, found.prefer) == ("infeasible", clashes, "cost", "expected")
    assert (found.ours, found.our_estimate) == (ours, estimate)
    assert found.plan is not None
    asked = pinned_job(job, {"tp": 1, "pp": 1, "cp": 1})
    theirs = estimate_of_plan(asked, found.plan, Knobs(offload=asked.most_offload))
    assert found.estimate == theirs
    dollars = value_of(job, ours, knobs, estimate), value_of(asked, found.plan, Knobs(), theirs)
    assert found.slower == pytest.approx(dollars[1] / dollars[0] - 1)
    assert sum(item.more for item in found.time) == pytest.approx(theirs.step_time - estimate.step_time)
    assert sum(item.more for item in found.memory) == pytest.approx(theirs.reserved - estimate.reserved)
    none = why_not(job, answer, {"tp": 5})
    assert (none.verdict, none.plan, none.estimate, none.slower) == ("infeasible", None, None, 0.0)
    assert (none.time, none.memory) == ((), ())


def test_rules_come_once_those_broken_alone_first_and_pins_only_where_nothing_else_clashes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def told(*names: str, pins: Mapping[str, Any]) -> list[str]:
        monkeypatch.setattr(comparison, "conflict", lambda _: tuple(Clash(rule=name, reason="") for name in names))
        return [clash.rule for clash in broken_rules(pinned_job(small_job(8), pins), pins)]

    assert told("fix tp=5", "memory", "heads", pins={"tp": 5}) == [
        *broken_alone(pinned_job(small_job(8), {"tp": 5})),
        "memory",
    ]
    assert told("range pp=2..4", "bubble", pins={"pp": (2, 4)}) == ["bubble"]
    assert told("range pp=2..4", "fix tp=2", pins={"pp": (2, 4), "tp": 2}) == ["range pp=2..4", "fix tp=2"]
