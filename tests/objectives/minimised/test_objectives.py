"""Energy and cost of plans: by hand, against the power model of a purchase, and never below their bounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.catalog.economics import default_price
from optimizer.catalog.offers import PriceBook
from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Placement, Plan, Plans
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.minimised import cost, energy, time
from optimizer.objectives.minimised.registry import NAMES, PREFERRED, objective, objective_of
from optimizer.objectives.objective import Objective, recomputed_layers, seconds_in
from optimizer.objectives.pipeline.stages import stages_of
from optimizer.objectives.power import step_energy
from optimizer.objectives.step.formula import COMPUTE, STREAM
from optimizer.objectives.step.price import price_layer_costs
from optimizer.objectives.step.time_terms import burning
from optimizer.search.lattice.enumerate import lattice
from tests.search.jobs import jobs


def asked(minimize: str, cluster: str = "dgx-h100", gpus: int = 8, model: str = "llama3-8b") -> Job:
    return Job(
        model=load_model(model),
        cluster=load_cluster(cluster),
        stack=load_stack("megatron-core"),
        gpus=gpus,
        seq_len=4096,
        global_batch=64,
        minimize=minimize,
    )


def value(job: Job, plan: Plan, knobs: Knobs = Knobs()) -> tuple[float, float]:
    """The value of a plan, and the seconds of its step."""
    layer_costs = layer_costs_of(job, Plans.of([plan]))
    costs = price_layer_costs(layer_costs, knobs)
    found = objective_of(job).value(layer_costs, knobs, costs.step_time, costs.reserved)
    return float(found[0]), float(costs.step_time[0])


def test_every_name_has_an_objective_of_that_name() -> None:
    assert [objective(name).name for name in NAMES] == list(NAMES)
    assert {each.OBJECTIVE.name: each.OBJECTIVE for each in (time, energy, cost)} == {
        name: objective(name) for name in NAMES
    }
    with pytest.raises(InputError, match="must be one of time, energy, cost, but got 'fame'"):
        objective("fame")


def test_the_time_of_a_step_is_its_own_value() -> None:
    found, seconds = value(asked("time"), Plan(tp=2, dp=4, num_microbatches=16))
    assert found == seconds


PLANS = (
    *(Plan(tp=2, dp=4, num_microbatches=16, recompute=recompute) for recompute in ("none", "full", "selective")),
    Plan(pp=4, dp=2, num_microbatches=32).lying(Placement(layers=(10, 9, 8, 5))),
    Plan(pp=4, dp=2, num_microbatches=32, recompute="full").lying(
        Placement(layers=(9, 9, 8, 6), recomputed=(4, 2, 0, 1))
    ),
)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.summary())
@pytest.mark.parametrize("offload", [0.0, 0.5])
def test_the_energy_of_a_plan_is_that_of_a_purchase(plan: Plan, offload: float) -> None:
    """Every stage counts with what it does, not with what the slowest one does."""
    job, knobs = asked("energy"), Knobs(offload=offload)
    costs = price_layer_costs(layer_costs_of(job, Plans.of([plan])), knobs)
    estimate = costs.estimate(0, job.tokens, job.gpus, 1.0)
    curve = energy.usual_curve(job.cluster, job.gpus)
    used = step_energy(estimate.time, energy.busy_seconds(job, plan, knobs), curve)
    assert used.step_time == pytest.approx(estimate.step_time)
    wanted = job.gpus * energy.site_pue(job.cluster) * used.total
    assert value(job, plan, knobs)[0] == pytest.approx(wanted, rel=1e-9)


def test_on_one_stage_the_mean_gpu_does_what_the_estimate_says() -> None:
    job, plan = asked("energy"), Plan(tp=2, dp=4, num_microbatches=16)
    time = price_layer_costs(layer_costs_of(job, Plans.of([plan])), Knobs()).estimate(0, job.tokens, 8, 1.0).time
    busy = energy.busy_seconds(job, plan, Knobs())
    assert busy.compute == pytest.approx(sum(time[term] for term in burning(COMPUTE)))
    assert busy.stream == pytest.approx(sum(time.get(term, 0.0) for term in burning(STREAM)))


def test_a_layout_changes_the_energy_by_its_seconds_and_by_what_it_recomputes() -> None:
    job = asked("energy", gpus=4)
    plan = Plan(pp=4, dp=1, num_microbatches=64, recompute="full")
    placed = [Placement(layers=(8,) * 4, recomputed=(3, 2, 1, 0)), Placement(layers=(9, 9, 8, 6), recomputed=(4,) * 4)]
    layer_costs = layer_costs_of(job, Plans.of([plan.lying(each) for each in placed]))
    costs = price_layer_costs(layer_costs, Knobs())
    phases = energy.phases(layer_costs)
    _, added = seconds_in(layer_costs, COMPUTE)
    assert recomputed_layers(layer_costs)["dense"].tolist() == [6.0, 16.0]
    values = objective_of(job).value(layer_costs, Knobs(), costs.step_time, costs.reserved)
    rest = values - energy.watts(job) * costs.step_time
    streamed = seconds_in(layer_costs, STREAM)[1]["dense"] * phases[STREAM]
    each = added["dense"] * phases[COMPUTE] + streamed
    assert rest[1] - rest[0] == pytest.approx(10 * each[0], rel=1e-9)


def test_seconds_in_a_phase_are_those_of_all_stages_over_their_number() -> None:
    job = asked("energy", gpus=4)
    layer_costs = layer_costs_of(
        job, Plans.of([Plan(pp=4, dp=1, num_microbatches=64).lying(Placement(layers=(10, 9, 8, 5)))])
    )
    held = stages_of(job.model, layer_costs.plans).counts
    terms = ("gemm", "attention", "head")
    each = {kind: sum(kind_costs.term(name)[0] for name in terms) for kind, kind_costs in layer_costs.by_kind.items()}
    by_hand = sum((held[kind] * seconds for kind, seconds in each.items()), np.zeros((4, 1)))
    assert seconds_in(layer_costs, COMPUTE)[0][0] == pytest.approx(64 * by_hand.sum() / 4)


def test_rent_is_paid_for_whole_machines_all_the_time() -> None:
    job = asked("cost", gpus=4)
    found, seconds = value(job, Plan(tp=4, dp=1, num_microbatches=64))
    offer = PriceBook().rent("h100", "dgx-h100")
    assert offer is not None
    assert found == pytest.approx(8 * offer.value * seconds)  # a node of eight
    assert objective_of(job).phases(layer_costs_of(job, Plans.of([Plan(tp=4)]))) == {}


def test_what_nobody_rents_out_is_owned_and_draws_power() -> None:
    job = asked("cost", cluster="dgx-h800")
    plan = Plan(tp=2, dp=4, num_microbatches=16)
    found, seconds = value(job, plan)
    joule, _ = value(replace(job, minimize="energy"), plan)
    idle = cost.owned(job.cluster, job.gpus, cost.sale_of(job.cluster), 0.0)
    assert found == pytest.approx(idle * seconds + default_price("electricity").value * joule)


@pytest.mark.parametrize(("minimize", "words"), [("cost", "no price of odd"), ("energy", "the power of odd")])
def test_a_device_without_a_price_or_without_power_is_refused(minimize: str, words: str) -> None:
    job = asked(minimize)
    device = replace(job.cluster.device, name="odd", power=0.0)
    job = replace(job, cluster=replace(job.cluster, device=device, name="odd"))
    with pytest.raises(InputError, match=words):
        objective_of(job).rate(job)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(jobs())
def test_no_even_split_is_below_its_bound(job: Job) -> None:
    for plans in lattice(job, structural(job)):
        layer_costs = layer_costs_of(job, plans)
        for name, prefer in product(NAMES, PREFERRED):
            each: Objective = objective(name, prefer)
            for offload in (0.0, 0.37, 1.0):
                knobs = Knobs(offload=offload)
                costs = price_layer_costs(layer_costs, knobs)
                seconds, slower = costs.step_time, 1.01 * costs.step_time
                bound = each.bound(layer_costs, 0.9 * seconds, np.zeros(len(layer_costs)), np.ones(len(layer_costs)))
                value = each.value(layer_costs, knobs, seconds, costs.reserved)
                assert np.all(bound <= value)
                assert np.all(value < each.value(layer_costs, knobs, slower, costs.reserved))
        return
