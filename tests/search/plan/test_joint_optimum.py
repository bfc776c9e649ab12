"""The planner's optimum is that of brute force: every layout of every plan, priced at the plan's own knobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from optimizer.catalog import load_cluster
from optimizer.job.job import Job
from optimizer.job.model import LatentAttention, Model
from optimizer.job.plan import Knobs
from optimizer.job.recurrence import Recurrence
from optimizer.search.lattice.knobs import BOX, columns
from optimizer.search.plan.planner import plan
from tests.search.brute_force import compare, every_layout, lowest, settings_of
from tests.search.jobs import DENSE, MIXTURE, jobs, small_job
from tests.search.jobs import LATENT as LATENT_MODEL
from tests.thorough import cases, sampled

MODES_LISTED = ("none", "full", "mlp", "core_attn+layernorm", "moe", "mla_up_proj+shared_experts")
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
STATE = Recurrence(kind="mamba2", heads=24, head_dim=64, state_dim=64, groups=4)
HYBRID = replace(MIXTURE, name="small-hybrid", mixers="rra", feed_forwards="deede", recurrence=STATE)
LATENT = LatentAttention(q_rank=128, kv_rank=64, nope_dim=64, rope_dim=32, v_dim=64)


@st.composite
def tiny_jobs(draw: st.DrawFn) -> Job:
    """Jobs with few enough layers and GPUs that all their layouts can be listed."""
    job = draw(jobs())
    layers = draw(st.integers(2, 6))
    hbm = draw(st.sampled_from([0.0, 3.2e9, 3.5e9, 4e9, 5e9, 7e9]))
    lists = draw(st.sampled_from([{}, {}, {}, {}, *LISTS]))
    limits = replace(job.limits, hbm=hbm, bubble=draw(st.sampled_from([0.3, 1.0])), choices=lists)
    by = draw(st.sampled_from(["stage", "virtual stage", "virtual stage", "all layers"]))
    job = replace(job, stack=replace(job.stack, features=replace(job.stack.features, recompute_by=by)))
    model = replace(job.model, layers=layers, mla=draw(st.sampled_from([None, None, LATENT])))
    if model.mla:
        model = replace(model, kv_heads=model.heads)
    if model.experts:
        model = replace(model, experts=replace(model.experts, every=draw(st.sampled_from([1, 1, 2]))))
    return replace(job, model=model, gpus=draw(st.sampled_from([2, 4, 6, 8])), limits=limits)


@settings(
    max_examples=cases(60, sample=2),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(tiny_jobs(), st.text("arn", min_size=1, max_size=4), st.text("den", min_size=1, max_size=4))
def test_the_optimum_is_that_of_brute_force_with_layers_of_several_kinds(job: Job, mixers: str, mlps: str) -> None:
    """Mixers and MLPs in any order, some layers with one of them alone."""
    model = replace(job.model, mixers=mixers, feed_forwards=mlps if job.model.experts else "", recurrence=STATE)
    assume(len(mixers) <= model.layers and (not model.experts or model.moe_layers > 0))
    assume(all((kind.model.mixers, kind.model.feed_forwards) != ("n", "n") for kind in model.kinds))
    assume(compare(replace(job, model=model)))


@settings(
    max_examples=cases(160, sample=4),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(tiny_jobs())
def test_the_optimum_is_that_of_every_layout_of_every_plan(job: Job) -> None:
    assume(compare(job))


@settings(
    max_examples=cases(120, sample=3),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(tiny_jobs(), st.sampled_from(["energy", "energy", "cost"]), st.sampled_from(["dgx-h100", "dgx-h800"]))
def test_the_optimum_is_that_of_brute_force_whatever_is_minimised(job: Job, minimize: str, cluster: str) -> None:
    """Nobody in the price book rents H800s out, so that their cost is of energy too."""
    assume(compare(replace(job, minimize=minimize, cluster=load_cluster(cluster))))


@settings(
    max_examples=cases(120, sample=3),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(tiny_jobs(), st.sampled_from(["time", "time", "energy", "cost"]), st.sampled_from([0.03, 0.1, 0.5]))
def test_the_optimum_is_that_of_brute_force_with_what_may_go_wrong(job: Job, minimize: str, risk: float) -> None:
    """Moving parts, lists of layers, the optimizer on the host and every class of risk are in the search."""
    assume(compare(replace(job, minimize=minimize, prefer="expected").with_limits(oom_risk=risk)))


@settings(
    max_examples=cases(60, sample=2),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(tiny_jobs())
def test_the_optimum_is_that_of_brute_force_where_only_the_host_has_room(job: Job) -> None:
    """Nothing can be recomputed, so that where memory is short activations go to the host or plans change."""
    features = replace(job.stack.features, recompute=("none",), recompute_modules=(), activation_offload=True)
    assume(compare(replace(job, stack=replace(job.stack, features=features)).with_limits(fixed={}, choices=HOSTED)))


@pytest.mark.parametrize(
    ("model", "vpp"),
    [
        *sampled(((model, vpp) for vpp in (2, 3) for model in (DENSE, MIXTURE, HYBRID)), 2),
        (replace(MIXTURE, mtp_layers=1), 3),
    ],
)
def test_an_interleaved_pipeline_of_few_layers_gets_the_best_of_every_layout(model: Model, vpp: int) -> None:
    pins = {"pp": 2, "vpp": vpp, "tp": 1, "cp": 1, "micro_batch": 1}
    job = small_job(4, model=replace(model, layers=7 - vpp % 2), bubble=1.0, fixed=pins)
    job = replace(job, global_batch=16)
    every, answer = every_layout(job), plan(job, top=0, trials=0)
    assert every is not None
    assert answer.estimate is not None
    plans, laid, owners = every
    best = min(lowest(job, laid, knobs.take(owners)) for knobs in settings_of(job, plans))
    assert answer.status == "optimal"
    assert best * (1 - 1e-7) <= answer.estimate.step_time <= best * (1 + 1e-7)


@pytest.mark.parametrize("seed", range(cases(6, sample=3)))
def test_no_setting_of_the_knobs_beats_the_bound(seed: int) -> None:
    """Whatever the corner of the box or the point in it, on every layout of every plan."""
    rng = np.random.default_rng(seed)
    model = (DENSE, MIXTURE, LATENT_MODEL)[seed % 3]
    job = small_job(4, model=replace(model, layers=4), hbm=(7e9, 80e9)[seed % 2], max_vpp=1, max_micro_batch=1)
    every = every_layout(job.with_limits(fixed={"cp": 1, "recompute": "none"}))
    assert every is not None
    answer = plan(job.with_limits(fixed={"cp": 1, "recompute": "none"}), top=1, trials=0)
    assert answer.certificate is not None
    for _ in range(12):
        sides = {
            name: float(low * (high / low) ** rng.choice([0.0, 1.0, rng.random()])) for name, (low, high) in BOX.items()
        }
        knobs = Knobs(**sides, offload=float(rng.choice([0.0, 1.0, rng.random()])))
        assert answer.certificate.knob_bound <= lowest(job, every[1], columns(knobs, len(every[1]))) * (1 + 1e-9)
