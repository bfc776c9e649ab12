"""The share of a paged optimizer's moments that travels: what finds no room on the device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.catalog import load_cluster, load_model, load_stack
from optimizer.job.job import Job
from optimizer.job.plan import Plan, Plans
from optimizer.objectives.layer.layer_costs import layer_costs_of
from optimizer.objectives.step.paging import paged_share

FULL = Plan(recompute="full")


def paged(memory: float, plan: Plan = FULL) -> float:
    """The share on a device of so much memory [B], one for each stage."""
    cluster = load_cluster("dgx-h100")
    device = replace(cluster.device, memory=memory)
    job = Job(
        model=load_model("llama3.1-8b"),
        cluster=replace(cluster, device=device),
        stack=load_stack("hf-2026"),
        gpus=plan.pp,
        seq_len=1024,
        global_batch=plan.pp,
        optimizer="paged-adamw-8bit",
    )
    return float(paged_share(layer_costs_of(job, Plans.of([plan])))[0])


def test_the_share_falls_with_the_room_by_the_bytes_of_the_moments() -> None:
    """8.03 billion parameters have two moments of a byte and some scales each, 0.53 of them, the embedding, of fp32."""
    sizes = [gigabytes * 1e9 for gigabytes in range(20, 90, 2)]
    shares = [paged(size) for size in sizes]
    assert (shares[0], shares[-1]) == (1.0, 0.0)
    assert shares == sorted(shares, reverse=True)
    between = [place for place, share in enumerate(shares) if 0 < share < 1]
    assert len(between) >= 5
    falls = [shares[place] - shares[place + 1] for place in between[:-1]]
    assert falls == pytest.approx([falls[0]] * len(falls), rel=1e-6)
    assert 2e9 / falls[0] == pytest.approx(7.5e9 * 2.03 + 0.525e9 * 8, rel=0.01)


def test_stages_of_a_pipeline_page_all_of_theirs() -> None:
    assert paged(400e9) == 0.0
    assert paged(400e9, replace(FULL, pp=2)) == 1.0
