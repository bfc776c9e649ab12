"""What binds: wider limits never make a job slower, and the basin counts what the sweep counts."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.lattice.knobs import columns, tuned
from optimizer.search.lattice.oracle import Points, Sweep
from optimizer.search.plan.alternatives import estimate_of_plan
from optimizer.search.plan.best import Best, best_plan
from optimizer.search.why import what_binds
from optimizer.search.why.what_binds import Basin, Ring, Sensitivity, Variation, basin, effect, sensitivity, variations
from tests.search.jobs import MIXTURE, small_job
from tests.thorough import sampled


@pytest.fixture(scope="module")
def found(gpt3_job: Job) -> Sensitivity:
    result = sensitivity(gpt3_job)
    assert result is not None
    return result


def test_more_of_anything_but_the_batch_is_never_slower(found: Sensitivity) -> None:
    gains = {item.variation.name: item.gain for item in found.effects if item.variation.kind != "batch"}
    assert {"HBM +10 %", "NIC x2", "scale-up domain x2", "bubble ceiling", "largest tp"} <= gains.keys()
    assert all(gain >= -1e-12 for gain in gains.values()), gains
    assert gains["NIC x2"] > 0.01
    assert max(gains, key=gains.__getitem__) == "NIC x2"
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("model_hbm", sampled([9e9, 12e9], 2))
def test_more_memory_helps_where_memory_binds(model_hbm: float) -> None:
    result = sensitivity(small_job(8, model=MIXTURE, hbm=model_hbm))
    assert result is not None
    (memory,) = [item for item in result.effects if item.variation.name == "HBM +10 %"]
    assert memory.gain >= 0
    assert memory.variation.job.limits.hbm == pytest.approx(1.1 * model_hbm)


def test_pins_are_dropped_one_by_one(gpt3_job: Job) -> None:
    pinned = gpt3_job.with_limits(fixed={"tp": 8, "vpp": 1}, ranges={"pp": (8, 16)})
    result = sensitivity(pinned)
    assert result is not None
    pins = {item.variation.name: item for item in result.effects if item.variation.name.startswith("pin on")}
    assert pins.keys() == {"pin on tp", "pin on vpp", "pin on pp"}
    assert pins["pin on tp"].variation.job.limits.fixed == {"vpp": 1}
    assert pins["pin on pp"].variation.job.limits.ranges == {}
    assert pins["pin on vpp"].gain > 0


def test_the_basin_counts_every_plan_of_the_lattice(gpt3_job: Job, found: Sensitivity) -> None:
    seconds = []
    for plans in lattice(gpt3_job, structural(gpt3_job)):
        own = tuned(layer_costs_of(gpt3_job, plans))
        seconds.append(own.values[own.fits])
    times = np.concatenate(seconds)
    for ring in found.basin.rings:
        assert ring.plans == int(np.sum(times <= times.min() * (1 + ring.share))) - 1
    counts = [ring.plans for ring in found.basin.rings]
    assert counts == sorted(counts)


@pytest.mark.parametrize(
    ("structures", "shape"), [(0, "sharp peak"), (2, "narrow ridge"), (3, "broad basin"), (9, "broad basin")]
)
def test_the_shape_is_judged_by_other_structures_within_two_percent(structures: int, shape: str) -> None:
    ring = Ring(share=0.02, plans=10, structures=structures, values={})
    assert Basin(rings=(ring,)).shape == shape


def test_a_job_without_a_plan_has_no_sensitivity() -> None:
    assert sensitivity(small_job(1, hbm=3e9)) is None


def test_limits_at_their_end_are_not_widened() -> None:
    job = small_job(8, bubble=1.0, max_tp=8, vocab_padding=1.0)
    names = {item.name for item in variations(job, Plan(dp=8, num_microbatches=6))}
    assert names & {"bubble ceiling", "largest tp", "vocabulary padding", "scale-up domain x2"} == set()


@pytest.mark.parametrize(("size", "sizes"), [(16, [16]), (32, [16, 32])])
def test_a_wider_domain_swallows_a_tier_as_large(size: int, sizes: list[int]) -> None:
    job = small_job(16)
    inner, outer, *_ = job.cluster.tiers
    cluster = replace(job.cluster, tiers=(replace(inner, size=8), replace(outer, size=size)))
    (wider,) = [
        item.job.cluster
        for item in variations(replace(job, cluster=cluster), Plan(dp=16, num_microbatches=3))
        if item.name == "scale-up domain x2"
    ]
    assert [tier.size for tier in wider.tiers] == sizes


def test_what_leaves_no_plan_loses_everything() -> None:
    base = best_plan(small_job(8))
    assert base is not None
    nothing = Variation(name="HBM", change="less", kind="hardware", job=small_job(8, hbm=2.3e9))
    assert (effect(base, nothing).best, effect(base, nothing).gain) == (None, -1.0)


PLAN = Plan(tp=2, dp=8, micro_batch=2, num_microbatches=3, sequence_parallel=True)


def test_each_variation_says_what_it_changes_and_changes_that_alone() -> None:
    job = small_job(16, hbm=60e9, bubble=0.1, fixed={"tp": 2}, ranges={"pp": (1, 4)}, choices={"ep": (1, 2)})
    tiers = job.cluster.tiers
    fast = [replace(tier, link=tier.link.scaled(2 * tier.link.bandwidth)) for tier in tiers[1:]]
    wide = (replace(tiers[0], size=16), *tiers[1:])
    expected = {
        ("hardware", "HBM +10 %", "60.0 -> 66.0 GB"): job.with_limits(hbm=60e9 * 1.1),
        ("hardware", "NIC x2", "400 -> 800 Gb/s per GPU"): replace(
            job, cluster=replace(job.cluster, tiers=(tiers[0], *fast))
        ),
        ("hardware", "scale-up domain x2", "8 -> 16 GPUs"): replace(job, cluster=replace(job.cluster, tiers=wide)),
        ("batch", "batch -25 %", "48 -> 32 sequences (-33.3%)"): replace(job, global_batch=32),
        ("batch", "batch +25 %", "48 -> 64 sequences (+33.3%)"): replace(job, global_batch=64),
        ("limit", "bubble ceiling", "10% -> 15%"): job.with_limits(bubble=0.1 + 0.05),
        ("limit", "largest tp", "8 -> 16"): job.with_limits(max_tp=16),
        ("limit", "largest micro-batch", "16 -> 32"): job.with_limits(max_micro_batch=32),
        ("limit", "fewest tokens per cp rank", "2,048 -> 1,024"): job.with_limits(min_cp_tokens=1024),
        ("limit", "vocabulary padding", "25% -> 50%"): job.with_limits(vocab_padding=0.5),
        ("limit", "pin on ep", "without ep=1,2"): job.with_limits(choices={}),
        ("limit", "pin on pp", "without pp=1..4"): job.with_limits(ranges={}),
        ("limit", "pin on tp", "without tp=2"): job.with_limits(fixed={}),
    }
    assert {(each.kind, each.name, each.change): each.job for each in variations(job, PLAN)} == expected


def test_without_a_limit_the_memory_is_that_of_the_gpu_and_one_domain_has_no_network() -> None:
    job = small_job(8)
    job = replace(job, cluster=replace(job.cluster, tiers=job.cluster.tiers[:1]))
    told = {each.name: each.change for each in variations(job, PLAN) if each.kind == "hardware"}
    assert told == {"HBM +10 %": "85.5 -> 94.1 GB"}


@pytest.mark.parametrize(("batch", "batches"), [(4, [16]), (16, []), (24, [16, 32]), (64, [48, 80])])
def test_batches_are_multiples_of_what_the_replicas_take_at_once(batch: int, batches: list[int]) -> None:
    """16 sequences: none is less, and the job's own is no other."""
    every = variations(replace(small_job(16), global_batch=batch), PLAN)
    assert list(dict.fromkeys(each.job.global_batch for each in every if each.kind == "batch")) == batches


def swept(values: list[float], plans: list[Plan], fits: list[bool]) -> Sweep:
    """A sweep of these plans, the first of which is the best."""
    layer_costs = layer_costs_of(small_job(16), Plans.of(plans))
    least, count = np.array(values), len(values)
    points = Points(
        layer_costs=layer_costs, values=least, least=least, fits=np.array(fits), knobs=columns(Knobs(), count)
    )
    return Sweep(points=points, best=0, space=count, fitting=sum(fits), complete=True, ideal=0.0, knob_bound=values[0])


def test_rings_hold_what_fits_within_their_share() -> None:
    """Shares of 1, 2 and 5 %, the borders included; another ZeRO stage is no other structure."""
    plans = [PLAN, replace(PLAN, zero_stage=2), replace(PLAN, tp=4, dp=4), replace(PLAN, tp=1), replace(PLAN, pp=2)]
    near = swept([1000.0, 1010.0, 1020.0, 1001.0, 1050.0], plans, [True, True, True, False, True])
    rings = basin(near).rings
    assert [(ring.share, ring.plans, ring.structures) for ring in rings] == [(0.01, 1, 0), (0.02, 2, 1), (0.05, 3, 2)]
    assert rings[0].values == {"zero_stage": ("1", "2")}
    assert rings[2].values == {"tp": ("2", "4"), "pp": ("1", "2"), "dp": ("4", "8"), "zero_stage": ("1", "2")}
    assert basin(near).shape == "narrow ridge"
    for none in (replace(near, best=-1), replace(near, points=None)):
        assert [(ring.plans, ring.structures, dict(ring.values)) for ring in basin(none).rings] == [(0, 0, {})] * 3
    assert basin(near).to_dict()["rings"][1]["structures"] == 1


def test_effects_are_in_tokens_for_a_unit_and_those_alike_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another plan for more memory, which takes another time; nothing at all with a domain of 16 GPUs."""
    job = small_job(16, bubble=1.0, vocab_padding=1.0, max_tp=16, fixed={"pp": 1, "cp": 1})
    lean, alone = replace(PLAN, recompute="full"), swept([1.0], [PLAN], [True])

    def best(other: Job) -> Best | None:
        if other.cluster.scale_up_size == 16:
            return None
        plan = PLAN if other.limits.hbm else lean
        plan = replace(plan, num_microbatches=other.global_batch // 16)
        price = estimate_of_plan(other, plan, Knobs())
        return Best(job=other, plan=plan, knobs=Knobs(), estimate=price, swept=alone)

    monkeypatch.setattr(what_binds, "best_plan", best)
    base = best(job)
    assert base is not None
    result = sensitivity(job)
    assert result is not None
    sizes = [abs(each.gain) for each in result.effects]
    assert sizes == sorted(sizes, reverse=True)
    told = {each.variation.name: each for each in result.effects}
    assert list(told)[:2] == ["scale-up domain x2", "HBM +10 %"]
    same = [each.variation.name for each in result.effects if each.gain == 0]
    assert same == sorted(same)
    assert len(same) > 2
    memory, less = told["HBM +10 %"], told["batch -25 %"]
    assert memory.best is not None
    assert less.best is not None
    assert memory.gain == pytest.approx(base.estimate.step_time / memory.best.estimate.step_time - 1)
    assert memory.changed == ("recompute full -> none",)
    assert less.gain == pytest.approx(32 / 48 * base.estimate.step_time / less.best.estimate.step_time - 1)
    document = result.to_dict()
    assert document["step_time_s"] == base.estimate.step_time
    assert document["basin"]["shape"] == "sharp peak"
    none, first = document["effects"][:2]
    assert (none["gain"], none["step_time_s"], none["mfu"], none["plan"], none["changed"]) == (
        -1.0,
        None,
        None,
        None,
        [],
    )
    assert (first["step_time_s"], first["mfu"]) == (memory.best.estimate.step_time, memory.best.estimate.mfu)
    assert first["plan"]["recompute"] == "none"
