"""The machine of a row by what its own benchmark of the network says."""

from __future__ import annotations

import pytest

from optimizer.calibration.rows.cluster import broken_network, nvlink_share, read_cluster
from optimizer.objectives.network.collectives import collective_time, volume_per_rank
from optimizer.objectives.network.topology import span

ROW = {"gpu": "H100", "gpus": "64", "gpus_per_node": "8", "inter_link": "32x 100Gb/s EFA per node"}


@pytest.mark.parametrize(("share", "broken"), [(0.499, True), (0.501, False)])
@pytest.mark.parametrize("gpus", [16, 64, 512])
def test_less_than_half_of_a_whole_networks_rate_is_broken(gpus: int, share: float, broken: bool) -> None:
    """By an all-reduce of 256 MiB over all GPUs, as nanotron's benchmark is."""
    cluster = read_cluster(ROW)
    seconds = float(collective_time("all_reduce", 2.0**28, span(cluster, gpus, 1), cluster))
    whole = float(volume_per_rank("all_reduce", 2.0**28, gpus)) / seconds / 1e9
    assert broken_network({**ROW, "gpus": f"{gpus}", "all_reduce_gb_s": f"{share * whole}"}) is broken


@pytest.mark.parametrize(("gpus", "rate", "broken"), [("8", "13", False), ("16", "13", True), ("8", "", False)])
def test_a_node_has_no_network_that_could_be_broken(gpus: str, rate: str, broken: bool) -> None:
    row = {**ROW, "gpus": gpus, "all_reduce_gb_s": rate}
    assert broken_network(row) is broken
    slowed = read_cluster(row).tiers[1].link.bandwidth < read_cluster(ROW).tiers[1].link.bandwidth
    assert slowed is broken


@pytest.mark.parametrize(
    ("rate", "steps"),
    [
        # 50 GB/s a GPU, eight to a node, over 4.5 times the benchmark: 6.8, 2.2 and 0.9, in tenths of a decade.
        ("13", 8),
        ("40", 3),
        ("97", 0),
    ],
)
def test_nics_are_as_slow_as_the_benchmark_says(rate: str, steps: int) -> None:
    found = read_cluster({**ROW, "all_reduce_gb_s": rate})
    assert found.tiers[1].link.bandwidth == pytest.approx(50e9 * 10 ** (-steps / 10))


@pytest.mark.parametrize(("per_node", "size", "share"), [("", 8, 1.0), ("8", 8, 1.0), ("4", 4, 1.0)])
def test_a_node_has_the_gpus_of_its_row(per_node: str, size: int, share: float) -> None:
    cluster = read_cluster({**ROW, "inter_link": "", "gpus_per_node": per_node})
    assert (cluster.gpus_per_node, cluster.scale_up_size) == (size, size)
    whole = read_cluster({"gpu": "H100"}).tiers[0].link.bandwidth
    assert cluster.tiers[0].link.bandwidth == share * whole
    third = read_cluster({"gpu": "A100", "intra_link": "NVLink 4"})
    assert third.tiers[0].link.bandwidth == pytest.approx(read_cluster({"gpu": "A100"}).tiers[0].link.bandwidth / 3)


@pytest.mark.parametrize(
    ("device", "text", "share"),
    [
        *[("v100", "NVLink 2", 1.0), ("v100", "NVLink 3", 1 / 2), ("v100", "NVLink 7", 1.0)],
        *[
            ("a100-80", "NVLink3", 1.0),
            ("a100-80", "NVLink 4", 1 / 3),
            ("a100", "nvlink 12", 1.0),
            ("a100", "NVLink", 1.0),
        ],
        *[("h100", "NVLink 4", 1.0), ("h100", "NVLink 5", 5 / 18), ("l40s", "NVLink 1", 1.0)],
    ],
)
def test_a_number_beyond_the_generation_counts_links(device: str, text: str, share: float) -> None:
    assert nvlink_share(device, text) == pytest.approx(share)


@pytest.mark.parametrize(
    ("network", "name", "rate"), [("32x 100Gb/s EFA per node", "efa-v2", 50e9), ("8x HDR 200Gb/s per node", "", 25e9)]
)
def test_a_network_that_is_named_has_its_own_kind(network: str, name: str, rate: float) -> None:
    links = [tier.link for tier in read_cluster({**ROW, "inter_link": network}).tiers[1:]]
    assert all(link.bandwidth == pytest.approx(rate) for link in links)
    assert all(link.name.startswith(name) for link in links)
