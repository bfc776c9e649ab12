"""What studies say, number by number, where each can be worked out: bars of a timeline, the lab's design, roofs."""

from __future__ import annotations

import re
from dataclasses import replace
from math import log2
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from optimizer.answer.answer import Answer
from optimizer.base.errors import InputError
from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.objectives.kernels.operators import Scan
from optimizer.reports.charts.chart import Chart
from optimizer.reports.charts.palette import BLUE, ORANGE
from optimizer.reports.report import Table
from optimizer.studies import best_use as best_use_module
from optimizer.studies import fits, intensity, networks
from optimizer.studies import scaling as scaling_module
from optimizer.studies.best_use import counts_at_most, evener
from optimizer.studies.cells import MOST_PP, MOST_TP, Cell, cells, forbidding
from optimizer.studies.communication import COMPUTE_TERMS, CommunicationStudy, Hop, PricedTraffic, communication, priced
from optimizer.studies.fits_report import _longest, _row
from optimizer.studies.intensity import LayerRoofline
from optimizer.studies.scaling import ScalingPoint, ScalingStudy, data_parallel_point
from optimizer.studies.scaling_report import scaling_chart, scaling_report
from optimizer.studies.strategies import pinned_plan
from optimizer.studies.strategies_report import _fastest, _roofline, per_layer
from optimizer.studies.textbook import HBM, INFINIBAND, NVLINK, PARAMS, DataParallel, LabDesign, curve
from optimizer.studies.timeline import PipelineStudy, timeline_of
from optimizer.studies.timeline_report import NAMES, _paler, check_drawn, end_charts, pipeline_chart, timeline_report
from optimizer.studies.traffic import Traffic, traffic
from tests.search.jobs import DENSE, small_job

LAYER: dict[str, Any] = {"peak": 100.0, "memory_bandwidth": 10.0, "network_bandwidth": 4.0}


@pytest.mark.parametrize(
    ("flops", "memory", "network", "bound"),
    [
        (1000.0, 50.0, 39.0, "compute"),  # 10 s, 5 s, 9.75 s
        (1000.0, 50.0, 41.0, "network"),  # 10.25 s
        (1000.0, 101.0, 40.0, "memory"),
    ],
)
def test_the_longest_of_three_times_is_the_limit(flops: float, memory: float, network: float, bound: str) -> None:
    layer = LayerRoofline(flops=flops, memory=memory, network=network, **LAYER)
    assert layer.bound == bound
    longest = max(flops / 100, memory / 10, network / 4)
    assert layer.attainable == pytest.approx(flops / longest)


def test_operands_are_two_bytes_wide_and_of_quantised_products_one(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[float] = []

    def taken(layer: object, width: float) -> float:
        widths.append(width)
        return 1.0

    monkeypatch.setattr(intensity, "_memory", taken)
    for dtype in ("bf16", "fp8"):
        job = replace(small_job(16), cluster=load_cluster("dgx-h100"), dtype=dtype)
        intensity.layer_roofline(job, Plan(tp=2, dp=8), [0.0] * 3)
    assert widths == [2.0, 1.0]


def test_a_scan_moves_its_states_three_times() -> None:
    """Forward, and backward for what it reads and what it makes; the products and the kernels beside it."""
    scan = Scan.__new__(Scan)
    object.__setattr__(scan, "moved", np.array([5.0]))
    product = SimpleNamespace(batch=1.0, m=np.array([2.0]), k=3.0, n=5.0)
    kernel = SimpleNamespace(forward_bytes=np.array([7.0]), backward_bytes=11.0)
    layer: Any = SimpleNamespace(gemms=[product], elementwise=[kernel], attention=scan)
    assert intensity._memory(layer, 2.0) == 3 * (21 * 2 + 10 * 2) + 18 + 3 * 5


def test_a_design_of_the_lab_to_the_byte() -> None:
    """175e9 parameters on 32 GPUs: 2 B of weights and 8 B of states each, and 8 GB of activations x 8."""
    design = LabDesign(tp=8, pp=4)
    assert (design.weights, design.states, design.activations) == (PARAMS * 2 / 32, PARAMS * 8 / 32, 64e9)
    assert LabDesign() == LabDesign(tp=8, pp=4, microbatches=8)


def test_a_design_fits_that_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for memory, enough in ((HBM, True), (HBM + 1, False)):
        monkeypatch.setattr(LabDesign, "memory", memory)
        assert LabDesign().fits is enough


def test_replicas_of_a_design_cost_two_percent_a_doubling() -> None:
    """1,024 GPUs: one replica of 32 x 32, and less than one of 64 x 32, which counts as one."""
    one, none = LabDesign(tp=8, pp=128, microbatches=64), LabDesign(tp=8, pp=256, microbatches=64)
    for design in (one, none):
        kept = (1 - 0.05 * log2(8)) * (1 - design.bubble)
        assert design.mfu == pytest.approx(0.52 * kept)


def test_a_step_of_data_parallelism() -> None:
    usual = DataParallel()
    assert (usual.billions, usual.gpus, usual.batch, usual.fabric) == (7, 8, 32, NVLINK)
    assert usual.ratio == pytest.approx(usual.all_reduce / usual.compute)
    assert usual.gradients == 14e9
    assert usual.sent == pytest.approx(2 * 7 / 8 * 14e9)
    assert DataParallel(billions=0.5, gpus=1, batch=0.5).gradients == 1e9
    for name in ("billions", "gpus", "batch"):
        nothing: dict[str, Any] = {name: 0}
        with pytest.raises(InputError, match=f"{name} must be positive, but got 0"):
            DataParallel(**nothing)
    assert [step.forced for step in (usual, DataParallel(gpus=9), DataParallel(gpus=9, fabric=INFINIBAND))] == [
        False,
        True,
        False,
    ]
    assert curve(usual, INFINIBAND, (8, 16)) == tuple(DataParallel(gpus=n, fabric=INFINIBAND).mfu for n in (8, 16))


def drawn(chart: Chart) -> set[tuple[str, int, float, float]]:
    """Kind, stage, begin and length of every bar [s]."""
    return {
        (trace["name"], stage, begin, length)
        for trace in chart.figure["data"]
        for stage, begin, length in zip(trace["y"], trace["base"], trace["x"], strict=True)
    }


def piped(count: int, stages: int = 2) -> PipelineStudy:
    job = replace(small_job(stages), global_batch=count)
    return timeline_of(job, Plan(pp=stages, num_microbatches=count))


def passes(study: PipelineStudy, least: float = 0.0, most: float = float("inf")) -> set[tuple[str, int, float, float]]:
    """The same of the passes of a study within a span of time [s]."""
    return {
        (NAMES[step.kind], row, *rounded)
        for row, stage in enumerate(study.timeline.stages)
        for step, start, end in zip(stage.passes, stage.start.tolist(), stage.end.tolist(), strict=True)
        if start >= least and end <= most
        for rounded in [(round(start, 6), round(end - start, 6))]
    }


def test_bars_are_the_passes_to_a_microsecond() -> None:
    study = piped(6)
    chart = pipeline_chart(study)
    assert drawn(chart) == passes(study)
    assert chart.figure["layout"]["xaxis"]["range"] == [0, round(1.01 * study.timeline.makespan, 6)]
    assert chart.words.count("6 micro-batches. ") == 1


@pytest.mark.parametrize(("near", "kept"), [(0, 6), (1, 2), (2, 4), (3, 6), (4, 6)])
def test_only_so_many_micro_batches_are_drawn_at_both_ends(near: int, kept: int) -> None:
    study = piped(6)
    chart = pipeline_chart(study, near)
    numbers = {int(text) for trace in chart.figure["data"] for text in trace["text"]}
    assert numbers == ({*range(near), *range(6 - near, 6)} if kept < 6 else {*range(6)})
    said = f"drawn are the first and last {near} of 6 micro-batches"
    assert (said in chart.words) is (kept < 6)


@pytest.mark.parametrize(("stages", "height"), [(1, 174), (16, 140 + 34 * 16), (17, 140 + 18 * 17)])
def test_a_stage_has_34_pixels_and_of_many_18(stages: int, height: int) -> None:
    job = replace(small_job(stages), model=replace(DENSE, layers=stages), global_batch=4)
    chart = pipeline_chart(timeline_of(job, Plan(pp=stages, num_microbatches=4)))
    assert chart.figure["layout"]["height"] == height


@pytest.mark.parametrize(("count", "ends"), [(40, 0), (41, 2)])
def test_ends_are_drawn_once_more_of_more_than_forty_micro_batches(count: int, ends: int) -> None:
    report = timeline_report(piped(count))
    assert len(report.sections[1].blocks) == ends
    assert report.sections[0].blocks
    assert not timeline_report(piped(count), drawn=False).sections[0].blocks


def test_ends_are_of_twenty_micro_batches_and_the_stages_before_them() -> None:
    study = piped(58)
    timeline = study.timeline
    span = timeline.makespan * (20 + 2) / (58 + 2)
    begin, end = end_charts(study)
    assert drawn(begin) == passes(study, 0.0, span)
    assert drawn(end) == passes(study, timeline.makespan - span, timeline.makespan)
    assert begin.figure["layout"]["xaxis"]["range"] == [0.0, span]
    assert end.figure["layout"]["xaxis"]["range"] == [timeline.makespan - span, timeline.makespan]
    waits = [float(stage.start[0]) for stage in timeline.stages]
    assert waits[0] == 0.0 < waits[1]
    assert begin.words.startswith("Stage 1 waits before its first pass longest")


def scaled(*points: tuple[str, int, float | None]) -> ScalingStudy:
    """Points of series, GPUs and an MFU, None without a plan."""
    made = tuple(
        ScalingPoint(
            series=series,
            gpus=gpus,
            global_batch=8,
            tokens=100,
            plan=Plan(dp=gpus) if mfu else None,
            estimate=cast(Any, SimpleNamespace(step_time=1.0, mfu=mfu) if mfu else None),
            fits=bool(mfu),
        )
        for series, gpus, mfu in points
    )
    return ScalingStudy(job=small_job(), mode="strong", points=made)


def test_mfu_is_drawn_in_percent_and_told_from_the_first_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.studies.scaling_report._known_words", lambda job, point: ("", ""))
    study = scaled(
        ("best plan", 8, 0.5), ("best plan", 16, 0.375), ("best plan", 32, 0.25), ("data parallel", 8, 0.125)
    )
    chart = scaling_chart(study)
    series = {trace["name"]: list(trace["y"]) for trace in chart.figure["data"]}
    assert series == {"data parallel": [12.5], "best plan": [50.0, 37.5, 25.0]}
    assert "goes from 50.0% on 8 GPUs to 25.0% on 32." in chart.words
    assert scaling_chart(scaled(("best plan", 8, None))).words == "No plan at any of these numbers."


def test_a_plan_that_fills_the_memory_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    job = replace(small_job(8), global_batch=8)
    least = data_parallel_point(job)
    assert least.estimate is not None
    for spare, enough in ((0.0, True), (-1.0, False)):
        size = least.estimate.reserved + spare
        monkeypatch.setattr(scaling_module, "safe_memory", lambda job, size=size: size)
        found = data_parallel_point(job)
        assert (found.fits and found.plan == least.plan) is enough


def test_counts_are_whole_nodes_from_three_quarters_on() -> None:
    assert counts_at_most(32, 8) == (32, 24)  # 24 is three quarters
    assert counts_at_most(8, 16) == (8, 7, 6)
    assert evener((1000, 960, 896, 864, 768)) == [960, 896, 768]
    assert evener((24, 20, 18, 16)) == [16]  # 24 holds 8 already, 20 and 18 less
    assert evener((24, 8)) == []


@pytest.mark.parametrize(("text", "rate"), [("1 B/s", 1.0), ("0.5 B/s", 0.5)])
def test_a_network_may_be_slow(text: str, rate: float) -> None:
    assert networks.network(text, small_job(16)).link.bandwidth == pytest.approx(rate)


def hop(traversals: float) -> Hop:
    return Hop(tier="t", link="l", traversals=traversals, message=1.0, latency=0.0, energy=0.0, sent=0.0)


def test_the_outermost_tier_is_the_last_that_anything_crosses() -> None:
    def outermost(*traversals: float) -> int:
        row: Any = None
        return PricedTraffic(traffic=row, time=1.0, sent=1.0, path=tuple(map(hop, traversals))).outermost

    assert [outermost(), outermost(0.0), outermost(1.0), outermost(8.0, 0.5, 0.0)] == [-1, -1, 0, 1]


def test_other_times_are_those_that_take_some_and_are_no_collective() -> None:
    time = {"bubble": 2.0, "optimizer": 3.0, "host": 0.0, "tp_communication": 5.0, "gemm": 7.0}
    estimate: Any = SimpleNamespace(time=time)
    none: Any = None
    study = CommunicationStudy(job=none, plan=none, rows=(), layer=none, estimate=estimate)
    others = {name: value for name, value in study.other_times.items() if name != "gemm"}
    assert list(others.items()) == [("optimizer", 3.0), ("bubble", 2.0)]
    assert study.exposed_time == 5.0


def test_the_fastest_strategy_is_one_that_fits() -> None:
    unfit: Any = SimpleNamespace(study=SimpleNamespace(estimate=None), fits=False, name="tp")
    none: Any = SimpleNamespace(study=None, fits=True, name="pp")
    assert _fastest([unfit, none]) == "None of the strategies fits in memory alone."


def test_cells_reach_16_way_tensor_parallelism_and_64_stages() -> None:
    assert (MOST_TP, MOST_PP) == (16, 64)
    empty = Cell(tp=1, pp=1, kind="fits")
    assert (empty.value, empty.unit, empty.reserved, empty.plan, empty.why) == (0.0, "", 0.0, None, "")
    found = cells(small_job(8))
    assert {cell.tp for cell in found} == {1, 2, 4, 8}
    assert {cell.pp for cell in found} >= {1, 2, 4}


HF = Job(
    model=load_model("llama3-8b"),
    cluster=load_cluster("dgx-h100"),
    stack=load_stack("hf-2026"),
    gpus=16,
    seq_len=2048,
    global_batch=64,
)


def test_logits_are_gathered_once_where_the_stack_gathers_them() -> None:
    """Tokens x 128,256 logits of 2 B, of the head alone: not a layer's."""
    features = replace(HF.stack.features, gathered_logits=True)
    job = replace(HF, stack=replace(HF.stack, features=features))
    plan = Plan(tp=8, dp=2, num_microbatches=32)
    (row,) = (row for row in traffic(job, plan) if row.purpose == "logits")
    assert (row.kind, row.ranks, row.per_layer, row.per_step, row.in_total) == ("all_gather", 8, 0, 32, 64)
    assert row.message == pytest.approx(2 * 2048 * 128_256, rel=0.01)
    assert not [row for row in traffic(HF, plan) if row.purpose == "logits"]


@pytest.mark.parametrize(("frozen", "backward"), [("embedding", 32), ("embedding,layers.0-7", 24)])
def test_nothing_goes_backward_through_layers_below_all_that_is_trained(frozen: str, backward: int) -> None:
    """All-reduces of each of 32 micro-batches: two forward in 32 layers, two backward in those that are reached."""
    job = replace(HF, train=f"frozen:{frozen}")
    rows = [row for row in traffic(job, Plan(tp=8, dp=2, num_microbatches=32)) if row.parallelism == "tp"]
    assert sum(row.per_step for row in rows) == 32 * (2 * 32 + 2 * backward)


def test_the_needed_bandwidth_may_take_all_of_the_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Latency that takes as long as the compute leaves room for a link that is fast enough, more does not."""
    study: Any = SimpleNamespace(job=small_job(16), compute_time=10.0)
    rows: Any = [SimpleNamespace(traffic=0.0)]
    link = small_job(16).cluster.tiers[1].link
    for latency, finite in ((10.0, True), (10.5, False)):
        price = SimpleNamespace(time_per_step=latency)
        monkeypatch.setattr(networks, "priced", lambda job, row, knobs, price=price: price)
        assert (networks.needed_bandwidth(study, rows, link, Knobs()) < float("inf")) is finite


def test_a_network_is_the_bottleneck_where_it_takes_longer_than_the_compute() -> None:
    link = small_job(16).cluster.tiers[1].link
    times = {"needed": 0.0, "exposed": 0.0, "step_time": 1.0, "mfu": 0.5}
    for seconds, limits in ((0.9, False), (1.0, False), (1.1, True)):
        verdict = networks.NetworkVerdict(
            network=networks.Network(name="n", link=link), communication=seconds, compute=1.0, **times
        )
        assert verdict.bottleneck is limits


def test_the_second_of_two_tiers_is_the_network() -> None:
    job = small_job(16)
    two = replace(job, cluster=replace(job.cluster, tiers=job.cluster.tiers[:2]))
    assert networks.network_level(two) == 1


def test_a_plan_of_pins_has_at_least_one_micro_batch() -> None:
    job = replace(small_job(8), global_batch=8)
    assert [pinned_plan(job, {"tp": tp}).num_microbatches for tp in (1, 2)] == [1, 2]


def test_rows_of_a_scaling_study(gpt3_answer: Answer) -> None:
    point = ScalingPoint(
        series="best plan",
        gpus=1024,
        global_batch=1536,
        tokens=gpt3_answer.job.tokens,
        plan=gpt3_answer.plan,
        estimate=gpt3_answer.estimate,
        fits=True,
    )
    none = ScalingPoint(series="best plan", gpus=2048, global_batch=1536, tokens=1, note="no plan: memory")
    assert (none.fits, none.plan, none.estimate) == (False, None, None)
    for mode, words in (("strong", "With one batch of 1,536 sequences"), ("weak", "With a batch from 1,536 sequences")):
        study = ScalingStudy(job=gpt3_answer.job, mode=mode, points=(point, none))
        assert scaling_chart(study).words.startswith(words)
        (table,) = (
            block for part in scaling_report(study).sections for block in part.blocks if isinstance(block, Table)
        )
        first, last = table.rows
        assert last == (2048, 1536, None, None, None, None, "no plan: memory")
        estimate = gpt3_answer.estimate
        assert estimate is not None
        assert first[:6] == (1024, 1536, estimate.step_time, estimate.mfu, 1.0, 1.0)


@pytest.mark.parametrize(("vpp", "shares"), [(1, (0.0, 0.55)), (2, (0.0, 0.55)), (3, (0.0, 0.275, 0.55))])
def test_virtual_stages_get_paler_up_to_the_last(vpp: int, shares: tuple[float, ...]) -> None:
    """Without them the colours of micro-batches alternate."""
    schedule = "interleaved" if vpp > 1 else "1f1b"
    plan = Plan(pp=2, vpp=vpp, dp=4, num_microbatches=4, schedule=schedule)
    chart = pipeline_chart(timeline_of(small_job(8), plan))
    for trace, colour in zip(chart.figure["data"], (BLUE, ORANGE), strict=True):
        shade = {_paler(colour, share): place for place, share in enumerate(shares)}
        for text, own in zip(trace["hovertext"], trace["marker"]["color"], strict=True):
            match = re.match(r"micro-batch (\d+)(?:, virtual stage (\d+))?: ", text)
            assert match is not None
            assert shade[own] == (int(match[1]) % 2 if vpp == 1 else int(match[2]))


def test_what_a_plan_sends_alone_is_nothing() -> None:
    study = communication(replace(small_job(8), gpus=1, global_batch=8), Plan(num_microbatches=8))
    assert study.rows == ()
    assert set(per_layer(study).values()) == {0.0}
    assert study.layer.network_tier == ""
    assert study.compute_time == pytest.approx(
        sum(study.estimate.time[term] for term in COMPUTE_TERMS if term in study.estimate.time)
    )


@pytest.mark.parametrize("sent", [0.0, 0.5])
def test_a_layer_has_a_roof_of_the_network_where_it_sends_anything(sent: float) -> None:
    layer = LayerRoofline(flops=1000.0, memory=50.0, network=sent, network_tier="t", **LAYER)
    row = _roofline(cast(Any, SimpleNamespace(layer=layer)))
    assert (row[2] is None, row[4] is None) == (not sent, not sent)


def test_layers_of_two_kinds_share_what_is_recomputed() -> None:
    """Qwen3-Next: of 48 layers with experts 36 mix tokens by a state and 12 by attention, all with the same experts.

    Twice, in 4 groups of two ranks or 2 of four: the block is gathered and scattered once more, tokens travel twice.
    """
    job = replace(HF, model=load_model("qwen3-next-80b-a3b"), stack=load_stack("megatron-core"), gpus=8, global_batch=8)
    plan = Plan(tp=2, ep=4, dp=4, num_microbatches=2, sequence_parallel=True, recompute="moe")
    again = {row.kind: row for row in traffic(job, plan) if row.purpose.startswith("recomputed ")}
    assert {kind: (row.per_layer, row.per_step, row.in_total) for kind, row in again.items()} == {
        "all_gather": (1, 2 * 48, 4 * 2 * 48),
        "reduce_scatter": (1, 2 * 48, 4 * 2 * 48),
        "all_to_all": (2, 2 * 2 * 48, 2 * 2 * 2 * 48),
    }


def test_the_longest_context_is_told_as_far_as_it_was_looked_for() -> None:
    ways = {("full", ""): 0, ("lora:8", ""): 4096, ("full", "sgd"): fits.MOST_LENGTH}
    study = fits.FitsStudy(job=small_job(8), fits=(), longest=ways)
    said = [line.partition(": ")[2] for line in _longest(study)]
    assert said[1:] == ["up to 4,096 tokens", "1,048,576 tokens and more"]
    assert "tokens" not in said[0]
    assert (fits.LENGTHS, fits.STEP) == ((2048, 8192, 32_768, 131_072), 1024)


def test_a_use_is_kept_that_is_as_good_as_noticeable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_use_module, "NOTICEABLE", 0.5)
    jobs = [replace(small_job(gpus), global_batch=64) for gpus in (16, 8)]

    def outlook(job: Job, tuning: object) -> Any:
        worth = {16: 2.0, 8: 3.0}[job.gpus]
        return SimpleNamespace(
            worth=worth, layouts_beyond=lambda least: None, worth_of=lambda _: worth, known=lambda *_: None
        )

    monkeypatch.setattr(best_use_module, "outlook", outlook)
    assert best_use_module.best_use(jobs).best.job.gpus == 16


@pytest.mark.parametrize(("card", "fit", "cells"), [("h100", True, (2.0, "h100")), ("", False, (None, "none"))])
def test_a_method_that_fits_has_a_pace_and_a_card(card: str, fit: bool, cells: tuple[float | None, str]) -> None:
    job = replace(small_job(8), global_batch=8)
    found = fits.Fit(job=job, plan=Plan(dp=8), reserved=3e9, chance=0.5, step_time=job.tokens / 2, fits=fit, card=card)
    assert tuple(_row(found)) == ("full", job.seq_len, 3e9, 0.5, *cells)


def test_a_page_shows_sixty_thousand_passes() -> None:
    check_drawn(Plan(num_microbatches=30_000))  # forward and backward
    with pytest.raises(InputError, match="60,002 passes are more than the 60,000 that a page can show"):
        check_drawn(Plan(num_microbatches=30_001))


def counted(kind: str, ranks: int = 4) -> PricedTraffic:
    """A collective of 3 s and 5 B, twice a layer, 7 times a step, 11 times in all, whose two hops take 13 and 17 J."""
    row = Traffic(
        parallelism="tp",
        purpose="p",
        kind=kind,
        ranks=ranks,
        stride=1,
        message=5.0,
        per_layer=2,
        per_step=7,
        in_total=11,
    )
    path = tuple(replace(hop(2.0), energy=energy, message=3.0) for energy in (13.0, 17.0))
    return PricedTraffic(traffic=row, time=3.0, sent=5.0, path=path)


def test_times_bytes_and_joules_of_a_collective() -> None:
    row = counted("all_reduce")
    assert not row.traffic.once
    assert (row.time_per_layer, row.time_per_step) == (2 * 3, 7 * 3)
    assert (row.volume_per_layer, row.volume_per_step) == (2 * 5, 7 * 5)
    assert (row.energy, row.energy_per_layer, row.total_energy) == (30, 2 * 30, 11 * 30)
    assert (row.total_volume, counted("point_to_point").total_volume) == (11 * 4 * 5, 11 * 5)
    assert [each.volume for each in row.path] == [6, 6]
    none: Any = None
    estimate: Any = SimpleNamespace(time={})
    study = CommunicationStudy(job=none, plan=none, rows=(row, row), layer=none, estimate=estimate)
    assert (study.communication_time, study.energy, study.compute_time) == (2 * 21, 2 * 330, 0)
    assert (study.parallelisms, study.of("tp"), study.of("dp")) == (("tp",), (row, row), ())
    assert per_layer(study) == {
        **{"messages": 4, "message_bytes": 5, "bytes_per_gpu": 20, "time_s": 12, "energy_j": 120},
    }


def test_a_point_without_a_plan_is_of_its_series() -> None:
    odd = data_parallel_point(replace(small_job(8), global_batch=9))
    assert (odd.series, odd.plan, odd.gpus) == ("data parallel", None, 8)


def test_only_what_replicas_add_up_at_the_end_runs_on_a_share_of_the_multiprocessors() -> None:
    job = small_job(16)
    rows = communication(job, Plan(tp=2, dp=8, num_microbatches=6)).rows
    few, many = ([priced(job, row.traffic, Knobs(comm_sm_share=share)).time for row in rows] for share in (0.01, 0.3))
    slower = {row.traffic.parallelism for row, one, other in zip(rows, few, many, strict=True) if one > other}
    same = {row.traffic.parallelism for row, one, other in zip(rows, few, many, strict=True) if one == other}
    assert (slower, same) == ({"dp"}, {"tp"})


def test_each_tensor_rank_adds_its_own_gradients_up() -> None:
    (row,) = (
        row for row in traffic(HF, Plan(tp=2, dp=8, num_microbatches=8, zero_stage=0), Knobs(bucket=1e12)) if row.once
    )
    assert (row.kind, row.per_step, row.in_total) == ("all_reduce", 1, 2)


def test_a_lock_that_a_cell_keeps_is_not_named() -> None:
    said = forbidding(small_job(8).with_limits(fixed={"tp": 2, "pp": 1}), 4, 1)
    assert said.startswith("fix")
    assert "; " not in said
