"""A user's own device and cluster: units, directions, and every problem at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimizer.base.errors import InputError, InvalidFile
from optimizer.base.units import GiB
from optimizer.catalog.hardware import load_cluster, load_device, load_link

CLUSTER = """
name = "mine"
device = "h100"
gpus_per_node = 8
host_bandwidth_one_way = "25 GB/s"
[[tiers]]
name = "node"
link = "nvlink4"
size = 8
[[tiers]]
name = "network"
bandwidth_one_way = "400 Gb/s"
latency = "5 us"
oversubscription = 2.0
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def problems(folder: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(InvalidFile) as caught:
        load_cluster(write(folder, text))
    return caught.value.problems


def test_a_cluster(tmp_path: Path) -> None:
    cluster = load_cluster(write(tmp_path, CLUSTER))
    assert cluster.name == "mine"
    assert cluster.device == load_device("h100")
    assert cluster.host_bandwidth == 25e9
    assert cluster.tiers[0].link.bandwidth == 450e9
    assert cluster.tiers[1].link.bandwidth == 50e9
    assert cluster.tiers[1].bandwidth == 25e9
    assert cluster.tiers[1].link.latency == pytest.approx(5e-6)
    assert cluster.tiers[1].size == cluster.max_gpus == 1_000_000
    assert cluster.tiers[1].link.provenance["latency"].source == "mine.toml"


def test_a_tier_without_a_link_behaves_like_a_preset_but_for_its_own_values(tmp_path: Path) -> None:
    tier = load_cluster(str(write(tmp_path, CLUSTER))).tiers[1]
    assert tier.link.efficiency == load_link("infiniband-ndr").efficiency
    assert tier.link.name == "mine:network"


def test_duplex_is_halved_and_ports_multiply(tmp_path: Path) -> None:
    text = CLUSTER.replace('bandwidth_one_way = "400 Gb/s"', 'bandwidth_duplex = "400 Gb/s"\nports_per_gpu = 0.5')
    assert load_cluster(write(tmp_path, text)).tiers[1].link.bandwidth == 12.5e9


def test_a_preset_link_with_values_of_its_own(tmp_path: Path) -> None:
    text = CLUSTER.replace('link = "nvlink4"', 'link = "nvlink4"\nefficiency = 0.7\nin_switch_reduction = false')
    link = load_cluster(write(tmp_path, text)).tiers[0].link
    assert (link.efficiency, link.in_switch_reduction, link.bandwidth) == (0.7, False, 450e9)
    assert link.name == "mine:node"  # what was measured on nvlink4 does not hold for it
    assert load_cluster(write(tmp_path, CLUSTER)).tiers[0].link == load_link("nvlink4")


def test_a_device_like_a_preset(tmp_path: Path) -> None:
    text = CLUSTER.replace('device = "h100"\n', "") + '[device]\nname = "h100-96"\nlike = "h100"\nmemory = "94 GiB"\n'
    device = load_cluster(write(tmp_path, text)).device
    assert (device.name, device.memory, device.memory_nominal) == ("h100-96", 94 * GiB, 94 * GiB)
    assert device.peak("bf16") == 989.5e12
    assert device.provenance["memory"].source == "mine.toml"
    assert device.provenance["power"].source != "mine.toml"


def test_a_device_of_its_own(tmp_path: Path) -> None:
    text = """
    name = "chip"
    memory = "64 GB"
    memory_bandwidth = "2 TB/s"
    power = "500 W"
    sms = 100
    [peak_flops]
    bf16 = "500 TFLOP/s"
    """
    device = load_device(write(tmp_path, text))
    assert (device.peak("bf16"), device.memory, device.memory_nominal) == (500e12, 64e9, 64e9)
    assert (device.sms, device.power, device.memory_bandwidth) == (100, 500.0, 2e12)


def test_every_problem_at_once(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """
        name = "mine"
        device = "h10"
        gpus_per_nod = 8
        [[tiers]]
        name = "node"
        link = "nvlnk4"
        size = 8
        [[tiers]]
        name = "network"
        bandwidth = "400 Gb/s"
        latency = 5
        oversubscription = 0.5
        [[tiers]]
        name = "more"
        bandwidth_one_way = "400 GB"
        sise = 4
        """,
    )
    expected = {
        "device: unknown device 'h10'. Did you mean h100",
        "gpus_per_nod: unknown key; did you mean gpus_per_node?",
        "tiers[0].link: unknown link 'nvlnk4'. Did you mean nvlink4",
        "tiers[1].bandwidth: does not say which way; write bandwidth_one_way",
        "tiers[1].latency: 5 has no unit; expected [s], for example '2 us'",
        "tiers[1].oversubscription: expected a number of at least 1, but got 0.5",
        "tiers[2].bandwidth_one_way: '400 GB' is in [B]; expected a quantity in [B/s], for example '400 Gb/s'",
        "tiers[2].sise: unknown key; did you mean size?",
    }
    assert len(found) == len(expected)
    for start in expected:
        assert any(problem.startswith(start) for problem in found), start


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('device = "h100"\n', "", "device: missing"),
        ('device = "h100"', "device = 3", "device: expected the name of a preset or a table"),
        ("size = 8", "", "tiers[0].size: missing; only the last tier"),
        ("oversubscription = 2.0", "size = 4", "tiers[1].size: must be above the 8 GPUs"),
        ('bandwidth_one_way = "400 Gb/s"', "", "tiers[1]: give a link, or bandwidth_one_way"),
        ('latency = "5 us"', 'bandwidth_duplex = "8 GB/s"', "tiers[1]: give bandwidth_one_way or bandwidth_duplex"),
        ('"400 Gb/s"', '"-400 Gb/s"', "tiers[1].bandwidth_one_way: must not be negative"),
        ('"400 Gb/s"', '"400"', "tiers[1].bandwidth_one_way: '400' has no unit"),
        ('"400 Gb/s"', "true", "tiers[1].bandwidth_one_way: True has no unit"),
        ("host_bandwidth_one_way", "host_bandwidth", "host_bandwidth: does not say which way"),
        ("gpus_per_node = 8", "gpus_per_node = 0", "gpus_per_node: expected a whole number above 0, but got 0"),
        (
            "gpus_per_node = 8",
            "gpus_per_node = 3",
            "gpus_per_node: nodes of 3 GPUs cut through the innermost tier, of 8",
        ),
        ("gpus_per_node = 8", "gpus_per_node = ", "not TOML:"),
    ],
)
def test_one_problem(tmp_path: Path, old: str, new: str, message: str) -> None:
    found = problems(tmp_path, CLUSTER.replace(old, new, 1))
    assert any(problem.startswith(message) for problem in found), found


def test_problems_of_a_device(tmp_path: Path) -> None:
    text = CLUSTER.replace('device = "h100"\n', "")
    assert problems(tmp_path, text + '[device]\nname = "x"\nmemry = "80 GB"\n') == (
        "device.memry: unknown key; did you mean memory?",
    )
    assert problems(tmp_path, text + '[device]\nname = "x"\n') == (
        "device: give peak_flops, memory, memory_bandwidth, or like = the preset that they are taken from",
    )
    too_much = '[device]\nname = "x"\nlike = "h100"\nmemory = "90 GB"\nmemory_nominal = "80 GB"\n'
    assert problems(tmp_path, text + too_much)[0].startswith("memory: 9e+10 B is more than memory_nominal")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_device(Path("absent.toml"))
