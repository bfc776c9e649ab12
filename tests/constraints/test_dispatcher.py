"""Dispatchers over the groups of ranks that their kernels are written for."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.constraints.rules.dispatcher import OfferedDispatcher
from optimizer.constraints.rules.every import structural
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.job.variables import DISPATCHERS
from optimizer.objectives.layer.dispatchers import DEEPEP_RANKS
from optimizer.search.lattice.enumerate import lattice
from optimizer.search.plan.planner import plan


def job(model: str = "deepseek-v3", gpus: int = 256, **fixed: int | str) -> Job:
    found = Job(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        stack=load_stack("megatron-core"),
        gpus=gpus,
        seq_len=4096,
        global_batch=1024,
    )
    return found.with_limits(fixed=fixed)


def test_every_group_of_a_lattice_has_kernels_and_none_is_lost() -> None:
    question = job(pp=1, tp=1)
    plans = Plans.joined(list(lattice(question, structural(question))))
    deepep = plans.dispatcher == DISPATCHERS.index("deepep")
    ranks = plans.ep * plans.etp
    assert deepep.any()
    assert set(ranks[deepep].tolist()) <= set(DEEPEP_RANKS)
    assert 256 in ranks[~deepep]


@pytest.mark.parametrize(("dispatcher", "holds"), [("deepep", False), ("hybridep", True), ("alltoall", True)])
def test_deepep_has_no_settings_for_256_ranks(dispatcher: str, holds: bool) -> None:
    plans = Plans.of([Plan(dp=256, ep=256, num_microbatches=4, dispatcher=dispatcher)])
    assert OfferedDispatcher().check(job(), plans).tolist() == [holds]


def test_deepseek_v2_lite_on_h100_has_every_dispatcher() -> None:
    """64 experts, 2,048 wide: HybridEP's published rates are of H100, and DeepEP runs over 8 and 64 of them."""
    for ranks in (2, 4, 8, 16, 32, 64):
        plans = Plans.of([Plan(dp=64, ep=ranks, num_microbatches=16, dispatcher=name) for name in DISPATCHERS])
        assert np.all(OfferedDispatcher().check(job("deepseek-v2-lite", 64), plans))


def test_a_pin_on_what_has_no_kernels_says_so() -> None:
    found = plan(job(ep=256, dispatcher="deepep"), trials=0, top=1)
    assert found.plan is None
    assert any("DeepEP over 2, 4, 8, 16" in clash.reason for clash in found.conflict)


@pytest.mark.parametrize("dispatcher", DISPATCHERS)
def test_where_nothing_travels_it_is_all_to_all_by_name(dispatcher: str) -> None:
    plans = Plans.of([Plan(dp=256, num_microbatches=4, dispatcher=dispatcher)])
    assert OfferedDispatcher().check(job(), plans).tolist() == [dispatcher == "alltoall"]
