"""Optimizer state lies on the host only as far as its memory goes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.constraints.rules.host_activations import STEP
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan, Plans
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.host_memory import (
    host_memory_per_gpu,
    least_host_activations,
    most_offload,
    node_memory,
    on_host,
)
from optimizer.search.check.plan_rules import rule_findings
from optimizer.search.lattice.knobs import columns
from optimizer.search.lattice.oracle import Tuning
from optimizer.search.plan.best import best_plan
from optimizer.search.plan.planner import plan
from tests.thorough import cases


def asked(model: str, gpus: int, hbm: float, host: float) -> Job:
    cluster = replace(load_cluster("dgx-h100"), host_memory=host)
    job = Job(
        model=load_model(model),
        cluster=cluster,
        stack=load_stack("megatron-core"),
        gpus=gpus,
        seq_len=4096,
        global_batch=64,
    )
    return job.with_limits(hbm=hbm, oom_risk=0.5)


def kept(job: Job, one: Plan, knobs: Knobs) -> float:
    return float(on_host(layer_costs_of(job, Plans.of([one])), knobs)[0])


@pytest.mark.parametrize(
    ("model", "gpus", "hbm"), [("llama3-8b", 8, 22e9), ("mixtral-8x7b", 16, 40e9), ("llama3-70b", 16, 60e9)]
)
def test_no_answer_keeps_more_there_than_there_is(model: str, gpus: int, hbm: float) -> None:
    """Half of what the free answer keeps on the host is given: what is found then is no faster and stays within it."""
    free = best_plan(asked(model, gpus, hbm, 0.0), Tuning(trials=0))
    assert free is not None
    assert free.knobs.offload > 0
    needed = kept(free.job, free.plan, free.knobs)
    tight = asked(model, gpus, hbm, 8 * needed / 2 / 0.8)
    assert host_memory_per_gpu(tight) == pytest.approx(needed / 2)
    found = plan(tight, trials=0, top=0)
    if found.plan is None:
        assert found.status == "infeasible"
        assert any("host" in clash.reason for clash in found.conflict)
        return
    assert found.estimate is not None
    assert kept(tight, found.plan, found.knobs) <= needed / 2 * (1 + 1e-9)
    assert found.estimate.step_time >= free.estimate.step_time * (1 - 1e-9)


def test_room_enough_changes_nothing() -> None:
    job = asked("llama3-8b", 8, 22e9, 0.0)
    free, roomy = (best_plan(job.with_host_memory(each), Tuning(trials=0)) for each in (0.0, 2e12))
    assert free is not None
    assert roomy is not None
    assert (free.plan, free.knobs) == (roomy.plan, roomy.knobs)


@pytest.mark.parametrize("model", ["gpt3", "mixtral-8x7b"])
def test_more_memory_on_the_device_leaves_as_much_room_there(model: str) -> None:
    job = asked(model, 16, 60e9, 5e11)
    plans = Plans.of([Plan(tp=8, dp=2), Plan(tp=8, pp=2, dp=1), Plan(tp=4, pp=4, dp=1, zero_stage=0)])
    shares = [most_offload(layer_costs_of(job.with_limits(hbm=hbm), plans)) for hbm in (40e9, 80e9, 160e9)]
    assert np.array_equal(shares[0], shares[1])
    assert np.array_equal(shares[1], shares[2])
    assert np.all(shares[0] > 0)
    assert shares[0][-1] < 1
    kept = on_host(layer_costs_of(job, plans), replace(columns(Knobs(), 3), offload=shares[0]))
    assert np.all(kept <= host_memory_per_gpu(job))


def test_a_plan_that_keeps_more_there_is_found_out() -> None:
    job = asked("llama3-8b", 8, 40e9, 1e11)
    one = Plan(tp=8, dp=1, micro_batch=1, num_microbatches=64, sequence_parallel=True)
    findings = {f.name: f.holds for f in rule_findings(job, one, Knobs(offload=1.0))}
    assert findings["host-memory"] is False
    assert "host-memory" not in {f.name for f in rule_findings(job, one, Knobs())}


def moved(model: str, gpus: int, hbm: float, host: float, **fixed: int | str) -> Job:
    """A job that may keep activations on the host and nothing else, and has room for few of them on the device."""
    job, stack = asked(model, gpus, hbm, host), load_stack("megatron-core-2025")
    settable = tuple(name for name in stack.features.settable if name != "offload")
    stack = replace(stack, features=replace(stack.features, settable=settable))
    choices = {} if "activation_offload" in fixed else {"activation_offload": (0, 50, 100)}
    return replace(job, stack=stack).with_limits(choices=choices, fixed=fixed)


@pytest.mark.parametrize(("model", "gpus", "hbm"), [("mixtral-8x7b", 16, 90e9)])
def test_activations_there_count_against_the_same_room(model: str, gpus: int, hbm: float) -> None:
    """With ever less memory in the host no answer is faster, and none keeps more there than there is."""
    before, found = 0.0, []
    for host in (0.0, 1.2e11, 2e10):
        job = moved(model, gpus, hbm, host, recompute="none")
        answer = plan(job, trials=0, top=0, priced_risk=False)
        if answer.plan is None:
            assert answer.status == "infeasible"
            assert answer.conflict
            break
        assert answer.estimate is not None
        seconds, there = answer.estimate.step_time, kept(job, answer.plan, answer.knobs)
        found.append(there)
        assert seconds >= before * (1 - 1e-9)
        assert there <= host_memory_per_gpu(job) * (1 + 1e-9)
        before = seconds
    assert found[0] > 0
    assert found[0] > found[-1] or answer.plan is None


def test_no_layout_keeps_less_there_than_the_rule_says() -> None:
    """The rule's bound is below what any cut of the layers keeps on its fullest stage, and near the best cut's."""
    job = moved("mixtral-8x7b", 64, 80e9, 1e12)
    one = Plan(tp=2, pp=4, dp=8, ep=8, num_microbatches=8, micro_batch=1, activation_offload=100)
    (least,) = least_host_activations(job, Plans.of([one]))
    layers = job.model.layers
    cuts = [(a, b, c, layers - a - b - c) for a in range(2, 9) for b in range(3, 12) for c in range(4, 14)]
    plans = Plans.of([replace(one, layers_per_stage=cut) for cut in cuts if min(cut) > 0])
    assert least <= on_host(layer_costs_of(job, plans), Knobs()).min() <= least * 1.2


def test_layouts_hold_it_stage_by_stage() -> None:
    """Where the even split is too much for the host, layers move to stages with fewer micro-batches in flight."""
    pins: dict[str, int | str] = {"tp": 2, "pp": 4, "ep": 8, "vpp": 1, "micro_batch": 1, "recompute": "none"}
    job = moved("mixtral-8x7b", 64, 80e9, 0.0, **pins, activation_offload=100)
    free = plan(job.with_limits(hbm=141e9, bubble=1.0), trials=0, top=0, priced_risk=False)
    assert free.plan is not None
    room = kept(job, free.plan, Knobs()) * 0.9
    tight = job.with_host_memory(node_memory(job, room)).with_limits(hbm=141e9, bubble=1.0)
    found = plan(tight, trials=0, top=0, priced_risk=False)
    assert found.plan is not None
    assert found.status == "optimal"
    assert kept(tight, found.plan, found.knobs) <= room * (1 + 1e-9)
    assert found.plan.layers_per_stage[0] < free.plan.layers_per_stage[0]


def test_a_conflict_names_the_host_and_what_would_do() -> None:
    pins: dict[str, int | str] = {"tp": 1, "cp": 1, "pp": 1, "ep": 8, "micro_batch": 1}
    job = moved("mixtral-8x7b", 16, 141e9, 1e10, **pins, activation_offload=100)
    clash = {clash.rule: clash for clash in plan(job, trials=0).conflict}["host-activations"]
    assert "activations on the host must fit in 1 GB per GPU" in clash.reason
    enough = float(clash.relaxation.rpartition("-> ")[2].removesuffix(" GB").replace(",", "")) * 1e9
    assert best_plan(job.with_host_memory(enough), Tuning(trials=0)) is not None
    assert best_plan(job.with_host_memory(enough - STEP), Tuning(trials=0)) is None


def test_activations_there_are_found_out() -> None:
    job = moved("mixtral-8x7b", 16, 80e9, 1e11)
    one = Plan(tp=2, dp=8, ep=8, micro_batch=1, num_microbatches=8, activation_offload=100)
    (found,) = (f for f in rule_findings(job, one, Knobs()) if f.name == "host-memory")
    assert "activations" in found.reason
    assert found.holds == (kept(job, one, Knobs()) <= host_memory_per_gpu(job))


NOISE = 5e-4  # of a step: shares of GRID with one bound each, of which a smaller host has other ones


SHARES = (0.35, 1.1, 0.8, 1.9)  # of what the free answer keeps on the host: less and more
TIGHT = (("llama3-70b", 16, 60e9), ("mixtral-8x7b", 16, 40e9), ("qwen3-30b-a3b", 16, 40e9))


@pytest.mark.parametrize(("model", "gpus", "hbm"), TIGHT[: cases(3, sample=2)])
def test_no_smaller_host_beats_the_free_answer(model: str, gpus: int, hbm: float) -> None:
    """With shares of any size as the most that there is room for."""
    free = best_plan(asked(model, gpus, hbm, 0.0))
    assert free is not None
    needed = kept(free.job, free.plan, free.knobs)
    assert needed > 0
    for share in SHARES[: cases(4, sample=2)]:
        job = asked(model, gpus, hbm, node_memory(free.job, needed * share))
        found = best_plan(job)
        if found is not None:
            assert kept(job, found.plan, found.knobs) <= host_memory_per_gpu(job) * (1 + 1e-9)
            assert found.estimate.step_time >= free.estimate.step_time * (1 - NOISE)


@pytest.mark.parametrize("seed", range(cases(40, sample=2)))
def test_no_smaller_host_of_any_size_beats_the_free_answer(seed: int) -> None:
    """Of jobs drawn at random that do not fit without the host."""
    random = Random(seed)
    free, job = None, asked("llama3-8b", 8, 22e9, 0.0)
    while free is None or not free.knobs.offload:
        model, gpus = random.choice(("llama3-8b", "llama2-13b", "gpt3-13b", "qwen2.5-32b")), random.choice((8, 16, 24))
        whole = load_model(model).params * random.uniform(6, 16) / gpus
        job = asked(model, gpus, min(8e10, whole + random.uniform(6e9, 25e9)), 0.0).with_limits(bubble=1.0)
        free = best_plan(job)
    for _ in range(cases(3, sample=2)):
        tight = replace(job, cluster=replace(job.cluster, host_memory=10 ** random.uniform(10.5, 12.3)))
        found = best_plan(tight)
        if found is not None:
            assert kept(tight, found.plan, found.knobs) <= host_memory_per_gpu(tight) * (1 + 1e-9)
            assert found.estimate.step_time >= free.estimate.step_time * (1 - NOISE)
