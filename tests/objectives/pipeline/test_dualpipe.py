"""DualPipe: its order runs, waits as its README says, holds pp + 1 micro-batches and two copies of the weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.constraints.rules.dualpipe import DualPipe
from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.pipeline.dualpipe import bubble, dualpipe, pairs
from optimizer.objectives.pipeline.schedule import Pass
from optimizer.objectives.pipeline.simulator import PassTimes, simulate
from optimizer.objectives.step.price import price
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.plan.planner import plan as search
from optimizer.studies.timeline import timeline_of
from tests.search.jobs import DENSE, MIXTURE, small_job

STACK = load_stack("deepseek-2024")
PLAN = Plan(pp=8, dp=8, num_microbatches=32, schedule="dualpipe")


def dense(**changes: Any) -> Job:
    """A dense model of 16 equal layers; only its products and attention take time."""
    model = replace(DENSE, layers=16, vocab=1000)
    job = small_job(64, model=model)
    stack = replace(job.stack, parameters={"microbatch_overhead": 0.0, "p2p_overlap": 1.0, "straggler": 0.0})
    return replace(job, global_batch=256, stack=stack, **changes)


def simulated(pp: int, m: int, forward: float, backward: float, weight: float, gain: float) -> float:
    times = PassTimes(
        forward=[[forward] * 2] * pp,
        backward=[[backward - weight] * 2] * pp,
        weight=[[weight] * 2] * pp,
        gain=[gain] * pp,
    )
    timeline = simulate(dualpipe(pp, 1, m), times, both_ways=True)
    # virtual stages of a half each: pp + 1 micro-batches through one stage's layers
    assert (2 * timeline.peak_in_flight).tolist() == [pp + 1] * pp
    return timeline.makespan


@given(half=st.integers(1, 5), more=st.integers(0, 6))
def test_every_pass_runs_once_in_its_direction(half: int, more: int) -> None:
    pp, m = 2 * half, 4 * half + 2 * more
    wanted = Counter((kind, virtual, i) for kind in "FBW" for virtual in (0, 1) for i in range(m // 2))
    for stage in dualpipe(pp, 1, m):
        assert Counter(tuple(step[:3]) for step in stage) == wanted
        assert not stage[0].joined


@pytest.mark.parametrize(("pp", "m"), [(2, 8), (4, 8), (4, 20), (8, 16), (8, 40), (16, 120)])
@pytest.mark.parametrize("gain", [0.0, 0.6])
def test_the_simulator_waits_as_the_readme_says(pp: int, m: int, gain: float) -> None:
    """Equal stages with F = W: (pp / 2 - 1) (F&B + B - 3 W), and every other micro-batch of the middle is a pair."""
    waits = float(bubble(*(np.array(value) for value in (float(pp), 1.0, 2.0, 1.0, gain))))
    paired = float(pairs(np.array(float(m)), np.array(float(pp))))
    assert simulated(pp, m, 1.0, 2.0, 1.0, gain) == pytest.approx(m * 3 - paired * gain + waits)


def test_weights_that_take_less_than_a_forward_pass_wait_a_little_less_than_the_readme_says() -> None:
    closed = 40 * 3 + float(bubble(*(np.array(value) for value in (8.0, 1.0, 2.0, 0.8, 0.0))))
    assert closed - 1 < simulated(8, 40, 1.0, 2.0, 0.8, 0.0) <= closed


def test_a_step_is_the_passes_of_the_mean_stage_and_its_bubble() -> None:
    """Embedding and head lie at both ends: each end holds half of both, and the price waits for the slowest stage."""
    job = dense()
    plain, both = (price(job, Plans.of([replace(PLAN, schedule=name)])) for name in ("1f1b", "dualpipe"))
    layers = {name: float(both.time[name][0]) for name in ("gemm", "attention", "elementwise")}
    assert layers == pytest.approx({name: float(plain.time[name][0]) for name in layers}, rel=0.1)
    # a third of 3 (pp - 1) passes where F, B and W are alike; attention has no weights, so more is left
    assert 6 / 21 < float(both.time["bubble"][0]) / float(plain.time["bubble"][0]) < 15 / 21
    assert sum(float(term[0]) for term in both.time.values()) == pytest.approx(float(both.step_time[0]))


def test_two_copies_of_the_weights_and_one_of_what_is_sharded() -> None:
    plain, both = (price(dense(), Plans.of([replace(PLAN, schedule=name)])) for name in ("1f1b", "dualpipe"))
    # the fullest stage of 1F1B is the first, with the embedding; under DualPipe an end, with embedding and head
    assert 1.8 < float(both.memory["weights"][0]) / float(plain.memory["weights"][0]) < 2.2
    assert 0.9 < float(both.memory["optimizer"][0]) / float(plain.memory["optimizer"][0]) < 1.1
    unsharded = price(dense(), Plans.of([replace(PLAN, zero_stage=0, schedule=n) for n in ("1f1b", "dualpipe")]))
    assert 1.8 < float(unsharded.memory["optimizer"][1] / unsharded.memory["optimizer"][0]) < 2.2
    assert float(both.memory["activations"][0]) > float(plain.memory["activations"][0])


def test_mirrored_stages_share_what_they_hold() -> None:
    """A stage without layers beside one with twice as many takes as long as two equal ones."""
    even, skewed = ((2,) * 8, (4, *(2,) * 6, 0))
    costs = price(dense(), Plans.of([replace(PLAN, layers_per_stage=layers) for layers in (even, skewed)]))
    assert float(costs.step_time[0]) == pytest.approx(float(costs.step_time[1]))


def test_it_needs_an_even_pipeline_enough_micro_batches_and_layers_that_are_placed() -> None:
    given = dense().with_limits(fixed={"layout": "even"})
    plans = Plans.of([PLAN, replace(PLAN, num_microbatches=14), replace(PLAN, pp=1), replace(PLAN, schedule="1f1b")])
    assert DualPipe().check(given, plans).tolist() == [True, False, False, True]
    assert DualPipe().check(dense(), plans).tolist() == [False, False, False, True]
    assert "--fix layout=even" in DualPipe().explain(dense())
    assert "--fix" not in DualPipe().explain(given)
    for arguments in ((3, 1, 8), (4, 1, 7), (4, 1, 6)):
        with pytest.raises(InputError, match="even number of at least 2 pp"):
            dualpipe(*arguments)
    with pytest.raises(InputError, match="not drawn"):
        timeline_of(given, PLAN)
    assert Pass("F", 0, 0) == Pass("F", 0, 0, False)


def test_a_stack_that_offers_it_has_it_searched_where_it_is_asked_for_and_layers_are_placed() -> None:
    """The best of the lattice is what CP-SAT proves and the fastest of all plans that fit."""
    job = small_job(8, model=MIXTURE, features=replace(STACK.features, offers_overlap=True), bubble=0.5)
    job = job.with_limits(fixed={"layout": "even", "tp": 1, "recompute": "none"})
    # An even split alone adds no schedule: a restriction would beat the free answer.
    assert not np.any(Plans.joined(list(lattice(job, structural(job)))).schedule == 4)
    job = job.with_limits(choices={"schedule": ("1f1b", "dualpipe")})
    plans = Plans.joined(list(lattice(job, structural(job))))
    both = plans.take(plans.schedule == 4)
    assert len(both)
    assert np.all(both.overlap_exchange == (both.ep > 1))
    found = search(job, trials=0)
    assert found.certificate is not None
    assert found.certificate.proven
    assert found.plan is not None
    costs = price(job, plans)
    fits = costs.reserved <= job.usable_memory
    assert found.estimate is not None
    assert found.estimate.step_time <= float(costs.step_time[fits].min()) * (1 + 1e-9)
    free = small_job(8, model=MIXTURE, features=STACK.features, bubble=0.5)
    assert not np.any(Plans.joined(list(lattice(free, structural(free)))).schedule == 4)


def test_the_published_pipeline_of_deepseek_v3_gains_by_it() -> None:
    job = Job(
        model=load_model("deepseek-v3"),
        cluster=load_cluster("h800"),
        stack=STACK,
        gpus=2048,
        seq_len=4096,
        global_batch=15360,
        dtype="fp8",
    )
    plain = Plan(pp=16, dp=128, ep=64, num_microbatches=120, dispatcher="deepep", layers_per_stage=(*(4,) * 15, 1))
    both = replace(plain, schedule="dualpipe", overlap_exchange=True)
    seconds = price(job, Plans.of([plain, both])).step_time
    assert 0.6 < float(seconds[1] / seconds[0]) < 0.85
