"""Topology matrices of nvidia-smi: DGX A100, H100, two GPUs with a bridge, two on PCIe, and one with NICs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog.readers.nvidia_topo import read_topo
from optimizer.job.hardware import Link

DATA = Path(__file__).parent / "data"
NVLINK2 = Link(name="nvlink2", bandwidth=150e9, latency=0.0, quantities={"links": 6})
NVLINK3 = Link(name="nvlink3", bandwidth=300e9, latency=0.0, quantities={"links": 12})
NVLINK4 = Link(name="nvlink4", bandwidth=450e9, latency=0.0, quantities={"links": 18})


def test_a100_node() -> None:
    """The capture has the coloured header and the legend of a terminal."""
    found = read_topo(DATA / "topo_a100.txt")
    assert len(found.gpus) == 8
    assert found.scale_up_size == 8
    assert found.between[0][0] == "X"
    assert found.nvlinks(0, 7) == 12
    assert found.nvlink_bandwidth(NVLINK3) == pytest.approx(300e9)


def test_h100_node() -> None:
    found = read_topo(DATA / "topo_h100.txt")
    assert found.nvlinks(3, 4) == 18
    assert found.nvlink_bandwidth(NVLINK4) == pytest.approx(450e9)


def test_two_bridged_gpus_have_two_links_of_six() -> None:
    found = read_topo(DATA / "topo_bridge.txt")
    assert found.scale_up_size == 2
    assert found.nvlink_bandwidth(NVLINK2) == pytest.approx(50e9)


def test_two_gpus_on_pcie() -> None:
    found = read_topo(DATA / "topo_pcie.txt")
    assert found.scale_up_size == 1
    assert found.between[0][1] == "PHB"
    assert found.nvlink_bandwidth(NVLINK3) == 0.0


def test_mesh_adds_up_its_pairs(tmp_path: Path) -> None:
    """Four GPUs without a switch: 1 + 2 + 3 links of NVLink 2, all six of a V100."""
    codes = [
        ["X", "NV1", "NV2", "NV3"],
        ["NV1", "X", "NV3", "NV2"],
        ["NV2", "NV3", "X", "NV1"],
        ["NV3", "NV2", "NV1", "X"],
    ]
    rows = ["\t".join([f"GPU{i}", *row]) for i, row in enumerate(codes)]
    path = tmp_path / "mesh.txt"
    path.write_text("\tGPU0\tGPU1\tGPU2\tGPU3\n" + "\n".join(rows))
    assert read_topo(path).nvlink_bandwidth(NVLINK2) == pytest.approx(150e9)


def test_nics_and_their_affinity() -> None:
    found = read_topo(DATA / "topo_nics.txt")
    assert found.nics == ("mlx5_0", "mlx5_3")
    assert found.nearest_nics(0) == ("mlx5_0",)
    assert found.nearest_nics(1) == ("mlx5_3",)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("GPU0\tNV1\tNV1\tPIX", "GPU0 cannot be connected as NV1 to GPU0"),
        ("GPU0\tX\tX\tPIX", "as X to GPU1"),
        ("GPU0\tX\tNV1\tNV1", "as NV1 to NIC0"),
    ],
)
def test_connections_that_no_machine_has(tmp_path: Path, row: str, complaint: str) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(f"\tGPU0\tGPU1\tNIC0\n{row}\nGPU1\tNV1\tX\tPIX\nNIC0\tPIX\tPIX\tX\n")
    with pytest.raises(InvalidFile, match=complaint):
        read_topo(path)


def test_a_link_that_is_no_nvlink() -> None:
    with pytest.raises(InputError, match="nvlink4"):
        read_topo(DATA / "topo_h100.txt").nvlink_bandwidth(Link(name="pcie5", bandwidth=63e9, latency=0.0))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda text: text[: text.index("\nGPU5")], r"no row for GPU5"),
        (lambda text: text.replace("GPU1\tNV18", "GPU1\tQPI"), r"line 3: GPU1 has unknown connections QPI"),
        (lambda text: text.replace("GPU1\tNV18", "GPU1\tNV17"), r"GPU0 to GPU1 is NV18, but back it is NV17"),
        (lambda text: text[: text.index("GPU7\tNV18") + 9], r"line 9: GPU7 has 1 of 8 connections"),
        (lambda _: "nvidia-smi: command not found\n", "no header line"),
    ],
)
def test_damaged_matrices_name_the_line(tmp_path: Path, change: Callable[[str], str], complaint: str) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(change((DATA / "topo_h100.txt").read_text()))
    with pytest.raises(InvalidFile, match=complaint):
        read_topo(path)
