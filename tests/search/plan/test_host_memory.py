"""Optimizer state lies on the host only as far as its memory goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.job import Job
from optimizer.objectives.layer.bill import bill_of
from optimizer.objectives.step.host_room import host_room, most_offload, on_host
from optimizer.plan import Knobs, Plan, Plans
from optimizer.presets import load_cluster, load_model, load_stack
from optimizer.search.check.plan_rules import rule_findings
from optimizer.search.lattice.knobs import columns
from optimizer.search.plan.planner import plan


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
    return float(on_host(bill_of(job, Plans.of([one])), knobs)[0])


@pytest.mark.parametrize(
    ("model", "gpus", "hbm"), [("llama3-8b", 8, 22e9), ("mixtral-8x7b", 16, 40e9), ("llama3-70b", 16, 60e9)]
)
def test_no_answer_keeps_more_there_than_there_is(model: str, gpus: int, hbm: float) -> None:
    """Half of what the free answer keeps on the host is given: what is found then is no faster and stays within it."""
    free = plan(asked(model, gpus, hbm, 0.0), trials=0, top=1)
    assert free.plan is not None
    assert free.knobs.offload > 0
    needed = kept(free.job, free.plan, free.knobs)
    tight = asked(model, gpus, hbm, 8 * needed / 2 / 0.8)
    assert host_room(tight) == pytest.approx(needed / 2)
    found = plan(tight, trials=0, top=1)
    if found.plan is None:
        assert found.status == "infeasible"
        assert any("host" in clash.reason for clash in found.conflict)
        return
    assert found.estimate is not None
    assert free.estimate is not None
    assert kept(tight, found.plan, found.knobs) <= needed / 2 * (1 + 1e-9)
    assert found.estimate.step_time >= free.estimate.step_time * (1 - 1e-9)


def test_room_enough_changes_nothing() -> None:
    job = asked("llama3-8b", 8, 22e9, 0.0)
    free, roomy = (
        plan(replace(job, cluster=replace(job.cluster, host_memory=each)), trials=0, top=1) for each in (0.0, 2e12)
    )
    assert (free.plan, free.knobs) == (roomy.plan, roomy.knobs)


@pytest.mark.parametrize("model", ["gpt3", "mixtral-8x7b"])
def test_more_memory_on_the_device_leaves_as_much_room_there(model: str) -> None:
    job = asked(model, 16, 60e9, 5e11)
    plans = Plans.of([Plan(tp=8, dp=2), Plan(tp=8, pp=2, dp=1), Plan(tp=4, pp=4, dp=1, zero_stage=0)])
    shares = [most_offload(bill_of(job.with_limits(hbm=hbm), plans)) for hbm in (40e9, 80e9, 160e9)]
    assert np.array_equal(shares[0], shares[1])
    assert np.array_equal(shares[1], shares[2])
    assert np.all(shares[0] > 0)
    assert shares[0][-1] < 1
    kept = on_host(bill_of(job, plans), replace(columns(Knobs(), 3), offload=shares[0]))
    assert np.all(kept <= host_room(job))


def test_a_plan_that_keeps_more_there_is_found_out() -> None:
    job = asked("llama3-8b", 8, 40e9, 1e11)
    one = Plan(tp=8, dp=1, micro_batch=1, num_microbatches=64, sequence_parallel=True)
    findings = {f.name: f.holds for f in rule_findings(job, one, Knobs(offload=1.0))}
    assert findings["host-memory"] is False
    assert "host-memory" not in {f.name for f in rule_findings(job, one, Knobs())}
