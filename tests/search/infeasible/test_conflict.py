"""Conflicts are minimal, named and carry relaxations that work."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
from hypothesis import given, settings

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.constraints.rule import LimitRule, NumberRule
from optimizer.constraints.rules.every import structural
from optimizer.constraints.rules.memory import Memory
from optimizer.constraints.space import domains
from optimizer.job.job import Job
from optimizer.job.variables import FREE, names_of
from optimizer.search.infeasible.conflict import CUT_SHORT, ConflictQuestion, conflict, minimal
from optimizer.search.infeasible.methods import lighter_jobs, shorter_jobs, switched_jobs
from optimizer.search.lattice.enumerate import OPTIONS, lattice
from optimizer.search.lattice.oracle import sweep
from optimizer.search.plan.best import best_plan
from optimizer.search.plan.planner import plan
from tests.search.jobs import MIXTURE, jobs, small_job
from tests.thorough import cases

JOB_OF_ONE = Job(
    model=load_model("llama3.1-8b"),
    cluster=load_cluster("rtx-4090"),
    stack=load_stack("megatron-core"),
    gpus=1,
    seq_len=2048,
    global_batch=16,
)


def test_memory_conflict_names_the_least_memory_and_how_many_gpus_are_enough() -> None:
    """1.5 GB over at most 4 GPUs where 1 GB is left; 8 GPUs hold the model, and no number between does."""
    job = small_job(4, hbm=3e9, oom_risk=0.5)
    clashes = {clash.rule: clash for clash in conflict(job)}
    assert set(clashes) == {"gpu-product", "memory"}
    assert "the leanest plan reserves 1.5 GB" in clashes["memory"].reason
    assert clashes["memory"].relaxation == "HBM 3 -> 4 GB"
    assert clashes["gpu-product"].relaxation == "4 -> 8 GPUs"
    assert [gpus for gpus in range(4, 9) if best_plan(replace(job, gpus=gpus))] == [8]


def test_bubble_relaxation_is_the_smallest() -> None:
    """pp = 4 with 48 micro-batches without virtual stages: 3 / 51 = 5.88 %, so a ceiling of 5 % must rise to 5.9 %."""
    job = small_job(4, bubble=0.05, max_vpp=1, fixed={"pp": 4, "cp": 1})
    clashes = {clash.rule: clash for clash in conflict(job)}
    assert clashes["bubble"].relaxation == "bubble 5.0% -> 5.9%"
    assert "fix pp=4" in clashes


def test_a_prime_number_of_gpus_names_the_product_and_the_batch() -> None:
    clashes = conflict(small_job(1009))
    assert [clash.rule for clash in clashes][:2] == ["gpu-product", "batch"]
    assert "1,009 is prime" in clashes[0].reason
    assert "->" in clashes[0].relaxation


def test_when_the_time_is_over_all_that_may_clash_is_told_and_that_less_might() -> None:
    job = small_job(4, hbm=3e9, oom_risk=0.5)
    whole, hurried = conflict(job), conflict(job, time_limit=0)
    assert {clash.rule for clash in whole} < {clash.rule for clash in hurried}
    assert {clash.note for clash in hurried} == {CUT_SHORT}
    answer = plan(job, time_limit=60)
    assert answer.conflict == whole


def test_contradictory_pins_are_named() -> None:
    job = small_job(8, fixed={"tp": 2, "pp": 2, "dp": 4, "cp": 1})
    names = {clash.rule for clash in conflict(job)}
    assert {"gpu-product", "fix dp=4"} <= names
    assert "memory" not in names


@settings(max_examples=cases(40, sample=6), deadline=None)
@given(jobs())
def test_conflicts_are_minimal(job: Job) -> None:
    question = ConflictQuestion(job=job)
    rules = question.rules()
    if question.holds(rules):
        return
    names = minimal(question, rules)
    structurally = next(question.plans([rule for rule in rules if not isinstance(rule, Memory)]), None) is None
    facts = [] if structurally else [rule for rule in rules if not isinstance(rule, LimitRule | NumberRule)]
    clashing = [rule for rule in rules if rule.name in names]
    assert names
    assert not question.feasible([*facts, *clashing])
    for rule in clashing:
        assert question.feasible([*facts, *(other for other in clashing if other is not rule)]), rule.name


@settings(max_examples=cases(60, sample=6), deadline=None)
@given(jobs())
def test_no_smaller_move_of_a_limit_works(job: Job) -> None:
    """Every limit, mode or stage that some plan asks for and that is a smaller move than the one told is no help."""
    question = ConflictQuestion(job=job)
    rules = question.rules()
    names = {rule.name for rule in rules}
    clashes = {clash.rule: clash for clash in conflict(job)} if not question.holds(rules) else {}
    for rule in rules:
        if not isinstance(rule, LimitRule) or not (rule.name in clashes and clashes[rule.name].relaxation):
            continue
        others = [other for other in rules if other is not rule]
        least = question.least(others, rule)
        enough, told = rule.relax(job, least)
        assert told == clashes[rule.name].relaxation
        assert question.holds_for(enough, names)
        if isinstance(rule, Memory):
            smaller = {least - step * 1e9 for step in (1, 2, 5)}
        else:
            moves = [rule.required(question.asked(others), plans) for plans in question.plans(others)]
            smaller = {float(move) for move in np.concatenate(moves) if 0 <= move < least}
        for move in sorted(smaller, reverse=True)[:8]:
            less, text = rule.relax(job, move) if move else (job, "")
            assert text == told or not question.holds_for(less, names), (told, text)


def test_relaxing_memory_as_told_makes_the_job_feasible() -> None:
    job = small_job(4, hbm=2.4e9)
    told = next(clash.relaxation for clash in conflict(job) if clash.rule == "memory")
    enough = float(told.split()[3]) * 1e9
    assert told == f"HBM 2.4 -> {enough / 1e9:.0f} GB"
    assert best_plan(job) is None
    assert best_plan(job.with_limits(hbm=enough)) is not None
    assert best_plan(job.with_limits(hbm=enough - 1e9)) is None


def test_another_number_of_gpus_may_come_with_a_batch_that_it_can_share() -> None:
    """1,008 = 16 x 63 GPUs cannot share 480 sequences, but some number within a tenth of them."""
    job = replace(small_job(1009), global_batch=480)
    relaxation = next(clash for clash in conflict(job) if clash.rule == "gpu-product").relaxation
    told, batch = relaxation.split(" GPUs with a global batch of ")
    assert told == "1,009 -> 1,008"
    assert 0 < abs(int(batch) - 480) <= 48
    assert sweep(replace(job, gpus=1008), structural(job)).best < 0


def test_too_little_memory_for_the_context_is_said() -> None:
    assert "nothing is left of 1.0 GB beside 2.0 GB of context" in Memory().explain(small_job(8, hbm=1e9))


def test_what_does_not_fit_on_a_node_is_told_which_lighter_ways_do() -> None:
    whole = replace(JOB_OF_ONE, train="full")
    (clash,) = [clash for clash in conflict(whole) if clash.rule == "memory"]
    assert clash.note.startswith("fits: ")
    assert clash.remedy == f"enough: {clash.relaxation}; {clash.note}"
    for way in lighter_jobs(whole):
        fits = {options: plan(job, top=0, trials=0, explained=False).plan is not None for options, job in way}
        told = next((options for options, holds in fits.items() if holds), None)
        assert [options for options in fits if f"{options} (" in clash.note] == [told] * (told is not None)
    assert "--train qlora (" in clash.note
    assert "--optimizer adamw-8bit (" not in clash.note  # 8 billion weights and their gradients alone are more


def test_the_longest_sequence_of_a_power_of_two_that_fits_is_told() -> None:
    long = replace(JOB_OF_ONE, seq_len=20_000, train="qlora", stack=load_stack("hf-2026"))
    (clash,) = [clash for clash in conflict(long) if clash.rule == "memory"]
    fits = {
        options: plan(shorter, top=0, trials=0, explained=False).plan is not None
        for options, shorter in shorter_jobs(long)
    }
    first = next(options for options, holds in fits.items() if holds)
    assert f"{first} (" in clash.note
    assert clash.note.count("--seq-len") == 1


def test_a_cluster_of_several_nodes_is_told_of_no_lighter_way() -> None:
    assert list(lighter_jobs(replace(JOB_OF_ONE, gpus=8))) != []
    wide = replace(JOB_OF_ONE, cluster=load_cluster("dgx-h100"), gpus=64)
    assert list(lighter_jobs(wide)) == []


def test_a_switch_of_the_software_is_told_where_it_is_enough() -> None:
    small = replace(JOB_OF_ONE, train="lora", stack=load_stack("hf-2026")).with_limits(hbm=23e9)
    (clash,) = [clash for clash in conflict(small) if clash.rule == "memory"]
    assert "fits: --fix liger=on (" in clash.note
    pinned = replace(small, settings=("stack.loss_chunks=1",))
    assert list(switched_jobs(small))
    assert not list(switched_jobs(pinned))


def test_a_space_that_is_too_large_for_a_core_is_told_by_its_values() -> None:
    """There are at least as many plans without rules as combinations of the values that none follows from."""
    pinned = {"tp": 2, "cp": 1, "vpp": 1, "micro_batch": 1, "sequence_parallel": True, "recompute": "none"}
    for gpus, fixed in ((7, pinned), (8, pinned | {"ep": 1}), (12, pinned | {"pp": 2})):
        job = small_job(gpus, model=MIXTURE, fixed=fixed)
        values = domains(job)
        plans = sum(map(len, lattice(job, [])))
        assert 0 < prod(len(values[name]) for name in (*names_of(FREE), *OPTIONS)) <= plans
