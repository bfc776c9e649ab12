"""Where groups lie on the tiers of a cluster."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.job.hardware import Cluster, Device, Link, Tier
from optimizer.objectives.network.topology import span

LINK = Link(name="any", bandwidth=1e9, latency=1e-6)
DEVICE = Device(name="any", peak_flops={}, memory=0.0, memory_nominal=0.0, memory_bandwidth=0.0)


def cluster(*sizes: int) -> Cluster:
    tiers = tuple(Tier(name=f"tier{number}", link=LINK, size=size) for number, size in enumerate(sizes))
    return Cluster(name="any", device=DEVICE, tiers=tiers)


@pytest.mark.parametrize(
    ("size", "stride", "members", "nodes"),
    [
        (1, 1, [1, 1, 1], 1),
        (8, 1, [8, 8, 8], 1),
        (16, 1, [8, 16, 16], 2),  # tensor parallelism over two nodes
        (4, 2, [4, 4, 4], 1),
        (8, 8, [1, 8, 8], 8),  # data parallelism next to TP 8: its own NIC each
        (64, 4, [2, 64, 64], 32),
        (64, 8, [1, 32, 64], 64),  # leaf of 256 holds 32 of them
        (2, 512, [1, 1, 2], 2),
    ],
)
def test_members_by_tier(size: int, stride: int, members: list[int], nodes: int) -> None:
    found = span(cluster(8, 256, 4096), size, stride)
    assert [int(held) for held in found.members] == members
    assert int(found.domains(0)) == nodes
    assert bool(found.reachable)


def test_a_group_larger_than_the_cluster_is_not_reachable() -> None:
    assert not bool(span(cluster(8, 64), 16, 8).reachable)
    assert bool(span(cluster(8, 64), 8, 8).reachable)


def test_arguments_broadcast() -> None:
    found = span(cluster(8, 64), [[1], [4]], [1, 8])
    assert found.size.shape == (2, 2)
    assert found.members[0].tolist() == [[1, 1], [4, 1]]


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), max_size=40))
def test_patterns_give_back_every_group(groups: list[tuple[int, int]]) -> None:
    size, stride = np.array(groups, dtype=np.int64).reshape(-1, 2).T
    found = span(cluster(8, 256, 10**9), size, stride)
    distinct, index = found.patterns
    assert np.array_equal(distinct.size[index], found.size)
    for whole, part in zip(found.members, distinct.members, strict=True):
        assert np.array_equal(part[index], whole)
    keys = {
        tuple(int(column[row]) for column in (distinct.size, *distinct.members)) for row in range(distinct.size.size)
    }
    assert len(keys) == distinct.size.size
