"""What a sweep of kernels measures: matrix products one by one, on a device that has rested."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.kernels.gemm import cast_time, products_time
from optimizer.objectives.kernels.gemm_curve import GemmCurve

# Sweeps take the products of each weight shape (n, k) from the largest m down, each of which tires the device:
# ai-dynamo/aiconfigurator collector/trtllm/collect_gemm.py@000959092 ("largest batch size first") and
# collector/cases/base_ops/gemm.yaml@cee2c32f5 (32,768 tokens at most).
SWEEP_ROWS = 32_768.0
TIRING = 1.0 / 3.0  # share of the rest, in log time, that each product leaves to the next one


def swept_time(
    m: ArrayLike, n: ArrayLike, k: ArrayLike, curve: GemmCurve, *, rest: ArrayLike, batch: ArrayLike = 1
) -> FloatArray:
    """Time of products measured one by one, on a device that has rested so much [s]; without the cast of operands.

    gemm_time but for the power limit, which knows no other kernels: a product takes what it needs to notice,
    throttled = compute / (1 - throttle x compute^2 / (compute^2 + (burst x rest)^2))
    m, n, k [elements], batch and rest [1] broadcast; rest = 1 is a device that has not rested at all.

    Source: clocks lowered "to ensure not to exceed currently set power limits": NVML API reference,
    nvmlClocksEventReasonSwPowerCap. The form is this project's, fitted by maintain.gemm_fit.

    A power limit that takes up to 20 % of the rate has taken half of that, 10 %, after a burst: 6.71 / 0.9 = 7.46 ms.

    >>> curve = GemmCurve(peak=1e12, bandwidth=1e12, sms=100, element_bytes=2, ceiling=1, wave_softness=0, k_half=0,
    ...                   launch=0, memory_efficiency=1, small_rate=0.5, throttle=0.2, burst=6.71e-3)
    >>> round(float(swept_time(2560, 1280, 1024, curve, rest=1)) * 1e3, 2)
    7.46
    """
    burst = np.square(curve.burst * np.asarray(rest, dtype=np.float64))

    def throttled(compute: FloatArray) -> FloatArray:
        square = compute * compute
        return np.asarray(compute * (square + burst) / (square * (1.0 - curve.throttle) + burst))

    return products_time(m, n, k, curve, batch, throttled)


def isolated_time(m: ArrayLike, n: ArrayLike, k: ArrayLike, curve: GemmCurve, *, batch: ArrayLike = 1) -> FloatArray:
    """Time of the products by themselves as a sweep of kernels measures it, with the cast of the m x k inputs [s].

    time = swept_time at rest = rest_in_sweep(log2(SWEEP_ROWS / m)) + cast_time(batch m k)
    m, n, k [elements] and batch [1] broadcast. Sweeps halve m from one product to the next, more or less, so that m
    tells how rested the device is. A 16-bit curve casts nothing.

    Source: this project's; error on measured kernels in presets/kernels.csv, of weight shapes held out of the fit.

    3.44 ms, ten times the burst. The second product of a sweep, 16,384 rows, still has 1000^(1/3) = 10 times the
    burst, after which the limit has taken half of 20 %: 3.44 / 0.9.

    >>> curve = GemmCurve(peak=1e13, bandwidth=1e12, sms=512, element_bytes=2, ceiling=1, wave_softness=0, k_half=0,
    ...                   launch=0, memory_efficiency=1, small_rate=0.5, throttle=0.2, burst=3.436e-4, rest=1000)
    >>> round(float(isolated_time(16_384, 1024, 1024, curve)) * 1e3, 2)
    3.82
    """
    rows, depth, count = (np.asarray(value, dtype=np.float64) for value in (m, k, batch))
    rest = rest_in_sweep(np.log2(SWEEP_ROWS / rows), curve)
    return swept_time(m, n, k, curve, rest=rest, batch=batch) + cast_time(count * rows * depth, curve)


def rest_in_sweep(place: ArrayLike, curve: GemmCurve) -> FloatArray:
    """How rested a sweep's product number `place` finds the device: rest^(TIRING^place), all rest up to place 0 [1]."""
    return np.asarray(curve.rest ** (TIRING ** np.maximum(place, 0.0)), dtype=np.float64)


def gemm_efficiency(m: ArrayLike, n: ArrayLike, k: ArrayLike, curve: GemmCurve, *, batch: ArrayLike = 1) -> FloatArray:
    """Share of the dense peak that isolated products reach: 2 batch m n k / (isolated_time x peak) [1].

    The e(m, n, k) of sweeps of kernels, where 8-bit products cast their inputs first; never above the ceiling.
    """
    rows, columns, depth, count = (np.asarray(value, dtype=np.float64) for value in (m, n, k, batch))
    flops = 2.0 * count * rows * columns * depth
    return np.asarray(flops / (isolated_time(m, n, k, curve, batch=batch) * curve.peak), dtype=np.float64)
