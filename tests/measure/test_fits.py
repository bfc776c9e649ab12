"""Curves and links from times that are planted: what is found, within which bounds, from how many samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.catalog import load_device
from optimizer.catalog.readers.nccl_tests import CollectiveSample
from optimizer.measure.fit_messages import alpha_betas, steps_of
from optimizer.measure.fit_products import FEWEST, ProductFit, fit_products
from optimizer.measure.measured import Product
from optimizer.objectives.kernels.gemm import gemm_time
from optimizer.objectives.kernels.gemm_curve import GemmCurve, curve_for

EDGES = (256, 1024, 4096, 16384)
USUAL = {"ceiling": 0.7, "small_rate": 0.8, "wave_softness": 0.4, "k_half": 300.0, "launch": 5e-6}


def planted(**parameters: float) -> list[Product]:
    curve = replace(curve_for(load_device("h100"), "bf16"), **{"throttle": 0.0, "slower": None, **USUAL, **parameters})
    return [
        Product(m=m, n=n, k=k, seconds=float(gemm_time(m, n, k, curve))) for m in EDGES for n in EDGES for k in EDGES
    ]


def fitted(products: list[Product]) -> ProductFit:
    device = load_device("h100")
    efficiency = curve_for(device, "bf16").memory_efficiency
    return fit_products(products, replace(device, gemm={}), "bf16", efficiency)


def test_planted_parameters_are_found() -> None:
    found = fitted(planted())
    assert {name: found.parameters[name] for name in USUAL} == pytest.approx(USUAL, rel=0.02)
    assert found.ratios == pytest.approx(np.ones(64), rel=1e-3)


def test_an_outlier_moves_little() -> None:
    products = [
        replace(each, seconds=each.seconds * (4.0 if place % 16 == 7 else 1.0)) for place, each in enumerate(planted())
    ]
    found = fitted(products)
    right = [ratio for place, ratio in enumerate(found.ratios) if place % 16 != 7]
    assert right == pytest.approx(np.ones(60), rel=0.05)


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("k_half", 4000.0, 2000.0),
        ("launch", 1e-7, 5e-7),
        ("launch", 5e-3, 1e-3),
        ("small_rate", 1.5, 1.0),
        ("wave_softness", 1.5, 1.0),
    ],
)
def test_no_parameter_leaves_its_bounds(name: str, value: float, bound: float) -> None:
    assert fitted(planted(**{name: value})).parameters[name] == pytest.approx(bound, rel=0.02)


@pytest.mark.parametrize("rest", [0, 1])
def test_few_products_tell_the_ceiling_alone(rest: int) -> None:
    products = planted()[-FEWEST + rest :]
    found = fitted(products)
    best = max(product.rate for product in products) / load_device("h100").peak("bf16")
    if rest:
        assert set(found.parameters) == {"ceiling", "memory_efficiency"}
        assert found.parameters["ceiling"] == pytest.approx(best)
    else:
        assert {*found.parameters} == {*USUAL, "memory_efficiency"}
    assert found.parameters["ceiling"] >= best


def test_ratios_are_predicted_over_measured() -> None:
    """A product whose rate is the ceiling takes the launch, and what the ends of its tiles and waves cost, besides."""
    one = Product(m=8192, n=8192, k=8192, seconds=2 * 8192.0**3 / 500e12)
    found = fitted([one])
    device = load_device("h100")
    start: GemmCurve = curve_for(replace(device, gemm={"bf16": found.parameters}), "bf16")
    assert found.ratios == pytest.approx(float(gemm_time(one.m, one.n, one.k, start)) / one.seconds, rel=1e-6)
    assert found.parameters["ceiling"] == pytest.approx(500e12 / device.peak("bf16"))


@pytest.mark.parametrize(
    ("kind", "ranks", "steps"),
    [
        ("all_reduce", 2, 2),
        ("all_reduce", 8, 14),
        ("reduce_scatter", 8, 7),
        ("all_to_all", 4, 3),
        ("point_to_point", 8, 1),
    ],
)
def test_steps_of_a_ring(kind: str, ranks: int, steps: int) -> None:
    assert steps_of(kind, ranks) == steps


def test_every_kind_and_group_of_two_sizes_is_told() -> None:
    """An all-gather of m bytes among 5 ranks moves 4 m / 5 a rank in 4 steps; an outlier changes little."""

    def sample(kind: str, message: float, ranks: int, nodes: int, slower: float = 1.0) -> CollectiveSample:
        time = slower * ((ranks - 1) * nodes * 3e-6 + message * (ranks - 1) / ranks / (40e9 / nodes))
        return CollectiveSample(kind=kind, message=message, time=time, ranks=ranks, nodes=nodes)

    sizes = [2.0**power for power in range(11, 31)]
    samples = [
        *(sample("all_gather", size, 5, 1, 4.0 if size == 2**20 else 1.0) for size in sizes),
        *(sample("all_gather", size, 10, 2) for size in (1e3, 1e9)),
        *(sample("reduce_scatter", size, 5, 1) for size in (1e3, 1e9)),
        sample("all_to_all", 1e6, 5, 1),
    ]
    found = {(row.kind, row.nodes): row for row in alpha_betas(samples)}
    assert {key: (row.ranks, row.samples) for key, row in found.items()} == {
        ("all_gather", 1): (5, 20),
        ("all_gather", 2): (10, 2),
        ("reduce_scatter", 1): (5, 2),
    }
    for (_, nodes), row in found.items():
        assert (row.alpha, row.bandwidth) == pytest.approx((nodes * 3e-6, 40e9 / nodes), rel=0.03)
        assert row.median_error < 0.02
