"""The report and the files of a machine, with fits by hand: figures, shares, what is told."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.calibration.link import LinkFit
from optimizer.catalog import load_cluster
from optimizer.measure.fit_products import ProductFit
from optimizer.measure.hardware_of import Made
from optimizer.measure.hardware_toml import cluster_toml, device_toml
from optimizer.measure.measured import AttentionTime, Machine, NodeMeasurements, Transfer
from optimizer.measure.report import catalogue_lines, figures, measured_dict, measured_report
from optimizer.reports.report import Table

BEST, STREAM = 700e12, 3e12
GEMM = {"ceiling": 0.7, "memory_efficiency": 0.9}


def made(known: bool = True, fitted: int = 0, share: float = 0.9) -> Made:
    cluster = load_cluster("dgx-h100")
    usual = cluster.device if known else replace(cluster.device, name="own", vendor="Own", peak_flops={"bf16": BEST})
    device = replace(usual, measured_matmul={"fp8": 1e15, "bf16": BEST}, gemm={"bf16": GEMM})
    fits = {
        tier.name: LinkFit(link=tier.link, samples=(), before=np.zeros(1), residuals=np.log([1.2]))
        for tier in cluster.tiers[:fitted]
    }
    products = ProductFit(parameters={**GEMM, "memory_efficiency": share}, ratios=np.array([0.9, 1.0, 1.3]))
    cluster = replace(cluster, name="mine", device=device)
    return Made(
        cluster=cluster, known=known, products=products, best=BEST, stream=STREAM, links=fits, notes=("A note.",)
    )


def measured(**other: Any) -> NodeMeasurements:
    transfers = (("add", 3.0, 1.0), ("from_host", 6e9, 0.5), ("from_host", 6e9, 0.25), ("to_host", 6e9, 0.2))
    values: dict[str, Any] = {
        "source": "measure.json",
        "job": {},
        "machine": Machine(
            processor="gpu", name="H100", dtype="bfloat16", ranks=16, ranks_per_node=8, gpus_of_node=8, memory=80e9,
            torch="2.9", backend="nccl",
        ),
        "launches": {"host": 5e-6, "kernel": 2e-6, "graph": 1e-6},
        "memory": tuple(Transfer(kind=kind, bytes=size, seconds=seconds) for kind, size, seconds in transfers),
        "products": (),
        "attention": (),
        "collectives": (),
        "ranks": (1.0,),
    }  # fmt: skip
    return NodeMeasurements(**{**values, **other})


@pytest.mark.parametrize("known", [True, False])
def test_figures_stand_beside_the_catalogues(known: bool) -> None:
    """The peak of an H100 is 989.4 TFLOP/s in bf16, its memory's 3.35 TB/s."""
    score = AttentionTime(batch=1, heads=1, seq_len=1, qk_dim=1, v_dim=1, forward=1e-3, backward=0.0)
    found = {
        name: (value, unit, base) for name, value, unit, base in figures(made(known), measured(attention=(score,)))
    }
    assert found == {
        "best bf16 product": (BEST, "FLOP/s", pytest.approx(989.4e12, rel=1e-3) if known else None),
        "memory that kernels reach": (STREAM, "B/s", 3350e9 if known else None),
        "memory of a GPU": (80e9, "B", load_cluster("dgx-h100").device.memory if known else None),
        "launch by the host": (5e-6, "s", None),
        "smallest kernel": (2e-6, "s", None),
        "graph": (1e-6, "s", None),
        "attention forward": (4 / 1e-3, "FLOP/s", pytest.approx(989.4e12, rel=1e-3) if known else None),
        "from host": (24e9, "B/s", None),
        "to host": (30e9, "B/s", None),
    }


def test_the_share_of_what_the_catalogue_says_is_shown() -> None:
    sections = measured_report(made(fitted=1), measured()).sections
    tables = {part.heading: block for part in sections for block in part.blocks if isinstance(block, Table)}
    rows = {row[0]: tuple(row[1:]) for row in tables["Measured"].rows}
    assert rows["memory that kernels reach"] == ("3 TB/s", "3.35 TB/s", "89.6%")
    assert rows["smallest kernel"][1:] == ("—", "—")
    assert [tuple(row) for row in tables["Fitted"].rows] == [
        ("products", 3.0, pytest.approx(0.1)),
        ("tier scale_up", 0.0, pytest.approx(0.2)),
    ]


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ((1.0, 1.2), []),
        ((1.0, 1.0, 1.02), []),
        ((2.0, 2.5, 2.0), ["rank 1 multiplies 25.0% slower than the median rank"]),
        ((2.0, 4.0, 2.0, 1.0, 2.0), ["rank 1 multiplies 100.0% slower than the median rank"]),
    ],
)
def test_a_rank_that_holds_the_others_up_is_told(ranks: tuple[float, ...], told: list[str]) -> None:
    assert measured_dict(made(), measured(ranks=ranks))["told"] == ["A note.", *told]


@pytest.mark.parametrize(
    ("known", "fitted", "lines"),
    [
        (True, 0, ["peaks", "tiers scale_up, rail, spine", "sizes"]),
        (True, 2, ["peaks", "tier spine", "sizes"]),
        (False, 3, ["energy"]),
    ],
)
def test_what_comes_from_presets_is_told(known: bool, fitted: int, lines: list[str]) -> None:
    found = catalogue_lines(made(known, fitted))
    assert len(found) == len(lines)
    assert all(line.startswith(start) for line, start in zip(found, lines, strict=True))


@pytest.mark.parametrize("known", [True, False])
def test_a_file_tells_the_device_in_its_units(known: bool) -> None:
    text = device_toml(made(known), measured())
    read = tomllib.loads(text)
    assert (read.get("like"), read.get("vendor")) == (("h100", None) if known else (None, "Own"))
    assert read.get("peak_flops") == (None if known else {"bf16": "700 TFLOP/s"})
    assert read["measured_matmul"] == {"bf16": "700 TFLOP/s"}  # what the catalogue has of fp8 is not measured
    assert (read["memory_bandwidth"], read["sms"], read["gemm"]) == ("3350 GB/s", 132, {"bf16": GEMM})
    assert text.startswith("# 16 x H100, measured by optimize measure; PyTorch 2.9 nccl\n")
    assert "measured: kernels reach 3000 GB/s, 90.0% of it\n" in text
    assert "fitted to 3 products, median error 10.0%" in text
    assert "measured: what kernels reach\n" in device_toml(made(known, share=1.0), measured())


@pytest.mark.parametrize(("memory", "told"), [(0.0, None), (2e12, "2000 GB")])
def test_a_file_tells_the_cluster_in_its_units(memory: float, told: str | None) -> None:
    one = made(fitted=1)
    text = cluster_toml(replace(one, cluster=replace(one.cluster, host_memory=memory, host_bandwidth=5e10)), measured())
    read = tomllib.loads(text)
    assert (read["name"], read["gpus_per_node"], read.get("host_memory")) == ("mine", 8, told)
    assert read["host_bandwidth_one_way"] == "50 GB/s"
    assert [tier["name"] for tier in read["tiers"]] == ["scale_up", "rail", "spine"]
    assert [tier["link"] for tier in read["tiers"]] == [tier.link.name for tier in one.cluster.tiers]
    assert text.count("# fitted to 0 collectives, median error 20.0%") == 1
    assert text.count("# catalogue\n") == 2
