"""Networks as people write them, and whether they are the bottleneck."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.base.errors import InputError, UnknownName
from optimizer.job.job import Job
from optimizer.job.plan import Plan
from optimizer.studies.networks import bottleneck, network, network_level, on_network

DATA_PARALLEL = Plan(dp=16, num_microbatches=4)


def test_links_ports_and_bandwidths(llama_job: Job) -> None:
    """One port of HDR is 25 GB/s; an eighth of one 3.125 GB/s; 800 Gb/s are 100 GB/s."""
    found = {text: network(text, llama_job) for text in ("infiniband-hdr", "infiniband-hdr:0.125", "800Gb/s")}
    assert [one.link.bandwidth for one in found.values()] == [25e9, 3.125e9, 100e9]
    assert found["infiniband-hdr:0.125"].name == "infiniband-hdr × 0.125"
    assert found["800Gb/s"].name == "100 GB/s per GPU"
    assert found["800Gb/s"].link.name == llama_job.cluster.tiers[1].link.name


@pytest.mark.parametrize("text", ["infiniband-hdr:", "infiniband-hdr:none", "infiniband-hdr:-1", "infiniband-hdr:nan"])
def test_ports_that_are_no_number(llama_job: Job, text: str) -> None:
    with pytest.raises(InputError, match="number of ports per GPU"):
        network(text, llama_job)


def test_unknown_networks(llama_job: Job) -> None:
    with pytest.raises(UnknownName, match="infiniband-ndr"):
        network("infiniband-nrd", llama_job)
    with pytest.raises(InputError, match=r"expected a quantity in \[B/s\]"):
        network("80 GB", llama_job)
    with pytest.raises(InputError, match="must be positive"):
        network("0 GB/s", llama_job)


def test_the_network_is_what_the_job_leaves_its_domain_by(llama_job: Job) -> None:
    link = network("infiniband-edr", llama_job).link
    assert network_level(llama_job) == 1
    assert [tier.link.name for tier in on_network(llama_job, link).cluster.tiers] == [
        llama_job.cluster.tiers[0].link.name,
        *["infiniband-edr"] * (len(llama_job.cluster.tiers) - 1),
    ]
    inside = replace(llama_job, gpus=8)
    assert network_level(inside) == 0
    assert on_network(inside, link).cluster.tiers[0].link.name == "infiniband-edr"


def test_faster_networks_are_no_slower(llama_job: Job) -> None:
    verdicts = bottleneck(llama_job, DATA_PARALLEL, [network(f"{rate} Gb/s", llama_job) for rate in (25, 100, 400)])
    crossing = [verdict.communication for verdict in verdicts]
    assert crossing == sorted(crossing, reverse=True)
    assert len({verdict.compute for verdict in verdicts}) == 1
    assert [v.mfu for v in verdicts] == sorted(v.mfu for v in verdicts)


def test_the_bandwidth_needed_makes_communication_equal_to_compute(llama_job: Job) -> None:
    (slow,) = bottleneck(llama_job, DATA_PARALLEL, [network("10 Gb/s", llama_job)])
    assert slow.bottleneck
    (enough,) = bottleneck(llama_job, DATA_PARALLEL, [network(f"{slow.needed:.0f} B/s", llama_job)])
    assert enough.communication == pytest.approx(enough.compute, rel=1e-3)
    assert slow.needed == pytest.approx(enough.needed, rel=1e-6)


def test_a_plan_that_stays_inside_needs_nothing(llama_job: Job) -> None:
    job = replace(llama_job, global_batch=1)
    (verdict,) = bottleneck(job, Plan(tp=8, num_microbatches=1), [network("10 Gb/s", job)])
    assert (verdict.communication, verdict.needed, verdict.bottleneck) == (0, 0, False)


def test_latency_that_no_bandwidth_mends(llama_job: Job) -> None:
    """Tensor parallelism across nodes with a millisecond per hop: 8,192 all-reduces take longer than the products."""
    network_link = replace(network("infiniband-ndr", llama_job).link, name="far away", latency=1e-3)
    far = replace(network("infiniband-ndr", llama_job), link=network_link)
    (verdict,) = bottleneck(llama_job, Plan(tp=16, num_microbatches=64), [far])
    assert verdict.bottleneck
    assert verdict.needed == float("inf")
