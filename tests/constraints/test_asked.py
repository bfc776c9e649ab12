"""What was asked for, by its readings: pins and their distances, layouts and theirs, and rules that some jobs have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.base.errors import InputError
from optimizer.constraints.given_layout import given_layouts, with_assigned_layers
from optimizer.constraints.pin_text import pins_of
from optimizer.constraints.pins import Pin, pins
from optimizer.constraints.posted import allowed
from optimizer.constraints.program import INFEASIBLE, OPTIMAL, Program
from optimizer.constraints.rules.batch import Batch
from optimizer.constraints.rules.every import structural
from optimizer.constraints.rules.gpu_product import GpuProduct, _others
from optimizer.constraints.rules.memory import Memory
from optimizer.constraints.rules.overlap_recompute import REPEATS
from optimizer.constraints.rules.shard import Shard
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.job.recomputation import RECOMPUTE
from optimizer.job.stack import Features
from optimizer.objectives.step.safe_memory import margin, safe_memory
from tests.search.jobs import DENSE, MIXTURE, small_job

BY_STAGE = Features(recompute_by="stage", recompute=("none", "full"))
BY_VIRTUAL = replace(BY_STAGE, recompute_by="virtual stage")
TIED = replace(DENSE, tied_embeddings=True)
TWO = Plan(pp=2, dp=4, micro_batch=1, num_microbatches=12)
PIPED = replace(TWO, vpp=2, schedule="interleaved")
FULL = replace(TWO, recompute="full")


@pytest.mark.parametrize(("among", "distances"), [((), [1.0, 0.0, 0.0, 0.0, 4.0]), ((2, 4), [1.0, 0.0, 1.0, 0.0, 4.0])])
def test_a_pin_is_as_far_as_its_nearest_value(among: tuple[int, ...], distances: list[float]) -> None:
    pin = Pin(name="range pp=2..4", variable="pp", low=2, high=4, among=among)
    plans = Plans.of([Plan(pp=pp) for pp in (1, 2, 3, 4, 8)])
    assert pin.required(small_job(), plans).tolist() == distances
    assert pin.check(small_job(), plans).tolist() == [distance == 0 for distance in distances]


def test_a_pin_goes_alone_where_it_is_dropped() -> None:
    job = small_job(fixed={"tp": 2, "pp": 4}, ranges={"dp": (1, 2)})
    relaxed, said = Pin(name="fix tp=2", variable="tp", low=2, high=2).relax(job, 1.0)
    assert (relaxed.limits.fixed, relaxed.limits.ranges, said) == ({"pp": 4}, {"dp": (1, 2)}, "drop fix tp=2")
    relaxed, said = Pin(name="range dp=1..2", variable="dp", low=1, high=2).relax(job, 1.0)
    assert (relaxed.limits.fixed, relaxed.limits.ranges) == ({"tp": 2, "pp": 4}, {})
    twice = small_job(fixed={"tp": 2}, ranges={"tp": (2, 2)})
    relaxed, _ = Pin(name="fix tp=2", variable="tp", low=2, high=2).relax(twice, 1.0)
    assert (relaxed.limits.fixed, relaxed.limits.ranges) == ({}, {"tp": (2, 2)})
    assert [(pin.low, pin.high) for pin in pins(relaxed)] == [(2, 2)]


LAYOUTS: list[tuple[Features, dict[str, Any], Plan, bool]] = [
    (Features(), {"layers_per_stage": "4,8"}, TWO, True),
    (Features(), {"layers_per_stage": "4,8"}, replace(TWO, layers_per_stage=(4, 8)), True),
    (Features(), {"layers_per_stage": "4,8"}, replace(TWO, layers_per_stage=(6, 6)), False),
    (Features(), {"layers_per_stage": "4,8"}, replace(TWO, pp=4, dp=2), False),
    (Features(), {"layers_per_stage": "4,4,4"}, TWO, False),
    (Features(), {"layers_per_stage": "2,4,4,2"}, PIPED, True),
    (Features(), {"layers_per_stage": "2,4,4,2"}, TWO, False),
    (Features(uneven_stages=False), {"layers_per_stage": "4,8"}, TWO, False),
    (Features(uneven_stages=False), {"layers_per_stage": "6,6"}, TWO, True),
    (Features(), {"layout": "even"}, TWO, True),
    (Features(), {"layout": "even"}, replace(TWO, layers_per_stage=(6, 6)), True),
    (Features(), {"layout": "even"}, replace(TWO, layers_per_stage=(5, 7)), False),
    (Features(), {"layout": "even"}, replace(TWO, pp=4, dp=2, layers_per_stage=(3, 3, 3, 3)), True),
    (BY_STAGE, {"layout": "even"}, replace(FULL, recompute_layers=(6, 6), layers_per_stage=(6, 6)), True),
    (BY_STAGE, {"layout": "even"}, replace(FULL, recompute_layers=(5, 6), layers_per_stage=(6, 6)), False),
    (BY_VIRTUAL, {"layout": "even"}, replace(FULL, recompute_first=2, layers_per_stage=(6, 6)), False),
    (BY_STAGE, {"recompute_layers": "1,2"}, FULL, True),
    (BY_STAGE, {"recompute_layers": "1,2"}, TWO, False),
    (BY_STAGE, {"recompute_layers": "1,7"}, FULL, False),
    (BY_STAGE, {"recompute_layers": "1,6"}, FULL, True),
    (BY_STAGE, {"recompute_layers": "1,2,3"}, FULL, False),
    (BY_STAGE, {"recompute_layers": "1,2"}, replace(FULL, recompute_layers=(1, 2), layers_per_stage=(6, 6)), True),
    (BY_STAGE, {"recompute_layers": "1,2"}, replace(FULL, recompute_layers=(2, 2), layers_per_stage=(6, 6)), False),
    (BY_STAGE, {"recompute_layers": "1,2", "layers_per_stage": "1,11"}, FULL, True),
    (BY_STAGE, {"recompute_layers": "2,2", "layers_per_stage": "1,11"}, FULL, False),
    (BY_STAGE, {"recompute_layers": "4,3", "layers_per_stage": "2,4,4,2"}, replace(PIPED, recompute="full"), True),
    (BY_STAGE, {"recompute_layers": "4,3", "layers_per_stage": "2,4,4,2"}, FULL, False),
    (BY_VIRTUAL, {"recompute_layers": "2,2"}, FULL, True),
    (BY_VIRTUAL, {"recompute_layers": "1,2"}, FULL, False),
    (BY_VIRTUAL, {"recompute_layers": "6,6"}, FULL, True),
    (BY_VIRTUAL, {"recompute_layers": "2,2"}, replace(PIPED, recompute="full"), True),
    (BY_VIRTUAL, {"recompute_layers": "3,3"}, replace(PIPED, recompute="full"), False),
]


@pytest.mark.parametrize(("features", "fixed", "plan", "holds"), LAYOUTS)
def test_a_layout_that_was_asked_for(features: Features, fixed: dict[str, Any], plan: Plan, holds: bool) -> None:
    job = small_job(features=features, fixed=fixed)
    plans = Plans.of([plan])
    found = [bool(rule.check(job, plans)[0]) for rule in given_layouts(job)]
    assert all(found) is holds
    missed = [float(rule.required(job, plans)[0]) for rule in given_layouts(job)]
    assert missed == [0.0 if each else 1.0 for each in found]


@pytest.mark.parametrize(
    ("features", "fixed", "plan", "layers", "recomputed", "first"),
    [
        (Features(), {}, TWO, (6, 6), (), 0),
        (Features(), {"layers_per_stage": "4,8"}, TWO, (4, 8), (), 0),
        (BY_STAGE, {}, FULL, (6, 6), (6, 6), 0),
        (BY_STAGE, {"recompute_layers": "1,2"}, FULL, (6, 6), (1, 2), 0),
        (BY_STAGE, {"recompute_layers": "1,2"}, TWO, (6, 6), (), 0),
        (BY_VIRTUAL, {"recompute_layers": "2,2"}, FULL, (6, 6), (), 2),
        (BY_VIRTUAL, {"recompute_layers": "2,2"}, replace(PIPED, recompute="full"), (6, 6), (), 1),
        (BY_VIRTUAL, {"recompute_layers": "6,6"}, FULL, (6, 6), (), 0),
        (Features(recompute_by="all layers"), {}, FULL, (6, 6), (), 0),
    ],
)
def test_layers_lie_as_they_were_asked_for(
    features: Features,
    fixed: dict[str, Any],
    plan: Plan,
    layers: tuple[int, ...],
    recomputed: tuple[int, ...],
    first: int,
) -> None:
    placed = with_assigned_layers(small_job(features=features, fixed=fixed), plan)
    assert (placed.layers_per_stage, placed.recompute_layers, placed.recompute_first) == (layers, recomputed, first)


@pytest.mark.parametrize(
    ("job", "name", "there"),
    [
        (small_job(), "tied-pipeline", False),
        (small_job(model=TIED), "tied-pipeline", False),
        (small_job(features=Features(tied_stages=False)), "tied-pipeline", False),
        (
            small_job(model=replace(DENSE, tied_embeddings=True), features=Features(tied_stages=False)),
            "tied-pipeline",
            True,
        ),
        (small_job(features=Features(context_shares=True)), "context-shares", True),
        (small_job(), "context-shares", False),
        (small_job().with_host_memory(1e12), "host-activations", False),
        (small_job(features=Features(activation_offload=True)).with_host_memory(1e12), "host-activations", True),
        (small_job(features=Features(hosted_checkpoints=True)).with_host_memory(1e12), "host-activations", True),
        (small_job(features=Features(hosted_weights=True)).with_host_memory(1e12), "host-activations", True),
        (small_job(features=Features(hosted_weights=True)).with_host_memory(0.0), "host-activations", False),
    ],
)
def test_rules_that_some_jobs_have(job: Job, name: str, there: bool) -> None:
    assert (name in {rule.name for rule in structural(job)}) is there


@pytest.mark.parametrize(
    ("tp", "dp", "shard", "holds"),
    [(1, 16, 8, True), (8, 16, 1, False), (1, 8, 8, False), (2, 16, 4, True), (4, 4, 2, True)],
)
def test_a_group_is_a_nodes_replicas_of_several(tp: int, dp: int, shard: int, holds: bool) -> None:
    """On nodes of 8 GPUs: more than one of them, and fewer than all."""
    plans = Plans.of([Plan(tp=tp, dp=dp, shard=shard, zero_stage=3)])
    assert bool(Shard().check(small_job(128), plans)[0]) is holds


def test_rules_that_clash_are_named_where_there_is_no_solution() -> None:
    for apart, status, core in ((3, OPTIMAL, ()), (2, INFEASIBLE, {"low", "high"})):
        program = Program({"tp": (1, 2, 3, 4)})
        program.restrict("tp", (1, 2, 3), program.literal("low"))
        program.restrict("tp", range(apart, 5) if apart == 3 else (4,), program.literal("high"))
        program.restrict("tp", (1, 2, 3, 4), program.literal("idle"))
        program.assume()
        found = program.solve()
        assert (found.status, set(found.core)) == (status, set(core))
        assert (found.values is None) is (status == INFEASIBLE)


@pytest.mark.parametrize(("one", "other"), [(0, 3), (3, 0), (5, 6), (7, 7), (1, 1)])
def test_a_product_and_the_lesser_of_two_are_theirs(one: int, other: int) -> None:
    program = Program()
    first, second = program.variable(one, one), program.variable(other, other)
    product, lesser = program.product(first, second, (7, 7)), program.lesser(first, second, 7)
    values = program.solve().values
    assert values is not None
    assert (values[product], values[lesser]) == (one * other, min(one, other))


def test_a_mixture_has_the_domains_of_its_experts() -> None:
    assert {rule.name for rule in structural(small_job(model=MIXTURE))} >= {"experts", "expert-tp", "expert-folding"}


@pytest.mark.parametrize(
    ("features", "fixed", "beyond"),
    [
        (Features(uneven_stages=False, recompute_by="virtual stage"), {"layers_per_stage": "4,8"}, False),
        (BY_VIRTUAL, {"layout": "even"}, False),
        (BY_STAGE, {"recompute_layers": "1,2"}, False),
        (BY_VIRTUAL, {"recompute_layers": "1,2"}, True),
        (BY_VIRTUAL, {"recompute_layers": "2,2"}, False),
    ],
)
def test_only_what_is_recomputed_may_be_beyond_the_software(
    features: Features, fixed: dict[str, Any], beyond: bool
) -> None:
    job = small_job(features=features, fixed=fixed)
    assert [rule.beyond(job) for rule in given_layouts(job)] == [beyond]


@pytest.mark.parametrize(
    ("counts", "right"),
    [("0,6,6,0", True), ("6,6", True), ("6,0,6", False), ("4,0,4,4", False), ("4,4,0,4", False), ("0,12", True)],
)
def test_only_the_first_and_the_last_stage_may_be_without_layers(counts: str, right: bool) -> None:
    job = small_job(fixed={"layers_per_stage": counts})
    if right:
        assert len(given_layouts(job)) == 1
    else:
        with pytest.raises(InputError, match="only the first and the last"):
            given_layouts(job)


def test_a_listed_pin_posts_its_values() -> None:
    for among, left in (((), [2, 3, 4]), ((2, 4), [2, 4])):
        program = Program({"pp": (1, 2, 3, 4, 8)})
        pin = Pin(name="range pp=2..4", variable="pp", low=2, high=4, among=among)
        pin.post(small_job(), program, program.literal(pin.name))
        column = np.array([1, 2, 3, 4, 8])
        assert column[allowed(program, {"pp": column})[pin.name]].tolist() == left
    relaxed, _ = Pin(name="range pp=2", variable="pp", low=2, high=2).relax(small_job(ranges={"pp": (2, 2)}), 1.0)
    assert relaxed.limits.ranges == {}


def test_a_risk_is_the_least_whole_percent_that_is_enough() -> None:
    """What a plan may reserve rises with the risk: at a percent less it may not reserve as much."""
    job = small_job().with_limits(oom_risk=0.02)
    rule, usable = Memory(), job.usable_memory
    for percent in (3, 10, 49):
        most = usable * margin(job, percent / 100)
        assert (rule.risk(job, most), rule.risk(job, most * (1 + 1e-6))) == (percent, percent + 1)
        assert rule.next_risk(job, most) == pytest.approx(usable * margin(job, (percent - 1) / 100))
    assert rule.next_risk(job, usable * margin(job, 0.021)) == pytest.approx(safe_memory(job))
    assert (rule.risk(job, usable), rule.risk(job, 1.001 * usable), rule.risk(job, safe_memory(job))) == (50, 0, 0)
    assert (rule.next_risk(job, safe_memory(job)), rule.next_risk(job, 1.001 * usable)) == (0.0, usable)
    even = job.with_limits(oom_risk=0.5)
    assert rule.next_risk(even, 1.001 * usable) == 0.0


def test_an_exchange_overlaps_beside_what_repeats_no_experts() -> None:
    repeats = {mode: bool(REPEATS[place]) for place, mode in enumerate(RECOMPUTE)}
    assert (repeats["none"], repeats["selective"], repeats["full"], repeats["moe"]) == (False, False, True, True)
    assert not repeats["mlp"]


def test_a_word_that_is_none_of_a_variable_is_told_with_what_there_is() -> None:
    for text, modules in (("recompute=some", True), ("dispatcher=pigeon", False)):
        with pytest.raises(InputError) as refused:
            pins_of(text)
        assert ("modules are joined by" in str(refused.value)) is modules
    with pytest.raises(InputError, match=r"^recompute must be one of none, selective, full, but got 'some'; modules"):
        pins_of("recompute=some")
    with pytest.raises(
        InputError, match=r"^cannot fix recompute=some: expected one of none, selective, full or modules"
    ):
        pins(small_job(fixed={"recompute": "some"}))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("tp=x", "an integer >= 1"),
        ("tp=0", "an integer >= 1"),
        ("zero_stage=4", "an integer from 0 to 3"),
        ("zero_stage=-1", "an integer from 0 to 3"),
    ],
)
def test_a_number_that_a_variable_cannot_have_is_told_with_its_ends(text: str, allowed: str) -> None:
    name, _, value = text.partition("=")
    with pytest.raises(InputError, match=f"^{name} must be {allowed}, but got '{value}'$"):
        pins_of(text)


def test_other_batches_and_numbers_of_gpus_end_where_they_are_looked_at() -> None:
    """Batches up to eight times the job's; any number inside a node and within one of the job's, else whole nodes."""
    job = replace(small_job(2), global_batch=3)
    others = Batch().others(job).tolist()
    assert sorted(others) == [number for number in range(1, 8 * 3 + 1) if number != 3]
    assert others[:4] == [2, 4, 1, 5]
    assert sorted(_others(4, 16, 6).tolist()) == [1, 2, 3, 4, 5, 7, 8, 9, 12, 16]
    assert sorted(_others(4, 16, 8).tolist()) == [1, 2, 3, 4, 12, 16]
    assert sorted(_others(4, 9, 7).tolist()) == [1, 2, 3, 4, 5, 6, 8, 9]
    assert sorted(_others(4, 2, 1).tolist()) == [2]
    assert sorted(_others(4, 23, 10).tolist()) == [1, 2, 3, 4, 7, 8, 9, 11, 12, 13, 16, 20]
    with pytest.raises(ValueError, match="read-only"):
        _others(4, 16, 6)[0] = 7  # others share it


def test_what_moves_and_what_is_not_enough_is_told() -> None:
    job, rule = small_job(12), GpuProduct()
    assert rule.moved(job, replace(job, gpus=16)) == "12 -> 16 GPUs"
    assert rule.moved(job, replace(job, gpus=16, global_batch=64)) == "12 -> 16 GPUs with a global batch of 64"
    for gpus, near in ((4, False), (8, False), (12, True), (16, False)):
        assert (", nor within a node of it, is enough" in rule.none(small_job(gpus))) is near


def test_a_point_that_is_not_possible_is_false_and_the_others_say_their_values() -> None:
    columns = {"tp": np.array([1, 2, 2]), "pp": np.array([1, 1, 4]), "dp": np.array([3, 3, 3])}
    possible = np.array([True, True, False])
    for place in range(3):
        program = Program({"tp": (1, 2), "pp": (1, 4), "dp": (1, 3)})
        program.hold(columns, possible)
        program.minimise([(program.points[place], -1)])
        values = program.solve().values
        assert values is not None
        assert bool(values[program.points[place]]) is bool(possible[place])
        held = {name: values[program.index[name]] for name in columns}
        assert held in [{name: int(column[row]) for name, column in columns.items()} for row in (0, 1)]
        assert not possible[place] or held == {name: int(column[place]) for name, column in columns.items()}


def test_what_the_solver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker, and Ctrl-C is Python's; what presolve and relaxation cost, only where they are wanted."""
    from ortools.sat.python import cp_model_helper

    told: list[Any] = []

    class Wrapper(cp_model_helper.SolveWrapper):
        def set_parameters(self, parameters: Any) -> None:
            told.append(parameters)
            super().set_parameters(parameters)

    monkeypatch.setattr(cp_model_helper, "SolveWrapper", Wrapper)
    program = Program({"tp": (1, 2)})
    program.solve()
    program.solve(3, 0.5, 0.25, relaxed=True)
    program.solve(prepare=False, time_limit=0.0)
    for each in told:
        assert (each.num_workers, each.catch_sigint_signal) == (1, False)
        assert (each.cp_model_probing_level, each.presolve_inclusion_work_limit) == (0, 0)
    plain, relaxed, bare = told
    assert (plain.random_seed, plain.cp_model_presolve, plain.linearization_level) == (0, True, 1)
    assert (relaxed.random_seed, relaxed.cp_model_presolve, relaxed.linearization_level) == (3, True, 2)
    assert (relaxed.max_time_in_seconds, relaxed.max_deterministic_time) == (0.5, 0.25)
    assert (bare.cp_model_presolve, bare.symmetry_level, bare.linearization_level) == (False, 0, 0)
    assert 0 < bare.max_time_in_seconds < 0.01  # none at all would be no limit
