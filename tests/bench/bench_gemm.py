"""Speed of pricing matrix products: a search prices millions of shapes, the target is 150 ns for each."""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from optimizer.catalog.hardware import load_device
from optimizer.objectives.kernels.gemm import gemm_time
from optimizer.objectives.kernels.gemm_curve import curve_for


@pytest.mark.parametrize("entries", [100, 10_000, 1_000_000])
def test_price_products(benchmark: BenchmarkFixture, entries: int) -> None:
    curve = curve_for(load_device("h100"), "bf16")
    m, n, k = np.random.default_rng(0).integers(64, 65_536, (3, entries)).astype(np.float64)
    times = benchmark(gemm_time, m, n, k, curve)
    assert times.shape == (entries,)
    assert (times > 0).all()


def test_look_up_a_curve(benchmark: BenchmarkFixture) -> None:
    device = load_device("h100")
    assert benchmark(curve_for, device, "bf16").sms == 132
