"""Every model preset is planned on a cluster that holds it: dense, MoE and MLA alike."""

from __future__ import annotations

from functools import cache

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack, model_names
from optimizer.job.hardware import Cluster
from optimizer.job.job import Job, Limits
from optimizer.objectives.step.safe_memory import safe_memory
from optimizer.search.plan.planner import plan
from tests.thorough import sampled

BYTES_PER_PARAMETER = 18
# 108 layers of three kinds: hundreds of programs of layouts stay open, so that a minute proves nothing.
OPEN = {"nemotron-3-ultra-550b-a55b": 15.0}  # seconds after which its answer counts with a gap
NAMES = sampled(model_names(), 8)
READ_TWICE = sampled(NAMES, 2)  # also by CP-SAT, under its own reading of the rules


@cache
def cluster() -> Cluster:
    return load_cluster("h100")


def fitting_gpus(params: int) -> int:
    """A power of two of GPUs whose memory holds the states three times."""
    needed = 3 * BYTES_PER_PARAMETER * params / cluster().device.memory
    return max(8, 1 << (int(needed) - 1).bit_length())


@pytest.mark.parametrize("name", NAMES)
def test_a_fitting_plan_is_found_and_proven(name: str) -> None:
    model = load_model(name)
    gpus = fitting_gpus(model.params)
    job = Job(
        model=model,
        cluster=cluster(),
        stack=load_stack("megatron-core"),
        gpus=gpus,
        seq_len=min(model.max_seq_len, 2048),
        global_batch=16 * gpus,
        limits=Limits(vocab_padding=0.5, max_micro_batch=2, max_vpp=1),
    )
    limit = OPEN.get(name)
    answer = plan(job, top=0, trials=0, priced_risk=False, read_twice=name in READ_TWICE, time_limit=limit)
    assert answer.status in ("optimal", *("feasible",) * (limit is not None)), answer.conflict
    assert answer.plan is not None
    assert answer.estimate is not None
    assert answer.plan.gpus == gpus
    assert sum(answer.plan.layers_per_stage) == model.layers
    assert answer.estimate.reserved <= safe_memory(job)
    assert 0.02 < answer.estimate.mfu < 0.75
