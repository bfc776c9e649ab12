"""Software that recomputes equally many layers on every virtual stage is given only such layouts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job, Limits
from optimizer.job.plan import Placement, Plan, Plans
from optimizer.job.stack import BY_STAGE, BY_VIRTUAL_STAGE, RECOMPUTE_BY, Features
from optimizer.objectives.step.price import price
from optimizer.search.check.plan_rules import placement_findings
from optimizer.search.plan.best import best_plan
from optimizer.search.plan.planner import plan
from optimizer.search.why.comparison import why_not
from tests.search.jobs import MIXTURE, small_job


def recomputing_by(job: Job, by: str) -> Job:
    return replace(job, stack=replace(job.stack, features=replace(job.stack.features, recompute_by=by)))


def test_gpt3_on_small_a100s_gets_a_plan_that_megatron_can_run(gpt3_job: Job) -> None:
    """Five layers of 96 recomputed would be faster; the software cannot, and the proof is over what it can.

    With the parameters' defaults, so that no fit moves what is held here.
    """
    stack = replace(gpt3_job.stack, parameters={}, fixed={})
    job = replace(gpt3_job, cluster=load_cluster("dgx-a100-80"), stack=stack).with_limits(hbm=22e9, oom_risk=0.5)
    runs, ideal = plan(job, top=1), plan(recomputing_by(job, BY_STAGE), top=1)
    assert runs.plan
    assert runs.estimate
    assert runs.certificate
    assert ideal.plan
    assert ideal.estimate
    assert 0 < sum(ideal.plan.recompute_layers) < 16
    assert runs.plan.recompute_layers == ()
    assert runs.status == "optimal"
    assert ideal.estimate.step_time < runs.estimate.step_time < 1.03 * ideal.estimate.step_time
    assert "recomputes equally many layers on every virtual stage" in " ".join(runs.certificate.left_out)


@pytest.mark.parametrize("by", RECOMPUTE_BY)
def test_layers_that_the_software_cannot_recompute_alone_are_a_conflict_that_names_the_rule(by: str) -> None:
    job = small_job(8, bubble=1.0, features=Features(recompute_by=by))
    asked = job.with_limits(fixed={"recompute_layers": "2,1"})
    found = plan(asked, trials=0)
    if by == BY_STAGE:
        assert found.plan
        assert found.plan.recompute_layers == (2, 1)
        return
    (clash,) = found.conflict
    words = {BY_VIRTUAL_STAGE: "test recomputes equally many layers on every virtual stage"}
    assert words.get(by, "test recomputes all layers or none") in clash.reason
    free = plan(job, trials=0)
    compared = why_not(job, free, {"recompute_layers": "2,1"})
    assert compared.verdict == "infeasible"
    assert any(clash.reason == reason.reason for reason in compared.broken)


def test_pinned_layers_that_every_virtual_stage_can_recompute_are_those_of_the_plan() -> None:
    job = small_job(8, bubble=1.0, features=Features(recompute_by=BY_VIRTUAL_STAGE))
    found = plan(job.with_limits(fixed={"recompute_layers": "2,2", "vpp": 1}), trials=0)
    assert found.plan
    assert (found.plan.recompute_first, found.plan.recompute_layers) == (2, ())
    whole = plan(job.with_limits(fixed={"recompute_layers": "6,6"}), trials=0)
    assert whole.plan
    assert (whole.plan.recompute, whole.plan.recompute_first, whole.plan.recompute_layers) == ("full", 0, ())


@pytest.mark.parametrize(
    ("by", "placed", "holds"),
    [
        (BY_STAGE, Placement(recomputed=(2, 1)), True),
        (BY_VIRTUAL_STAGE, Placement(recomputed=(2, 1)), False),
        (BY_VIRTUAL_STAGE, Placement(first=2), True),
        (BY_VIRTUAL_STAGE, Placement(first=2, recomputed=(2, 2)), False),
        ("all layers", Placement(first=2), False),
        ("all layers", Placement(), True),
    ],
)
def test_a_plan_is_checked_against_what_its_software_recomputes(by: str, placed: Placement, holds: bool) -> None:
    job = small_job(8, features=Features(recompute_by=by))
    findings = placement_findings(job, Plan(pp=2, dp=4, recompute="full").lying(placed))
    assert all(finding.holds for finding in findings) == holds


def test_the_first_layers_of_a_mixture_are_its_dense_ones() -> None:
    """One dense layer lies ahead of eleven mixtures: it is what is recomputed first."""
    job = small_job(8, model=MIXTURE, bubble=1.0)
    some = [Plan(dp=8, num_microbatches=6, recompute="full", recompute_first=first) for first in (1, 2, 12)]
    by_stage = replace(some[0], recompute_first=0, recompute_layers=(1,))
    all_layers = replace(some[0], recompute_first=0)
    costs = price(job, Plans.of([*some, by_stage, all_layers]))
    one, two, twelve, _, whole = costs.memory["activations"].tolist()
    assert one > two > twelve == whole
    dense, _, _, mixture, _ = costs.time["gemm"].tolist()
    assert dense > mixture  # products of 6,144 columns, not of twice 1,024


def interleaved_gemma(model: str, gpus: int, hbm: float, **fixed: str) -> Job:
    return Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=gpus,
        seq_len=8192,
        global_batch=240,
        limits=Limits(hbm=hbm, oom_risk=0.5, ranges={"vpp": (2, 16)}, fixed=fixed),
    )


def test_a_layout_by_hand_with_more_layers_than_its_share_does_not_beat_the_search() -> None:
    """62 layers on nine virtual stages: one of eight and the first four of each recomputed was faster once."""
    found = best_plan(interleaved_gemma("gemma3-27b", 12, 37e9))
    by_hand = best_plan(
        interleaved_gemma("gemma3-27b", 12, 37e9, layers_per_stage="7,8,7,7,7,7,7,7,5", recompute_layers="12,12,12")
    )
    assert found
    assert by_hand
    assert found.estimate.step_time <= by_hand.estimate.step_time * (1 + 1e-9)


def test_a_tight_memory_gets_stages_that_hold_less_the_more_they_keep() -> None:
    """The last stage, with the head, holds eight layers of 42 and keeps the fewest micro-batches."""
    found = best_plan(interleaved_gemma("gemma2-9b", 6, 20.5e9))
    assert found
    assert found.plan.vpp > 1
    assert found.estimate.reserved <= 20.5e9
