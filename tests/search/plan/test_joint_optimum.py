"""The planner's optimum over lattice and layouts is that of brute force: every layout of every plan, priced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from optimizer.constraints.rules import structural
from optimizer.job import Job
from optimizer.model import LatentAttention
from optimizer.objectives.step.layer_costs import layer_sequence
from optimizer.objectives.step.price import price
from optimizer.plan import Knobs, Plan, Plans, virtual_stages
from optimizer.search.lattice.enumerate import concatenate, lattice
from optimizer.search.layouts.problem import alternates
from optimizer.search.plan.planner import plan
from optimizer.search.why.plan_rules import placement_findings
from tests.search.jobs import jobs

MODES_LISTED = ("none", "full", "mlp", "core_attn+layernorm", "moe", "mla_up_proj+shared_experts")
MOST_PLANS = 400
MOST_LAYOUTS = 20_000
AT_ONCE = 4000
HOSTED = {"activation_offload": (0, 30, 100), "dp": (1, 2)}
LISTS = (
    {"pp": (1, 2, 4)},
    {"dp": (1, 2), "recompute": MODES_LISTED},
    HOSTED,
    {"shard": (0, 2), "tp": (1, 2)},
    {"shard": (2, 4), "zero_stage": (2, 3)},
    {"vpp": (2, 3), "schedule": ("interleaved",)},
    {"schedule": ("zero-bubble", "zero-bubble-2p")},
)
LATENT = LatentAttention(q_rank=128, kv_rank=64, nope_dim=64, rope_dim=32, v_dim=64)


@st.composite
def tiny_jobs(draw: st.DrawFn) -> Job:
    """Jobs with few enough layers and GPUs that all their layouts can be listed."""
    job = draw(jobs())
    layers = draw(st.integers(2, 6))
    hbm = draw(st.sampled_from([0.0, 3.2e9, 3.5e9, 4e9, 5e9, 7e9]))
    lists = draw(st.sampled_from([{}, {}, {}, {}, *LISTS]))
    limits = replace(job.limits, hbm=hbm, bubble=draw(st.sampled_from([0.3, 1.0])), choices=lists)
    model = replace(job.model, layers=layers, mla=draw(st.sampled_from([None, None, LATENT])))
    if model.mla:
        model = replace(model, kv_heads=model.heads)
    if model.experts:
        model = replace(model, experts=replace(model.experts, every=draw(st.sampled_from([1, 1, 2]))))
    return replace(job, model=model, gpus=draw(st.sampled_from([2, 4, 6, 8])), limits=limits)


def layouts(job: Job, given_plan: Plan) -> Iterator[Plan]:
    """Every placement of a plan's layers that the search allows, one after the other."""
    pp, vpp, layers = given_plan.pp, given_plan.vpp, job.model.layers
    aheads = range(max(1, pp - 1)) if job.model.mtp_layers else (0,)
    for ahead, counts in product(aheads, compositions(layers, pp * vpp)):
        if not allowed(job, given_plan, counts, ahead):
            continue
        held = [sum(counts[stage::pp]) for stage in range(pp)]
        chosen = given_plan.recompute == "full" and "recompute" not in job.limits.fixed
        rebuilt = product(*(range(n + 1) for n in held)) if chosen else [()]
        for numbers in rebuilt:
            yield replace(given_plan, layers_per_stage=counts, recompute_layers=tuple(numbers), mtp_ahead=ahead)


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


def allowed(job: Job, given_plan: Plan, counts: tuple[int, ...], ahead: int) -> bool:
    """No virtual stage is empty, chunks differ little from their share, and some software cuts evenly only.

    Interleaved layers that alternate in kind are split as evenly as can be.
    """
    chunks = len(counts)
    occupied = list(counts)
    occupied[0] += 1
    occupied[-1] += 1
    occupied[chunks - 1 - ahead] += job.model.mtp_layers
    if ahead and any(counts[-ahead:]):
        return False  # prediction layers come after all others
    if min(occupied) < 1 or (not job.stack.features.uneven_stages and len(set(counts)) > 1):
        return False
    if given_plan.vpp == 1:
        return True
    if alternates(layer_sequence(job.model)):
        return counts == virtual_stages((), job.model.layers, given_plan.pp, given_plan.vpp)
    share = job.model.layers / chunks
    least = [0 if chunk >= chunks - given_plan.pp else floor(share) - 1 for chunk in range(chunks)]
    return all(low <= n <= ceil(share) + 1 for low, n in zip(least, counts, strict=True))


def every_layout(job: Job) -> list[Plan] | None:
    """All layouts of all plans; None when there are too many to price."""
    parts = list(lattice(job, structural(job)))
    every = concatenate(parts) if parts else None
    if every is None or len(every) > MOST_PLANS:
        return None
    found: list[Plan] = []
    for index in range(len(every)):
        found += layouts(job, every.plan(index))
        if len(found) > MOST_LAYOUTS:
            return None
    return found


def fastest(job: Job, plans: list[Plan], knobs: Knobs) -> float:
    best = np.inf
    for start in range(0, len(plans), AT_ONCE):
        costs = price(job, Plans.of(plans[start : start + AT_ONCE]), knobs)
        best = min(best, float(np.min(np.where(costs.reserved <= job.usable_memory, costs.step_time, np.inf))))
    return best


@settings(max_examples=160, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(tiny_jobs())
def test_the_optimum_is_that_of_every_layout_of_every_plan(job: Job) -> None:
    compare(job)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(tiny_jobs())
def test_the_optimum_is_that_of_brute_force_where_only_the_host_has_room(job: Job) -> None:
    """Nothing can be rebuilt, so that where memory is short activations go to the host or plans change."""
    features = replace(job.stack.features, recompute=("none",), recompute_modules=(), activation_offload=True)
    compare(replace(job, stack=replace(job.stack, features=features)).with_limits(fixed={}, choices=HOSTED))


def compare(job: Job) -> None:
    """The planner's answer against the fastest of all layouts that fit."""
    plans = every_layout(job)
    assume(plans)
    assert plans is not None
    answer = plan(job, top=2, trials=0)
    best = fastest(job, plans, answer.knobs)
    if answer.plan is None or answer.certificate is None or answer.estimate is None:
        assert answer.status == "infeasible"
        assert best == fastest(job, plans, Knobs(offload=1.0)) == np.inf
        return
    assert answer.status == "optimal"
    assert answer.estimate.step_time == pytest.approx(best, rel=1e-7)
    assert answer.certificate.lower_bound <= best * (1 + 1e-7)
    assert answer.certificate.knob_bound <= fastest(job, plans, Knobs(bucket=1e9, comm_sm_share=0.3)) * (1 + 1e-9)
    assert answer.estimate.reserved <= job.usable_memory
    assert all(finding.holds for finding in placement_findings(job, answer.plan))
    assert all(other.estimate.step_time >= best * (1 - 1e-7) for other in answer.alternatives)
