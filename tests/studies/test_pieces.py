"""Pieces of the studies by hand: roofs, networks as people write them, speedups, plans of one strategy and of pins."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.answer.answer import Answer, Clash
from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_link
from optimizer.job.job import LAYERS
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.studies import networks
from optimizer.studies.intensity import LayerRoofline, _memory, layer_roofline
from optimizer.studies.networks import needed_bandwidth, network, network_level, on_network
from optimizer.studies.scaling import ScalingPoint, ScalingStudy, data_parallel_point, job_at, scaling
from optimizer.studies.strategies import CONTEXT, compare, pinned_plan, pure_plan
from tests.search.jobs import small_job

ROOFS: dict[str, Any] = {"peak": 100.0, "memory_bandwidth": 10.0, "network_bandwidth": 1.0}


@pytest.mark.parametrize(
    ("flops", "memory", "network", "bound", "attainable"),
    [
        (1000.0, 50.0, 5.0, "compute", 100.0),  # 10 s, 5 s, 5 s
        (1000.0, 200.0, 5.0, "memory", 50.0),  # 20 s
        (1000.0, 50.0, 40.0, "network", 25.0),  # 40 s
        (1000.0, 200.0, 0.0, "memory", 50.0),
        (1000.0, 50.0, 0.0, "compute", 100.0),
    ],
)
def test_a_layer_runs_under_the_lower_of_three_roofs(
    flops: float, memory: float, network: float, bound: str, attainable: float
) -> None:
    layer = LayerRoofline(flops=flops, memory=memory, network=network, **ROOFS)
    assert (layer.bound, layer.attainable) == (bound, pytest.approx(attainable))
    assert layer.memory_intensity == flops / memory
    assert layer.network_intensity == (flops / network if network else float("inf"))
    assert (layer.memory_ridge, layer.network_ridge) == (10.0, 100.0 if network else 0.0)


def test_traffic_of_a_layer_is_that_of_its_operands() -> None:
    """A product of 2 x 3 by 3 x 5, twice; kernels that move 7 and 11 B; heads of 2 queries and 4 keys, 6 + 8 wide."""
    product = SimpleNamespace(batch=2.0, m=np.array([2.0]), k=3.0, n=5.0)
    kernel = SimpleNamespace(forward_bytes=np.array([7.0]), backward_bytes=11.0)
    core = SimpleNamespace(heads=np.array([3.0]), queries=2.0, keys=4.0, qk_dim=6.0, v_dim=8.0)
    layer: Any = SimpleNamespace(gemms=[product], elementwise=[kernel], attention=core)
    products = {width: 3 * 2 * ((2 * 3 + 3 * 5) * width + 2 * 5 * 2) for width in (1.0, 2.0)}
    attention = 3 * 2 * 3 * (2 + 4) * (6 + 8)
    for width, bytes_ in products.items():
        assert _memory(layer, width) == bytes_ + 18.0 + attention
    layer.attention = None
    assert _memory(layer, 2.0) == products[2.0] + 18.0
    job, plan = small_job(16), Plan(tp=2, dp=8)
    found = layer_roofline(job, plan, [1e9, 1e9, 0.0])
    assert (found.network, found.network_tier) == (1e9, job.cluster.tiers[1].name)  # the slower of two tiers
    assert layer_roofline(job, plan, [1e9, 1.0, 0.0]).network_tier == job.cluster.tiers[0].name
    assert layer_roofline(job, plan, [0.0, 0.0, 0.0]).network_tier == ""
    narrow = replace(job, cluster=load_cluster("dgx-h100"), dtype="fp8")
    assert layer_roofline(narrow, plan, [0.0] * 3).memory < found.memory


@pytest.mark.parametrize(
    ("text", "name", "share"),
    [
        ("infiniband-ndr", "infiniband-ndr", 1.0),
        ("infiniband-ndr:0.125", "infiniband-ndr × 0.125", 0.125),
        ("infiniband-ndr:1", "infiniband-ndr × 1", 1.0),
        ("25 GB/s", "25 GB/s per GPU", 0.5),
    ],
)
def test_a_network_is_a_link_with_ports_or_a_rate(text: str, name: str, share: float) -> None:
    found = network(text, small_job(16))
    assert (found.name, found.link.bandwidth) == (name, pytest.approx(share * load_link("infiniband-ndr").bandwidth))


def test_networks_that_carry_nothing_are_refused() -> None:
    for text in ("0 GB/s", "infiniband-ndr:0", "infiniband-ndr:-1", "infiniband-ndr:x", "infiniband-ndr:"):
        with pytest.raises(InputError):
            network(text, small_job(16))


def test_a_job_in_one_domain_has_its_links_as_its_network() -> None:
    link = load_link("infiniband-hdr")
    for gpus, level in ((8, 0), (9, 1), (64, 1)):
        job = replace(small_job(8), gpus=gpus)
        assert network_level(job) == level
        tiers = on_network(job, link).cluster.tiers
        assert [tier.link == link for tier in tiers] == [number >= level for number in range(len(tiers))]
    one = replace(small_job(8).cluster, tiers=small_job(8).cluster.tiers[:1])
    assert network_level(replace(small_job(8), cluster=one, gpus=16)) == 0


def test_the_bandwidth_that_is_needed_takes_as_long_as_the_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1e12 B in 10 s: 1e11 B/s; with 11 s of latency none is enough."""

    def taking(latency: float) -> Any:
        return lambda job, traffic, knobs: SimpleNamespace(
            time_per_step=latency + traffic / job.cluster.tiers[1].link.bandwidth
        )

    study: Any = SimpleNamespace(job=small_job(16), compute_time=10.0)
    rows: Any = [SimpleNamespace(traffic=4e11), SimpleNamespace(traffic=6e11)]
    link = load_link("infiniband-ndr")
    for latency, needed in ((0.0, 1e11), (2.5, 2e11), (5.5, float("inf"))):
        monkeypatch.setattr(networks, "priced", taking(latency))
        assert needed_bandwidth(study, rows, link, Knobs()) == pytest.approx(needed)
    assert needed_bandwidth(study, (), link, Knobs()) == 0.0


def point(series: str, gpus: int, seconds: float | None, tokens: int = 100) -> ScalingPoint:
    estimate: Any = SimpleNamespace(step_time=seconds) if seconds else None
    return ScalingPoint(series=series, gpus=gpus, global_batch=1, tokens=tokens, estimate=estimate)


def test_speedups_are_over_the_first_point_that_has_a_plan() -> None:
    none, first, second = point("a", 4, None), point("a", 8, 10.0), point("a", 16, 6.25)
    study = ScalingStudy(job=small_job(), mode="strong", points=(none, point("b", 4, 1.0), first, second))
    assert study.series("a") == (none, first, second)
    assert [study.speedup(each) for each in (none, first, second)] == [0.0, 1.0, 1.6]
    assert [study.efficiency(each) for each in (none, first, second)] == [0.0, 1.0, 0.8]
    assert (none.tokens_per_second, second.tokens_per_second) == (0.0, 16.0)


def test_a_study_has_data_parallelism_and_the_best_plan_at_each_count() -> None:
    job = replace(small_job(8), global_batch=48)
    refused = Answer(
        status="infeasible", job=job, conflict=(Clash(rule="memory", reason=""), Clash(rule="b", reason=""))
    )
    study = scaling(job, [8, 16], "weak", planner=lambda one: refused)
    assert [(each.series, each.gpus, each.global_batch) for each in study.points] == [
        *(("data parallel", 8, 48), ("best plan", 8, 48)),
        *(("data parallel", 16, 96), ("best plan", 16, 96)),
    ]
    assert study.points[1].note == "no plan: memory, b"
    unknown = scaling(job, [8], planner=lambda one: Answer(status="unknown", job=one))
    assert (unknown.points[1].note, unknown.points[1].fits) == ("no plan: unknown", False)
    for counts in ([], [8, 8], [16, 8]):
        with pytest.raises(InputError, match="must rise"):
            scaling(job, counts, planner=lambda one: refused)
    with pytest.raises(InputError, match="no whole number"):
        job_at(replace(job, global_batch=49), 4, 8, "weak")
    assert job_at(replace(job, global_batch=49), 16, 8, "weak").global_batch == 98


def test_data_parallelism_takes_the_least_stage_that_fits() -> None:
    job = replace(small_job(8), global_batch=48)
    found = data_parallel_point(job)
    assert found.plan is not None
    assert found.fits
    assert (found.plan.dp, found.plan.micro_batch * found.plan.num_microbatches, found.note) == (8, 6, "")
    for size, stage, recompute in ((80e9, 0, "none"), (16e9, 0, "full"), (14e9, 1, "none"), (10e9, 1, "full")):
        least = data_parallel_point(job.with_limits(hbm=size)).plan
        assert least is not None
        assert (least.zero_stage, least.recompute) == (stage, recompute)
    odd = data_parallel_point(replace(job, global_batch=49))
    assert (odd.plan, odd.fits) == (None, False)
    assert odd.note == "49 sequences do not divide over 8 replicas"
    small = job.with_limits(hbm=7e9)
    none = data_parallel_point(small)
    assert none.estimate is not None
    assert not none.fits
    assert none.note == f"does not fit: {none.estimate.reserved / 1e9:,.0f} of {safe_memory(small) / 1e9:.0f} GB"


def test_a_strategy_has_all_gpus() -> None:
    job = replace(small_job(8), global_batch=48)
    shapes = {name: pure_plan(job, name, 2) for name in ("dp", "fsdp", "tp", "pp")}
    assert {name: (plan.tp, plan.pp, plan.dp, plan.zero_stage) for name, plan in shapes.items()} == {
        "dp": (1, 1, 8, 0),
        "fsdp": (1, 1, 8, 3),
        "tp": (8, 1, 1, 0),
        "pp": (1, 8, 1, 0),
    }
    assert {name: plan.num_microbatches for name, plan in shapes.items()} == {"dp": 3, "fsdp": 3, "tp": 24, "pp": 24}
    assert pure_plan(replace(job, global_batch=4), "dp").num_microbatches == 1
    for wrong in ({"micro_batch": 0}, {"names": ["ep"]}):
        with pytest.raises(InputError):
            compare(job, **wrong)  # type: ignore[arg-type]
    (bad,) = compare(replace(job, global_batch=4), ["dp"])
    assert (bad.study, bool(bad.reasons), bad.fits) == (None, True, False)


def test_pins_are_filled_up_to_a_plan() -> None:
    job = replace(small_job(16), global_batch=48)
    plan = pinned_plan(job, {"tp": 2, "micro_batch": 2})
    assert (plan.tp, plan.pp, plan.dp, plan.num_microbatches, plan.schedule) == (2, 1, 8, 3, "1f1b")
    layers = job.model.layers
    lying = job.with_limits(fixed={LAYERS: f"{layers // 2 + 1},{layers - layers // 2 - 1}"})
    split = pinned_plan(lying, lying.limits.fixed)
    assert (split.pp, split.dp, split.layers_per_stage) == (2, 8, (layers // 2 + 1, layers - layers // 2 - 1))
    staged = pinned_plan(job, {"pp": 2, "vpp": 2, "dp": 4, "tp": 2})
    assert (staged.schedule, staged.num_microbatches) == ("interleaved", 12)
    with pytest.raises(InputError, match=CONTEXT):
        pinned_plan(job, {"tp": 3})
