"""Pieces of the studies by hand: roofs, networks as people write them, speedups, plans of one strategy and of pins."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from optimizer.answer.answer import Answer, Clash
from optimizer.base.errors import InputError
from optimizer.catalog import device_names, load_cluster, load_device, load_link
from optimizer.constraints.rules.every import structural
from optimizer.job.job import LAYERS, Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.reports.charts.chart import Chart
from optimizer.reports.report import Table
from optimizer.search.why.comparison import pinned_job
from optimizer.studies import best_use as best_use_module
from optimizer.studies import cells, fits, networks, timeline_report
from optimizer.studies import strategies_report as strategies_module
from optimizer.studies.best_use import BestUse, Use, batches_near, best_use, counts_at_most
from optimizer.studies.cells import FITS, FORBIDDEN, FULL, Cell, _add, forbidding
from optimizer.studies.communication import communication
from optimizer.studies.communication_report import communication_report
from optimizer.studies.fits import _plans
from optimizer.studies.fits_report import _plan_words
from optimizer.studies.intensity import LayerRoofline, _memory, layer_roofline
from optimizer.studies.networks import bottleneck, needed_bandwidth, network, network_level, on_network
from optimizer.studies.scaling import (
    ScalingPoint,
    ScalingStudy,
    _data_parallel_plans,
    data_parallel_point,
    job_at,
    scaling,
)
from optimizer.studies.scaling_report import _gpus, _grown, scaling_chart, scaling_record, throughput_chart
from optimizer.studies.strategies import CONTEXT, compare, pinned_plan, pure_plan
from optimizer.studies.strategies_report import networks_chart, strategies_report
from optimizer.studies.textbook import (
    CLAIMED,
    COUNTS,
    GOOD,
    KINDS,
    LAB,
    PARAMS,
    STATE_BYTES,
    WEIGHT_BYTES,
    LabDesign,
    best_by_rule,
    rule_of_thumb_mfu,
)
from optimizer.studies.timeline import timeline_of
from optimizer.studies.timeline_report import MOST_PASSES, check_drawn, pipeline_chart
from optimizer.studies.traffic import _stage_gpus
from tests.search.jobs import DENSE, small_job

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
    estimate: Any = SimpleNamespace(step_time=seconds, mfu=0.5) if seconds else None
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
    for most in (1, 2, 3):
        tried = _data_parallel_plans(job.with_limits(max_micro_batch=most))
        assert {plan.micro_batch for plan in tried} == {*range(1, most + 1)}
        assert all(plan.micro_batch * plan.num_microbatches == 6 for plan in tried)
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
    with pytest.raises(InputError, match="micro"):
        compare(job, micro_batch=0)
    with pytest.raises(InputError, match="ep"):
        compare(job, ["ep"])
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
    virtual = job.with_limits(fixed={"vpp": 2, LAYERS: ",".join([str(layers // 4)] * 4)})
    assert (pinned_plan(virtual, virtual.limits.fixed).pp, pinned_plan(virtual, virtual.limits.fixed).vpp) == (2, 2)
    with pytest.raises(InputError, match=CONTEXT):
        pinned_plan(job, {"tp": 3})


def test_cells_say_what_their_best_plan_comes_to() -> None:
    plan = Plan(tp=2, dp=4)
    fits = Cell(tp=2, pp=1, kind=FITS, value=1.5, unit="s", plan=plan)
    full = Cell(tp=2, pp=1, kind=FULL, reserved=123.4e9, plan=plan)
    none = Cell(tp=2, pp=1, kind=FORBIDDEN, why="heads: 2 does not divide 3")
    assert (full.text, none.text, none.words) == ("123 GB", "–", none.why)
    assert fits.words == f"{fits.text} by {plan.summary()}"
    assert full.words == f"does not fit: the plan of least memory reserves 123.4 GB, {plan.summary()}"
    least: dict[tuple[int, int], tuple[float, Plan]] = {}
    plans = [Plan(tp=2, dp=4), Plan(tp=2, dp=4, recompute="full"), Plan(tp=4, dp=2), Plan(tp=8)]
    _add(least, Plans.of(plans), np.array([2.0, 1.0, 3.0, np.inf]))
    _add(least, Plans.of(plans[:1]), np.array([1.0]))  # no less
    assert least == {(2, 1): (1.0, plans[1]), (4, 1): (3.0, plans[2])}


def test_the_rule_that_leaves_no_plan_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    job = small_job(8)
    locked = job.with_limits(fixed={"tp": 2, "pp": 1})
    assert forbidding(locked, 4, 1).startswith("fix")
    heads = next(rule.name for rule in structural(job) if rule.name == "heads")
    assert forbidding(replace(job, gpus=7, global_batch=49), 7, 1).startswith(heads)
    monkeypatch.setattr(cells, "broken_alone", lambda pinned: {})
    rules = structural(pinned_job(job, {"tp": 2, "pp": 1}))
    for place in (0, 1, len(rules) - 1):  # with the rules up to here no plan is left
        monkeypatch.setattr(cells, "lattice", lambda job, some, place=place: [[1] if len(some) <= place else []])
        assert forbidding(job, 2, 1).startswith(f"{rules[place].name}: ")


def test_the_best_use_is_what_was_asked_where_nothing_is_noticeably_better(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [replace(small_job(gpus), global_batch=64) for gpus in (16, 8, 4)]
    looked: list[tuple[int, float]] = []

    def found(*rates: float | None, beyond: float = 0.0) -> BestUse:
        """Each job's rate; its bound is a tenth more; None for one that cannot be."""
        worth = dict(zip((16, 8, 4), rates, strict=True))

        def outlook(job: Any, tuning: Any) -> Any:
            rate = worth[job.gpus]
            if rate is None:
                raise InputError("no")

            def layouts(least: float) -> float:
                looked.append((job.gpus, least))
                return rate

            return SimpleNamespace(
                worth=1.1 * rate, layouts_beyond=layouts, worth_of=lambda rate: rate, known=lambda *_: job.gpus
            )

        monkeypatch.setattr(best_use_module, "outlook", outlook)
        looked.clear()
        return best_use(jobs, beyond=beyond)

    more = 1.0 + best_use_module.NOTICEABLE
    better = found(1.0, 2.0, 3.0)
    assert (better.asked.worth, better.best.job.gpus, better.best.worth, better.known) == (1.0, 4, 3.0, 4)
    assert looked == [(4, 0.0), (8, 3.0), (16, 0.0)]  # by their bounds; what was asked for with its own rate
    found(1.0, 2.0, 3.0, beyond=2.5)
    assert looked == [(4, 2.5), (8, 3.0), (16, 2.5)]  # of less nobody asks
    assert found(1.0, 0.999 * more, 0.5).best.job.gpus == 16
    assert found(1.0, 1.001 * more, 0.5).best.job.gpus == 8
    none = found(None, None, 1.0)
    assert (none.asked.worth, none.best.job.gpus, [use.worth for use in none.tried]) == (0.0, 4, [0.0, 0.0, 1.0])


def test_batches_and_counts_end_where_they_may() -> None:
    assert batches_near(10, 0.2, 1) == (10, 9, 11, 8)
    assert set(batches_near(10, 0.1, 12)) == {9, 10, 11}
    assert batches_near(1, 0.5, 8) == (1,)
    assert sorted(batches_near(10, 0.19, 1)) == [9, 10, 11]
    assert sorted(batches_near(8, 0.125, 1)) == [7, 8, 9]
    assert sorted(batches_near(8, 0.12, 1)) == [8]
    assert sorted(batches_near(2, 0.99, 1)) == [1, 2, 3]
    assert counts_at_most(8, 8) == (8,)
    assert counts_at_most(9, 8) == (9, 8)


@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
def test_a_page_draws_so_many_passes(schedule: str) -> None:
    each = (3 if schedule == "zero-bubble" else 2) * 4
    most = MOST_PASSES // each
    check_drawn(Plan(pp=4, num_microbatches=most, schedule=schedule))
    with pytest.raises(InputError, match="passes are more than"):
        check_drawn(Plan(pp=4, num_microbatches=most + 1, schedule=schedule))
    with pytest.raises(InputError, match="passes are more than"):
        check_drawn(Plan(pp=4, vpp=2, num_microbatches=most // 2 + 1, schedule=schedule))


def test_a_design_of_the_lab_by_its_rules() -> None:
    """GPT-3's 175e9 parameters: 2 B of weights and 16 of states each over the ranks, 8 GB of activations x tp."""
    design = LabDesign(tp=8, pp=4, microbatches=8)
    assert design.memory == design.weights + design.states + design.activations
    assert design.weights + design.states == pytest.approx(PARAMS * (WEIGHT_BYTES + STATE_BYTES) / 32)
    assert (design.activations, design.exact_bubble) == (64e9, pytest.approx(3 / 11))
    assert (LabDesign(tp=8).crosses, LabDesign(tp=16).crosses, LabDesign(tp=8).slowdown) == (False, True, 1.0)
    assert (LabDesign(tp=5).divides, LabDesign(tp=4).divides) == (False, True)
    for wrong in ({"tp": 0}, {"pp": 0}, {"microbatches": 0}):
        with pytest.raises(InputError, match="must be at least 1, but got 0"):
            LabDesign(**wrong)
    assert best_by_rule().good
    for microbatches, wrong in ((4, True), (5, False)):  # a bubble of an eighth, of the tenth that it may be
        assert (KINDS[3] in LabDesign(tp=8, pp=2, microbatches=microbatches).failures) is wrong


def test_what_more_gpus_bring_is_told() -> None:
    def study(*points: tuple[int, float | None]) -> ScalingStudy:
        plan = Plan(dp=8)
        made = tuple(
            replace(point("best plan", gpus, seconds), plan=plan if seconds else None, fits=True)
            for gpus, seconds in points
        )
        return ScalingStudy(job=small_job(), mode="strong", points=made)

    assert _grown(study((8, None))) == "No plan fits at any of these numbers of GPUs."
    assert _grown(study((8, None), (16, 10.0))) == "The best plan on 16 GPUs does 10 tokens per second."
    said = _grown(study((8, 10.0), (32, 3.125)))
    assert said.startswith("4 times the GPUs do 3.2 times the tokens per second with the best plans: 80% efficiency")
    assert _gpus(study((8, 10.0), (32, 3.0)), {16: 0.5})["tickvals"] == [8, 16, 32]


def test_a_method_is_told_with_what_it_shards_recomputes_and_switches() -> None:
    def words(gpus: int = 1, switched: str = "", **plan: Any) -> str:
        job: Any = SimpleNamespace(gpus=gpus)
        return _plan_words(cast(Any, SimpleNamespace(plan=Plan(**plan), job=job, switched=switched)))

    assert words(micro_batch=4) == "micro-batch 4"
    assert words(gpus=2, zero_stage=3) == "micro-batch 1, ZeRO-3"
    assert words(recompute="full", activation_offload=100) == "micro-batch 1, full recompute, inputs on host"
    assert words(switched="Liger") == "micro-batch 1, Liger"


def test_the_advice_is_told_where_it_is_another_use() -> None:
    job = replace(small_job(16), global_batch=64)

    def words(best: Job, rate: float = 1.5, asked: float = 1.0) -> str:
        use = best_use_module.Use
        return BestUse(asked=use(job=job, worth=asked), best=use(job=best, worth=rate), tried=()).words()

    assert (words(job), words(replace(job, gpus=8), 0.0)) == ("", "")
    fewer = words(replace(job, gpus=8))
    assert fewer.startswith("8 GPUs: 50.0% more tokens a ")
    assert fewer.endswith("than 16 with 64, and 8 spare for failures")
    assert words(replace(job, global_batch=60)).startswith("16 GPUs with 60 sequences per step: ")
    assert "spare" not in words(replace(job, global_batch=60))
    assert words(replace(job, gpus=8), asked=0.0).startswith("8 GPUs: 16 with 64 has no plan")


def test_plans_of_data_parallelism_alone() -> None:
    job = replace(small_job(8), global_batch=48)
    one = replace(job, gpus=1, global_batch=6)
    assert {plan.micro_batch for plan in _plans(job)} == {1, 2, 3, 6}
    assert all(plan.dp == 8 and plan.micro_batch * plan.num_microbatches == 6 for plan in _plans(job))
    assert {plan.zero_stage for plan in _plans(job)} == {*job.stack.features.zero_stages}
    assert {plan.zero_stage for plan in _plans(one)} == {min(job.stack.features.zero_stages)}
    two = replace(job, gpus=2, global_batch=6)
    assert {plan.zero_stage for plan in _plans(two)} == {*job.stack.features.zero_stages}
    assert {plan.micro_batch for plan in _plans(two.with_limits(max_micro_batch=2))} == {1}
    assert {plan.micro_batch for plan in _plans(two.with_limits(max_micro_batch=3))} == {1, 3}
    assert {plan.activation_offload for plan in _plans(job)} == {0}
    features = replace(job.stack.features, hosted_checkpoints=True)
    hosted = _plans(replace(job, stack=replace(job.stack, features=features)))
    assert {(plan.recompute, plan.activation_offload) for plan in hosted if plan.activation_offload} == {("full", 100)}
    assert {(plan.recompute, plan.activation_offload) for plan in hosted} >= {("full", 0), ("none", 0)}


def test_a_stage_has_the_gpus_of_its_ranks_and_a_collective_its_energy() -> None:
    step: Any = SimpleNamespace(layer_costs=SimpleNamespace(plans=Plans.of([Plan(tp=2, cp=4, dp=8, pp=2)])))
    assert _stage_gpus(step) == 64.0
    row = next(row for row in communication(small_job(16), Plan(tp=2, dp=8, sequence_parallel=True)).rows)
    assert row.energy_per_layer == pytest.approx(row.traffic.per_layer * row.energy)
    assert row.total_energy == pytest.approx(row.traffic.in_total * row.energy)


def test_the_document_s_numbers() -> None:
    assert COUNTS == (8, 16, 32, 64, 128, 256, 512, 1024)
    assert CLAIMED == {8: 0.52, 64: 0.38, 512: 0.19}
    assert LabDesign(tp=16).slowdown == LAB.nvlink / LAB.infiniband > 1
    assert LabDesign().states == pytest.approx(PARAMS * STATE_BYTES / 32)


def test_gain_is_over_what_was_asked_for() -> None:
    use = Use(job=small_job(), worth=2.0)
    assert BestUse(asked=use, best=replace(use, worth=3.0), tried=()).gain == 0.5
    assert BestUse(asked=replace(use, worth=0.0), best=use, tried=()).gain == float("inf")


def test_a_design_is_good_where_it_passes_with_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    for mfu, failures, good in ((GOOD, (), True), (GOOD - 1e-9, (), False), (0.5, ("memory",), False)):
        monkeypatch.setattr(LabDesign, "mfu", mfu)
        monkeypatch.setattr(LabDesign, "failures", failures)
        assert LabDesign().good is good


@pytest.mark.parametrize(
    ("tp", "slower", "dp", "bubble", "kept"),
    [
        (1, 4.0, 1, 0.0, 1.0),
        (4, 1.0, 1, 0.0, 0.9),
        (4, 2.0, 1, 0.0, 0.8),
        (1, 1.0, 4, 0.5, 0.48),
        (4, 20.0, 1, 0.0, 0.0),
    ],
)
def test_what_rules_of_thumb_leave(tp: int, slower: float, dp: int, bubble: float, kept: float) -> None:
    """5 % less a doubling of tp, as many times as its network is slower, and 2 % a doubling of dp."""
    found = rule_of_thumb_mfu(0.5, tp=tp, dp=dp, bubble=bubble, tp_slowdown=slower)
    assert found == pytest.approx(0.5 * kept)


def test_a_message_between_two_stages_has_one_sender() -> None:
    rows = communication(small_job(16), Plan(tp=2, pp=2, dp=4, num_microbatches=12)).rows
    for kind, several in (("point_to_point", False), ("all_reduce", True)):
        row = next(row for row in rows if row.traffic.kind == kind)
        senders = row.traffic.ranks if several else 1
        assert row.total_volume == pytest.approx(row.traffic.in_total * senders * row.sent)


def test_rows_of_what_is_sent_are_numbered_from_one() -> None:
    study = communication(small_job(16), Plan(tp=2, dp=8, num_microbatches=6))
    blocks = [block for part in communication_report(study).sections for block in part.blocks]
    numbered = [block for block in blocks if isinstance(block, Table) and block.labels[0] == "#"]
    assert len(numbered) == 3
    for table in numbered:
        assert {row[0] for row in table.rows} <= {*range(1, len(study.rows) + 1)}
        assert table.rows[0][0] == 1


def test_every_cell_has_its_best_plan_the_leanest_or_a_rule() -> None:
    job = small_job(8, hbm=5e9)
    found = cells.cells(job)
    assert {cell.kind for cell in found} == {FITS, FULL, FORBIDDEN}
    for cell in found:
        assert (cell.plan is None) is (cell.kind == FORBIDDEN) is bool(cell.why)
        if cell.plan is not None:
            assert (cell.plan.tp, cell.plan.pp) == (cell.tp, cell.pp)
        if cell.kind == FITS:
            assert cell.value > 0
        if cell.kind == FULL:
            assert cell.reserved > safe_memory(job)
    best = min((cell for cell in found if cell.kind == FITS), key=lambda cell: cell.value)
    assert best.plan is not None
    faster = replace(best.plan, micro_batch=1, num_microbatches=best.plan.micro_batch * best.plan.num_microbatches)
    answered = {(cell.tp, cell.pp): cell for cell in cells.cells(job, (faster, best.value / 2))}
    assert answered[best.tp, best.pp].value == best.value / 2
    assert answered[best.tp, best.pp].plan == faster


def test_no_card_is_the_smallest_where_none_is_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    job = small_job(8)
    monkeypatch.setattr(fits, "_least", lambda job, length: False)
    assert fits.smallest_card(job) == ""
    assert fits.longest_context(job) == 0
    every = [device for device in map(load_device, device_names()) if device.vendor in fits.CARDS]
    sizes = sorted({device.memory for device in every if job.dtype in device.peak_flops})
    for size in sizes:
        monkeypatch.setattr(fits, "_least", lambda job, length, size=size: job.cluster.device.memory >= size)
        assert load_device(fits.smallest_card(job)).memory == size


@pytest.mark.parametrize("most", [1, 2, 3, 37, 64])
def test_the_longest_context_is_found_by_halving(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "_least", lambda job, length: length <= most * fits.STEP)
    assert fits.longest_context(small_job(8)) == most * fits.STEP


def test_the_longest_context_ends_where_nobody_looks_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "_least", lambda job, length: True)
    assert fits.longest_context(small_job(8)) == fits.MOST_LENGTH // fits.STEP * fits.STEP


def test_measured_shares_and_throughput_without_loss_are_drawn() -> None:
    first, second = point("best", 8, 10.0), point("best", 16, 6.25)
    study = ScalingStudy(job=small_job(), mode="strong", points=(first, second))
    drawn = {trace["name"]: trace for trace in scaling_chart(study, {8: 0.25, 16: 0.5}).figure["data"]}
    assert list(drawn["measured"]["y"]) == [25.0, 50.0]
    ideal = next(trace for trace in throughput_chart(study).figure["data"] if trace["name"] == "ideal")
    assert list(ideal["y"]) == [10.0, 20.0]  # 100 tokens in 10 s, and twice as many


@pytest.mark.parametrize(
    ("planned", "priced", "fit"), [(True, True, True), (True, False, False), (False, False, False)]
)
def test_a_point_fits_with_a_plan_and_a_price(planned: bool, priced: bool, fit: bool, gpt3_answer: Answer) -> None:
    answer = replace(
        gpt3_answer, plan=gpt3_answer.plan if planned else None, estimate=gpt3_answer.estimate if priced else None
    )
    study = scaling(small_job(8), (8,), "strong", lambda job: answer)
    found = next(each for each in study.points if each.note.startswith("no plan") or each.plan == gpt3_answer.plan)
    assert (found.fits, found.note.startswith("no plan")) == (fit, not fit)


@pytest.mark.parametrize(
    ("vpp", "shades", "hover"), [(1, "dark and pale in turn", False), (2, "the later the virtual stage", True)]
)
def test_a_pipeline_is_drawn_from_its_first_second(vpp: int, shades: str, hover: bool) -> None:
    schedule = "interleaved" if vpp > 1 else "1f1b"
    plan = Plan(pp=2, vpp=vpp, dp=4, num_microbatches=4, schedule=schedule)
    chart = pipeline_chart(timeline_of(small_job(8), plan))
    assert shades in chart.words
    assert chart.figure["layout"]["xaxis"]["range"][0] == 0
    texts = [text for trace in chart.figure["data"] for text in trace["hovertext"]]
    assert all(("virtual stage" in text) is hover for text in texts)
    colours = {colour for trace in chart.figure["data"] for colour in trace["marker"]["color"]}
    assert len(colours) == 4  # of two kinds of passes two each


def test_passes_carry_their_numbers_where_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    study = timeline_of(small_job(8), Plan(pp=2, dp=4, num_microbatches=4))  # 16 passes
    for most, labelled in ((16, True), (15, False)):
        monkeypatch.setattr(timeline_report, "MOST_LABELS", most)
        assert all(bool(trace["text"]) is labelled for trace in pipeline_chart(study).figure["data"])


def test_sizes_that_differ_by_orders_of_magnitude_are_drawn_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent, how often and with what energy; times and memory start from nothing."""
    sizes = iter((1.0, 1000.0, 1000.0))
    made = strategies_module.per_step
    monkeypatch.setattr(strategies_module, "per_step", lambda study: dict.fromkeys(made(study), next(sizes)))
    shown = strategies_report(small_job(8), compare(small_job(8), ("dp", "tp", "pp")))
    charts = {block.name: block for part in shown.sections for block in part.blocks if isinstance(block, Chart)}
    wide = {name for name, chart in charts.items() if chart.figure["layout"]["xaxis"].get("type") == "log"}
    assert wide == {"bytes_per_gpu", "messages", "energy_j"}
    assert charts.keys() - wide == {"communication_s", "time_s", "memory_bytes"}


def test_numbers_of_passes_are_legible() -> None:
    """Of some hundred passes each has its number, of a thousand none."""
    for count, labelled in ((32, True), (64, False)):  # forward and backward passes on 8 stages
        plan = Plan(pp=8, num_microbatches=count)
        chart = pipeline_chart(timeline_of(replace(small_job(8), global_batch=count), plan))
        assert all(bool(trace["text"]) is labelled for trace in chart.figure["data"])


def test_networks_have_two_bars_each_in_a_chart_that_grows_with_them() -> None:
    plan = Plan(tp=8, dp=2, num_microbatches=24, sequence_parallel=True)
    job = small_job(16)
    verdicts = bottleneck(job, plan, [network(name, job) for name in ("infiniband-ndr", "1 GB/s")])
    one, two = networks_chart(verdicts[:1]), networks_chart(verdicts)
    assert [len(trace["x"]) for trace in two.figure["data"]] == [2, 2]
    heights = [chart.figure["layout"]["height"] for chart in (one, two)]
    assert 1.2 < heights[1] / heights[0] < 2  # below a title that stays
    ends = [max(value for trace in chart.figure["data"] for value in trace["x"]) for chart in (one, two)]
    for chart, end in zip((one, two), ends, strict=True):
        first, last = chart.figure["layout"]["xaxis"]["range"]
        assert first == 0
        assert end < last < 2 * end


def test_rows_of_more_than_16_stages_are_lower() -> None:
    """A chart grows with its stages, and starts anew lower from 17 on."""
    heights = []
    for pp in (1, 2, 15, 16, 17, 18):
        job = replace(small_job(pp), model=replace(DENSE, layers=pp), global_batch=4)
        chart = pipeline_chart(timeline_of(job, Plan(pp=pp, num_microbatches=4)))
        heights.append(chart.figure["layout"]["height"])
    first, second, fifteen, sixteen, seventeen, eighteen = heights
    assert first < second < seventeen < eighteen < fifteen < sixteen
    assert sixteen - fifteen == second - first > eighteen - seventeen


def test_rows_and_records_of_a_scaling_study_are_empty_without_a_plan(gpt3_answer: Answer) -> None:
    with_plan = ScalingPoint(
        series="best",
        gpus=1024,
        global_batch=1536,
        tokens=gpt3_answer.job.tokens,
        plan=gpt3_answer.plan,
        estimate=gpt3_answer.estimate,
        note="tight",
    )
    without = replace(with_plan, plan=None, estimate=None, note="no plan: memory")
    study = ScalingStudy(job=gpt3_answer.job, mode="strong", points=(with_plan, without))
    drawn = scaling_chart(study)
    assert [row[0] for row in drawn.rows] == ["1,024", "1,024"]
    assert drawn.rows[1][2:] == ("", "", "no plan: memory")
    assert all(drawn.rows[0][2:])
    assert drawn.rows[0][-1].endswith("; tight")
    one, none = scaling_record(study, with_plan), scaling_record(study, without)
    assert (one["speedup"], one["efficiency"], one["note"]) == (1.0, 1.0, "tight")
    assert "speedup" not in none
    assert none["note"] == "no plan: memory"
    assert one.keys() > none.keys()


def test_a_scaling_study_tries_no_knobs_and_prices_no_risk_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def answered(job: Job, **options: Any) -> Answer:
        asked.append(options)
        return Answer(status="infeasible", job=job)

    monkeypatch.setattr("optimizer.search.plan.planner.plan", answered)
    assert len(scaling(small_job(8), (8, 16), "strong").points) == 4
    assert asked == [{"top": 1, "trials": 0, "priced_risk": False}] * 2


def test_lengths_of_contexts_are_four_times_as_long_each() -> None:
    assert all(length % fits.STEP == 0 for length in fits.LENGTHS)
    assert [longer / shorter for shorter, longer in pairwise(fits.LENGTHS)] == [4.0] * (len(fits.LENGTHS) - 1)
    assert fits.LENGTHS[-1] < fits.MOST_LENGTH
