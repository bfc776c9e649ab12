"""Shares, sizes, chances and rules of the objective against a count that is written down again."""

from __future__ import annotations

from dataclasses import replace
from math import erf, exp, log, sqrt
from typing import Any

import numpy as np
import pytest

from optimizer.catalog import load_cluster
from optimizer.job.job import Job
from optimizer.job.model import SlidingWindow
from optimizer.job.plan import Plan, Plans
from optimizer.job.stack import Features
from optimizer.objectives.arrays import different, lowered, raised
from optimizer.objectives.expected import (
    ASSIGNED,
    CHANCES,
    ON_HOST,
    TABLE,
    _cost,
    assigned,
    failed_start,
    layout_factor,
    memory_factor,
    parts_factor,
    risk_classes,
    risk_to_accept,
)
from optimizer.objectives.kernels.operators import context_share
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.minimised.registry import objective
from optimizer.objectives.network.torus import torus_axes, torus_detour, torus_rate, torus_steps
from optimizer.objectives.step.flops import frozen_params
from optimizer.objectives.step.memory_terms import whole_bytes
from optimizer.objectives.step.safe_memory import chances, margin, memory_error, reach
from tests.search.jobs import DENSE, MIXTURE, SHARED, small_job


@pytest.mark.parametrize("seq_len", [4, 16, 64])
@pytest.mark.parametrize(("window", "every"), [(0, 0), (1, 0), (3, 0), (16, 0), (64, 0), (3, 2), (5, 4)])
def test_masks_leave_as_many_scores_as_are_counted(seq_len: int, window: int, every: int) -> None:
    """Of every S x S scores a token has those of itself and of what is before it, in its window at most."""

    def counted(width: int) -> float:
        return sum(min(place + 1, width) for place in range(seq_len)) / seq_len**2

    model = replace(DENSE, window=SlidingWindow(size=window, global_every=every) if window else None)
    whole = model.mean_context_fraction if window and window < seq_len else 1.0
    expected = whole * counted(seq_len) + (1 - whole) * counted(window or seq_len)
    assert context_share(model, seq_len) == pytest.approx(expected)
    assert whole in (0.0, 1.0) or 0 < whole < 1


def parts_of(model: Any) -> dict[str, float]:
    """Parameters of a model that multiply tokens, by the part that freezes them."""
    hidden, width = model.hidden, model.ffn_hidden
    heads = (2 * model.heads + 2 * model.kv_heads) * model.head_dim * hidden
    dense, moe = model.mlp_layers, model.moe_layers
    each = 3 if model.gated_mlp else 2
    sizes = {"attention": float(heads * model.layers), "head": float(model.vocab * hidden)}
    sizes |= {"mlp": float(dense * each * hidden * width), "experts": 0.0}
    if model.experts:
        sizes["experts"] = float(moe * model.experts.top_k * each * hidden * model.experts.ffn_hidden)
        sizes["mlp"] += moe * each * hidden * model.experts.shared_ffn_hidden
        sizes["attention"] += moe * hidden * model.experts.count  # its router
    return sizes


@pytest.mark.parametrize("model", [DENSE, MIXTURE, replace(MIXTURE, name="shared", experts=SHARED)])
@pytest.mark.parametrize(
    "train", ["full", "frozen:head", "frozen:mlp", "frozen:attention", "frozen:head,mlp", "lora:8"]
)
def test_frozen_parameters_are_those_of_their_parts(model: Any, train: str) -> None:
    job = replace(small_job(model=model), train=train)
    sizes = parts_of(model)
    names = {"full": (), "lora:8": tuple(sizes)}.get(train, tuple(train.removeprefix("frozen:").split(",")))
    assert frozen_params(job) == pytest.approx(sum(sizes[name] for name in names), rel=1e-3)


@pytest.mark.parametrize(
    ("train", "there", "zero_stage", "tp", "held"),
    [
        ("lora:8", True, 3, 1, 1.0),
        ("lora:8", True, 3, 2, 0.5),
        ("lora:8", True, 2, 1, 0.0),
        ("lora:8", False, 3, 1, 0.0),
        ("full", True, 3, 1, 0.0),
    ],
)
def test_weights_that_stay_whole_beside_their_shards(
    train: str, there: bool, zero_stage: int, tp: int, held: float
) -> None:
    job = replace(small_job(features=Features(loads_whole=there)), train=train)
    plans = Plans.of([Plan(tp=tp, dp=8 // tp, zero_stage=zero_stage)])
    assert whole_bytes(layer_costs_of(job, plans))[0] == pytest.approx(held * 2 * job.model.params)


def test_memory_is_log_normal_around_what_is_predicted(gpt3_job: Job) -> None:
    job = gpt3_job
    mean, spread = memory_error(job)
    for reserved in (0.5, 0.9, 1.0, 1.1):
        deviations = (log(1 / reserved) - mean) / spread
        chance = 0.5 * (1 + erf(deviations / sqrt(2)))
        assert chances(job, np.array([reserved * job.usable_memory]))[0] == pytest.approx(chance, abs=1e-9)
    assert margin(job, 0.5) == pytest.approx(exp(-mean))
    for risk in (0.01, 0.2):
        fits = margin(job, risk) * job.usable_memory
        assert chances(job, np.array([fits]))[0] == pytest.approx(1 - risk)
        assert reach(job.with_limits(oom_risk=risk), fits) == pytest.approx(job.usable_memory)
    assert chances(job.with_limits(hbm=1e9), np.array([1.0]))[0] == 0.0


def test_what_may_go_wrong_costs_by_its_chance(gpt3_job: Job) -> None:
    job = replace(gpt3_job, prefer="expected")
    slower, run, unsure = (float(TABLE["memory"][name]) for name in ("slower", "run", "unsure"))
    assert failed_start(job) == pytest.approx(slower + job.try_cost / run)
    assert _cost(job, 0.01) == pytest.approx(0.01 * failed_start(job))
    assert _cost(job, 0.5) == pytest.approx(0.5 * failed_start(job) + unsure)
    limits = [job.usable_memory * margin(job, chance) for chance in CHANCES]
    for place, chance in enumerate(CHANCES):
        here = memory_factor(job, np.array([limits[place], 1.001 * limits[place]]))
        beyond = (*CHANCES, 1.0)[place + 1]
        assert here == pytest.approx([1 + _cost(job, chance), 1 + _cost(job, beyond)])
    assert memory_factor(job, np.array([0.0]))[0] == pytest.approx(1 + _cost(job, CHANCES[0]))
    (only,) = risk_classes(gpt3_job)
    assert only.factor == 1.0
    most, *others = risk_classes(job.with_limits(oom_risk=0.5))
    assert most.risk == 0.5
    assert [each.risk for each in others] == [chance for chance in reversed(CHANCES) if chance < 0.5]
    beyond = risk_classes(job.with_limits(oom_risk=0.49))[0]
    assert beyond.factor == pytest.approx(1 + _cost(job, next((c for c in CHANCES if c >= 0.49), 1.0)))


def test_a_risk_is_named_where_it_is_beyond_the_usual_one(gpt3_job: Job) -> None:
    job = gpt3_job
    for risk in (0.05, 0.11, 0.3):
        reserved = margin(job, risk) * job.usable_memory
        named = risk_to_accept(job, reserved)
        assert named == 0 or named - 1 <= 100 * risk <= named + 1e-6
    assert risk_to_accept(job, job.usable_memory * 2) == 100


def test_plans_that_were_seldom_run_cost_their_share(gpt3_job: Job) -> None:
    job = gpt3_job
    plain = Plan(tp=8, dp=8, num_microbatches=8, sequence_parallel=True)
    moving = {
        "zero_3_beside_pipelines": replace(plain, zero_stage=3),
        "replicated_shards": replace(plain, shard=4),
        "dualpipe": replace(plain, schedule="dualpipe"),
        "zero_bubble": replace(plain, schedule="zero-bubble"),
        "remainder": replace(plain, pp=5),
        "odd_degree": replace(plain, tp=6),
        "modules_recomputed": replace(plain, recompute="mlp"),
        "overlapped_exchange": replace(plain, overlap_exchange=True),
        "activations_on_host": replace(plain, activation_offload=50),
    }
    (base,) = parts_factor(job, Plans.of([plain]))
    assert base == 1.0
    for part, plan in moving.items():
        (factor,) = parts_factor(job, Plans.of([plan]))
        assert factor == pytest.approx(1 + TABLE["parts"][part]["cost"]), part
    virtual = Plans.of([replace(plain, pp=8, vpp=vpp, schedule="interleaved") for vpp in (3, 5)])  # of 96 layers
    assert parts_factor(job, virtual) == pytest.approx([1.0, 1 + TABLE["parts"]["remainder"]["cost"]])
    both = parts_factor(job, Plans.of([replace(plain, shard=4, activation_offload=50)]))[0]
    one, other = (
        parts_factor(job, Plans.of([moving[name]]))[0] for name in ("replicated_shards", "activations_on_host")
    )
    assert both - 1 == pytest.approx((one - 1) + (other - 1))


@pytest.mark.parametrize(
    ("changes", "listed"),
    [
        ({}, False),
        ({"layers_per_stage": (6, 6)}, False),
        ({"layers_per_stage": (5, 7)}, True),
        ({"layers_per_stage": (6, 6), "recompute_layers": (6, 6)}, False),
        ({"layers_per_stage": (6, 6), "recompute_layers": (6, 5)}, True),
        ({"layers_per_stage": (6, 6), "recompute_first": 2}, True),
    ],
)
def test_a_list_of_layers_costs_where_it_is_not_even(changes: dict[str, Any], listed: bool) -> None:
    job, plans = small_job(), Plans.of([Plan(pp=2, dp=4, num_microbatches=12, recompute="full", **changes)])
    assert bool(assigned(job, plans)[0]) is listed
    for offload, factor in ((0.0, 1.0), (0.5, 1 + ON_HOST)):
        assert layout_factor(job, plans, offload)[0] == pytest.approx((1 + ASSIGNED * listed) * factor)
    assert objective("time", "expected").listed == pytest.approx(1 + ASSIGNED)
    assert ASSIGNED > 0 < ON_HOST


def test_groups_of_a_torus_have_axes_links_and_hops() -> None:
    """A TPU v4: three axes of 16, a ring from 4 on, two links of 45 GB/s an axis and way."""
    tier = load_cluster("tpu-v4").scale_up
    for n, axes, steps in ((1, 0.5, 0), (2, 0.5, 1), (3, 0.5, 2), (4, 1, 2), (8, 1, 4), (16, 1, 8), (256, 2, 16)):
        assert torus_axes(n, tier) == pytest.approx(axes)
        assert torus_steps(n, tier) == pytest.approx(steps)
        assert torus_rate(n, tier) == pytest.approx(axes * 2 * 45e9)
    for n, axes in ((4, 1), (16, 1), (256, 2), (4096, 3)):
        side = round(n ** (1 / axes))
        hops = sum(min(step, side - step) for step in range(side)) * axes * side ** (axes - 1)
        assert torus_detour(n, tier) == pytest.approx(max(1.0, hops / (n - 1)), rel=1e-9)


def test_a_little_more_and_a_little_less_hold_what_rounding_moves() -> None:
    thirds = np.full(9, 1 / 3)
    assert float(thirds.sum()) <= raised(3.0)
    assert lowered(3.0) <= float(thirds.sum())
    assert raised(np.array([2.0, 0.0])) == pytest.approx([2.0, 0.0], rel=1e-8)
    assert raised(lowered(1.0)) <= 1.0 < raised(1.0)


@pytest.mark.parametrize("values", [[], [5], [5, 3, 5], [-3, 2, -3, 0], [10**12, 0, 10**12], [-(10**12), 7]])
def test_different_values_rise_however_far_they_lie_apart(values: list[int]) -> None:
    assert different(np.array(values, dtype=np.int64)).tolist() == sorted(set(values))
