"""What needs no search: variations of a job, rings of plans, numbers to look at, conflicts that are read."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.answer.answer import Clash
from optimizer.base.units import GB
from optimizer.constraints.rules.batch import Batch
from optimizer.constraints.rules.bubble import Bubble
from optimizer.constraints.rules.gpu_product import GpuProduct
from optimizer.constraints.rules.heads import Heads
from optimizer.constraints.rules.memory import Memory
from optimizer.constraints.rules.micro_batch import MicroBatch
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.job.stack import Features
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.pipeline.stages import DENSE as DENSE_LAYER
from optimizer.objectives.pipeline.stages import EMBEDDING, HEAD
from optimizer.objectives.step.flops import useful_flops
from optimizer.search.check.rebuilding import as_far_as_known, is_cut_short
from optimizer.search.infeasible.conflict import CUT_SHORT, _importance, conflict
from optimizer.search.infeasible.nearest import FIRST, GROWTH, MOST, consistent, growing, multiples, narrowed
from optimizer.search.lattice.knobs import Tuned, _better, columns
from optimizer.search.lattice.oracle import fold
from optimizer.search.layouts.bounds.step_floor import _forward_share
from optimizer.search.layouts.problem import firsts
from optimizer.search.layouts.solve import least_memory
from optimizer.search.why.what_binds import Basin, Ring, Variation, _ring, basin, moved, variations
from tests.search.jobs import DENSE, small_job

JOB = small_job(32)
PLAN = Plan(tp=2, dp=16, micro_batch=1, num_microbatches=3)


def varied(job: Any = JOB, plan: Plan = PLAN) -> dict[str, Variation]:
    return {each.name: each for each in variations(job, plan)}


def test_more_hardware_is_a_tenth_of_memory_twice_the_network_and_twice_the_domain() -> None:
    found = varied()
    memory = found["HBM +10 %"]
    assert memory.job.limits.hbm == pytest.approx(1.1 * JOB.cluster.device.memory)
    assert memory.change == f"{JOB.cluster.device.memory / GB:.1f} -> {1.1 * JOB.cluster.device.memory / GB:.1f} GB"
    assert varied(JOB.with_limits(hbm=40e9))["HBM +10 %"].change == "40.0 -> 44.0 GB"
    network = found["NIC x2"]
    assert network.change == "400 -> 800 Gb/s per GPU"
    assert [tier.link.bandwidth for tier in network.job.cluster.tiers[1:]] == [
        2 * tier.link.bandwidth for tier in JOB.cluster.tiers[1:]
    ]
    domain = found["scale-up domain x2"]
    assert (domain.change, domain.job.cluster.tiers[0].size) == ("8 -> 16 GPUs", 16)
    assert {each.kind for each in (memory, network, domain)} == {"hardware"}
    alone = varied(small_job(8), Plan(dp=8, num_microbatches=6))
    assert "scale-up domain x2" not in alone
    (inner, *_) = JOB.cluster.tiers
    single = replace(JOB, cluster=replace(JOB.cluster, tiers=(inner,)))
    assert "NIC x2" not in varied(single)


@pytest.mark.parametrize(
    ("batch", "dp", "micro_batch", "changes"),
    [
        (48, 16, 1, {"batch -25 %": 32, "batch +25 %": 64}),
        (400, 16, 1, {"batch -25 %": 304, "batch +25 %": 496}),
        (48, 2, 2, {"batch -25 %": 36, "batch +25 %": 60}),
        (16, 16, 1, {}),
    ],
)
def test_other_batches_are_those_that_the_plan_divides(
    batch: int, dp: int, micro_batch: int, changes: dict[str, int]
) -> None:
    job = replace(JOB, global_batch=batch)
    found = varied(job, replace(PLAN, dp=dp, micro_batch=micro_batch))
    batches = {name: each.job.global_batch for name, each in found.items() if each.kind == "batch"}
    assert batches == changes
    for name, other in changes.items():
        share = other / batch - 1
        assert found[name].change == f"{batch:,} -> {other:,} sequences ({share:+.1%})"


def test_limits_are_widened_where_they_bind() -> None:
    limits = {each.name for each in varied().values() if each.kind == "limit"}
    assert limits
    for each in varied().values():
        if each.kind == "limit":
            assert each.job.limits != JOB.limits
            before, _, after = each.change.partition(" -> ")
            assert before != after
    most = small_job(8, max_tp=8)
    assert not any("tp" in name and each.kind == "limit" for name, each in varied(most, Plan(dp=8)).items())


def test_pins_are_dropped_one_by_one() -> None:
    job = small_job(32, fixed={"tp": 2}, ranges={"pp": (1, 2)}, choices={"vpp": (1, 2)})
    pins = {name: each for name, each in varied(job).items() if name.startswith("pin on ")}
    assert set(pins) == {"pin on tp", "pin on pp", "pin on vpp"}
    assert pins["pin on tp"].job.limits.fixed == {}
    assert pins["pin on tp"].job.limits.ranges == {"pp": (1, 2)}
    assert pins["pin on pp"].change == "without pp=1..2"


@pytest.mark.parametrize(
    ("structures", "shape"), [(0, "sharp peak"), (1, "narrow ridge"), (2, "narrow ridge"), (3, "broad basin")]
)
def test_a_basin_is_judged_within_two_percent(structures: int, shape: str) -> None:
    rings = tuple(
        Ring(share=share, plans=9, structures=count, values={})
        for share, count in ((0.01, 0), (0.02, structures), (0.05, 9))
    )
    assert Basin(rings=rings).shape == shape


def test_rings_count_what_is_near_beside_the_best() -> None:
    plans = Plans.of([Plan(tp=1, dp=8), Plan(tp=2, dp=4), Plan(tp=2, dp=4, zero_stage=3), Plan(tp=4, dp=2), Plan(pp=2)])
    values, fits = np.array([1.0, 1.01, 1.015, 1.0, 1.3]), np.array([True, True, True, False, True])
    swept: Any = SimpleNamespace(points=SimpleNamespace(plans=plans, values=values, fits=fits), best=0)
    ring = _ring(swept, 0.01)
    assert (ring.plans, ring.structures, dict(ring.values)) == (1, 1, {"tp": ("1", "2"), "dp": ("4", "8")})
    wider = _ring(swept, 0.02)
    assert (wider.plans, wider.structures) == (2, 1)
    assert wider.values["zero_stage"] == (str(Plan().zero_stage), "3")
    assert [each.plans for each in basin(swept).rings][:2] == [1, 2]
    none = _ring(SimpleNamespace(points=None, best=0), 0.01)
    assert (none.plans, none.structures) == (0, 0)
    assert _ring(SimpleNamespace(points=swept.points, best=-1), 0.01).plans == 0
    assert moved(Plan(tp=2), Plan(tp=2)) == ()


def test_numbers_are_looked_at_in_growing_parts_that_are_equally_far() -> None:
    numbers = np.array(sorted(range(1, 400), key=lambda number: (abs(number - 200), -number)))
    parts = list(growing(numbers, 200))
    assert np.concatenate(parts).tolist() == numbers.tolist()
    sizes = [len(part) for part in parts]
    assert FIRST <= sizes[0] <= FIRST + 1
    assert FIRST * GROWTH <= sizes[1] <= FIRST * GROWTH + 1
    for one, other in pairwise(parts):
        assert abs(int(one[-1]) - 200) < abs(int(other[0]) - 200)
    assert MOST >= FIRST * GROWTH
    assert list(growing(numbers[:0], 200)) == []
    assert multiples(np.arange(1, 41), np.array([8, 12]), 2).tolist() == [8, 12, 16, 24]


def test_values_that_a_rule_alone_rules_out_are_left_out() -> None:
    values = {"tp": (1, 2, 4, 5, 8), "pp": (1, 2)}
    assert consistent(JOB, [Heads()], values) == {"tp": (1, 2, 4), "pp": (1, 2)}
    assert consistent(JOB, [Batch()], values) == values


def test_a_step_at_the_whole_peak_is_the_bound_of_a_sweep() -> None:
    job = small_job(8)
    plans = Plans.of([Plan(dp=8, num_microbatches=6), Plan(tp=2, dp=4, num_microbatches=12)])
    swept = fold(job, [layer_costs_of(job, plans)])
    assert swept.ideal == pytest.approx(useful_flops(job) / (8 * job.peak_flops))
    assert (swept.space, swept.complete) == (2, True)
    assert fold(job, []).ideal == 0.0


def test_facts_go_before_limits_and_memory_goes_last() -> None:
    rules = [Memory(), GpuProduct(), Heads(), Batch(), MicroBatch(), Bubble()]
    ordered = [type(rule) for rule in sorted(rules, key=_importance)]
    assert ordered == [Heads, MicroBatch, Bubble, Batch, GpuProduct, Memory]


def test_layers_that_the_software_never_recomputes_are_a_conflict_by_themselves() -> None:
    features = Features(recompute_by="all layers", recompute=("none", "full"))
    (clash,) = conflict(small_job(features=features, fixed={"recompute_layers": "1,2"}))
    assert (clash.rule, clash.relaxation) == ("fix recompute_layers=1,2", "drop fix recompute_layers=1,2")
    assert "test recomputes all layers or none" in clash.reason


def test_a_conflict_that_was_cut_short_is_known_as_far_as_it_was() -> None:
    job = small_job(7, model=replace(DENSE, heads=8))
    heads, product = Heads().explain(job), GpuProduct().explain(job)
    cut = {"rule": "heads", "reason": "wrong", "note": CUT_SHORT}
    more = {"rule": "gpu-product", "reason": f"{product}; more", "relaxation": "8 GPUs", "note": "n"}
    stated = [cut, more, dict(cut, reason="again"), {"rule": "unheard"}, "no table"]
    assert as_far_as_known(job, stated) == (
        Clash(rule="heads", reason=heads, note=CUT_SHORT),
        Clash(rule="gpu-product", reason=f"{product}; more", relaxation="8 GPUs", note="n"),
    )
    other = as_far_as_known(job, [cut, dict(more, reason="other")])
    assert other[1].reason == product
    assert as_far_as_known(job, [more]) == ()
    assert (is_cut_short([cut]), is_cut_short([more]), is_cut_short("text")) == (True, False, False)


def test_of_two_settings_the_better_that_fits_is_taken() -> None:
    def tuned(bucket: float, values: list[float], fits: list[bool]) -> Tuned:
        return Tuned(knobs=columns(Knobs(bucket=bucket), len(values)), values=np.array(values), fits=np.array(fits))

    first = tuned(1e8, [1.0, 1.0, 1.0, 2.0], [True, True, False, False])
    second = tuned(2e8, [0.9, 1.0, 5.0, 1.0], [True, True, True, False])
    found = _better(first, second)
    assert found.knobs.bucket.tolist() == [2e8, 1e8, 2e8, 1e8]
    assert found.values.tolist() == [0.9, 1.0, 5.0, 2.0]
    assert found.fits.tolist() == [True, True, True, False]


def test_values_are_narrowed_to_those_of_plans_but_for_micro_batches() -> None:
    values = {"tp": (1, 2, 4), "pp": (1, 2), "micro_batch": (1, 2, 4)}
    plans = [Plans.of([Plan(tp=2, micro_batch=2)]), Plans.of([Plan(tp=4, pp=2)])]
    assert narrowed(values, plans) == {"tp": (2, 4), "pp": (1, 2), "micro_batch": (1, 2, 4)}


def test_a_forward_pass_counts_for_half_of_its_layers_at_most() -> None:
    def costs(*times: tuple[float, float]) -> Any:
        kinds = {
            number: SimpleNamespace(forward=np.array([f]), backward=np.array([b]), seconds=np.array([f + b]))
            for number, (f, b) in enumerate(times)
        }
        return type("Costs", (SimpleNamespace,), {"__len__": lambda self: 1})(by_kind=kinds)

    cases = {((1.0, 3.0),): 0.25, ((1.0, 3.0), (2.0, 3.0)): 0.4, ((3.0, 1.0),): 0.5, ((0.0, 0.0),): 0.0}
    for times, share in cases.items():
        assert _forward_share(costs(*times)).tolist() == [share]


@pytest.mark.parametrize(
    ("pp", "layers", "usable", "ahead", "counts"),
    [
        (3, 5, 3, 0, (1, 3, 1)),  # the embedding and the head take two layers' room
        (3, 6, 3, 0, None),
        (3, 2, 3, 0, (1, 1, 0)),
        (4, 1, 3, 0, None),  # no stage may be empty but for its ends
        (4, 4, 3, 0, (1, 2, 1, 0)),  # the head alone on the last
        (2, 2, 4, 0, (2, 0)),
        (1, 1, 5, 0, (1,)),
        (1, 2, 5, 0, None),
    ],
)
def test_stages_are_filled_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, pp: int, layers: int, usable: float, ahead: int, counts: tuple[int, ...] | None
) -> None:
    weights = {DENSE_LAYER: 1.0, EMBEDDING: 2.0, HEAD: 2.0}
    monkeypatch.setattr(least_memory, "recomputable", lambda problem: ())
    monkeypatch.setattr(
        least_memory,
        "_reserved",
        lambda problem, stage, here, some: sum(weights.get(kind, 0.0) * n for kind, n in here.items()),
    )
    problem: Any = SimpleNamespace(pp=pp, sequence=[(DENSE_LAYER, layers)], alike=False, usable=usable)
    assert least_memory._filled(problem, [DENSE_LAYER] * layers, ahead, 0, empty=False) == counts


@pytest.mark.parametrize(
    ("runs", "numbers"),
    [
        ((("dense", 12),), (12,)),
        ((("dense", 1), ("moe", 11)), (1, 12)),
        ((("dense", 3), ("moe", 2), ("dense", 4)), (1, 2, 3, 9)),
    ],
)
def test_first_layers_of_least_memory_are_of_one_kind_or_all(
    runs: tuple[tuple[str, int], ...], numbers: tuple[int, ...]
) -> None:
    assert firsts(((EMBEDDING, 1), *runs, (HEAD, 1))) == numbers
