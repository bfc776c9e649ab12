"""A user's network from logs: the fitted tier goes into a cluster file and prices collectives as the logs say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from optimizer.catalog import load_cluster, load_link
from optimizer.catalog.readers.nccl_tests import read_nccl_tests
from optimizer.catalog.readers.nvidia_topo import read_topo
from optimizer.cli import cli
from optimizer.commands.study.network import print_lines
from optimizer.objectives.network.collectives import collective_time
from optimizer.objectives.network.topology import span

pytestmark = pytest.mark.usefixtures("planned_once")
DATA = Path(__file__).resolve().parents[1] / "catalog" / "readers" / "data"


def test_the_printed_tier_prices_the_log_it_was_fitted_to(tmp_path: Path) -> None:
    log = DATA / "nccl_all_reduce_a100.txt"
    done = CliRunner().invoke(cli, ["calibrate-link", str(log), "--link", "nvlink3"])
    assert done.exit_code == 0, done.output
    cluster = tmp_path / "mine.toml"
    head = 'name = "mine"\ndevice = "a100-80"\ngpus_per_node = 8\n'
    cluster.write_text(head + done.output.replace('name = "fitted"', 'name = "node"\nsize = 8'))
    mine = load_cluster(cluster)
    samples = [sample for sample in read_nccl_tests(log) if not sample.in_place and sample.message >= 2**20]
    message = np.array([sample.message for sample in samples])
    measured = np.array([sample.time for sample in samples])
    predicted = collective_time("all_reduce", message, span(mine, np.full(len(samples), 8), 1), mine)
    assert np.median(np.abs(predicted / measured - 1)) < 0.1


def test_json_holds_the_link() -> None:
    done = CliRunner().invoke(
        cli, ["calibrate-link", str(DATA / "nccl_all_reduce_a100.txt"), "--link", "nvlink3", "--json"]
    )
    link = json.loads(done.output)["link"]
    assert link["name"] == "nvlink3-fitted"
    assert link["bandwidth_bytes_per_s"] == 300e9


def test_a_truncated_log_is_refused_with_its_line() -> None:
    done = CliRunner().invoke(cli, ["calibrate-link", str(DATA / "nccl_truncated.txt"), "--link", "nvlink3"])
    assert done.exit_code == 2
    assert "line" in done.stderr


def test_topology_tells_the_domain_and_its_bandwidth() -> None:
    done = CliRunner().invoke(cli, ["topology", str(DATA / "topo_h100.txt"), "--link", "nvlink4"])
    assert done.exit_code == 0, done.output
    assert "8 GPUs, 8 of them in one NVLink domain" in done.output
    assert "450 GB/s one way" in done.output


@pytest.mark.parametrize(
    ("file", "gpus", "links"), [("topo_a100.txt", 8, "NV12 to all 7 others"), ("topo_bridge.txt", 2, "GPU1 NV2")]
)
def test_topology_tells_the_links_of_every_gpu_to_the_others(file: str, gpus: int, links: str) -> None:
    lines = CliRunner().invoke(cli, ["topology", str(DATA / file)]).output.splitlines()
    told = dict(line.split(": ", 1) for line in lines if line.startswith("GPU"))
    assert list(told) == [f"GPU{number}" for number in range(gpus)]
    assert told["GPU0"].startswith(f"{links}; nearest NIC")
    assert all("NV" in line for line in told.values())


def test_a_matrix_is_told_line_by_line(tmp_path: Path) -> None:
    matrix = tmp_path / "topo.txt"
    rows = ["\tGPU0\tGPU1\tGPU2\tNIC0", "GPU0\t X \tNV4\tSYS\tPIX", "GPU1\tNV4\t X \tNV2\tSYS"]
    matrix.write_text("\n".join([*rows, "GPU2\tSYS\tNV2\t X \tSYS", "NIC0\tPIX\tSYS\tSYS\t X ", ""]))
    assert CliRunner().invoke(cli, ["topology", str(matrix)]).output.splitlines() == [
        "3 GPUs, 3 of them in one NVLink domain, 1 NICs",
        "GPU0: GPU1 NV4; nearest NIC: NIC0",
        "GPU1: GPU0 NV4, GPU2 NV2; nearest NIC: NIC0",
        "GPU2: GPU1 NV2; nearest NIC: NIC0",
    ]
    matrix.write_text("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n")
    assert CliRunner().invoke(cli, ["topology", str(matrix), "--link", "nvlink4"]).output.splitlines() == [
        "2 GPUs, 2 of them in one NVLink domain, 0 NICs",
        "NVLink bandwidth of GPU0: 100 GB/s one way, as links of nvlink4",
        "GPU0: GPU1 NV4; nearest NIC: no NIC listed",
        "GPU1: GPU0 NV4; nearest NIC: no NIC listed",
    ]


@pytest.mark.parametrize(
    ("file", "device", "names", "sizes"),
    [
        ("topo_h100.txt", "h100", ["nvlink", "network"], [8]),
        ("topo_a100.txt", "a100-80", ["nvlink", "network"], [8]),
        ("topo_nics.txt", "h100", None, None),
        ("topo_bridge.txt", "a100-80", None, None),
        ("topo_pcie.txt", "l40s", ["pcie", "network"], None),
    ],
)
def test_topology_ends_in_a_cluster_that_plans(
    file: str, device: str, names: list[str] | None, sizes: list[int] | None, tmp_path: Path
) -> None:
    out = tmp_path / "mine.toml"
    words = ["topology", str(DATA / file), "--device", device, "--out", str(out)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    node, cluster = read_topo(DATA / file), load_cluster(out)
    assert (cluster.name, cluster.device.name, cluster.gpus_per_node) == ("mine", device, len(node.gpus))
    inner = cluster.tiers[0]
    if node.scale_up_size > 1:
        assert (inner.name, inner.size) == ("nvlink", node.scale_up_size)
        assert inner.link.bandwidth == pytest.approx(node.nvlink_bandwidth(load_cluster(device).tiers[0].link))
    assert names is None or [tier.name for tier in cluster.tiers] == names
    assert sizes is None or [tier.size for tier in cluster.tiers[:-1]] == sizes
    again = CliRunner().invoke(cli, words)
    assert again.exit_code == 2
    assert "--force" in again.stderr
    gpus = str(2 * len(node.gpus))
    planned = CliRunner().invoke(
        cli, ["--model", "llama3.2-1b", "--gpus", gpus, "--cluster", str(out), "--trials", "0", "--json"]
    )
    assert planned.exit_code == 0, planned.stderr
    assert json.loads(planned.stdout)["job"]["cluster"] == "mine"


def test_a_cluster_file_counts_the_ports_and_takes_the_network_named(tmp_path: Path) -> None:
    out = tmp_path / "mine.toml"
    words = ["--device", "h100", "--network", "roce-400", "--link", "nvlink4", "--out", str(out)]
    done = CliRunner().invoke(cli, ["topology", str(DATA / "topo_nics.txt"), *words])
    assert done.exit_code == 0, done.output
    node, network = read_topo(DATA / "topo_nics.txt"), load_cluster(out).tiers[-1]
    near = {nic for number in range(len(node.gpus)) for nic in node.nearest_nics(number)}
    assert network.link.bandwidth == pytest.approx(load_link("roce-400").bandwidth * len(near) / len(node.gpus))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "x.toml"], "--out and --device go together"),
        (["--device", "h100"], "--out and --device go together"),
        (["--device", "h100", "--out", "x.txt"], "write x.toml"),
        (["--device", "h100", "--network", "nothing", "--out", "x.toml"], "unknown link 'nothing'"),
    ],
)
def test_what_makes_no_cluster_file_is_said(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["topology", str(DATA / "topo_h100.txt"), *words])
    assert done.exit_code == 2
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


def test_lines_fit_a_terminal_and_break_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    name = "calibrate-link"
    print_lines(f"{'x' * (80 - len(name))} {name} ends")
    assert capsys.readouterr().out == f"{'x' * (80 - len(name))}\n    {name} ends\n"
    print_lines(f"{'x' * (80 - len(name) - 1)} {name} ends")
    assert capsys.readouterr().out == f"{'x' * (80 - len(name) - 1)} {name}\n    ends\n"
