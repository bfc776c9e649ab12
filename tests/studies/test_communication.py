"""Volumes, hops and energy by hand, and the rooflines of a layer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.job.hardware import Cluster, Link, Tier
from optimizer.job.job import Job
from optimizer.job.plan import Knobs, Plan
from optimizer.reports.render.screen import screen_text
from optimizer.studies.communication import CommunicationStudy, communication
from optimizer.studies.communication_report import communication_report

FAST = Link(name="inside", bandwidth=100e9, latency=1e-6, energy=5e-12)
SLOW = Link(name="outside", bandwidth=25e9, latency=4e-6, energy=25e-12)


@pytest.fixture
def round_job(llama_job: Job) -> Job:
    """The job on links with round numbers."""
    tiers = (Tier(name="node", link=FAST, size=8), Tier(name="network", link=SLOW, size=1024))
    cluster: Cluster = replace(llama_job.cluster, tiers=tiers)
    return replace(llama_job, cluster=cluster)


@pytest.fixture
def plain(round_job: Job) -> CommunicationStudy:
    """Data parallelism over two nodes, all gradients in one message."""
    return communication(round_job, Plan(dp=16, num_microbatches=4, zero_stage=0), Knobs(bucket=1e12))


def test_volume_of_an_all_reduce(plain: CommunicationStudy) -> None:
    """15/16 of the message, twice, from each of 16 GPUs."""
    (row,) = plain.rows
    assert row.sent == pytest.approx(2 * 15 / 16 * row.traffic.message)
    assert row.volume_per_step == row.sent
    assert row.total_volume == pytest.approx(16 * row.sent)


def test_hops_and_energy(plain: CommunicationStudy) -> None:
    """30 steps x (14 neighbours inside + 2 across); across: two links inside and one outside."""
    (row,) = plain.rows
    inside, outside = row.path
    part = row.traffic.message / 16
    assert (inside.traversals, outside.traversals) == (30 * (14 + 2 * 2), 30 * 2)
    assert inside.message == outside.message == part
    assert outside.latency == pytest.approx(4e-6 + part / 25e9)
    assert outside.volume == pytest.approx(60 * part)
    assert row.energy == pytest.approx(8 * part * (540 * 5e-12 + 60 * 25e-12))
    assert plain.energy == pytest.approx(row.energy)
    assert row.outermost == 1


@pytest.mark.parametrize(
    "plan",
    [
        Plan(tp=8, dp=2, num_microbatches=32),
        Plan(tp=4, cp=2, pp=2, num_microbatches=64, sequence_parallel=True),
        Plan(dp=16, num_microbatches=4, zero_stage=3),
    ],
)
def test_what_a_gpu_sends_by_tier_adds_up(round_job: Job, plan: Plan) -> None:
    for row in communication(round_job, plan).rows:
        assert sum(hop.sent for hop in row.path) == pytest.approx(row.sent)


def test_a_message_between_stages_on_two_nodes(round_job: Job) -> None:
    study = communication(round_job, Plan(tp=8, pp=2, num_microbatches=64))
    (send,) = study.of("pp")
    assert [hop.traversals for hop in send.path] == [2, 1]
    assert [hop.sent for hop in send.path] == [0, send.traffic.message]
    assert study.parallelisms == ("tp", "pp")


def test_roofline_of_a_layer(round_job: Job) -> None:
    """The FLOPs of LLaMA-3's layer by hand: 3 x 2 x 218,103,808 weights x 2,048 tokens, and causal scores."""
    layer = communication(round_job, Plan(dp=16, num_microbatches=4)).layer
    weights = round_job.model.attention_weights + 3 * 4096 * 14336
    scores = 3.5 * 2 * 32 * 2048**2 * 256 * (2049 / 4096)
    assert layer.flops == pytest.approx(6 * weights * 2048 + scores)
    assert layer.memory_ridge == pytest.approx(989.5e12 / 3.35e12, rel=0.01)
    assert layer.network_ridge == pytest.approx(989.5e12 / layer.network_bandwidth)
    assert layer.attainable <= layer.peak


def test_what_is_sent_once_per_step_is_shared_by_the_micro_batches(round_job: Job) -> None:
    few = communication(round_job, Plan(dp=16, num_microbatches=4)).layer
    many = communication(replace(round_job, global_batch=128), Plan(dp=16, num_microbatches=8)).layer
    assert many.network_intensity == pytest.approx(2 * few.network_intensity)


def test_a_layer_that_sends_nothing(round_job: Job) -> None:
    study = communication(replace(round_job, gpus=1), Plan(num_microbatches=64))
    assert study.rows == ()
    assert study.layer.network_intensity == float("inf")
    assert study.layer.bound in ("compute", "memory")
    assert study.communication_time == study.energy == 0


def test_tensor_parallelism_across_nodes_is_bound_by_the_network(round_job: Job) -> None:
    layer = communication(round_job, Plan(tp=16, num_microbatches=64)).layer
    assert layer.bound == "network"
    assert layer.attainable == pytest.approx(layer.network_intensity * layer.network_bandwidth)


def test_what_a_step_is_made_of_adds_up(llama_job: Job) -> None:
    """Compute, communication that shows, and all else, which the report names."""
    study = communication(llama_job, Plan(tp=2, pp=4, dp=2, num_microbatches=32, zero_stage=1))
    parts = study.compute_time + study.exposed_time + sum(study.other_times.values())
    assert parts == pytest.approx(study.estimate.step_time)
    assert {"bubble", "optimizer", "overhead"} <= study.other_times.keys()
    text = " ".join(screen_text(communication_report(study)).split())
    assert "of all else (pipeline bubble" in text or "of all else (step overhead" in text


def test_collectives_of_one_name_are_told_apart_by_their_number(llama_job: Job) -> None:
    study = communication(llama_job, Plan(dp=16, num_microbatches=4, zero_stage=3))
    text = screen_text(communication_report(study), width=120)
    last = len(study.rows)
    assert last > 2
    numbered = [line for line in text.splitlines() if line.split()[:2] == [str(last), "DP"]]
    assert len(numbered) == 2 + sum(hop.traversals > 0 for hop in study.rows[-1].path)


def test_a_layer_sends_nothing_of_the_embedding_and_the_head(llama_job: Job) -> None:
    rows = communication(llama_job, Plan(dp=16, num_microbatches=4, zero_stage=3)).rows
    ends = [row for row in rows if " of the " in row.traffic.purpose]
    assert {row.traffic.per_layer for row in ends} == {0.0}
    assert all(row.total_volume > 0 for row in ends)
