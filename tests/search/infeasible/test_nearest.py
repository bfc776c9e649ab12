"""The nearest number of GPUs or batch is that of exhaustive trial, and what skips numbers rules them out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.constraints.rule import BoolArray, NumberRule
from optimizer.constraints.rules.batch import REACH, Batch
from optimizer.constraints.rules.every import structural
from optimizer.constraints.rules.gpu_product import GpuProduct
from optimizer.job.job import EVEN_RISK, Job, Limits
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.pipeline.schedules import bubble_fraction, bubble_left
from optimizer.search.infeasible.conflict import ConflictQuestion, conflict
from optimizer.search.infeasible.nearest import Numbers, consistent, growing, narrowed
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.layouts import least_memory as module
from optimizer.search.layouts.bounds.stage_needs import Needs
from optimizer.search.layouts.least_memory import LeastMemory
from tests.search.jobs import DENSE, jobs, small_job
from tests.thorough import cases

SLOW = [HealthCheck.filter_too_much, HealthCheck.too_slow]
ROUNDING = 1e-9
ASKED = ({}, {}, {"micro_batch": 2}, {"num_microbatches": 3}, {"dp": 3}, {"pp": 3, "vpp": 2}, {"ep": 2})
RANGES = ({}, {}, {}, {"num_microbatches": (2, 5)}, {"dp": (2, 6)}, {"pp": (2, 4)}, {"shard": (0, 8)})
CHOICES = ({}, {}, {}, {"tp": (3, 5)}, {"vpp": (2, 5)}, {"num_microbatches": (4, 6)})


@st.composite
def awkward_jobs(draw: st.DrawFn) -> Job:
    """Small jobs on small clusters, with batches that few replicas share and pins that few numbers satisfy."""
    job = draw(jobs())
    most = draw(st.sampled_from([24, 40]))
    cluster = replace(job.cluster, gpus_per_node=draw(st.sampled_from([1, 4, 8])), max_gpus=most)
    job = replace(job, cluster=cluster, global_batch=draw(st.sampled_from([1, 3, 7, 10, 11, 13, 24])))
    fixed = {**job.limits.fixed, **draw(st.sampled_from(ASKED))}
    hbm = job.stack["context_memory"] + draw(st.sampled_from([0.9e9, 1.3e9, 2e9, 4e9, 60e9]))
    return job.with_limits(
        fixed=fixed, ranges=draw(st.sampled_from(RANGES)), choices=draw(st.sampled_from(CHOICES)), hbm=hbm
    )


def other_gpus(job: Job) -> Iterator[Job]:
    """Every other number of GPUs, nearest first: at each distance with this batch, then one within a tenth."""
    node, batch = job.cluster.gpus_per_node, job.global_batch
    part = job.gpus > node and job.gpus % node > 0
    near = [count for count in range(1, job.cluster.max_gpus + 1) if part and abs(count - job.gpus) < node]
    counts = [count for count in range(1, job.cluster.max_gpus + 1) if count < node or count % node == 0]
    counts = sorted({*counts, *near})
    near = [other for other in range(1, 2 * batch) if 0 < abs(other - batch) <= batch / 10]
    for distance in range(1, job.cluster.max_gpus):
        at = [count for count in counts if abs(count - job.gpus) == distance]
        yield from (replace(job, gpus=count) for count in at)
        for count in at:
            for other in sorted(near, key=lambda other: (abs(other - batch), other)):
                yield replace(job, gpus=count, global_batch=other)


def other_batches(job: Job) -> Iterator[Job]:
    """Every other batch, nearest first."""
    batch = job.global_batch
    others = range(1, REACH * max(batch, job.gpus) + 1)
    for other in sorted(others, key=lambda other: (abs(other - batch), other)):
        if other != batch:
            yield replace(job, global_batch=other)


def holds(job: Job, names: set[str]) -> bool:
    """Whether a job has a plan under the rules so named, by a question that knows nothing of another job."""
    question = ConflictQuestion(job=job)
    return question.holds([rule for rule in question.rules() if rule.name in names])


@settings(max_examples=cases(60, sample=4), deadline=None, suppress_health_check=SLOW)
@given(awkward_jobs(), st.data())
def test_the_nearest_number_is_that_of_exhaustive_trial(job: Job, data: st.DataObject) -> None:
    question = ConflictQuestion(job=job)
    rules = question.rules()
    assume(not question.holds(rules))
    without = data.draw(st.sets(st.sampled_from([rule.name for rule in rules]), max_size=2) | st.just({"memory"}))
    names = {rule.name for rule in rules} - without | {"gpu-product", "batch"}
    for rule, others in ((GpuProduct(), other_gpus), (Batch(), other_batches)):
        expected = next((other for other in others(job) if holds(other, names)), None)
        assert question.nearest(rule, names - {rule.name}) == expected, rule.name


@settings(max_examples=cases(100, sample=8), deadline=None, suppress_health_check=SLOW)
@given(awkward_jobs(), st.data())
def test_more_replicas_and_fewer_smaller_micro_batches_are_leaner(job: Job, data: st.DataObject) -> None:
    """What lets the search look at the leanest plan only: the bounds on memory grow with none but these."""
    job = job.with_limits(hbm=0.0, bubble=1.0, fixed={}, ranges={}, choices={})
    rules = [rule for rule in structural(job) if rule.name not in ("batch", "gpu-product", "shard", "context-parallel")]
    plans = next(lattice(job, rules, chunk=5000), None)
    assume(plans is not None)
    assert plans is not None
    memory = LeastMemory(knobs=replace(LeastMemory().knobs, offload=data.draw(st.sampled_from([0.0, 1.0]))))
    held = memory.bounds(job, plans) * (1 + ROUNDING)
    single = replace(
        plans, micro_batch=np.ones_like(plans.dp), num_microbatches=plans.micro_batch * plans.num_microbatches
    )
    assert (memory.bounds(job, single) <= held).all()
    fewer = replace(plans, num_microbatches=np.maximum(1, plans.num_microbatches // data.draw(st.integers(1, 4))))
    assert (memory.bounds(job, fewer) <= held).all()
    more = replace(plans, dp=plans.dp * data.draw(st.integers(1, 5)) + data.draw(st.integers(0, 3)))
    alone = (plans.zero_stage == 0) & (plans.dp * plans.cp == 1)  # others share no state that could be on the host
    assert (memory.bounds(job, more) <= held)[~alone].all()


@given(st.integers(1, 32), st.integers(1, 8), st.integers(1, 300), st.integers(0, 50), st.integers(0, 3))
def test_more_micro_batches_leave_no_larger_bubble(pp: int, vpp: int, m: int, more: int, schedule: int) -> None:
    few, many = (bubble_fraction(pp, vpp, n, bubble_left(schedule, pp, n)) for n in (m, m + more))
    assert many <= few * (1 + ROUNDING)


def test_a_problem_without_a_layout_is_solved_once_for_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full pipeline holds as much whatever the batch; fewer micro-batches than stages are a problem of their own."""
    asked: list[int] = []
    monkeypatch.setattr(module, "fitting_layout", lambda problem, limit: asked.append(problem.microbatches))
    monkeypatch.setattr(Needs, "have_capacity", lambda needs, usable: np.ones(len(needs.first), dtype=np.bool_))
    memory = LeastMemory()
    for microbatches in (40, 41, 42, 3, 2, 3):
        job = replace(small_job(4), global_batch=microbatches)
        plans = Plans.of([Plan(pp=4, num_microbatches=microbatches)])
        assert not list(memory._solved(job, plans))
    assert asked == [40, 3, 2]


@pytest.mark.parametrize(
    ("model", "gpus", "batch", "limits"),
    [
        ("llama3-70b", 3072, 7, {}),
        ("gpt3", 192, 7, {}),
        ("llama3-70b", 64, 7, {}),
        ("llama3-70b", 3072, 448, {"fixed": {"pp": 7}}),
        ("llama3.1-405b", 8, 64, {}),
    ],
)
def test_nothing_nearer_works_for_large_models(model: str, gpus: int, batch: int, limits: dict[str, object]) -> None:
    """Numbers between the job's and the one told have no plan."""
    job = Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=gpus,
        seq_len=2048,
        global_batch=batch,
    ).with_limits(**limits)
    question = ConflictQuestion(job=job)
    names = {rule.name for rule in question.rules()}
    assert not question.holds(question.rules())
    found = question.nearest(GpuProduct(), names), question.nearest(Batch(), names)
    assert any(found)
    for other, others in zip(found, (GpuProduct().others(job), Batch().others(job)), strict=True):
        if other is None:
            continue
        assert question.holds_for(other, names)
        moved = abs(other.gpus - gpus) + abs(other.global_batch - batch) * (other.gpus == gpus)
        number = "gpus" if other.gpus != gpus else "global_batch"
        nearer = [value for value in others.tolist() if abs(value - getattr(job, number)) < moved]
        for value in nearer[:: max(1, len(nearer) // 25)]:
            assert not question.holds_for(replace(job, **{number: value}), names), value


def test_replicas_that_share_weights_are_looked_at_where_one_alone_does_not_fit() -> None:
    """Llama-3 70B without model parallelism fits where thousands of replicas shard its weights, and on no GPU alone."""
    job = Job(
        model=load_model("llama3-70b"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=16_384,
        seq_len=2048,
        global_batch=2048,
    ).with_limits(fixed={"tp": 1, "cp": 1, "pp": 1})
    relaxations = {clash.rule: clash.relaxation for clash in conflict(job)}
    assert relaxations["gpu-product"] == "16,384 -> 2,248 GPUs with a global batch of 2,248"


def test_what_was_looked_at_is_said_where_nothing_is_enough() -> None:
    """12 heads cannot be split over 5 ranks on any number of GPUs."""
    clashes = {clash.rule: clash for clash in conflict(small_job(8, fixed={"tp": 5}))}
    assert clashes["gpu-product"].remedy == clashes["gpu-product"].note == GpuProduct().none(small_job(8))
    assert "1,000,000 GPUs" in clashes["gpu-product"].note
    assert clashes["fix tp=5"].remedy == "enough: drop fix tp=5"


def test_no_number_is_looked_at_where_a_pin_alone_breaks_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack without ZeRO-2 has no plan of it on any number of GPUs, of which a million would be tried."""
    job = Job(
        model=load_model("llama3.2-1b"),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=8,
        seq_len=2048,
        global_batch=16,
    ).with_limits(fixed={"zero_stage": 2})
    monkeypatch.setattr(Numbers, "_first", lambda *_: pytest.fail("numbers were tried"))
    assert {clash.rule for clash in conflict(job)} == {"zero-stage", "fix zero_stage=2"}


def test_numbers_without_a_plan_are_left_out_before_each_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 batches fit nowhere on these GPUs: to ask about every one of them took a minute."""
    job = Job(
        model=load_model("deepseek-v3"),
        cluster=load_cluster("dgx-v100-32"),
        stack=load_stack("aa-scaling-2023"),
        gpus=96,
        seq_len=2048,
        global_batch=256,
        dtype="fp16",
        limits=Limits(oom_risk=EVEN_RISK),
    )
    asked: list[tuple[int, int]] = []
    holds_for = ConflictQuestion.holds_for

    def counted(self: ConflictQuestion, other: Job, names: set[str]) -> bool:
        asked.append((other.gpus, other.global_batch))
        return holds_for(self, other, names)

    monkeypatch.setattr(ConflictQuestion, "holds_for", counted)
    relaxations = {clash.rule: clash.relaxation for clash in conflict(job)}
    assert relaxations == {"gpu-product": "96 -> 112 GPUs", "memory": "HBM 34.04 -> 39 GB"}
    assert len(asked) < 20


class Room:
    """Memory that only plans fit in whose micro-batches are no more than four for each GPU of a replica."""

    def possible(self, job: Job, plans: Plans) -> BoolArray:
        return np.asarray(plans.micro_batch * plans.num_microbatches <= 4 * plans.tp * plans.cp * plans.pp)

    def fits(self, job: Job, chunks: Iterable[Plans]) -> bool:
        return any(self.possible(job, plans).any() for plans in chunks)


NUMBERS: list[tuple[dict[str, Any], list[tuple[int, int]]]] = [
    ({}, [(12, 36), (20, 40), (8, 48), (8, 64)]),  # a tenth less comes with fewer GPUs
    ({}, [(12, 45), (4, 39), (4, 42), (8, 33), (8, 47)]),  # 45 is no tenth; of two as far the nearer, then the smaller
    ({}, [(4, 40), (12, 40), (8, 36), (8, 44)]),
    ({}, [(16, 40), (12, 44), (12, 36), (8, 100), (8, 320)]),
    ({}, [(12, 39), (4, 44)]),
    ({}, [(160, 40), (152, 38), (8, 320)]),
    ({}, [(208, 39), (400, 40), (8, 321)]),
    ({}, [(404, 40), (8, 40)]),
    ({"fixed": {"micro_batch": 2}}, [(12, 36), (16, 40), (8, 44)]),
    ({"fixed": {"num_microbatches": 3}}, [(12, 36), (16, 40), (24, 42), (8, 42), (8, 48)]),
    ({"fixed": {"dp": 3}}, [(4, 40), (12, 40), (12, 39), (24, 42), (8, 39)]),
    ({"fixed": {"pp": 3}}, [(4, 40), (12, 40), (24, 40)]),
    ({"ranges": {"num_microbatches": (2, 5)}}, [(4, 40), (12, 36), (16, 40), (8, 16), (8, 48)]),
    ({"choices": {"num_microbatches": (4, 6)}}, [(4, 40), (12, 36), (40, 40), (8, 48)]),
    ({"choices": {"tp": (2, 4)}, "ranges": {"pp": (2, 2)}}, [(1, 40), (4, 40), (12, 40), (8, 44)]),
]


def check_nearest(limits: dict[str, Any], allowed: list[tuple[int, int]], memory: Room | None) -> None:
    """Of those allowed that have a plan, the nearest is told: all are tried in their order."""
    job = replace(small_job(8, model=replace(DENSE, layers=4, kv_heads=12), **limits), global_batch=40)
    job = replace(job, cluster=replace(job.cluster, gpus_per_node=4, max_gpus=400))

    def right(other: Job) -> bool:
        if (other.gpus, other.global_batch) not in allowed:
            return False
        plans = lattice(other, structural(other))
        return memory.fits(other, plans) if memory else any(True for _ in plans)

    numbers = Numbers(
        job=job,
        rules=[rule for rule in structural(job) if not isinstance(rule, NumberRule)],
        memory=cast(Any, memory),
        holds=right,
    )
    gpus, batches = sorted({gpus for gpus, _ in allowed} - {8}), sorted({batch for _, batch in allowed} - {40})
    jobs_near = [other for other in other_gpus(job) if other.gpus in gpus]
    assert numbers.nearest_gpus(GpuProduct().others(job)) == next(filter(right, jobs_near), None)
    same_gpus = [other for other in other_batches(job) if other.global_batch in batches]
    assert numbers.nearest_batch(Batch().others(job)) == next(filter(right, same_gpus), None)


@pytest.mark.parametrize(("limits", "allowed"), NUMBERS)
def test_the_nearest_of_the_numbers_that_hold_is_found(limits: dict[str, Any], allowed: list[tuple[int, int]]) -> None:
    check_nearest(limits, allowed, None)


@pytest.mark.parametrize(("limits", "allowed"), NUMBERS[::2])
def test_the_nearest_number_whose_plans_have_room_is_found(
    limits: dict[str, Any], allowed: list[tuple[int, int]]
) -> None:
    check_nearest(limits, allowed, Room())


def test_more_numbers_are_looked_at_together_the_further_they_are() -> None:
    """Those as far on either side together: the job's own lies at the front, or does not."""
    far = np.arange(1, 12_001)
    assert [len(part) for part in growing(far, 0)] == [16, 64, 256, 1024, 4096, 4096, 2448]
    both = np.array([100, *(100 + side * more for more in range(1, 41) for side in (-1, 1))])
    for numbers, first in ((both[1:], 16), (both, 17)):
        parts = list(growing(numbers, 100))
        assert np.concatenate(parts).tolist() == numbers.tolist()
        assert len(parts[0]) == first
    assert list(growing(np.zeros(0, dtype=np.int64), 5)) == []


@dataclass(frozen=True)
class Product:
    """A rule that is asked alone: its two variables make eight."""

    variables: tuple[str, ...] = ("tp", "pp")
    name: str = "product"

    def check(self, job: Job, plans: Plans) -> BoolArray:
        return np.asarray(plans.tp * plans.pp == 8)


@pytest.mark.parametrize(("most", "tp", "pp"), [(32, (1, 2, 4, 8), (1, 2, 4, 8)), (33, range(1, 33), range(1, 34))])
def test_a_rule_leaves_the_values_that_hold_with_some_other_where_they_are_few(
    most: int, tp: Sequence[int], pp: Sequence[int]
) -> None:
    """32 x 32 combinations are looked at, 32 x 33 are not; no rule is where a variable has no values listed."""
    values = {"tp": tuple(range(1, 33)), "pp": tuple(range(1, most + 1)), "dp": (3, 5)}
    left = consistent(small_job(8), [cast(Any, Product())], values)
    assert left == {"tp": tuple(tp), "pp": tuple(pp), "dp": (3, 5)}
    assert consistent(small_job(8), [cast(Any, Product(("tp", "cp")))], values) == values
    both = {"tp": (3, 4), "pp": (2, 5)}
    assert consistent(small_job(8), [cast(Any, Product())], both) == {"tp": (4,), "pp": (2,)}


def test_values_that_no_plan_has_are_left_out_but_of_micro_batches() -> None:
    plans = [Plans.of([Plan(tp=2, pp=3, micro_batch=2), Plan(tp=1)]), Plans.of([Plan(tp=4)])]
    values = {"tp": (1, 2, 3, 4, 8), "pp": (1, 2, 3), "micro_batch": (1, 4)}
    assert narrowed(values, plans) == {"tp": (1, 2, 4), "pp": (1, 3), "micro_batch": (1, 4)}
    assert narrowed(values, []) == {"tp": (), "pp": (), "micro_batch": (1, 4)}
