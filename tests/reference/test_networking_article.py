"""The networking article: the interconnect catalogue, real against advertised bandwidth, "is it the bottleneck?".

What is wrong or inconsistent in the document, and what is used here:

* Its comparison of one-way intra-node rates lists PCIe 5 at 126 and PCIe 4 at 62 GB/s: those are duplex; 63 and 31
  one way, as its own PCIe table says. "Sorted by bandwidth" has MI250X (350) below NVLink 3 (300).
* One node's gradients take 0.053 s in the text and 0.027 s in the table: the table forgot the second pass of the
  all-reduce (8 / 300). Its "23x slower" divides 0.64 s with both passes by 0.027 s with one; it is 12x.
* "0.053 > 0.42, so the network is a bottleneck" has the sign wrong: communication fits eight times.
* Both passes are taken whole; its own footnote has 2 (n - 1) / n, 1.75 for 8 GPUs: 0.047 s.
* "235Gbps" against 600 GBps is 235 GB/s; "1.6 Gbps" of eight 200 Gb/s ports is 1.6 Tb/s; a SuperPOD's "1.8 GBps per
  node, 57.6 GBps" are TB/s.
* 300 GB/s inside a node is per GPU, 200 Gb/s between nodes is taken as the node's: with such a port per GPU, eight at
  once, the same gradients would take 0.08 s.
* "2x forward and 2x backward compute" adds up to four only because the backward pass costs two.
* NVLink 2, 3 and 4 do not share "4 lanes of 6.25 GB/s": only 25 GB/s per link and direction is common to them.
"""

from __future__ import annotations

import pytest

from optimizer.catalog import load_link
from optimizer.catalog.readers.nvidia_topo import Topology
from optimizer.objectives.network.collectives import volume_per_rank
from optimizer.page.learn.acts.six import all_reduce_perf
from optimizer.studies.textbook import dense_flops, sharded_memory

GRADIENTS = 4 * 2e9  # fp32 gradients of 2 billion parameters


@pytest.mark.parametrize(("size", "microseconds", "algorithm", "bus"), all_reduce_perf())
def test_bus_bandwidth_of_the_nccl_table(size: int, microseconds: float, algorithm: float, bus: float) -> None:
    """Bus bandwidth is what each rank sends over the time: 1.75 of the algorithm bandwidth for eight ranks."""
    sent = float(volume_per_rank("all_reduce", size, 8))
    assert size / microseconds / 1e3 == pytest.approx(algorithm, rel=5e-4, abs=0.005)
    assert sent / microseconds / 1e3 == pytest.approx(bus, rel=5e-4, abs=0.005)


def test_real_against_advertised() -> None:
    """235 of 300 GB/s by all-reduce, 274 by single copies; 376 of 450 GB/s on NVLink 4."""
    assert round(all_reduce_perf()[-1][3] / (load_link("nvlink3").bandwidth / 1e9), 2) == 0.78
    assert round(274e9 / load_link("nvlink3").bandwidth, 2) == 0.91
    assert int(100 * 376e9 / load_link("nvlink4").bandwidth) == 83
    assert round(1257.165 / 374.391, 1) == 3.4


@pytest.mark.parametrize(
    ("link", "one_way", "duplex"),
    [
        ("nvlink2", 150, 300),
        ("nvlink3", 300, 600),
        ("nvlink4", 450, 900),
        ("xgmi-mi250x", 350, 700),
        ("xgmi-mi300x", 448, 896),
        ("gaudi2-roce", 262.5, None),
        ("pcie4", 31, 62),
        ("pcie5", 63, 126),
        ("pcie6", 121, 241),
        ("pcie7", 242, 484),
    ],
)
def test_catalogue_inside_a_node(link: str, one_way: float, duplex: float | None) -> None:
    """The presets, within the rounding of PCIe's encoding overhead."""
    found = load_link(link)
    assert found.bandwidth / 1e9 == pytest.approx(one_way, rel=0.02)
    if duplex is not None:
        assert 2 * found.bandwidth / 1e9 == pytest.approx(duplex, rel=0.02)


@pytest.mark.parametrize(
    ("link", "ports", "gigabits"),
    [
        ("infiniband-edr", 1, 100),
        ("infiniband-hdr", 1, 200),
        ("infiniband-ndr", 1, 400),
        ("infiniband-xdr", 1, 800),
        ("infiniband-gdr", 1, 1600),
        ("efa-v1", 4, 400),
        ("efa-v2", 32, 3200),
        ("slingshot-11", 4, 800),
        ("omni-path-100", 1, 100),
        ("omni-path-400", 1, 400),
        ("tcpx", 4, 800),
    ],
)
def test_catalogue_between_nodes(link: str, ports: int, gigabits: float) -> None:
    """A port's one-way rate, and that of a node with so many of them."""
    assert ports * load_link(link).bandwidth * 8 / 1e9 == pytest.approx(gigabits, rel=0.02)


def test_links_of_a_topology_matrix() -> None:
    """NV12 is a whole A100, NV18 a whole H100, each pair of a node over all links of a GPU."""
    for code, link, bandwidth in (("NV12", "nvlink3", 300e9), ("NV18", "nvlink4", 450e9)):
        rows = tuple(tuple("X" if i == j else code for j in range(8)) for i in range(8))
        node = Topology(gpus=tuple(f"GPU{i}" for i in range(8)), between=rows)
        assert node.scale_up_size == 8
        assert node.nvlink_bandwidth(load_link(link)) == pytest.approx(bandwidth)


def test_sending_every_parameter_once() -> None:
    """80 billion parameters in fp32: 320 GB, 12.8 s at 200 Gb/s, 1.6 s at 1600 Gb/s."""
    message = 80e9 * 4
    sent = float(volume_per_rank("point_to_point", message, 2))
    assert (message, sent / 25e9, sent / 200e9) == (320e9, 12.8, 1.6)


def test_memory_of_two_billion_parameters() -> None:
    """18 bytes per parameter in mixed precision: bf16 weights, fp32 gradients, master copy and two moments."""
    assert sharded_memory(2e9, 1, 1, weight_bytes=2, state_bytes=4 + 4 + 8, activations=0) == 36e9


def test_gradient_reduction() -> None:
    """8 GB sent twice: 0.053 s at 300 GB/s, 0.035 s at 450 GB/s, 0.64 s at 200 Gb/s, 0.32 s at 400 Gb/s."""
    twice = float(volume_per_rank("all_reduce", GRADIENTS, 10**9))
    assert [int(twice / rate * 1e3) / 1e3 for rate in (300e9, 450e9)] == [0.053, 0.035]
    assert [round(twice / rate, 2) for rate in (25e9, 50e9)] == [0.64, 0.32]
    assert round(GRADIENTS / 300e9, 3) == 0.027
    assert round((twice / 25e9) / (twice / 300e9)) == 12


def test_the_exact_factor_of_an_all_reduce() -> None:
    assert [float(volume_per_rank("all_reduce", 1.0, n)) for n in (2, 8)] == [1.0, 1.75]
    assert float(volume_per_rank("all_reduce", 1.0, 64)) == pytest.approx(2.0, rel=0.02)


def test_compute() -> None:
    """65.536 TFLOP per GPU with recomputation, three quarters without; 0.42 s at half of an A100's 312 TFLOP/s."""
    tokens = 2048 * 16
    with_recompute = dense_flops(2e9, tokens, recomputed=True) / 8
    assert with_recompute == 65.536e12
    assert dense_flops(2e9, tokens) / 8 == pytest.approx(0.75 * with_recompute)
    assert round(with_recompute / (0.5 * 312e12), 2) == 0.42


def test_is_the_network_the_bottleneck() -> None:
    """Not inside a node (0.053 s under 0.42 s of compute), but at 200 Gb/s between nodes (0.64 s)."""
    compute = dense_flops(2e9, 2048 * 16, recomputed=True) / 8 / 156e12
    sent = float(volume_per_rank("all_reduce", GRADIENTS, 10**9))
    assert sent / 300e9 < compute < sent / 25e9
    assert sent / 50e9 < compute
