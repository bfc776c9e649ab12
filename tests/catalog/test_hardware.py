"""The hardware catalogue: physical bands, the field's classic mistakes, and a parent for every number."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from optimizer.base.errors import InputError, UnknownName
from optimizer.base.units import GiB, factor
from optimizer.catalog.economics import load_prices
from optimizer.catalog.files import csv_rows, presets_folder
from optimizer.catalog.hardware import (
    cluster_names,
    device_names,
    link_names,
    load_cluster,
    load_device,
    load_link,
    with_network,
)
from optimizer.catalog.rows import Row
from optimizer.job.hardware import cut_domain
from optimizer.job.model import Provenance
from tests.looped import looped

FACTS = Path(__file__).resolve().parents[2] / ".." / "shared" / "facts"
FILES = ("devices.csv", "links.csv", "clusters.csv", "prices.csv")
WANTED = {
    "dgx-v100", "dgx-a100-40", "dgx-a100-80", "dgx-h100", "dgx-h200", "dgx-h800", "dgx-b200", "dgx-b300",
    "gb200-nvl72", "gb300-nvl72", "mi300x-8", "mi325x-8", "mi350x-8", "mi355x-8", "gaudi2-8", "gaudi3-8",
    "tpu-v4-pod", "tpu-v5e-pod", "tpu-v5p-pod", "tpu-v6e-pod", "tpu-v7-pod",
    "p4d", "p4de", "p5", "p5e", "p5en", "a3-high", "a3-mega", "a3-ultra", "nd-h100-v5", "l40s-8", "rtx-4090-8",
}  # fmt: skip


@pytest.mark.parametrize("file", FILES)
def test_each_row_has_unit_source_date_and_grade(file: str) -> None:
    for line, row in csv_rows(presets_folder() / file):
        where = f"{file} line {line}"
        assert row["name"] == row["name"].lower(), where
        assert row["quantity"], where
        assert row["scope"], where
        assert row["source"], where
        assert re.fullmatch(r"20\d\d(-\d\d(-\d\d)?)?", row["date"]), where
        assert row["grade"] in ("A", "B", "C"), where
        if row["unit"] != "text":
            factor(row["unit"])
            float(row["value"])


@pytest.mark.parametrize("file", FILES)
def test_no_number_is_given_twice(file: str) -> None:
    keys = [
        (row["name"], row["quantity"], row["value"] if row["quantity"] in ("alias", "default_for") else "")
        for _, row in csv_rows(presets_folder() / file)
    ]
    assert len(keys) == len(set(keys))


def test_an_alias_means_one_thing() -> None:
    for file in FILES[:3]:
        rows = [row for _, row in csv_rows(presets_folder() / file)]
        aliases = [row["value"] for row in rows if row["quantity"] == "alias"]
        assert len(aliases) == len(set(aliases))
        assert not set(aliases) & {row["name"] for row in rows}


def test_51_devices() -> None:
    assert len(device_names()) == 51


@looped(name=device_names())
def test_device_is_in_physical_bands(name: str) -> None:
    device = load_device(name)
    highest = {"bf16": 10e15, "fp16": 10e15, "fp8": 20e15, "fp4": 40e15}
    for dtype, ceiling in highest.items():
        assert 10e12 <= device.peak_flops.get(dtype, 10e12) <= ceiling
    if "bf16" in device.peak_flops:
        assert device.peak_flops.get("fp8", 1e99) >= device.peak_flops["bf16"]
        assert device.peak_flops.get("tf32", 0.0) <= device.peak_flops["bf16"]
        assert device.measured_matmul.get("bf16", 0.0) < device.peak_flops["bf16"]
    assert device.measured_matmul.get("fp8", 0.0) < device.peak_flops.get("fp8", 1e99)
    assert 0.25e12 <= device.memory_bandwidth <= 30e12
    assert 0.9 * device.memory_nominal <= device.memory <= device.memory_nominal
    assert 15e9 < device.memory < 500e9
    assert 0 <= device.power <= 2000
    assert 0 <= device.l2_cache <= 256 * 2**20
    assert device.provenance["memory"].source
    assert {source.grade for source in device.provenance.values()} <= {"", "A", "B", "C"}
    assert any(source.grade for source in device.provenance.values())


@looped(name=link_names())
def test_link_is_in_physical_bands(name: str) -> None:
    link = load_link(name)
    assert 1e9 <= link.bandwidth <= 2e12
    assert 2 * link.bandwidth == pytest.approx(link.quantities.get("bandwidth_duplex", 2 * link.bandwidth), rel=1e-3)
    assert 0.1e-6 <= link.latency <= 100e-6
    assert 0.5 <= link.efficiency <= 1
    assert 1e-12 <= link.energy <= 50e-12
    assert 1e4 <= link.half_message <= 20e6
    assert link.pair_bandwidth <= link.bandwidth
    assert link.topology in ("switch", "mesh", "torus", "bus")
    assert {"bandwidth", "latency", "efficiency", "half_message", "energy"} <= set(link.provenance)


@looped(name=cluster_names())
def test_cluster_holds_together(name: str) -> None:
    cluster = load_cluster(name)
    sizes = [tier.size for tier in cluster.tiers]
    assert sizes == sorted(set(sizes))
    assert cluster.tiers[-1].size == cluster.max_gpus
    bandwidths = [tier.bandwidth for tier in cluster.tiers]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert not cut_domain(cluster.gpus_per_node, cluster.scale_up_size)
    assert 5e9 <= cluster.host_bandwidth <= 450e9
    assert cluster.provenance["scale_up.link"].source


def test_common_clusters_exist() -> None:
    assert set(cluster_names()) >= WANTED


@looped(name=device_names())
def test_a_device_means_its_default_cluster(name: str) -> None:
    assert load_cluster(name).device == load_device(name)


# The classic mistakes of this field's catalogues.


def test_h100_peak_is_the_dense_one() -> None:
    h100 = load_device("h100")
    assert h100.peak("bf16") == 989.5e12
    assert h100.peak("fp8") == 1979e12
    assert h100.memory_bandwidth == 3.35e12
    assert h100.memory == pytest.approx(81_559 * 2**20, rel=1e-4)


def test_nvlink_is_one_way() -> None:
    one_way = {"nvlink2": 150e9, "nvlink3": 300e9, "nvlink4": 450e9, "nvlink5": 900e9, "nvlink-h800": 200e9}
    assert {name: load_link(name).bandwidth for name in one_way} == one_way


def test_nvlink_reaches_what_nccl_models() -> None:
    assert load_link("nvlink4").efficiency * 450 == pytest.approx(18 * 20.6, rel=1e-3)
    assert load_link("nvlink5").efficiency * 900 == pytest.approx(18 * 40.1, rel=1e-3)


def test_b200_does_not_have_the_memory_of_an_h100() -> None:
    assert load_device("b200").memory_nominal == 180 * GiB
    assert load_device("b200").memory == pytest.approx(179.06 * GiB)
    assert load_device("b200").peak("bf16") == 2250e12


def test_gigabits_are_not_gigabytes() -> None:
    gigabits = {"infiniband-hdr": 200, "infiniband-ndr": 400, "infiniband-xdr": 800, "efa-v2": 100}
    assert {name: load_link(name).bandwidth * 8 / 1e9 for name in gigabits} == gigabits


def test_network_is_per_gpu_and_not_per_node() -> None:
    per_gpu = {
        "dgx-v100": 6.25e9,
        "dgx-a100-80": 25e9,
        "dgx-h100": 50e9,
        "dgx-b300": 100e9,
        "gb200-nvl72": 50e9,
        "p4d": 6.25e9,
        "p5": 50e9,
        "p5en": 50e9,
        "p6-b300": 100e9,
        "a3-high": 12.5e9,
        "a3-mega": 25e9,
        "nd-h100-v5": 50e9,
        "gaudi2": 37.5e9,
        "trn2": 25e9,
    }
    assert {name: load_cluster(name).tiers[1].bandwidth for name in per_gpu} == per_gpu


def test_h800_has_the_h100_peak_and_less_nvlink() -> None:
    assert load_device("h800").peak("bf16") == load_device("h100").peak("bf16")
    assert load_cluster("h800").tiers[0].bandwidth == 200e9


def test_v100_has_no_bf16() -> None:
    with pytest.raises(InputError, match="use --dtype fp16"):
        load_device("v100").peak("bf16")


def test_rail_optimised_superpod() -> None:
    tiers = load_cluster("dgx-h100").tiers
    assert [(tier.name, tier.size, tier.oversubscription) for tier in tiers] == [
        ("scale_up", 8, 1.0),
        ("rail", 256, 1.0),
        ("spine", 1_000_000, 1.0),
    ]
    assert tiers[1].link.latency < tiers[2].link.latency


def test_nvl72_is_one_domain_of_trays_of_four() -> None:
    cluster = load_cluster("gb200")
    assert (cluster.scale_up_size, cluster.gpus_per_node) == (72, 4)


def test_torus_and_mesh_have_a_neighbour_bandwidth() -> None:
    assert load_link("ici-v5p").topology == "torus"
    assert load_link("ici-v5p").pair_bandwidth == 90e9
    assert load_link("xgmi-mi300x").pair_bandwidth == 64e9
    assert load_link("nvlink4").pair_bandwidth == 450e9


def test_links_inherit_nccl_latencies() -> None:
    assert load_link("nvlink4").quantities["ring_simple_latency"] == pytest.approx(3.4e-6)
    assert load_link("infiniband-ndr").quantities["ring_simple_latency"] == pytest.approx(14e-6)
    assert load_link("pcie4").quantities["ring_ll_latency"] == pytest.approx(1e-6)
    assert "nccl-net" not in link_names()


def test_ports_change_the_rate_and_not_the_latency() -> None:
    one_port, node = load_link("efa-v2"), load_cluster("p5").tiers[1].link
    assert node.bandwidth == 4 * one_port.bandwidth
    assert node.half_message == pytest.approx(4 * one_port.half_message)
    assert node.latency == one_port.latency


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a100", "a100-80"), ("H100_80", "h100"), ("rtx4090", "rtx-4090"), (" h100 sxm ", "h100"), ("v100", "v100-32")],
)
def test_aliases(name: str, expected: str) -> None:
    assert load_device(name).name == expected
    assert load_cluster(name).device.name == expected


def test_a_typo_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="a100-80"):
        load_device("a100-81")
    with pytest.raises(UnknownName, match="nvlink4"):
        load_link("nvlnk4")
    with pytest.raises(UnknownName, match="dgx-h100"):
        load_cluster("dgx-h10")
    with pytest.raises(UnknownName):
        load_link("nccl-net")


def test_no_absent_file_passes() -> None:
    with pytest.raises(InputError, match=r"absent\.toml"):
        load_cluster("absent.toml")


# The same cluster with another network.


def test_with_network_changes_only_what_is_named() -> None:
    base = load_cluster("dgx-h100")
    changed = with_network(base, nic_bandwidth=100e9, oversubscription=2.0, memory=100e9)
    assert [tier.bandwidth for tier in changed.tiers] == [450e9, 100e9, 50e9]
    assert changed.tiers[0] == base.tiers[0]
    assert changed.device.memory == changed.device.memory_nominal == 100e9
    assert changed.provenance["nic_bandwidth"].source == "assumed"
    assert with_network(base) == base


def test_with_network_resizes_the_scale_up_domain() -> None:
    base = load_cluster("dgx-h100")
    assert [tier.size for tier in with_network(base, scale_up_size=72).tiers] == [72, 256, 1_000_000]
    assert [tier.size for tier in with_network(base, scale_up_size=512).tiers] == [512, 1_000_000]
    assert with_network(load_cluster("rtx-4090"), scale_up_size=16).max_gpus == 16


def test_with_network_refuses_what_makes_no_cluster() -> None:
    with pytest.raises(InputError, match="nic_bandwidth must be positive, but got -1"):
        with_network(load_cluster("h100"), nic_bandwidth=-1)
    with pytest.raises(InputError, match="no network"):
        with_network(load_cluster("rtx-4090"), nic_bandwidth=1e9)
    with pytest.raises(InputError, match="scale_up_size"):
        with_network(load_cluster("h100"), scale_up_size=10_000_000)


# Money and power.


def test_prices_are_in_si_with_a_range() -> None:
    prices = {(price.name, price.quantity): price for price in load_prices()}
    assert len(prices) == len(load_prices())
    assert prices["default", "electricity"].value * 3.6e6 == pytest.approx(0.0826)
    assert prices["dgx-h100", "node_power_max"].value == pytest.approx(10_200)
    assert prices["default", "lifetime"].value == pytest.approx(5 * 365.25 * 86400)
    for price in load_prices():
        assert price.low <= price.value <= price.high, price
        assert price.value > 0 or price.quantity == "residual"
        assert price.source
        assert price.date
        assert price.grade in ("A", "B", "C")


def test_prices_of_clusters_and_devices_name_presets() -> None:
    known = {*cluster_names(), *device_names(), *link_names(), "default"}
    named = {price.name for price in load_prices() if price.quantity in ("node_power_max", "power_floor")}
    assert named <= known


# Agreement with the collected facts, where they are at hand.


def test_devices_agree_with_the_collected_facts() -> None:
    file = FACTS / "accelerators.csv"
    if not file.is_file():
        pytest.skip("the collected facts are not here")
    facts = {row["name"]: row for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines())}
    for name, fact in (("h200", "H200-141GB SXM5"), ("gb300", "GB300 NVL72 (per GPU)"), ("mi300x", "MI300X")):
        device, row = load_device(name), facts[fact]
        assert device.peak("bf16") == pytest.approx(float(row["bf16_dense_tflops"]) * 1e12, rel=2e-4)
        assert device.memory == pytest.approx(float(row["hbm_gib_usable"]) * GiB)
        assert device.memory_bandwidth == pytest.approx(float(row["hbm_gbps"]) * 1e9)


def test_a_device_without_a_cluster_is_told_to_be_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.catalog.hardware.device_names", lambda: ("h300-nvl",))
    with pytest.raises(InputError, match="h300-nvl is a device without a cluster of its own"):
        load_cluster("h300-nvl")


@pytest.mark.parametrize(
    ("load", "quantity", "unit", "lacking"),
    [
        (load_device, "memory", "GB", "devices.csv: half lacks the rows peak_flops, memory_nominal, memory_bandwidth"),
        (load_cluster, "gpus_per_node", "1", "clusters.csv: half lacks the rows device, tiers"),
        (load_link, "latency", "us", "links.csv: half lacks the rows bandwidth"),
    ],
)
def test_half_a_preset_says_what_it_lacks(
    load: Callable[[str], object], quantity: str, unit: str, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Row(file="", line=1, name="half", quantity=quantity, text="8", unit=unit, provenance=Provenance(source=""))
    monkeypatch.setattr("optimizer.catalog.hardware.rows", lambda *_: (row,))
    monkeypatch.setattr("optimizer.catalog.hardware.canonical", lambda *_: "half")
    with pytest.raises(InputError, match=lacking):
        load("half")


def test_geforce_halves_its_rate_with_fp32_accumulation() -> None:
    """The same SMs at the same clock are twice as fast in the workstation card."""
    for geforce, workstation in (("rtx-3090", "rtx-a6000"), ("rtx-4090", "rtx-6000-ada"), ("rtx-5090", "rtx-pro-6000")):
        slow, fast = load_device(geforce), load_device(workstation)
        assert 1.9 < fast.peak("bf16") / fast.sms / (slow.peak("bf16") / slow.sms) < 2.3


def test_boards_without_peer_to_peer_and_bridges() -> None:
    geforce, bridged = load_cluster("rtx-3090"), load_cluster("rtx-3090-8-nvlink")
    assert geforce.tiers[0].link.efficiency == pytest.approx(28 / 63, abs=0.01)
    assert [(tier.size, tier.bandwidth) for tier in bridged.tiers] == [(2, 56.25e9), (8, 31.5e9)]
    slow = load_cluster("rtx-3090-8-pcie3")
    assert (slow.device.name, slow.host_bandwidth, slow.tiers[0].bandwidth) == ("rtx-3090", 12e9, 15.75e9)


@pytest.mark.parametrize(
    ("name", "device", "gpus", "memory"),
    [
        ("g5.12xlarge", "a10g", 4, 192),
        ("g6e.12xlarge", "l40s", 4, 384),
        ("g4dn.xlarge", "t4", 1, 16),
        ("Standard_NC96ads_A100_v4", "a100-80-pcie", 4, 880),
    ],
)
def test_clouds_instances_by_name(name: str, device: str, gpus: int, memory: int) -> None:
    cluster = load_cluster(name)
    assert (cluster.device.name, cluster.gpus_per_node) == (device, gpus)
    assert cluster.host_memory == pytest.approx(memory * GiB)
