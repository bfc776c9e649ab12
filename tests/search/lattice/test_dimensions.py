"""Schedules, sharding groups and number formats are dimensions where software and device have them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.base.errors import InputError
from optimizer.catalog import load_stack
from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import SCHEDULES, Plan, Plans
from optimizer.job.recomputation import MODULES, RECOMPUTE
from optimizer.job.stack import Features
from optimizer.objectives.step.price import price
from optimizer.search.infeasible.conflict import conflict
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.plan.planner import plan
from optimizer.search.plan.precision import best_format, formats_of
from tests.search.jobs import MIXTURE, ZERO_BUBBLE, small_job

SHARDED = Features(zero_stages=(0, 1, 2, 3))
WITHOUT_BUBBLES = Features(schedules=("1f1b", "interleaved", *ZERO_BUBBLE))


def space(job: Job) -> Plans:
    return Plans.joined(list(lattice(job, structural(job))))


def test_zero_bubble_schedules_widen_the_lattice_only_where_they_are_offered() -> None:
    plain, wider = space(small_job(8, bubble=1.0)), space(small_job(8, features=WITHOUT_BUBBLES, bubble=1.0))
    assert set(np.unique(plain.schedule)) == {SCHEDULES.index("1f1b"), SCHEDULES.index("interleaved")}
    assert set(np.unique(wider.schedule)) == {SCHEDULES.index(name) for name in WITHOUT_BUBBLES.schedules}
    deep = np.sum((plain.pp > 1) & (plain.vpp == 1))
    assert len(wider) == len(plain) + 2 * deep


def test_zero_bubble_schedules_pass_a_ceiling_that_1f1b_breaks() -> None:
    """Of a bubble of 3 / (4 + 3) ZB-H1 leaves 1 / (4 + 1), ZB-2p nothing."""
    fixed = {"pp": 4, "tp": 2, "vpp": 1, "micro_batch": 12}
    found = space(small_job(8, features=WITHOUT_BUBBLES, bubble=0.2, fixed=fixed))
    assert set(np.unique(found.schedule)) == {SCHEDULES.index(name) for name in ZERO_BUBBLE}


def test_a_schedule_can_be_pinned() -> None:
    found = space(small_job(8, features=WITHOUT_BUBBLES, bubble=1.0, fixed={"schedule": "zero-bubble"}))
    assert set(np.unique(found.schedule)) == {SCHEDULES.index("zero-bubble")}
    assert found.pp.min() > 1


def test_activations_go_to_the_host_where_it_is_asked_for_and_offered() -> None:
    able = Features(activation_offload=True)
    assert not np.any(space(small_job(8, features=able)).activation_offload)
    asked = space(small_job(8, features=able, choices={"activation_offload": (0, 40)}))
    assert set(np.unique(asked.activation_offload)) == {0, 40}
    assert not np.any(asked.take(asked.recompute == RECOMPUTE.index("full")).activation_offload)
    ranged = space(small_job(8, features=able, ranges={"activation_offload": (20, 80)}))
    assert set(np.unique(ranged.activation_offload)) == {20, 25, 50, 75, 80}
    unable = small_job(8, fixed={"activation_offload": 50})
    assert not list(lattice(unable, structural(unable)))


def test_sets_of_modules_are_few_unless_others_are_asked_for() -> None:
    able = Features(recompute_modules=MODULES)
    found = {RECOMPUTE[code] for code in np.unique(space(small_job(8, model=MIXTURE, features=able)).recompute)}
    assert {"none", "full", "layernorm+moe_act"} <= found
    asked = small_job(8, model=MIXTURE, features=able, choices={"recompute": ("none", "core_attn+shared_experts")})
    assert {RECOMPUTE[code] for code in np.unique(space(asked).recompute)} == {"none", "core_attn+shared_experts"}
    refused = small_job(8, features=able, fixed={"recompute": "moe_act"})
    assert {clash.rule for clash in conflict(refused)} == {"recompute", "fix recompute=moe_act"}


def test_groups_are_a_node_s_unless_others_are_asked_for() -> None:
    found = space(small_job(16, features=SHARDED))
    grouped = found.take(found.shard > 0)
    assert len(grouped) > 0
    assert set((grouped.shard * grouped.tp).tolist()) == {8}
    assert set(grouped.zero_stage.tolist()) == {3}
    asked = space(small_job(16, features=SHARDED, ranges={"shard": (2, 4)}))
    assert set(np.unique(asked.shard)) == {2, 4}
    assert set(np.unique(asked.zero_stage)) == {1, 2, 3}


def test_a_group_gathers_faster_and_holds_more(gpt3_job: Job) -> None:
    job = replace(gpt3_job, stack=replace(load_stack("torchtitan-2024"), features=SHARDED))
    whole = Plan(tp=8, dp=128, num_microbatches=12, sequence_parallel=True, zero_stage=3)
    costs = price(job, Plans.of([whole, replace(whole, tp=2, dp=512, num_microbatches=3, shard=4)]))
    wide = price(job, Plans.of([replace(whole, tp=2, dp=512, num_microbatches=3)]))
    assert costs.memory["weights"][1] > wide.memory["weights"][0]
    assert costs.time["dp_communication"][1] < wide.time["dp_communication"][0]
    assert costs.time["dp_communication"][1] > 0


def test_the_fastest_format_answers_for_all(gpt3_job: Job) -> None:
    formats = formats_of("any", gpt3_job)
    assert formats == ("bf16", "fp8")
    answer = best_format(gpt3_job, formats, lambda job: plan(job, top=1, trials=0))
    (other,) = answer.formats
    assert (answer.job.dtype, other.dtype, answer.status) == ("fp8", "bf16", "optimal")
    assert other.slower > 0.1
    assert answer.certificate is not None
    alone = plan(gpt3_job, top=1, trials=0).certificate
    assert alone is not None
    assert answer.certificate.space == 2 * alone.space
    assert answer.certificate.lower_bound < alone.lower_bound
    assert answer.to_dict()["formats"][0]["estimate"]["step_time_s"] == pytest.approx(alone.best)


def test_unknown_formats_are_named(gpt3_job: Job) -> None:
    assert formats_of("fp8,bf16,fp8", gpt3_job) == ("fp8", "bf16")
    with pytest.raises(InputError, match="unknown dtype int4"):
        formats_of("bf16,int4", gpt3_job)


def test_the_exchange_overlaps_where_the_stack_offers_it_and_micro_batches_can_pair() -> None:
    able = Features(offers_overlap=True, recompute=("none", "full"))
    assert not np.any(space(small_job(8, features=able)).overlap_exchange)
    assert not np.any(space(small_job(8, model=MIXTURE)).overlap_exchange)
    plans = space(small_job(8, model=MIXTURE, features=able))
    on = plans.take(plans.overlap_exchange)
    assert len(on)
    assert np.all((on.ep > 1) & ((on.pp == 1) | (on.vpp > 1)))
    assert not np.any(on.recompute == RECOMPUTE.index("full"))
    # whatever may overlap is in both ways
    off = plans.take(~plans.overlap_exchange)
    may = (off.ep > 1) & ((off.pp == 1) | (off.vpp > 1)) & (off.recompute != RECOMPUTE.index("full"))
    assert int(may.sum()) == len(on)
    pinned = space(small_job(8, model=MIXTURE, features=able, fixed={"overlap_exchange": True}))
    assert len(pinned) == len(on)
