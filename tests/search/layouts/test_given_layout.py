"""Where the user places the layers there is nothing to search among layouts: the sweep alone is exact and proven."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from optimizer.answer.answer import Answer
from optimizer.answer.reading import read_answer
from optimizer.base.errors import InputError
from optimizer.constraints.given_layout import with_assigned_layers
from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import Features
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.price import price
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.check.verification import verify
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.lattice.knobs import tuned
from optimizer.search.plan.best import best_plan
from optimizer.search.plan.planner import plan
from optimizer.search.why.comparison import why_not
from optimizer.studies.strategies import pinned_plan
from tests.search.jobs import DENSE, MIXED, jobs, saved, small_job
from tests.thorough import THOROUGH, cases

EVEN = {"layout": "even"}
FOUR_STAGES = {"layers_per_stage": "2,4,4,2"}
PINS = (EVEN, FOUR_STAGES, FOUR_STAGES | {"recompute_layers": "1,0,0,0"})
EXPERTS = (None, MIXED, replace(MIXED, first_dense_layers=1), replace(MIXED, every=2))


def fixed(job: Job, **more: str) -> Job:
    return job.with_limits(fixed={**job.limits.fixed, **more})


@settings(
    max_examples=cases(40, sample=5),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(jobs())
def test_without_other_layouts_the_sweep_is_the_whole_search(job: Job) -> None:
    even = fixed(job, layout="even")
    every = [one for plans in lattice(job, structural(job)) for one in plans.plans()]
    assume(every)
    answer = plan(even, trials=0, top=2, explained=False)
    laid = Plans.of([with_assigned_layers(job, one) for one in every])
    costs = price(even, laid, tuned(layer_costs_of(even, laid)).knobs)
    best = float(np.min(np.where(costs.reserved <= safe_memory(job), costs.step_time, np.inf)))
    assert answer.certificate is not None
    assert answer.certificate.space == len(every)
    if answer.estimate is None:
        assert answer.status == "infeasible"
        assert best == np.inf
        return
    assert answer.estimate.step_time == pytest.approx(best, rel=1e-9)
    assert (answer.status, answer.certificate.gap, answer.certificate.band) == ("optimal", 0.0, 0)
    assert "The search over layouts is switched off (layout=even)" in answer.certificate.left_out[0]
    free = plan(job, trials=0, top=1, priced_risk=False)
    assert free.certificate is not None
    assert free.certificate.best <= best * (1 + 1e-7)


@pytest.mark.parametrize(
    ("experts", "mtp_layers", "pins"),
    [
        (EXPERTS[kind], mtp_layers, PINS[pinned])
        for kind, mtp_layers, pinned in product(range(4), range(2), range(3))
        if THOROUGH or (kind + pinned) % 3 == mtp_layers  # every kind under two pins, under one with an MTP layer
    ],
)
def test_every_kind_of_model_is_priced_stage_by_stage(experts: object, mtp_layers: int, pins: dict[str, str]) -> None:
    model = replace(DENSE, experts=experts, mtp_layers=mtp_layers)
    answer = plan(small_job(8, model=model, bubble=1.0, fixed=pins), trials=8, top=3)
    assert answer.plan is not None
    assert answer.estimate is not None
    assert answer.certificate is not None
    costs = price(answer.job, Plans.of([answer.plan]), answer.knobs)
    assert answer.estimate.step_time == pytest.approx(float(costs.step_time[0]), rel=1e-12)
    assert answer.certificate.best == pytest.approx(float(costs.step_time[0]), rel=1e-9)
    if pins is not EVEN:
        assert answer.plan.layers_per_stage == (2, 4, 4, 2)
        assert 4 in (answer.plan.pp, answer.plan.pp * answer.plan.vpp)
    for other in answer.alternatives:
        assert other.plan == with_assigned_layers(answer.job, other.plan)
    found = verify(saved(answer))
    assert found.broken == ()
    assert not any("layouts of" in place for place in found.unchecked)


def test_layers_may_be_listed_by_virtual_stage() -> None:
    answer = plan(small_job(8, bubble=1.0, fixed={"layers_per_stage": "4,3,3,2", "vpp": 2}), trials=0)
    assert answer.plan is not None
    assert (answer.plan.pp, answer.plan.vpp, answer.plan.layers_per_stage) in (
        (2, 2, (4, 3, 3, 2)),
        (4, 2, (4, 3, 3, 2)),
    )


def test_what_is_recomputed_may_be_pinned_alone() -> None:
    answer = plan(small_job(8, bubble=1.0, fixed={"recompute_layers": "2,1"}), trials=0)
    assert answer.plan is not None
    assert (answer.plan.pp, answer.plan.recompute) == (2, "full")
    assert (answer.plan.layers_per_stage, answer.plan.recompute_layers) == ((6, 6), (2, 1))


def test_an_answer_is_read_back_with_its_layout_and_another_one_is_found_out(gpt3_job: Job) -> None:
    pin = {"layers_per_stage": "11,12,12,12,12,12,12,13"}
    answer: Answer = plan(fixed(gpt3_job, **pin), trials=0)
    document = json.loads(json.dumps(answer.to_dict()))
    again = read_answer(json.dumps(document))
    assert again.job.limits == answer.job.limits
    assert verify(again).broken == ()
    document["plan"]["layers_per_stage"] = [12] * 8
    broken = {finding.name for finding in verify(read_answer(json.dumps(document))).broken}
    assert f"fix layers_per_stage={pin['layers_per_stage']}" in broken


def test_the_best_plan_and_comparisons_keep_to_the_layout() -> None:
    job = small_job(8, bubble=1.0)
    free = plan(job, trials=0)
    best = best_plan(fixed(job, **FOUR_STAGES))
    assert best is not None
    assert best.plan.layers_per_stage == (2, 4, 4, 2)
    compared = why_not(job, free, FOUR_STAGES)
    assert compared.verdict == "slower"
    assert compared.plan == best.plan
    assert compared.pins == "layers_per_stage=2,4,4,2"
    assert why_not(job, free, EVEN).slower >= 0


def test_a_layout_that_cannot_be_is_a_conflict_that_names_it() -> None:
    odd = plan(small_job(8, fixed={"layers_per_stage": "4,4,4"}))
    assert odd.status == "infeasible"
    clashes = {clash.rule: clash for clash in odd.conflict}
    assert clashes["fix layers_per_stage=4,4,4"].relaxation == "drop fix layers_per_stage=4,4,4"
    evenly = plan(small_job(8, features=Features(uneven_stages=False), fixed=FOUR_STAGES, bubble=1.0))
    (clash,) = evenly.conflict
    assert clash.reason.endswith("but test cuts them evenly")


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ({"layout": "uneven"}, "expected even"),
        ({"layers_per_stage": "4,4"}, "small has 12 layers, not 8"),
        ({"layers_per_stage": "4,x"}, "expected the layers of each stage"),
        ({"layout": "even", "layers_per_stage": "6,6"}, "keep one"),
        ({"layers_per_stage": "6,0,6"}, "only the first and the last may be without layers"),
        ({"recompute_layers": "9,9"}, "small has only 12 layers"),
    ],
)
def test_a_layout_that_makes_no_sense_is_refused(pins: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(small_job(8, fixed=pins))


def test_a_pinned_plan_has_the_layout() -> None:
    pins = {"pp": 4, "tp": 2, **FOUR_STAGES, "recompute_layers": "1,0,0,0", "recompute": "full"}
    job = small_job(8, fixed=pins)
    found = pinned_plan(job, job.limits.fixed)
    assert isinstance(found, Plan)
    assert (found.layers_per_stage, found.recompute_layers) == ((2, 4, 4, 2), (1, 0, 0, 0))
    alone = small_job(8, fixed={"tp": 2, "recompute_layers": "1,0,0,0"})
    made = pinned_plan(alone, alone.limits.fixed)
    assert (made.pp, made.recompute, made.recompute_layers) == (4, "full", (1, 0, 0, 0))
    wrong = small_job(8, fixed={"tp": 2, "pp": 2, **FOUR_STAGES})
    with pytest.raises(InputError, match="12 layers on 4 stages"):
        pinned_plan(wrong, wrong.limits.fixed)
