"""What the acts show of a reader's choice, reckoned again: values, series in their units, rows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.page.learn.act import Shown
from optimizer.page.learn.acts import ACTS, eight, five, four, nine, one, seven, six, two
from optimizer.page.learn.acts.three import operators_of
from optimizer.page.learn.chart import ChartNumbers
from optimizer.page.learn.priced import SMALL, best, compared_numbers, data_parallel_runs, gpt3_runs
from optimizer.studies.textbook import (
    CLAIMED,
    COUNTS,
    FABRICS,
    GPUS,
    LAB,
    NVLINK,
    DataParallel,
    LabDesign,
    rule_of_thumb_mfu,
    zero_bytes,
)
from tests.page.learn.test_acts import CHOSEN


def shown(number: int, **changes: object) -> Shown:
    return ACTS[number].shown({**CHOSEN[number], "context": SMALL, **changes})


def of(found: Shown, name: str) -> ChartNumbers:
    made: Any = found.charts[name]()
    assert isinstance(made, ChartNumbers)
    return made


def test_what_the_questions_name() -> None:
    """Act 1's document: 6 x 7e9 FLOP a sequence on 312 TFLOP/s, 14 GB of gradients over 600 and 12.5 GB/s both ways."""
    named, (few, many) = one.facts(), (DataParallel(gpus=gpus) for gpus in (64, 512))
    assert (named["all_sequences"], named["sequence"]) == (512 * many.batch, one.SEQUENCE)
    assert (named["half_sent"], named["half_peak"], named["half_nvlink"]) == (
        few.sent / 2,
        LAB.peak / 2,
        LAB.nvlink / 2,
    )
    assert (named["doubled"], named["growth"]) == (2 * few.ratio, many.all_reduce / few.all_reduce - 1)
    counts, batch = five.COUNTS[SMALL], five.BATCH[SMALL]
    assert dict(five.facts()) == {
        **{"few": counts[0], "many": counts[-1], "batch": batch},
        **{"share": batch // counts[0], "last_share": batch // counts[-1]},
    }
    sent = 2 * 2 * 175e9  # an all-reduce among many, of weights of 2 B
    named = four.facts()
    assert named["many"]["dp"].volume == pytest.approx(sent, rel=1e-5)
    assert [named[name] for name in ("dp_wide", "dp_port", "fsdp_wide")] == pytest.approx(
        [sent / 200e9, sent / 25e9, 1.5 * sent / 200e9], rel=1e-5
    )
    designs = ("called", "deeper", "wide", "alone", "chain", "deep")
    named = two.facts()
    assert [(named[name].tp, named[name].pp, named[name].microbatches) for name in designs] == [
        *[(8, 4, 8), (8, 16, 8), (128, 1, 8), (8, 1024, 1), (8, 1024, 64), (8, 256, 8)],
    ]
    assert named["needed"] == (9 * 3, 9 * 15)  # (p - 1) / (m + p - 1) of a tenth
    assert list(nine.COUNTS) == [2**power for power in range(7)]


def test_act_1_draws_mfu_in_percent() -> None:
    values = shown(1, priced=False).values
    step = DataParallel(billions=7, gpus=8, batch=32, fabric=NVLINK, constants=LAB)
    assert values["others"] == 7
    assert values["serial"] == pytest.approx(step.compute + step.all_reduce)
    assert values["slower"] == pytest.approx(LAB.nvlink / LAB.infiniband)
    assert (values["counted"], values["batch"]) in [("sequences", "32"), ("tokens", "32 x 2,048")]
    point = SimpleNamespace(gpus=64, estimate=SimpleNamespace(mfu=0.25))
    numbers = one.mfu_numbers(step, (point, SimpleNamespace(gpus=128, estimate=None)))
    series = {name: dict(zip(line.x, line.y, strict=True)) for name, line in numbers.series.items()}
    assert series["priced"] == {64: 25.0}
    assert series["told"] == {gpus: pytest.approx(100 * share) for gpus, share in CLAIMED.items()}
    assert series["here"] == {8: pytest.approx(100 * step.mfu)}
    for fabric in FABRICS:
        by_hand = [100 * DataParallel(billions=7, gpus=gpus, batch=32, fabric=fabric).mfu for gpus in COUNTS]
        assert list(series[fabric].values()) == pytest.approx(by_hand)
        assert [row[fabric] for row in numbers.rows] == pytest.approx(by_hand)
    assert [row["gpus"] for row in numbers.rows] == list(COUNTS)
    assert (numbers.values["first"], numbers.values["last"]) == (
        numbers.series[NVLINK].y[0],
        numbers.series[NVLINK].y[-1],
    )
    assert "priced" not in one.mfu_numbers(step).series


@pytest.mark.parametrize(
    ("tp", "pp", "shard", "replicas", "slowed"), [(8, 4, 175 / 32, "32", ""), (3, 4, 175 / 12, "none", "")]
)
def test_act_2_cuts_gpt_3_among_a_replicas_ranks(tp: int, pp: int, shard: float, replicas: str, slowed: str) -> None:
    values = shown(2, tp=tp, pp=pp, priced=False).values
    assert (values["shard"], values["boundaries"]) == (pytest.approx(shard), pp - 1)
    assert (values["replicas"], values["slowed"], values["whole_dp"]) == (replicas, slowed, GPUS // (tp * pp))
    assert values["replicas_worked"].startswith(f"{GPUS / (tp * pp):.3f}: no" if replicas == "none" else replicas)
    assert "best" not in values
    crosses = shown(2, tp=16, pp=128, priced=False).values
    assert (crosses["whole_dp"], crosses["slowed"][:3]) == (1, " x ")


def test_act_2_draws_bubbles_in_percent() -> None:
    """(p - 1) / (p m) by the document and (p - 1) / (m + p - 1) exactly: 9.375 and 27.3 % of 4 stages and 8."""
    numbers = two.bubble_numbers(LabDesign(tp=8, pp=4, microbatches=8))
    assert {*numbers.series} == {"1", "4", "8", "16", "exact", "here"}
    for count in (1, 4, 8, 16):
        by_hand = [100 * (pp - 1) / (pp * count) for pp in range(1, 65)]
        assert numbers.series[f"{count}"].y == pytest.approx(by_hand)
        assert [row["drawn"][count] for row in numbers.rows] == pytest.approx(
            [by_hand[row["pp"] - 1] / 100 for row in numbers.rows]
        )
    assert numbers.series["exact"].y == pytest.approx([100 * (pp - 1) / (7 + pp) for pp in range(1, 65)])
    assert (numbers.series["here"].x, numbers.series["here"].y) == ([4], [9.375])
    assert [(row["pp"], row["yours"].pp) for row in numbers.rows] == [(pp, pp) for pp in (1, 2, 4, 8, 16, 32, 64)]


def test_act_3_draws_operators_under_the_roof() -> None:
    found = shown(3)
    values, numbers = found.values, of(found, "act3-chart")
    assert (values["cuts_in"], values["cuts_out"], values["local"]) == (7, 39, 1024)
    assert values["read"] == 16384 / 8 * 1024
    assert values["words"] == values["work"].network / 2
    job, plan = best(SMALL).job, best(SMALL).plan
    assert plan is not None
    peak, memory = job.peak_flops, job.cluster.device.memory_bandwidth
    roof = numbers.series["roof"]
    assert roof.x == [1.0, pytest.approx(peak / memory), 1e5]
    assert roof.y == pytest.approx([memory / 1e12, peak / 1e12, peak / 1e12])
    assert numbers.series["assumed"].y == pytest.approx([0.8 * value for value in roof.y])
    wire, rates = numbers.series["wire"], values["rates"]
    assert (wire.x[0], wire.x[-1]) == (pytest.approx(1.0), pytest.approx(1e5))
    assert wire.y == pytest.approx([min(rates.flops, at * rates.network) / 1e12 for at in wire.x])
    layer, work = numbers.series["layer"], values["work"]
    assert layer.x == pytest.approx([work.flops / work.memory, work.flops / work.network])
    assert layer.y == pytest.approx([work.flops / values["sheet"].time / 1e12] * 2)
    operators = {each.name.replace("_", " "): each for each in operators_of(job, plan)}
    multiplying = [each for each in operators.values() if each.flops]
    assert numbers.series["operators"].y == pytest.approx([each.rate / 1e12 for each in multiplying])
    assert numbers.values["most"] == max(each.rate for each in multiplying)
    assert numbers.values["least"] == min(each.rate for each in multiplying)
    for row in numbers.rows:
        each = operators[row["name"]]
        assert row["bandwidth"] == pytest.approx(each.moved / each.seconds)
        by_hand = (each.intensity, each.rate, min(peak, each.intensity * memory)) if each.flops else (None,) * 3
        assert (row["intensity"], row["rate"], row["roof"]) == by_hand


def test_act_3_of_one_gpu_sends_nothing() -> None:
    found = shown(3, tp_in=1, tp_out=1, replicas=1)
    assert len(of(found, "act3-chart").series["layer"].x) == 1 + bool(found.values["work"].network)


def test_act_4_draws_volumes_in_gigabytes_and_hops_in_milliseconds() -> None:
    """Eight GPUs: a ring's all-reduce sends 7/4 of the weights, FSDP half as much again."""
    found = shown(4)
    numbers, volumes = of(found, "act4-chart"), found.values["volumes"]
    assert found.values["others"] == 7
    by_hand = [volumes.weights * 7 / 4 / 1e9, volumes.weights * 21 / 8 / 1e9]
    assert numbers.series["bars"].x[:2] == pytest.approx(by_hand)
    assert [row["sent"].volume / 1e9 for row in numbers.rows] == pytest.approx(numbers.series["bars"].x)
    assert numbers.values["most"].volume == max(row["sent"].volume for row in numbers.rows)
    hops = four.hop_numbers()
    assert hops.series["bars"].x == pytest.approx([1.634, 6.713, 4.57, 18.667, 0.373, 0.187, 0.711], abs=6e-4)
    assert (hops.values["inside"].mode, hops.values["across"].mode) == ("DP on 8", "DP on 16")
    for chart in (numbers, hops):  # the axis, of powers of ten, holds every bar
        low, high = chart.xaxis["range"]
        assert 10**low < min(chart.series["bars"].x) if chart is hops else low < 0
        assert 10**high > max(chart.series["bars"].x)
    colours = hops.series["bars"].look["color"]
    assert [colours.index(colour) for colour in colours] == [0, 0, 0, 0, 4, 5, 5]


def test_act_4_tells_a_real_plan_in_its_units() -> None:
    study = four.study_of(SMALL)
    _, columns, rows = four.plan_rows(SMALL)
    for told, row in zip(rows, study.rows, strict=True):
        cells = dict(zip(columns, told, strict=True))
        assert cells["message"] == f"{row.traffic.message / 1e6:,.1f} MB"
        assert cells["time, bare"] == f"{row.time_per_step * 1e3:,.1f} ms"
        for hop, tier in zip(row.path, study.job.cluster.tiers, strict=True):
            assert cells[f"sent in {tier.name}"] == (f"{hop.sent / 1e6:,.1f} MB" if hop.traversals else "-")


@pytest.mark.parametrize(("asked", "at"), [(8, 8), (31, 8), (32, 32), (500, 128), (512, 512), (4, 8)])
def test_act_5_is_at_the_count_or_the_next_below(asked: int, at: int) -> None:
    assert five.at(five.study_of(SMALL, "strong"), asked).gpus == at


def test_act_5_draws_efficiency_in_percent() -> None:
    found = shown(5, count=128)
    study, point = found.values["study"], found.values["point"]
    first = study.series("best plan")[0]
    speedup = first.estimate.step_time / point.estimate.step_time
    assert found.values["speedup"] == pytest.approx(speedup)
    assert found.values["efficiency"] == pytest.approx(speedup * 8 / 128)
    assert (found.values["first"], found.values["share"]) == (first, 512 / 128)
    assert (found.values["mfu"], found.values["step"]) == (point.estimate.mfu, point.estimate.step_time)
    numbers = of(found, "act5-chart")
    assert (numbers.series["here"].x, numbers.series["here"].y) == ([128], [pytest.approx(100 * speedup / 16)])
    for name in five.SYMBOLS:
        known = [each for each in study.series(name) if each.estimate]
        assert numbers.series[name].y == pytest.approx([100 * study.efficiency(each) for each in known])
    assert (numbers.values["last"], numbers.xaxis["tickvals"]) == (study.series("best plan")[-1], [8, 32, 128, 512])
    assert numbers.values["left"] == study.efficiency(numbers.values["last"])


def test_act_6_draws_both_bandwidths_in_gigabytes_a_second() -> None:
    found = shown(6, line=4)
    numbers, line = of(found, "act6-chart"), six.printed()[3]
    assert (found.values["line"], found.values["factor"]) == (line, pytest.approx(7 / 4))
    assert found.values["share"].rate == 300e9
    assert found.values["of_best"] == pytest.approx(line.bus / max(each.bus for each in six.printed()))
    assert (found.values["kind"], found.values["bus_formula"]) == ("All reduce", "algbw x 2 (n - 1) / n")
    assert numbers.series["busbw"].y == pytest.approx([bus for *_, bus in six.all_reduce_perf()], rel=5e-4, abs=0.005)
    assert numbers.series["algbw"].y == pytest.approx(
        [alg for *_, alg, _ in six.all_reduce_perf()], rel=5e-4, abs=0.005
    )
    assert (numbers.series["here"].x, numbers.series["here"].y) == ([line.size], [pytest.approx(line.bus / 1e9)])
    assert numbers.values == {"half": 33554432.0, "limit": 300e9}
    facts = six.facts()
    assert (facts["line"].size, facts["share"]) == (2**33, pytest.approx(234.61 / 300, rel=1e-4))
    assert facts["algorithm_share"] == pytest.approx(2 * facts["duplex_share"]) == pytest.approx(134.06 / 300, rel=1e-4)
    lines = len(six.printed())
    assert six.controls("", "")["line"] == {"range": [1, lines, 1], "value": lines - 1}


@pytest.mark.parametrize(("stage", "over"), [(0, 0), (1, 1), (2, 2), (3, 3)])
def test_act_7_counts_the_papers_bytes(stage: int, over: int) -> None:
    """2, 2 and 12 bytes of a parameter; stage 1 shards the states, 2 gradients too, 3 weights too."""
    values = shown(7, stage=stage).values
    parts = [2 / 64 ** (stage > 2), 2 / 64 ** (stage > 1), 12 / 64 ** (stage > 0)]
    assert values["held"] == pytest.approx([values["params"] * part for part in parts])
    assert values["sum"] == pytest.approx(values["params"] * sum(parts))
    assert sum(text == " / 64" for text in values["over"]) == over
    assert zero_bytes(stage, 64) == pytest.approx(parts)
    _, columns, rows = seven.stage_rows("gpt3-6.7b", 64)
    row = dict(zip(columns, rows[stage], strict=True))
    assert row["states"] == f"{values['params'] * parts[2] / 1e9:,.1f} GB"
    assert row["sum by the paper"] == f"{values['sum'] / 1e9:,.1f} GB"
    priced = seven.sharded("gpt3-6.7b", 64, stage).priced
    assert row["cost model"] == f"{priced.reserved / 1e9:,.1f} GB"
    assert row["step"] == f"{priced.step_time:.2f} s"


def test_act_8_splits_memory_into_what_is_held_and_what_passes() -> None:
    values = shown(8).values
    memory = values["design"].priced.memory
    held = memory["weights"] + memory.get("gradients", 0.0) + memory["optimizer"]
    assert values["held"] == pytest.approx(held)
    assert values["passing"] == pytest.approx(sum(memory.values()) - held)
    assert values["share"] == pytest.approx(42e6 / 8e9, rel=0.01)
    _, columns, rows = eight.way_rows(*eight.FIRST)
    cells = dict(zip(columns, rows[1], strict=True))
    priced = eight.tuned("lora", *eight.FIRST).priced
    assert (cells["trained"], cells["whole"]) == ("42 million", f"{priced.reserved / 1e9:,.1f} GB")
    assert cells["tokens/s"] == f"{16 * 2048 / priced.step_time:,.0f}"
    assert cells["weights"] == f"{priced.memory['weights'] / 1e9:,.1f} GB"
    facts = eight.facts()
    whole, lora = (eight.tuned(way, *eight.FIRST).priced.reserved for way in ("full", "lora"))
    assert (facts["less"], facts["fewer"]) == (pytest.approx(whole / lora), pytest.approx(1 / values["share"]))


def test_act_9_draws_the_bubble_in_percent() -> None:
    found = shown(9)
    values, numbers = found.values, of(found, "act9-chart")
    assert (values["others"], values["exact"], values["enough"]) == (7, pytest.approx(7 / 15), 63)
    assert values["flight"] == 8  # the first stage of 1F1B holds one for each stage
    assert values["exact"] < values["waits"] < values["exact"] + 0.1
    for pp in (2, 4, 8, 16):
        by_hand = [(pp - 1) / (m + pp - 1) for m in nine.COUNTS]
        assert numbers.series[f"{pp}"].y == pytest.approx([100 * share for share in by_hand])
        assert [row["drawn"][pp] for row in numbers.rows] == pytest.approx(by_hand)
    assert (numbers.series["here"].x, numbers.series["here"].y) == ([8], [pytest.approx(100 * values["waits"])])


def test_published_runs_are_drawn_in_percent_beside_the_diagonal() -> None:
    runs = [replace(each, textbook=0.5, needs=needs) for each, needs in zip(gpt3_runs()[:2], (80e9, 81e9), strict=True)]
    numbers = compared_numbers(runs)
    measured = [100 * each.measured for each in runs]
    for name, percents in (("textbook", [50.0, 50.0]), ("priced", [100 * each.priced for each in runs])):
        assert (numbers.series[name].x, numbers.series[name].y) == (pytest.approx(measured), pytest.approx(percents))
        wrong = [abs(percent / share - 1) for percent, share in zip(percents, measured, strict=True)]
        assert numbers.values[name] == pytest.approx(sum(wrong) / 2)
    top = 5 + max(50.0, *measured, *(100 * each.priced for each in runs))
    assert numbers.series["diagonal"].y == numbers.series["diagonal"].x == [0, pytest.approx(top)]
    assert [row["verdict"] for row in numbers.rows] == ["", ", too much"]
    assert (numbers.values["count"], numbers.values["refused"]) == (2, 1)


def test_series_of_published_runs_have_several_counts_of_gpus() -> None:
    runs = data_parallel_runs()
    assert all(each.plan.tp == each.plan.pp == each.plan.cp == 1 and not each.job.quantised for each in runs)
    sizes = [(each.job.model.params, each.job.model.name, each.job.gpus) for each in runs]
    assert sizes == sorted(sizes)
    for run in runs:
        alike = [each for each in runs if each.run.row["source"] == run.run.row["source"]]
        assert len({each.job.gpus for each in alike}) > 1
        assert run.share == pytest.approx(run.job.global_batch / run.plan.dp)


def test_a_run_by_the_rules_of_act_2_has_its_own_bubble() -> None:
    """(p - 1) / (p m) of its time is idle, and its memory is that of the design with its TP and PP."""
    for run in gpt3_runs():
        idle = (run.plan.pp - 1) / run.plan.pp / run.plan.num_microbatches
        by_hand = rule_of_thumb_mfu(LAB.reference, tp=run.plan.tp, dp=run.plan.dp, bubble=idle)
        assert run.textbook == pytest.approx(by_hand)
        assert run.needs == LabDesign(tp=run.plan.tp, pp=run.plan.pp).memory
