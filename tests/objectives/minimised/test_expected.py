"""What moving parts and the chance to run out of memory add to the value of a plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.base.content import content
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.constraints.rules.every import structural
from optimizer.job.job import EVEN_RISK, Job
from optimizer.job.plan import Knobs, Placement, Plan, Plans
from optimizer.objectives import expected
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.minimised.registry import NAMES, objective
from optimizer.objectives.step.price import price, price_layer_costs
from optimizer.objectives.step.safe_memory import margin
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.plan.planner import plan
from tests.search.jobs import jobs, small_job
from tests.thorough import cases


def asked(**changes: object) -> Job:
    job = Job(
        model=load_model("llama3-70b"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=512,
        seq_len=8192,
        global_batch=512,
        prefer="expected",
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def test_every_part_of_the_table_has_a_rule_a_small_cost_and_a_reason() -> None:
    table = content("optimizer.objectives", "moving_parts.toml")
    assert set(table["parts"]) == set(expected.HAS_PART)
    for part in (*table["parts"].values(), *table["layout"].values()):
        assert 0.0 < part["cost"] <= 0.05
        assert part["about"]
        assert part["why"]
    assert table["memory"]["chances"] == sorted(table["memory"]["chances"])
    assert table["memory"]["chances"][-1] == EVEN_RISK


@pytest.mark.parametrize(
    ("part", "plain", "moving"),
    [
        ("zero_3_beside_pipelines", Plan(zero_stage=2), Plan(zero_stage=3)),
        ("replicated_shards", Plan(dp=8), Plan(dp=8, zero_stage=3, shard=4)),
        ("remainder", Plan(pp=4, vpp=20), Plan(pp=4, vpp=3)),
        ("odd_degree", Plan(tp=4, cp=2, ep=8, etp=2), Plan(tp=3)),
        ("odd_degree", Plan(dp=3, pp=5), Plan(cp=6)),
        ("odd_degree", Plan(dp=3, pp=5), Plan(ep=12)),
        ("odd_degree", Plan(dp=3, pp=5), Plan(etp=7)),
        ("overlapped_exchange", Plan(), Plan(overlap_exchange=True)),
        ("activations_on_host", Plan(), Plan(activation_offload=1)),
    ],
)
def test_a_moving_part_is_told_from_a_plain_plan(part: str, plain: Plan, moving: Plan) -> None:
    assert expected.HAS_PART[part](asked(), Plans.of([plain, moving])).tolist() == [False, True]


@pytest.mark.parametrize(("stage", "moves"), [(1, True), (2, True), (3, False)])
def test_zero_3_is_no_moving_part_of_a_program_that_defaults_to_it(stage: int, moves: bool) -> None:
    stack = load_stack("megatron-core")
    job = asked(stack=replace(stack, features=replace(stack.features, default_zero=stage)))
    assert expected.HAS_PART["zero_3_beside_pipelines"](job, Plans.of([Plan(zero_stage=3)])).tolist() == [moves]


EVEN = Plan(tp=4, pp=4, vpp=10, dp=32)
ON_STAGES = ((20, 20, 20, 20), (19, 20, 21, 20))


@pytest.mark.parametrize(
    ("placed", "listed"),
    [
        (Placement(), False),
        (Placement(layers=ON_STAGES[0]), False),
        (Placement(layers=(2,) * 40), False),
        (Placement(layers=ON_STAGES[1]), True),
        (Placement(layers=(1, *(2,) * 38, 3)), True),
        (Placement(recomputed=ON_STAGES[0]), False),
        (Placement(recomputed=(7, 4, 1, 0)), True),
        (Placement(first=1), True),
        (Placement(mtp_ahead=1), True),
    ],
)
def test_layers_lie_by_a_list_where_an_even_split_does_not_say_it(placed: Placement, listed: bool) -> None:
    assert bool(expected.assigned(asked(), Plans.of([EVEN.lying(placed)]))[0]) is listed


def test_a_chance_counts_at_the_next_class_and_a_limit_is_in_its_own() -> None:
    job = asked()
    lost = expected.failed_start(job)
    assert lost == pytest.approx(0.1 + 1800 / (30 * 86400))
    for chance, counted in ((0.01, 0.01), (0.0101, 0.02), (0.07, 0.1), (0.5, 0.5), (0.51, 1.0), (1e-6, 0.01)):
        reserved = np.array([job.usable_memory * margin(job, chance)])
        unsure = 0.02 if counted > 0.1 else 0.0  # somebody has to watch its first steps
        assert expected.memory_factor(job, reserved)[0] == pytest.approx(1 + counted * lost + unsure, rel=1e-12)
    assert expected.failed_start(replace(job, try_cost=0.0)) == pytest.approx(0.1)


@settings(max_examples=cases(60, sample=8), deadline=None)
@given(jobs(), st.sampled_from(NAMES), st.sampled_from([0.0, 0.4]))
def test_what_is_expected_is_no_less_than_what_is_on_paper(job: Job, minimize: str, offload: float) -> None:
    """So that what bounds the one bounds the other."""
    named, wanted = (objective(minimize, prefer) for prefer in ("fast", "expected"))
    for plans in lattice(job, structural(job)):
        layer_costs, knobs = layer_costs_of(job, plans), Knobs(offload=offload)
        costs = price_layer_costs(layer_costs, knobs)
        paper, hoped = (each.value(layer_costs, knobs, costs.step_time, costs.reserved) for each in (named, wanted))
        assert np.all(hoped >= paper)
        assert np.all(hoped >= wanted.bound(layer_costs, costs.step_time, np.full(len(plans), offload)) * (1 - 1e-12))
        more = wanted.value(layer_costs, knobs, costs.step_time, costs.reserved * 1.01)
        assert np.all(more >= hoped)


def test_a_failed_start_that_costs_more_makes_the_answer_surer() -> None:
    """Never less likely to fit, and never faster on paper."""
    job = small_job(8, hbm=9e9)
    found = [plan(replace(job, prefer="expected", try_cost=cost), top=0) for cost in (0.0, 2592000.0)]
    bold, wary = (answer.estimate for answer in found)
    assert bold is not None
    assert wary is not None
    assert expected.memory_factor(job, np.array([wary.reserved])) <= expected.memory_factor(
        job, np.array([bold.reserved])
    )
    assert wary.step_time >= bold.step_time * (1 - 1e-9)


@pytest.mark.parametrize(
    ("model", "gpus", "by_list"), [("llama3-70b", 512, False), ("llama3-70b", 256, False), ("llama3-8b", 8, True)]
)
def test_the_answer_is_one_that_would_be_launched(model: str, gpus: int, by_list: bool) -> None:
    """Even stages, but of two of which one has the head, nothing on the host, 95 % to fit, nearly the fastest."""
    job = asked(model=load_model(model), gpus=gpus)
    found = plan(job)
    assert found.status == "optimal"
    assert found.plan is not None
    assert found.estimate is not None
    assert expected.assigned(job, Plans.of([found.plan]))[0] == by_list
    assert found.knobs.offload == 0.0
    assert found.estimate.reserved <= job.usable_memory * margin(job, 0.05)
    assert found.safety is not None
    assert found.safety.fastest is not None
    assert -0.02 < found.safety.fastest.slower < 0.0
    alone = price(job, Plans.of([found.safety.fastest.plan]), found.safety.fastest.knobs)
    assert float(alone.step_time[0]) < found.estimate.step_time
