"""Plans that fit as surely as asked, and what that costs."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.answer.answer import Answer
from optimizer.answer.reading import read_answer
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.constraints.rules.every import structural
from optimizer.job.job import EVEN_RISK, Job, Limits
from optimizer.job.plan import Knobs, Plans
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import chance_to_fit, margin, risk_of, safe_memory
from optimizer.search.check.verification import verify
from optimizer.search.infeasible.conflict import conflict
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.plan.best import best_plan
from optimizer.search.plan.planner import plan
from tests.search.jobs import small_job
from tests.thorough import cases

EVEN = {"fixed": {"layout": "even"}}


@settings(max_examples=cases(25, sample=4), deadline=None)
@given(risk=st.sampled_from([0.02, 0.1, 0.25, 0.5]), hbm=st.floats(3e9, 20e9))
def test_the_answer_is_the_fastest_plan_that_is_sure_enough(risk: float, hbm: float) -> None:
    """Against every plan of the lattice, evenly split, by its chance; and the fastest that is predicted to fit."""
    job = small_job(4, oom_risk=risk, hbm=hbm, **EVEN)
    plans = Plans.joined(list(lattice(job, structural(job))))
    costs = price(job, plans, Knobs())
    sure = np.array([chance_to_fit(job, value) >= 1 - risk - 1e-9 for value in costs.reserved])
    answer = plan(job, trials=0, top=1, explained=False)
    if answer.plan is None or answer.estimate is None:
        assert not sure.any()
        return
    assert chance_to_fit(job, answer.estimate.reserved) >= 1 - risk - 1e-9
    assert answer.estimate.step_time <= float(np.min(np.where(sure, costs.step_time, np.inf))) * (1 + 1e-9)
    bold = best_plan(job.with_limits(oom_risk=EVEN_RISK))
    assert bold is not None
    if risk == EVEN_RISK:
        assert answer.safety is None
        return
    assert answer.safety is not None
    fastest = answer.safety.fastest.estimate if answer.safety.fastest else answer.estimate
    assert fastest.step_time == pytest.approx(bold.estimate.step_time, rel=2e-3)
    assert answer.safety.cost == pytest.approx(answer.estimate.step_time / fastest.step_time - 1, abs=1e-12)


def test_a_risk_is_the_same_as_a_smaller_gpu(gpt3_job: Job) -> None:
    """The margin is one number for all plans: planning with it is planning at even risk with so much less memory."""
    context = gpt3_job.stack["context_memory"]
    smaller = gpt3_job.with_limits(oom_risk=EVEN_RISK, hbm=safe_memory(gpt3_job) + context)
    ours, theirs = best_plan(gpt3_job), best_plan(smaller)
    assert ours is not None
    assert theirs is not None
    assert ours.plan == theirs.plan
    assert ours.estimate.step_time == theirs.estimate.step_time


def test_a_job_that_only_its_risk_rules_out_names_the_risk_that_suffices() -> None:
    """At one percent less than told nothing fits, at what is told something does."""
    free = small_job(2, oom_risk=EVEN_RISK)
    roomy = conflict(free.with_limits(hbm=2.4e9))
    least = float(next(clash for clash in roomy if clash.rule == "memory").reason.split("reserves ")[1].split(" GB")[0])
    # Usable memory that lies between what the leanest plan reserves and what it would need at a risk of 10 %.
    usable = least * 1e9 / margin(small_job(2), 0.3)
    job = small_job(2, hbm=usable + free.stack["context_memory"])
    assert best_plan(job) is None
    clash = next(clash for clash in conflict(job) if clash.rule == "memory")
    assert "for a risk of 10% to go out of memory" in clash.reason
    told = int(clash.relaxation.split("--oom-risk 10% -> ")[1].removesuffix("%"))
    assert 10 < told < 50
    assert best_plan(job.with_limits(oom_risk=told / 100)) is not None
    assert best_plan(job.with_limits(oom_risk=(told - 1) / 100)) is None


def test_a_conflict_names_no_risk_where_none_would_do() -> None:
    clash = next(clash for clash in conflict(small_job(2, hbm=2.4e9)) if clash.rule == "memory")
    assert "--oom-risk" not in clash.relaxation
    bold = next(clash for clash in conflict(small_job(2, hbm=2.4e9, oom_risk=0.5)) if clash.rule == "memory")
    assert "risk" not in bold.reason
    assert "risk" not in bold.relaxation


@pytest.fixture(scope="module")
def found() -> Answer:
    """The answer to GPT-3 on 64 GPUs, where safety costs something."""
    job = Job(
        model=load_model("gpt3"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=64,
        seq_len=2048,
        global_batch=96,
        limits=Limits(bubble=0.2, max_micro_batch=4, oom_risk=0.001),
    )
    return plan(job, top=2, trials=0)


def saved(answer: Answer) -> dict[str, object]:
    return json.loads(json.dumps(answer.to_dict()))


def test_a_check_finds_the_fastest_plan_that_is_predicted_to_fit(found: Answer) -> None:
    document = saved(found)
    assert not verify(read_answer(json.dumps(document))).broken
    safety = document["safety"]
    assert isinstance(safety, dict)
    assert safety["fastest"] is not None
    safety["fastest"]["plan"]["micro_batch"] *= 2
    broken = {finding.name for finding in verify(read_answer(json.dumps(document))).broken}
    assert any(name.startswith("safety") for name in broken)


def test_a_check_finds_that_a_faster_plan_was_passed_over(found: Answer) -> None:
    document = saved(found)
    document["safety"] = {**document["safety"], "fastest": None, "cost": 0.0}  # type: ignore[dict-item]
    broken = [finding.name for finding in verify(read_answer(json.dumps(document))).broken]
    assert broken == ["safety"]


def test_every_plan_of_an_answer_says_its_chance(found: Answer) -> None:
    document = saved(found)
    job = found.job
    for part, estimate in [
        (document, found.estimate),
        *zip(document["alternatives"], (other.estimate for other in found.alternatives), strict=True),  # type: ignore[call-overload]
    ]:
        told = part["estimate"]["chance_to_fit"]
        assert told == chance_to_fit(job, estimate.reserved) >= 1 - risk_of(job)


def test_what_safety_costs_is_left_out_where_the_time_is_over(gpt3_job: Job) -> None:
    assert plan(replace(gpt3_job, gpus=512), top=1, trials=0, priced_risk=False).safety is None
