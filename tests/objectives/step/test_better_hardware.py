"""Hardware that is better in one thing never makes a plan slower, nor one that fits too large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.hardware import Cluster
from optimizer.job import Job
from optimizer.objectives.step.price import price
from optimizer.plan import Knobs, Plan, Plans
from tests.objectives.drawn import jobs, knobs, plans

Better = Callable[[Cluster, float], Cluster]


def faster_memory(cluster: Cluster, times: float) -> Cluster:
    device = replace(cluster.device, memory_bandwidth=cluster.device.memory_bandwidth * times)
    return replace(cluster, device=device)


def higher_peak(cluster: Cluster, times: float) -> Cluster:
    """More FLOP/s from as many SMs; what a sweep measured stays."""
    peaks = {dtype: peak * times for dtype, peak in cluster.device.peak_flops.items()}
    return replace(cluster, device=replace(cluster.device, peak_flops=peaks))


def more_memory(cluster: Cluster, times: float) -> Cluster:
    return replace(cluster, device=replace(cluster.device, memory=cluster.device.memory * times))


def faster_host(cluster: Cluster, times: float) -> Cluster:
    return replace(cluster, host_bandwidth=cluster.host_bandwidth * times)


def faster_tier(number: int) -> Better:
    """The same latency, another bandwidth."""

    def better(cluster: Cluster, times: float) -> Cluster:
        tiers = list(cluster.tiers)
        at = min(number, len(tiers) - 1)
        link = tiers[at].link
        tiers[at] = replace(tiers[at], link=link.scaled(link.bandwidth * times))
        return replace(cluster, tiers=tuple(tiers))

    return better


BETTER = {
    "peak": higher_peak,
    "memory bandwidth": faster_memory,
    "memory": more_memory,
    "host link": faster_host,
    "scale-up": faster_tier(0),
    "network": faster_tier(1),
    "spine": faster_tier(2),
}


@pytest.mark.parametrize("what", BETTER)
@settings(max_examples=60)
@given(job=jobs(), plan=plans(), settings_of=knobs(), times=st.floats(1.001, 4.0))
def test_no_plan_loses(what: str, job: Job, plan: Plan, settings_of: Knobs, times: float) -> None:
    more = replace(job, cluster=BETTER[what](job.cluster, times))
    before, after = (price(each, Plans.of([plan]), settings_of) for each in (job, more))
    assert after.step_time[0] <= before.step_time[0] * (1 + 1e-9)
    assert after.reserved[0] - more.usable_memory <= before.reserved[0] - job.usable_memory + 1.0
