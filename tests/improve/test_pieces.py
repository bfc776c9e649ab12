"""The pieces of improve by cases: what counts as one change, what is tried, what is worth making, what may be said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.catalog import load_model
from optimizer.frameworks.launch import FlagChange
from optimizer.improve import edits as edits_module
from optimizer.improve import switches as switches_module
from optimizer.improve.edits import (
    SPARED,
    _batches,
    _better,
    _no_worse,
    _other_batches,
    _ranked,
    _spared,
    _sure,
    ordered,
    unset,
)
from optimizer.improve.neighbours import _spaces, distances, neighbours
from optimizer.improve.patch import _otherwise, lost, shown
from optimizer.improve.state import Edit, State, differences, edit_to, moved, state_of
from optimizer.improve.switches import BUCKETS, bucketed, capturable, switches, useless
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.step.safe_memory import chances
from tests.improve.test_report import NOW, QUESTION, RISKY

BASE = Plan(tp=4, pp=4, ep=4, vpp=2, dp=8, etp=4, num_microbatches=8, sequence_parallel=True)


@pytest.mark.parametrize(
    ("before", "after", "count", "names"),
    [
        ({}, {}, 0, ""),
        ({}, {"micro_batch": 2, "num_microbatches": 4}, 1, "micro_batch"),
        ({}, {"tp": 2, "etp": 2, "dp": 16}, 1, "tp"),  # experts are split as the model
        ({"etp": 1}, {"tp": 2, "etp": 2}, 2, "etp tp"),
        ({}, {"etp": 1}, 1, "etp"),
        ({}, {"tp": 1, "etp": 1, "sequence_parallel": False}, 1, "tp"),  # which follows
        ({"tp": 1, "etp": 1, "sequence_parallel": False}, {"tp": 2, "etp": 2, "sequence_parallel": True}, 1, "tp"),
        ({}, {"tp": 2, "etp": 2, "sequence_parallel": False}, 2, "sequence_parallel tp"),
        ({}, {"sequence_parallel": False}, 1, "sequence_parallel"),
        ({}, {"pp": 1, "vpp": 1}, 1, "pp"),
        ({"pp": 1, "vpp": 1}, {"pp": 2, "vpp": 2}, 1, "pp"),
        ({}, {"pp": 2, "vpp": 4}, 2, "pp vpp"),
        ({}, {"vpp": 4}, 1, "vpp"),
        ({}, {"ep": 2, "dispatcher": "deepep"}, 2, "dispatcher ep"),
        ({}, {"ep": 1, "dispatcher": "deepep"}, 1, "ep"),
        ({"ep": 1}, {"ep": 2, "dispatcher": "deepep"}, 1, "ep"),
        ({"ep": 1}, {"ep": 1, "dispatcher": "deepep"}, 0, "dispatcher"),
        ({"vpp": 1}, {"schedule": "zero-bubble"}, 1, ""),
        ({"vpp": 1, "schedule": "zero-bubble"}, {"schedule": "1f1b"}, 1, ""),
        ({"vpp": 1, "schedule": "zero-bubble"}, {"schedule": "dualpipe"}, 1, ""),
        ({"vpp": 1}, {"schedule": "interleaved", "vpp": 2}, 1, "vpp"),  # which is why it interleaves
        ({"schedule": "interleaved"}, {"schedule": "zero-bubble", "vpp": 1}, 2, "vpp"),
        ({}, {"dispatcher": "deepep"}, 1, "dispatcher"),
        ({}, {"schedule": "interleaved"}, 0, ""),  # by the virtual stages
        ({}, {"schedule": "zero-bubble"}, 1, ""),
        ({"schedule": "dualpipe"}, {"schedule": "1f1b"}, 1, ""),
        ({}, {"zero_stage": 2, "recompute": "full", "cp": 2}, 3, "cp recompute zero_stage"),
    ],
)
def test_what_follows_from_a_setting_is_no_change(
    before: dict[str, Any], after: dict[str, Any], count: int, names: str
) -> None:
    one, other = replace(BASE, **before), replace(BASE, **{**before, **after})
    assert distances(one, Plans.of([other])).tolist() == [count]
    assert " ".join(sorted(moved(one, other))) == names


def test_other_dispatchers_are_tried_where_experts_are_spread_and_none_is_asked_for() -> None:
    dense = QUESTION.job
    (plans,) = [list(_spaces(dense, BASE))]
    assert len(plans) >= 1
    mixture = replace(dense, model=load_model("mixtral-8x7b"), gpus=64, global_batch=64)
    asked = mixture.with_limits(fixed={"pp": 1, "tp": 1, "cp": 1, "micro_batch": 1, "recompute": "none"})
    free = Plans.joined(list(_spaces(asked, Plan(dp=64, dispatcher="alltoall"))))
    bound = asked.with_limits(fixed={**asked.limits.fixed, "dispatcher": "alltoall"})
    kept = Plans.joined(list(_spaces(bound, Plan(dp=64, dispatcher="alltoall"))))
    assert {(plan.ep > 1) for plan in free.plans() if plan.dispatcher != "alltoall"} == {True}
    assert {plan.dispatcher for plan in kept.plans()} == {"alltoall"}
    assert any(plan.ep == 1 for plan in free.plans())


def test_plans_are_in_the_order_of_their_gain_by_its_chance_and_then_of_memory() -> None:
    """Of what runs in T and fits: one twice as fast that hardly fits, one a tenth faster, one slower, two too large."""
    step, most = NOW.estimate.step_time, NOW.job.usable_memory
    seconds = np.array([0.5 * step, step / 1.1, 1.2 * step, 0.1 * step, 0.1 * step])
    reserved = np.array([0.999 * most, 0.5 * most, 0.1 * most, 1.5 * most, 1.4 * most])
    chance = chances(NOW.job, reserved)
    assert 0.1 < chance[0] < 0.9
    assert ordered(NOW, seconds, reserved).tolist() == [0, 1, 2, 4, 3]
    assert ordered(NOW, np.array([step / 1.11, step / 1.1]), reserved[:2]).tolist() == [1, 0]  # by its chance
    # A loss weighs in full, whether or not it fits.
    assert ordered(NOW, np.array([1.2 * step, 1.1 * step]), reserved[:2]).tolist() == [1, 0]
    beyond = replace(NOW, estimate=replace(NOW.estimate, reserved=2 * most))
    # Where what runs does not fit, every plan that does is a gain, by its speed and its chance.
    assert ordered(beyond, np.array([step, 2 * step]), reserved[[2, 1]]).tolist() == [0, 1]
    assert chance[0] < 1 / 1.2
    assert ordered(beyond, np.array([step, 1.2 * step]), reserved[[0, 2]]).tolist() == [1, 0]
    leaner = np.array([0.5, 1.0, 1.1]) * NOW.estimate.reserved
    assert _sure(NOW, leaner).tolist() == [True, True, bool(chances(NOW.job, leaner)[2] >= 0.9)]
    assert _sure(NOW, reserved).tolist() == [False, True, True, False, False]
    assert _sure(beyond, reserved).tolist() == [False, True, True, False, False]


def edit(gain: float, *, expected: float | None = None, sure: bool = True, memory: float = 0.5) -> Edit:
    """An edit of such a gain, to a share of the usable memory."""
    after = replace(NOW, estimate=replace(NOW.estimate, reserved=memory * NOW.job.usable_memory))
    return replace(RISKY, gain=gain, expected=gain if expected is None else expected, sure=sure, after=after)


def test_edits_that_gain_and_fit_are_told_the_sure_ones_first() -> None:
    small, large, unsure = edit(0.0011), edit(0.2), edit(0.5, sure=False)
    assert _ranked(NOW, [small, unsure, edit(0.001), edit(0.3, memory=1.01), large]) == (large, small, unsure)
    full = replace(NOW, estimate=replace(NOW.estimate, reserved=1.2 * NOW.job.usable_memory))
    slower, less, more = edit(-0.5), edit(0.0, memory=1.1), edit(0.0, memory=1.3)
    assert _ranked(full, [slower, less]) == (slower,)
    lean = edit(0.0, memory=1.05)
    assert _ranked(full, [less, more, lean]) == (lean, less)  # none fits: what needs less
    assert _ranked(NOW, [more]) == ()


def test_a_pair_is_told_where_it_is_better_than_the_best_edit_alone() -> None:
    alone, pair = edit(0.1), edit(0.2)
    assert _better([pair, edit(0.3, sure=False), edit(0.4, memory=1.1)], [alone]) is pair
    assert _better([edit(0.1), edit(0.1005)], [alone]) is None
    assert _better([edit(0.0009)], []) is None
    assert _better([small := edit(0.0011)], []) is small
    assert _better([pair], [edit(0.5, sure=False)]) is pair  # which may not fit
    assert _better([pair], [edit(0.5, memory=1.1)]) is pair
    assert _better([], [alone]) is None


def test_batches_are_half_twice_and_four_times_where_the_stages_can_take_them() -> None:
    assert [other.job.global_batch for other in _other_batches(QUESTION)] == [256, 1024, 2048]
    odd = replace(QUESTION, job=replace(QUESTION.job, global_batch=511))
    assert [other.job.global_batch for other in _other_batches(odd)] == [1022, 2044]

    def counts(batch: int, **values: Any) -> list[int]:
        asked = replace(QUESTION, job=replace(QUESTION.job, global_batch=batch), plan=replace(QUESTION.plan, **values))
        return [found.after.plan.num_microbatches for found in _batches(asked, NOW)]

    assert counts(512) == [32, 128, 256]
    assert counts(48) == [12, 24]  # of 3 micro-batches four stages of virtual ones cannot be fed
    assert counts(48, vpp=1, schedule="1f1b") == [3, 12, 24]
    assert counts(512, micro_batch=2) == [16, 64, 128]
    assert counts(128, micro_batch=8, vpp=1, schedule="1f1b") == [1, 4, 8]
    assert counts(40, vpp=1, schedule="1f1b") == [10, 20]  # 20 sequences do not go to 8 replicas


def test_an_edit_is_sure_where_it_needs_no_more_memory_or_very_likely_fits() -> None:
    def to(memory: float, now: State = NOW) -> Edit:
        return edit_to(now, replace(NOW, estimate=replace(NOW.estimate, reserved=memory)))

    full = 0.99 * NOW.job.usable_memory
    tight = replace(NOW, estimate=replace(NOW.estimate, reserved=full))
    beyond = replace(NOW, estimate=replace(NOW.estimate, reserved=1.01 * NOW.job.usable_memory))
    assert (to(full).sure, to(0.5 * full).sure) == (False, True)
    assert (to(full, tight).sure, to(1.001 * full, tight).sure, to(full, beyond).sure) == (True, False, False)
    assert (to(full, tight).gain, to(full, tight).expected) == (0.0, 0.0)
    assert to(full).expected < 0.0  # a larger chance to run out of memory


def test_what_differs_is_told_before_and_after() -> None:
    after = state_of(QUESTION, replace(QUESTION.plan, pp=2, vpp=2, dp=16, num_microbatches=32), {"cuda_graphs": True})
    told = {change.name: (change.before, change.after) for change in differences(NOW, after)}
    assert told["pp"] == (4, 2)
    assert told["cuda_graphs"] == (False, True)
    assert {"global_batch", "offload", "bucket", "tp"}.isdisjoint(told)
    larger = replace(NOW, knobs=replace(NOW.knobs, bucket=80e6))
    assert [(change.name, change.after) for change in differences(NOW, larger)] == [("bucket", 80e6)]
    assert differences(NOW, NOW) == ()


def test_settings_that_mean_nothing_to_a_plan_are_not_switched() -> None:
    plan = QUESTION.plan
    for changes, idle in (
        ({}, set()),
        ({"dp": 1}, {"reduce_overlap", "gather_overlap"}),
        ({"dp": 1, "cp": 2}, set()),
        ({"zero_stage": 0}, {"gather_overlap"}),
        ({"recompute": "full"}, {"cuda_graphs"}),
        ({"activation_offload": 1}, {"cuda_graphs"}),
    ):
        assert useless(QUESTION, replace(plan, **changes)) == {"syncs_last", *idle}
    several = replace(plan, zero_stage=3, num_microbatches=2)
    for changes, idle in (({}, set()), ({"zero_stage": 2}, set()), ({"zero_stage": 1}, {"syncs_last"})):
        assert useless(QUESTION, replace(several, **changes)) == idle
    assert useless(QUESTION, replace(several, num_microbatches=1)) == {"syncs_last"}
    assert capturable(load_model("mixtral-8x7b"), Plans.of([plan])).tolist() == [False]
    both, graphs = {"reduce_overlap": True, "gather_overlap": True}, {"cuda_graphs": True}
    assert list(switches(QUESTION, plan)) == [both, graphs]
    reduced = replace(QUESTION, settings={**QUESTION.settings, "reduce_overlap": True})
    assert list(switches(reduced, plan)) == [{"gather_overlap": True}, graphs]
    fixed = replace(QUESTION, launch=replace(QUESTION.launch, fixed=("cuda_graphs", "gather_overlap")))
    assert list(switches(fixed, plan)) == [{"reduce_overlap": True}]


def test_a_bucket_is_changed_where_another_is_noticeably_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    overlapped = replace(NOW, settings={**NOW.settings, "reduce_overlap": True})
    times = dict.fromkeys(BUCKETS, 1.0) | {80e6: 0.9, 640e6: 0.95}

    def other(*given: Any) -> State:
        bucket = given[3].bucket
        estimate = replace(NOW.estimate, step_time=times[bucket] * NOW.estimate.step_time)
        too_large = replace(estimate, reserved=2 * NOW.job.usable_memory)
        return replace(overlapped, knobs=given[3], estimate=too_large if bucket in large else estimate)

    monkeypatch.setattr(switches_module, "state_of", other)
    large: set[float] = set()
    assert bucketed(QUESTION, overlapped).knobs.bucket == 80e6
    large = {80e6}
    assert bucketed(QUESTION, overlapped).knobs.bucket == 640e6
    times[640e6] = 0.9995
    assert bucketed(QUESTION, overlapped) is overlapped
    times[640e6] = 0.9
    assert bucketed(QUESTION, NOW) is NOW  # nothing hides under the backward pass
    alone = replace(overlapped, plan=replace(NOW.plan, dp=1))
    assert bucketed(QUESTION, alone) is alone
    assert bucketed(replace(QUESTION, launch=replace(QUESTION.launch, fixed=("bucket",))), overlapped) is overlapped


def test_an_overlap_that_no_edit_sets_is_told_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(speed: float, *, setting: Any = False, **plan: Any) -> list[str]:
        faster = replace(NOW, estimate=replace(NOW.estimate, step_time=NOW.estimate.step_time / speed))
        monkeypatch.setattr(edits_module, "state_of", lambda *_: faster)
        asked = replace(QUESTION, settings={**QUESTION.settings, "tp_overlap": setting})
        current = replace(NOW, plan=replace(NOW.plan, **plan))
        return unset(edits_module.Improvement(question=asked, current=current, edits=(), pair=None, best=None))

    (said,) = told(1.05)
    assert said.endswith("with the plan as it is it would gain 5.0%")
    assert told(1.05, tp=2) != []
    for nothing in (told(1.0009), told(1.05, setting=True), told(1.05, setting=None), told(1.05, tp=1)):
        assert nothing == []
    assert told(1.05, sequence_parallel=False) == []


def test_files_that_would_run_otherwise_are_told_apart() -> None:
    same = edit_to(NOW, NOW)
    assert _otherwise(QUESTION, same) == ""
    for bucket, right in ((0.991, True), (0.989, False), (1.009, True), (1.011, False)):
        read = replace(QUESTION, knobs=replace(QUESTION.knobs, bucket=bucket * NOW.knobs.bucket))
        assert (_otherwise(read, same) == "") is right
    read = replace(QUESTION, plan=replace(QUESTION.plan, cp=2))
    assert _otherwise(read, same) == "the files would run cp 2, not 1; make it by hand"
    read = replace(QUESTION, settings={**QUESTION.settings, "gather_overlap": True})
    assert _otherwise(read, same).startswith("the files would run gather_overlap True, not False")
    for share, said in ((0.0, ""), (0.5, "the files would run offload 0.5, not 0.0; make it by hand")):
        assert _otherwise(replace(QUESTION, settings={**QUESTION.settings, "offload": share}), same) == said
    plain = edit_to(NOW, replace(NOW, plan=replace(NOW.plan, zero_stage=0)))
    assert _otherwise(replace(read, plan=replace(read.plan, zero_stage=0)), plain) == ""  # no weights are gathered


def test_a_path_below_the_folder_stays_and_another_is_its_own_name(tmp_path: Path) -> None:
    assert (shown("a/b.sh"), shown("./b.sh"), shown(str(tmp_path / "b.sh"))) == ("a/b.sh", "b.sh", "b.sh")


@pytest.mark.parametrize(
    ("before", "after", "edited", "others"),
    [
        ({"a": 1, "b": 2}, {"a": 3, "b": 2}, "a", ""),
        ({"a": 1, "b": 2}, {"a": 3, "b": 4}, "a", "b"),
        ({"a": 1, "b": 2}, {"a": 3}, "a", "b"),
        ({"a": 1}, {"a": 3, "b": None}, "a", ""),  # as good as nothing
        ({"a": 1}, {"a": 1.0}, "b", "a"),
        ({"a": 1, "b": 2, "c": 3, "d": 4}, {}, "e", "a, b, c"),  # the first few
        ({}, {"s.a": 1}, "s.a", ""),
        ({"s": None}, {"s.a": 1}, "s.a", ""),  # the section comes with its key
        ({"s.a": 1}, {"s.a": 2}, "s", ""),
        ({"s.ab": 1}, {"s.ab": 2}, "s.a", "s.ab"),
    ],
)
def test_what_an_edit_changes_besides_is_told(
    before: dict[str, Any], after: dict[str, Any], edited: str, others: str
) -> None:
    launches: Any = [SimpleNamespace(leaves={"train.yaml": leaves}) for leaves in (before, after)]
    told = lost(*launches, [FlagChange(flag=edited, before="1", after="2")])
    assert told == (f"it would change {others} too; make it by hand" if others else "")


@pytest.mark.parametrize("changes", [{"zero_stage": 0}, {"zero_stage": 1}, {"sequence_parallel": True}, {"shard": 2}])
def test_what_gains_nothing_is_taken_back(changes: dict[str, Any]) -> None:
    """Where the step is as fast without it, and fits."""
    (name,) = changes
    runs = replace(QUESTION.plan, **{name: 1 - changes[name] if name == "zero_stage" else 0})
    question = replace(QUESTION, plan=runs)
    before, after = state_of(question, runs), state_of(question, replace(runs, **changes))
    back = before.fits and before.estimate.step_time <= after.estimate.step_time * (1 + SPARED)
    spared = _spared(question, after)
    assert getattr(spared.plan, name) == getattr(runs if back else after.plan, name)
    assert spared.estimate.step_time <= after.estimate.step_time * (1 + SPARED)


def test_a_step_that_is_as_good_as_fast_is_no_worse() -> None:
    def other(share: float, memory: float = 0.5) -> State:
        own = {"step_time": share * NOW.estimate.step_time, "reserved": memory * NOW.job.usable_memory}
        return replace(NOW, estimate=replace(NOW.estimate, **own))

    for share, memory, taken in (
        (0.9, 0.5, True),
        (1 + SPARED / 2, 0.5, True),
        (1 + 2 * SPARED, 0.5, False),
        (0.9, 1.1, False),
    ):
        found = other(share, memory)
        assert (_no_worse(NOW, found) is found) is taken


@pytest.mark.parametrize("most", [1, 2])
def test_neighbours_are_all_plans_that_differ_in_so_many_settings(most: int) -> None:
    near, counts = neighbours(QUESTION.job, QUESTION.plan, most)
    bare = replace(QUESTION.plan, layers_per_stage=())
    assert {*counts.tolist()} == {*range(1, most + 1)}
    assert distances(bare, near).tolist() == counts.tolist()
    every = Plans.joined(list(_spaces(QUESTION.job, QUESTION.plan)))
    far = distances(QUESTION.plan, every)
    assert len(near) == int(((far > 0) & (far <= most)).sum())
    stages = [(plan.pp, plan.vpp) == (bare.pp, bare.vpp) for plan in near.plans()]
    assert any(stages)
    assert [plan.layers_per_stage == QUESTION.plan.layers_per_stage for plan in near.plans()] == stages


@pytest.mark.parametrize(("tp", "always", "kept"), [(1, False, True), (2, False, False), (2, True, True)])
def test_sequences_stay_split_where_nothing_else_is_possible(
    tp: int, always: bool, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without tensor parallelism, or by a program that always does so, it is no change of its own."""
    asked: list[Plan] = []
    monkeypatch.setattr(edits_module, "_restated", lambda question, state, plan, settings: asked.append(plan) or state)
    runs = replace(QUESTION.plan, sequence_parallel=False)
    after = replace(NOW, plan=replace(runs, tp=tp, dp=64 // tp, sequence_parallel=True), settings={}, usual={})
    framework = replace(QUESTION.framework, sequence_parallel=always)
    _spared(replace(QUESTION, plan=runs, framework=framework), after)
    assert (asked == []) is kept
