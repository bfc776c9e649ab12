"""Time of matrix products on one accelerator, from their shape and a curve fitted to measured kernels.

Products are cut into tiles that the SMs work off in waves. A library picks among tile shapes, so the faster of a
coarse and a fine tiling counts. The fine one stands for every finer granularity a library has (small tiles, split-k,
stream-k), which is why its rate can come close to that of the coarse one. Products that keep the matrix units busy for
long run into the power limit of the board, which lowers the clock.

Plans are priced with gemm_time, at the clock of a training step. objectives/kernels/gemm_sweep.py tells what a sweep of
kernels measures, where each product meets the power limit by itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.kernels.gemm_curve import GemmCurve

Clock = Callable[[FloatArray], FloatArray]  # computing time at some clock [s], from that at full clock [s]

# s: length of the product whose clock all products of a step have, assumed. Refits of Megatron-Bridge's runs on H100
# and GB200 err by 5.6, 5.4, 5.4, 5.9 and 7.0 % at 0.05, 0.2, 1, 5 and 20 ms. With each product at the clock of its own
# length, refits err by 3.7 instead of 3.2 % on nemo-2024, 3.8 instead of 3.5 % on llm-foundry, and by 3.5 instead of
# 4.4 % on nemo-2022.
SPELL = 1e-3


def gemm_time(m: ArrayLike, n: ArrayLike, k: ArrayLike, curve: GemmCurve, *, batch: ArrayLike = 1) -> FloatArray:
    """Time of `batch` independent products (m x k) times (k x n) in one kernel, operands in their dtype already [s].

    time = launch + max(compute / (1 - throttle x SPELL^2 / (SPELL^2 + burst^2)), memory)
    compute = 2 tile_m tile_n (k + k_half) x waves x sms / (peak x ceiling), the smaller of the two tilings
    waves = softness x max(tiles / sms, 1) + (1 - softness) x ceil(tiles / sms), tiles = batch x ceil x ceil
    memory = batch x ((m k + k n) x element_bytes + m n x output_bytes) / (bandwidth x memory_efficiency)
    m, n, k [elements] and batch [1] broadcast. No product takes longer than on the curve's `slower`. The clock of a
    step follows the power of all its kernels: long and short products run at the same one, that of a product of SPELL
    on a device that has not rested. What a training step loses beyond that, the stack's gemm_efficiency holds.

    Source: wave and tile quantisation as in NVIDIA's "Matrix Multiplication Background User's Guide". The softening,
    the saturation in k and the form of the throttling are this project's, fitted by maintain.gemm_fit.

    One wave of 100 tiles of 256 x 128 and k = 1024 at 1e12 FLOP/s: 2 x 2560 x 1280 x 1024 / 1e12 = 6.71 ms.

    >>> curve = GemmCurve(peak=1e12, bandwidth=1e12, sms=100, element_bytes=2, ceiling=1, wave_softness=0,
    ...                   k_half=0, launch=0, memory_efficiency=1, small_rate=0.5)
    >>> round(float(gemm_time(2560, 1280, 1024, curve)) * 1e3, 2)
    6.71

    A power limit that takes up to 20 % of the rate, and half of that, 10 %, in a millisecond: 6.71 / 0.9 = 7.46 ms.

    >>> from dataclasses import replace
    >>> round(float(gemm_time(2560, 1280, 1024, replace(curve, throttle=0.2, burst=1e-3))) * 1e3, 2)
    7.46
    """
    lost = curve.throttle * SPELL**2 / (SPELL**2 + curve.burst**2)
    time = products_time(m, n, k, curve, batch, lambda compute: compute / (1.0 - lost))
    return time if curve.slower is None else np.minimum(time, gemm_time(m, n, k, curve.slower, batch=batch))


def cast_time(elements: ArrayLike, curve: GemmCurve) -> FloatArray:
    """Time to quantise an operand of so many elements in kernels of its own [s].

    elements x cast_bytes / bandwidth + cast_launch: per-tensor scaling that reads 16-bit numbers twice (largest
    value, then conversion) and writes 8-bit ones moves 5 B per element at least. 0 for a 16-bit curve.
    """
    traffic = np.asarray(elements, dtype=np.float64) * curve.cast_bytes
    return np.asarray(traffic / curve.bandwidth + curve.cast_launch, dtype=np.float64)


def products_time(
    m: ArrayLike, n: ArrayLike, k: ArrayLike, curve: GemmCurve, batch: ArrayLike, throttled: Clock
) -> FloatArray:
    """The formula of gemm_time, `throttled` giving computing time at the clock [s] from that at full clock [s]."""
    rows, columns, depth, count = (np.asarray(value, dtype=np.float64) for value in (m, n, k, batch))
    high, wide, small = curve.tile_m, curve.tile_n, curve.small_tile
    tiles = np.ceil(rows / high) * np.ceil(columns / wide)
    if high != wide:
        tiles = np.minimum(tiles, np.ceil(rows / wide) * np.ceil(columns / high))
    coarse = _waves(count * tiles, curve) * (high * wide)
    fine = _waves(count * np.ceil(rows / small) * np.ceil(columns / small), curve)
    area = np.minimum(coarse, fine * (small * small / curve.small_rate))
    compute = area * (depth + curve.k_half) * (2.0 * curve.sms / (curve.peak * curve.ceiling))
    moved = (rows + columns) * depth * curve.element_bytes + rows * columns * curve.output_bytes
    memory = count * moved * (1.0 / (curve.bandwidth * curve.memory_efficiency))
    return np.asarray(np.maximum(throttled(compute), memory) + curve.launch, dtype=np.float64)


def _waves(tiles: FloatArray, curve: GemmCurve) -> FloatArray:
    """Rounds in which the SMs work off the tiles, partly balanced [1]."""
    waves = tiles / curve.sms
    softness = curve.wave_softness
    return np.asarray(softness * np.maximum(waves, 1.0) + (1.0 - softness) * np.ceil(waves))
