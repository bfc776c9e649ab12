"""Collectives on TPU tori: the scaling book's worked answers and profile, and loads of links counted one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.catalog.hardware import load_cluster
from optimizer.job.hardware import Cluster, Tier
from optimizer.objectives.network.collectives import collective_time
from optimizer.objectives.network.topology import span
from optimizer.objectives.network.torus import is_torus, torus_axes, torus_detour, torus_rate, torus_steps


def pod(name: str, chips: int = 0) -> Cluster:
    """A pod without the network around it, or a slice of so many chips."""
    cluster = load_cluster(name)
    return replace(cluster, tiers=(replace(cluster.scale_up, size=chips or cluster.scale_up_size),))


def tier(name: str, chips: int = 0) -> Tier:
    return pod(name, chips).scale_up


def seconds(kind: str, message: float, ranks: int, cluster: Cluster) -> float:
    return float(collective_time(kind, message, span(cluster, ranks, 1), cluster))


@pytest.mark.parametrize(
    ("ranks", "message", "expected"), [(4, 2 * 1024 * 4096 / 4, 23e-6), (16, 2 * 1024 * 4096, 46e-6)]
)
def test_all_gathers_over_one_and_two_axes_of_a_cube(ranks: int, message: float, expected: float) -> None:
    """TPU v4, 4 x 4 x 4 chips: 23 us over X, 46 us over X and Y (scaling book, sharding, question 2)."""
    assert message / float(torus_rate(ranks, tier("tpu-v4", 64))) == pytest.approx(expected, rel=0.02)


def test_a_row_of_four_without_a_ring_as_profiled() -> None:
    """TPU v5e, 2048 x 8192 bf16 over an axis of 4: 560 us by its links, 680 us in the profile (pop quiz 2)."""
    assert seconds("all_gather", 2048 * 8192 * 2, 4, pod("tpu-v5e")) == pytest.approx(680e-6, rel=0.1)


def test_an_all_to_all_costs_a_quarter_of_an_all_gather() -> None:
    """On a ring, for the same array over all ranks: V / 4 / bandwidth against V (n - 1) / n / bandwidth."""
    array, ranks, ring = 16e9, 16, tier("tpu-v4")
    gather = array * (ranks - 1) / ranks / float(torus_rate(ranks, ring))
    own = array / ranks
    exchange = own * (ranks - 1) / ranks * float(torus_detour(ranks, ring)) / float(torus_rate(ranks, ring))
    assert exchange / gather == pytest.approx(0.25 * ranks / (ranks - 1))


def test_the_dimensions_of_a_plan_share_the_axes_of_the_pod() -> None:
    whole = tier("tpu-v4")
    assert float(torus_axes(16, whole) + torus_axes(256, whole)) == pytest.approx(3.0)
    assert float(torus_axes(4096, whole)) == pytest.approx(3.0)


def test_rings_close_from_four_chips_on_training_pods_and_from_sixteen_on_the_others() -> None:
    assert torus_rate([2, 4], tier("tpu-v5p")).tolist() == [90e9, 180e9]
    assert torus_rate([2, 8, 16], tier("tpu-v6e")).tolist() == [90e9, 90e9, 180e9]
    assert torus_steps([2, 8, 16], tier("tpu-v6e")).tolist() == [1, 7, 8]


def load_of_the_busiest_link(sides: tuple[int, ...], closed: bool) -> float:
    """Pairs of ranks that the busiest link carries one way, by shortest paths one axis after the other.

    Paths of half a ring go both ways round in halves.
    """
    loads: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
    for source, target in product(product(*map(range, sides)), repeat=2):
        here = source
        for axis, side in enumerate(sides):
            distance = (target[axis] - here[axis]) % side if closed else target[axis] - here[axis]
            ways = [distance] if not closed else [d for d in (distance, distance - side) if 2 * abs(d) <= side]
            for way in ways:
                step = 1 if way > 0 else -1
                path = [(*here[:axis], (here[axis] + i * step) % side, *here[axis + 1 :]) for i in range(abs(way) + 1)]
                for link in pairwise(path):
                    loads[link] += 2 // len(ways)
            here = (*here[:axis], target[axis], *here[axis + 1 :])
    return max(loads.values()) / 2


@pytest.mark.parametrize(
    ("sides", "name"),
    [
        ((4,), "tpu-v4"),
        ((8,), "tpu-v4"),
        ((16,), "tpu-v5e"),
        ((4, 4), "tpu-v4"),
        ((4, 4, 4), "tpu-v4"),
        ((8,), "tpu-v5e"),
    ],
)
def test_all_to_alls_wait_for_the_busiest_link(sides: tuple[int, ...], name: str) -> None:
    ranks = 1
    for side in sides:
        ranks *= side
    torus = tier(name, 64 if name == "tpu-v4" and ranks != 8 else 0)
    busiest = load_of_the_busiest_link(sides, closed=float(torus_axes(ranks, torus)) >= 1.0)
    by_links = busiest / ranks / torus.link.pair_bandwidth  # seconds per byte that each rank sends
    formula = (ranks - 1) / ranks * float(torus_detour(ranks, torus)) / float(torus_rate(ranks, torus))
    assert formula == pytest.approx(by_links)


@given(ranks=st.integers(1, 4096), more=st.integers(0, 4096), name=st.sampled_from(["tpu-v4", "tpu-v5e", "tpu-v7"]))
def test_larger_groups_have_no_fewer_links_and_no_fewer_bytes_to_move(ranks: int, more: int, name: str) -> None:
    torus = tier(name)
    fewer, larger = torus_rate([ranks, ranks + more], torus)
    assert torus.link.pair_bandwidth <= fewer <= larger <= torus.link.bandwidth
    assert torus_steps(ranks, torus) >= 0
    assert torus_detour(ranks, torus) >= 1


def test_neighbours_use_one_link() -> None:
    """9 GB over 90 GB/s take 100 ms at best; at most 25 % more is lost to protocols."""
    assert 0.1 < float(collective_time("point_to_point", 9e9, span(pod("tpu-v5p"), 2, 1), pod("tpu-v5p"))) < 0.125


def test_a_torus_of_unknown_axes_stays_one_ring() -> None:
    ring = tier("tpu-v4")
    unknown = replace(ring, link=replace(ring.link, quantities={}))
    assert (is_torus(ring), is_torus(unknown)) == (True, False)
    assert not is_torus(load_cluster("h100").scale_up)
