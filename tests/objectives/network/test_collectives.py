"""Collective times: by hand, by law, and against published measurements."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.base.errors import InputError
from optimizer.job.hardware import Cluster, Device, Link, Tier
from optimizer.objectives.network.algorithms import levels, lines
from optimizer.objectives.network.collectives import (
    KINDS,
    collective_time,
    ring_all_reduce_time,
    volume_per_rank,
)
from optimizer.objectives.network.energy import hops, network_energy
from optimizer.objectives.network.topology import span

DEVICE = Device(name="any", peak_flops={}, memory=0.0, memory_nominal=0.0, memory_bandwidth=0.0)
NVLINK3 = Link(name="nvlink3", bandwidth=300e9, latency=1e-6, energy=5e-12)
NVLINK4 = Link(name="nvlink4", bandwidth=450e9, latency=0.8e-6, energy=5e-12, in_switch_reduction=True)
NVLINK5 = Link(name="nvlink5", bandwidth=900e9, latency=0.6e-6, in_switch_reduction=True)
NDR = Link(name="infiniband-ndr", bandwidth=50e9, latency=2e-6, energy=25e-12, efficiency=0.96)


def cluster(inner: Link, outer: Link | None = None, node: int = 8, oversubscription: float = 1.0) -> Cluster:
    tiers = [Tier(name="node", link=inner, size=node)]
    if outer:
        tiers.append(Tier(name="network", link=outer, size=65536, oversubscription=oversubscription))
    return Cluster(name="any", device=DEVICE, tiers=tuple(tiers))


H100 = cluster(NVLINK4, NDR)


def busbw(kind: str, message: float, ranks: int, on: Cluster, stride: int = 1) -> float:
    time = collective_time(kind, message, span(on, ranks, stride), on)
    return float(volume_per_rank(kind, message, ranks) / time)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("all_reduce", 1.5e9),
        ("all_gather", 0.75e9),
        ("reduce_scatter", 0.75e9),
        ("all_to_all", 0.75e9),
        ("point_to_point", 1e9),
    ],
)
def test_volume_of_a_gigabyte_on_four_ranks(kind: str, expected: float) -> None:
    assert float(volume_per_rank(kind, 1e9, 4)) == pytest.approx(expected)


def test_textbook_ring_over_a_path_of_two_nvlinks_and_one_infiniband_link() -> None:
    """30 steps of 83.886 MB / 16, each as slow as the path across nodes: 6.713 ms."""
    alpha, beta = 2 * 0.2e-6 + 2e-6, 2 / 90e9 + 1 / 50e9
    assert float(ring_all_reduce_time(83.886e6, 16, alpha, beta)) == pytest.approx(6.713e-3, rel=1e-3)


def test_a_ring_by_hand() -> None:
    """1 GB all-gathered on 8 A100: 18.3 us + 7 x 11.1 us + 875 MB / (0.803 x 300 GB/s) + 125 MB / (1.38 x 300 GB/s)."""
    node = cluster(NVLINK3)
    by_hand = 18.3e-6 + 7 * 11.1e-6 + 0.875e9 / (0.803 * 300e9) + 0.125e9 / (1.38 * 300e9)
    assert float(collective_time("all_gather", 1e9, span(node, 8, 1), node)) == pytest.approx(by_hand, rel=1e-9)


def test_an_unknown_link_is_described_by_its_own_fields() -> None:
    """One rank in each of 2 nodes, 10 GB: 8.4 us + (14 + 5) us + 5 GB / (0.9 x 25 GB/s) + 5 GB / (1.38 x 300 GB/s)."""
    own = Link(name="mine", bandwidth=25e9, latency=5e-6, efficiency=0.9)
    two = cluster(NVLINK3, own)
    time = float(collective_time("reduce_scatter", 10e9, span(two, 2, 8), two))
    assert time == pytest.approx(8.4e-6 + 19e-6 + 5e9 / (0.9 * 25e9) + 5e9 / (1.38 * 300e9), rel=1e-9)


def own_link(bandwidth: float, base: float, step: float, share: float, reduces: bool) -> Link:
    """A link each of whose protocols costs more than the one before, by numbers of its own."""
    names = ("ring_ll", "ring_ll128", "ring_simple", "pairwise_small", "pairwise_large", "in_switch")
    numbers = {
        f"{name}_{what}": value * (1 + place)
        for place, name in enumerate(names)
        for what, value in (("base_latency", base), ("latency", step), ("share", share))
    }
    shares = {"tree_share": 0.9, "reduce_copy_share": 2.0, "pairwise_copy_share": 4.0, "in_switch_ranks": 3.0}
    fields = {"latency": 0.0, "in_switch_reduction": reduces, "efficiency": 3 * share}
    return Link(name="own", bandwidth=bandwidth, quantities={**numbers, **shares}, **fields)


@pytest.mark.parametrize(("sharp", "ranks", "nodes"), [(False, 8, 4), (True, 8, 4), (False, 8, 1), (True, 2, 4)])
def test_every_algorithm_by_hand(sharp: bool, ranks: int, nodes: int) -> None:
    """An all-reduce of `nodes` x `ranks`, as the docstrings of its lines say it."""
    on = cluster(own_link(100e9, 5e-6, 1e-6, 0.1, True), own_link(20e9, 7e-6, 3e-6, 0.11, sharp))
    n, across = nodes * ranks, nodes > 1
    group = span(on, n, 8 // ranks)  # so many ranks of a node of eight
    found = [(float(x.latency), float(x.slope)) for x in lines("all_reduce", group, levels(group, on.tiers, 1.0, 1.0))]
    by_hand = []
    for factor in (1, 2, 3):  # LL, LL128, Simple
        base = factor * (7e-6 if across else 5e-6)
        rate = min(factor * 0.1 * 100e9, ranks * factor * 0.11 * 20e9) if across else factor * 0.1 * 100e9
        steps = factor * (nodes * (ranks - 1) * 1e-6 + (nodes - 1) * 3e-6)
        by_hand.append((base + 2 * steps, 2 * (n - 1) / n / rate + 1 / (n * 2.0 * 100e9)))
    for factor in (1, 2, 3):
        base = factor * (7e-6 if across else 5e-6)
        rate = min(factor * 0.1 * 100e9, ranks * factor * 0.11 * 20e9) if across else factor * 0.1 * 100e9
        steps = factor * ((ranks - 1) * 1e-6 + np.log2(nodes) * 3e-6)
        by_hand.append((base + 2 * steps, 2 / (0.9 * rate)))
    inside = 1 / (6 * 0.1 * 100e9)
    if sharp:
        switch = (6 * 5e-6 + 2 * 3 * 3e-6, max(inside, 1 / (ranks * 6 * 0.11 * 20e9)))
    else:
        outside = 2 / (ranks * 3 * 0.11 * 20e9) if across else 0.0
        switch = (6 * 5e-6 + 2 * 3 * 3e-6 * np.log2(nodes), max(inside, outside))
    by_hand.append(switch if ranks >= 3 else (np.inf, switch[1]))
    assert found == [pytest.approx(line, rel=1e-9) for line in by_hand]


@pytest.mark.parametrize(
    ("what", "on", "kind", "message", "ranks", "published", "tolerance"),
    [
        # stas00/ml-engineering network/README.md, nccl-tests 8 and 16 GiB
        ("A100 node", cluster(NVLINK3), "all_reduce", 2**34, 8, 234.9e9, 0.03),
        ("H200 node, NVLS", cluster(NVLINK4), "all_reduce", 2**34, 8, 480e9, 0.03),
        ("H200 node, ring", cluster(NVLINK4), "all_gather", 2**34, 8, 361.4e9, 0.10),
        ("4 of an H200 node, ring", cluster(NVLINK4), "all_reduce", 2**33, 4, 363.3e9, 0.08),
        ("B200 node, NVLS", cluster(NVLINK5), "all_reduce", 2**33, 8, 838e9, 0.08),
        # coreweave/nccl-tests README.md, out of place
        ("64 H100, 8 x 400 Gb/s a node", H100, "all_reduce", 2**29, 64, 356.0e9, 0.03),
        ("64 H100, 8 x 400 Gb/s a node", H100, "all_reduce", 2**33, 64, 386.6e9, 0.05),
        ("NVL72 rack", cluster(NVLINK5, node=72), "all_reduce", 2**32, 72, 839.2e9, 0.06),
    ],
)
def test_published_bus_bandwidth(
    what: str, on: Cluster, kind: str, message: float, ranks: int, published: float, tolerance: float
) -> None:
    assert busbw(kind, float(message), ranks, on) == pytest.approx(published, rel=tolerance), what


def test_four_dgx_a100_reach_their_eight_nics() -> None:
    """8 x 200 Gb/s: 192 GB/s published (NVIDIA slide, quoted by stas00/ml-engineering)."""
    dgx = cluster(NVLINK3, replace(NDR, name="infiniband-hdr", bandwidth=25e9))
    assert busbw("all_reduce", 1e10, 32, dgx) == pytest.approx(192e9, rel=0.04)


def test_sharp_reduces_in_the_network_on_request() -> None:
    """Four DGX H100: 370 GB/s without and 480 GB/s with reduction in the InfiniBand switches (same slide)."""
    sharp = cluster(NVLINK4, replace(NDR, in_switch_reduction=True))
    assert busbw("all_reduce", 2e10, 32, H100) == pytest.approx(370e9, rel=0.04)
    assert busbw("all_reduce", 2e10, 32, sharp) == pytest.approx(480e9, rel=0.10)


def test_a_group_with_one_rank_a_node_has_one_nic() -> None:
    """Data parallelism next to TP 8 gets 0.96 x 50 GB/s, where eight ranks a node get eight NICs."""
    assert busbw("reduce_scatter", 4e10, 8, H100, stride=8) == pytest.approx(48e9, rel=0.05)
    assert busbw("reduce_scatter", 4e10, 64, H100) > 300e9


def test_oversubscription_slows_what_leaves_the_node_only() -> None:
    half = cluster(NVLINK4, NDR, oversubscription=2.0)
    assert busbw("all_gather", 4e10, 8, half, stride=8) == pytest.approx(24e9, rel=0.05)
    assert busbw("all_gather", 4e10, 8, half) == busbw("all_gather", 4e10, 8, H100)


def test_all_to_all_over_two_nodes_waits_for_the_nics() -> None:
    """Of 16 peers, 8 are on the other node: half of the buffer over a rank's own NIC, at 90 % of 50 GB/s."""
    time = float(collective_time("all_to_all", 1e10, span(H100, 16, 1), H100))
    assert time == pytest.approx(0.5e10 / (0.9 * 50e9), rel=0.05)


def test_a_mesh_pair_has_one_link_of_seven() -> None:
    """MI300X, all-reduce of 4 GiB: 47.7 GB/s on 2 GPUs, 312.9 on 8 (stas00/ml-engineering)."""
    xgmi = Link(name="xgmi", bandwidth=448e9, latency=1e-6, efficiency=0.698, topology="mesh", p2p_bandwidth=64e9)
    node = cluster(xgmi)
    assert busbw("all_reduce", 2**32, 2, node) == pytest.approx(47.7e9, rel=0.1)
    assert busbw("all_reduce", 2**32, 8, node) == pytest.approx(312.9e9, rel=0.02)


def test_point_to_point_by_stride() -> None:
    near, far = collective_time("point_to_point", 1e9, span(H100, 2, [1, 8]), H100)
    assert near == pytest.approx(1e9 / (0.738 * 450e9), rel=0.02)
    assert far == pytest.approx(1e9 / (0.75 * 0.96 / 0.8 * 50e9), rel=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_send_costs_nothing(kind: str) -> None:
    assert float(collective_time(kind, 1e9, span(H100, 1, 1), H100)) == 0.0
    assert float(collective_time(kind, 0.0, span(H100, 8, 1), H100)) == 0.0
    assert collective_time(kind, 1e9, span(H100, 10**6, 1), H100) == np.inf


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(InputError, match="all_reduce, all_gather"):
        collective_time("broadcast", 1e9, span(H100, 8, 1), H100)


def test_many_groups_at_once_equal_one_at_a_time() -> None:
    generator = np.random.default_rng(0)
    size, stride = 2 ** generator.integers(0, 8, 200), 2 ** generator.integers(0, 5, 200)
    message = 10 ** generator.uniform(2, 10, 200)
    for kind in KINDS:
        together = collective_time(kind, message, span(H100, size, stride), H100)
        alone = [
            float(collective_time(kind, m, span(H100, s, d), H100))
            for m, s, d in zip(message, size, stride, strict=True)
        ]
        assert np.allclose(together, alone, rtol=1e-12)


def test_message_and_group_broadcast() -> None:
    times = collective_time("all_reduce", [[1e6], [1e9]], span(H100, [2, 4, 8], 1), H100)
    assert times.shape == (2, 3)
    assert np.array_equal(times[1], collective_time("all_reduce", 1e9, span(H100, [2, 4, 8], 1), H100))


@given(st.sampled_from(KINDS), st.floats(1, 1e11), st.floats(1, 4), st.integers(0, 9), st.integers(0, 6))
def test_more_bytes_never_take_less_time(kind: str, message: float, factor: float, size: int, stride: int) -> None:
    group = span(H100, 2**size, 2**stride)
    less, more = collective_time(kind, [message, message * factor], group, H100)
    assert less <= more


@given(st.sampled_from(KINDS), st.floats(1e3, 1e11), st.integers(1, 9), st.integers(0, 6), st.floats(0.3, 1.0))
def test_a_less_efficient_network_is_never_faster(
    kind: str, message: float, size: int, stride: int, efficiency: float
) -> None:
    group = span(H100, 2**size, 2**stride)
    full = float(collective_time(kind, message, group, H100))
    slowed = collective_time(kind, message, group, H100, scale_up_efficiency=efficiency, network_efficiency=efficiency)
    assert full <= float(slowed) <= full / efficiency * (1 + 1e-9)


@given(st.floats(1e3, 1e11), st.integers(1, 9), st.integers(0, 6))
def test_the_fastest_algorithm_wins(message: float, size: int, stride: int) -> None:
    group = span(H100, 2**size, 2**stride)
    offers = lines("all_reduce", group, levels(group, H100.tiers, 1.0, 1.0))
    times = [float(offer.latency + offer.slope * message) for offer in offers]
    assert float(collective_time("all_reduce", message, group, H100)) == pytest.approx(min(times), rel=1e-12)


def test_energy_of_the_hop_typed_model() -> None:
    """LLaMA-3 8B attention, 83.886 MB: 46.976 mJ on 8 GPUs of a node, 176.161 mJ on 16 of two; PP over nodes 4.698 mJ.

    5 pJ/bit on NVLink, 25 on InfiniBand; a path between nodes is two NVLinks and one InfiniBand link.
    """
    message = 8 * 10.48576e6
    assert float(network_energy("all_reduce", message, span(H100, 8, 1), H100)) == pytest.approx(46.976e-3, rel=1e-4)
    assert float(network_energy("all_reduce", message, span(H100, 16, 1), H100)) == pytest.approx(176.161e-3, rel=1e-4)
    pair = span(H100, 2, 8)
    assert float(network_energy("point_to_point", 16.777216e6, pair, H100)) == pytest.approx(4.698e-3, rel=1e-3)


def test_hops_of_an_all_to_all() -> None:
    """16 ranks on 2 nodes: 16 x 7 pairs inside, 16 x 8 across with two NVLinks each; 1/16 of the buffer on each."""
    found = hops("all_to_all", span(H100, 16, 1))
    assert [float(count) for count in found.traversals] == [16 * 7 + 2 * 16 * 8, 16 * 8]
    assert float(found.share) == 1 / 16


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_one_takes_no_energy(kind: str) -> None:
    assert float(network_energy(kind, 1e9, span(H100, 1, 1), H100)) == 0.0


MEASURED = Path(__file__).resolve().parents[3] / ".." / "shared" / "measured" / "collectives_and_gemms.csv"
LINKS = {"A100": NVLINK3, "H100": NVLINK4, "H200": NVLINK4} | dict.fromkeys(("B200", "B300", "GB200", "GB300"), NVLINK5)


@pytest.mark.skipif(not MEASURED.exists(), reason="the measured collectives are not part of the repository")
def test_median_error_per_gpu_and_collective_is_within_ten_percent() -> None:
    """Repeated runs of these nccl-tests tables differ by 5-10 % themselves; messages of 1 MB and more."""
    errors: dict[tuple[str, str], list[float]] = {}
    with MEASURED.open(encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            if (
                "aiconfigurator" not in row["source"]
                or row["kind"] != "collective"
                or float(row["message_bytes"]) < 1e6
            ):
                continue
            kind = row["collective"].replace("alltoall", "all_to_all")
            on = cluster(LINKS[row["gpu"]])
            time = collective_time(kind, float(row["message_bytes"]), span(on, int(float(row["gpus"])), 1), on)
            measured = float(row["latency_us"]) * 1e-6
            if measured > 0:
                errors.setdefault((row["gpu"], kind), []).append(abs(float(time) / measured - 1.0))
    medians = {key: float(np.median(found)) for key, found in errors.items()}
    assert len(medians) == 7 * 4
    assert max(medians.values()) < 0.10, medians
