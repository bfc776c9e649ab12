"""The hop-typed communication model of LLaMA-3 8B: latency and energy per NVLink and InfiniBand hop.

What is wrong or inconsistent in the document, and what is used here:

* It lists NVLink at 900 GB/s and 11 ps/B. 11 ps/B is 90 GB/s, which its code uses and so does this test; 900 GB/s is
  the duplex figure, 450 GB/s (2.2 ps/B) one way.
* Its MLP has two matrices ("no gate"); LLaMA-3's has three, 352 MB per layer instead of 235 MB.
* Its "multi-query attention" has key and value widths of 1024 = 8 heads of 128, which is grouped-query attention.
* "Per-GPU MB" of data parallelism is P (n - 1) / n, one of the two passes of the all-reduce whose time and energy it
  adds up: each GPU sends twice that.
* Tensor parallelism is two full messages over one hop, per layer kind, whatever the number of GPUs: no ring of eight,
  no (n - 1) / n, and the energy is that of one sender of the eight. "Reduce-scatter + all-reduce" is no sequence that
  tensor parallelism uses.
* Its column comments say MiB, us and nJ where the values are MB, ms and mJ; the introduction promises the latter units
  as well, and a total volume that the last table drops. "Full-precision gradients" are bf16 in the code.
* Its group size is read from a label written with another hyphen ("DP‑8"), so every group would be taken as two.
* It stores and forwards on each hop of a path (2 NVLink + 1 InfiniBand), where real networks cut through: its DP-16
  is about 2.1 times as slow as its InfiniBand link alone.
"""

from __future__ import annotations

import pytest

from optimizer.catalog import load_model
from optimizer.job.hardware import Cluster, Device, Link, Tier
from optimizer.objectives.network.collectives import ring_all_reduce_time, volume_per_rank
from optimizer.objectives.network.energy import network_energy, path, path_time, ring_time
from optimizer.objectives.network.topology import span

NVLINK = Link(name="nvlink at 90 GB/s", bandwidth=90e9, latency=0.2e-6, energy=5e-12)
INFINIBAND = Link(name="ndr", bandwidth=50e9, latency=2e-6, energy=25e-12)
CLUSTER = Cluster(
    name="two nodes of eight",
    device=Device(name="h100", peak_flops={}, memory=0, memory_nominal=0, memory_bandwidth=0),
    tiers=(Tier(name="node", link=NVLINK, size=8), Tier(name="network", link=INFINIBAND, size=16)),
)
LLAMA = load_model("llama3-8b")
ATTENTION = 2.0 * LLAMA.attention_weights
MLP = 2.0 * 2 * LLAMA.hidden * LLAMA.ffn_hidden
ACTIVATIONS = 2.0 * 2048 * LLAMA.hidden


@pytest.mark.parametrize(
    ("message", "ranks", "megabytes", "milliseconds", "millijoules"),
    [
        (ATTENTION, 8, 73.4, 1.634, 46.976),
        (ATTENTION, 16, 78.643, 6.713, 176.161),
        (MLP, 8, 205.521, 4.57, 131.533),
        (MLP, 16, 220.201, 18.667, 493.25),
    ],
)
def test_data_parallel(message: float, ranks: int, megabytes: float, milliseconds: float, millijoules: float) -> None:
    group = span(CLUSTER, ranks, 1)
    assert round(float(volume_per_rank("reduce_scatter", message, ranks)) / 1e6, 3) == megabytes
    assert round(float(ring_time("all_reduce", message, group, CLUSTER)) * 1e3, 3) == milliseconds
    assert round(float(network_energy("all_reduce", message, group, CLUSTER)) * 1e3, 3) == millijoules


def test_the_ring_of_hops_is_the_textbook_ring_on_its_slowest_path() -> None:
    alpha = 2 * NVLINK.latency + INFINIBAND.latency
    beta = 2 / NVLINK.bandwidth + 1 / INFINIBAND.bandwidth
    textbook = float(ring_all_reduce_time(MLP, 16, alpha, beta))
    assert float(ring_time("all_reduce", MLP, span(CLUSTER, 16, 1), CLUSTER)) == pytest.approx(textbook, rel=1e-12)


def test_tensor_parallel() -> None:
    """Two messages of a layer's activations over one NVLink hop."""
    assert round(2 * ACTIVATIONS / 1e6, 3) == 33.554
    assert round(2 * float(path_time(ACTIVATIONS, path(CLUSTER, 0), CLUSTER)) * 1e3, 3) == 0.373
    joule = 2 * float(network_energy("point_to_point", ACTIVATIONS, span(CLUSTER, 2, 1), CLUSTER))
    assert round(joule * 1e3, 3) == 1.342


@pytest.mark.parametrize(
    ("tier", "stride", "milliseconds", "millijoules"), [(0, 1, 0.187, 0.671), (1, 8, 0.711, 4.698)]
)
def test_pipeline(tier: int, stride: int, milliseconds: float, millijoules: float) -> None:
    """One message within a node, and one between nodes: two NVLink hops and one of InfiniBand."""
    pair = span(CLUSTER, 2, stride)
    assert round(float(volume_per_rank("point_to_point", ACTIVATIONS, 2)) / 1e6, 3) == 16.777
    assert round(float(path_time(ACTIVATIONS, path(CLUSTER, tier), CLUSTER)) * 1e3, 3) == milliseconds
    assert round(float(network_energy("point_to_point", ACTIVATIONS, pair, CLUSTER)) * 1e3, 3) == millijoules


def test_sizes_in_mebibytes() -> None:
    """The last table's binary column: 70, 75, 196, 210, 32 and 16 MiB."""
    sizes = [
        float(volume_per_rank("reduce_scatter", message, ranks)) / 2**20
        for message in (ATTENTION, MLP)
        for ranks in (8, 16)
    ]
    assert sizes == [70.0, 75.0, 196.0, 210.0]
    assert (2 * ACTIVATIONS / 2**20, ACTIVATIONS / 2**20) == (32.0, 16.0)


def test_what_the_constants_should_have_been() -> None:
    assert round(1e12 / 90e9) == 11  # ps/B, as listed
    assert round(1e12 / 450e9, 1) == 2.2  # of 900 GB/s duplex, one way
    assert LLAMA.mlp_matrices == 3
    assert round(2.0 * LLAMA.mlp_params(LLAMA.ffn_hidden) / 1e6) == 352
    slow = float(path_time(1e9, path(CLUSTER, 1), CLUSTER)) / float(path_time(1e9, (0, 1), CLUSTER))
    assert round(slow, 1) == 2.1
