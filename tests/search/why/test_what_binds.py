"""What binds: wider limits never make a job slower, and the basin counts what the sweep counts."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.lattice.knobs import tuned
from optimizer.search.plan.best import best_plan
from optimizer.search.why.what_binds import Basin, Ring, Sensitivity, Variation, effect, sensitivity, variations
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


@pytest.mark.parametrize("model_hbm", sampled([9e9, 12e9], 2))
def test_more_memory_helps_where_memory_binds(model_hbm: float) -> None:
    result = sensitivity(small_job(8, model=MIXTURE, hbm=model_hbm))
    assert result is not None
    (memory,) = [item for item in result.effects if item.variation.name == "HBM +10 %"]
    assert memory.gain >= 0
    assert memory.variation.job.limits.hbm == pytest.approx(1.1 * model_hbm)


def test_effects_come_largest_first_and_serialise(found: Sensitivity) -> None:
    sizes = [abs(item.gain) for item in found.effects]
    assert sizes == sorted(sizes, reverse=True)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["effects"][0]["name"] == found.effects[0].variation.name
    limits = [item for item in found.effects if item.variation.kind != "batch"]
    assert limits[0].variation.name == "NIC x2"


def test_the_gain_is_of_tokens_per_second(found: Sensitivity) -> None:
    """A batch of 1,152 instead of 1,536 sequences trains 1152 / 1536 as many tokens in its own step time."""
    (less,) = [item for item in found.effects if item.variation.name == "batch -25 %"]
    assert less.variation.job.global_batch == 1152
    assert less.best is not None
    expected = 0.75 * found.base.estimate.step_time / less.best.estimate.step_time - 1
    assert less.gain == pytest.approx(expected)


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
