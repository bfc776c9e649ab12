"""Time of matrix products on one accelerator, from their shape and a curve fitted to measured kernels.

Products are cut into tiles that the SMs work off in waves. A library picks among tile shapes, so the faster of a
coarse and a fine tiling counts. The fine one stands for every finer granularity a library has (small tiles, split-k,
stream-k), which is why its rate can come close to that of the coarse one. Products that keep the matrix units busy for
long run into the power limit of the board, which lowers the clock.

Plans are priced with gemm_time, on a device that training keeps busy. isolated_time and gemm_efficiency tell what a
sweep of kernels measures, on a device that has rested.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from optimizer.hardware import Device
from optimizer.objectives.estimate import FloatArray
from optimizer.objectives.gemm_presets import CurvePreset, default_ceiling, preset_for


@dataclass(frozen=True, kw_only=True)
class GemmCurve:
    """How fast one device multiplies matrices in one dtype.

    The device: `peak` [FLOP/s], `bandwidth` [B/s], `sms`, `element_bytes` and `output_bytes` [B].
    The kernels: `ceiling` [1] largest share of `peak`; `tile_m` x `tile_n` coarse tile and `small_tile` edge of the
    fine one [elements]; `small_rate` [1] rate of fine over coarse tiles; `wave_softness` [1] share of the work that
    is balanced over the SMs, the rest waits for whole waves; `k_half` [elements] reduction length at which a tile
    reaches half its rate; `launch` [s] fixed time of a kernel; `memory_efficiency` [1] share of `bandwidth`.
    The power limit: `throttle` [1] share of the rate that it takes at most; `burst` [s] computing time of a product
    that loses half of that on a busy device; `rest` [1] how much longer the burst is on a device that has rested.
    Quantising an operand: `cast_bytes` [B/element] traffic and `cast_launch` [s] fixed time, 0 where nothing is cast.
    `source` names the preset; `extrapolated` says that it was measured on other silicon or in another dtype.
    """

    peak: float
    bandwidth: float
    sms: int
    element_bytes: float
    output_bytes: float = 2.0
    ceiling: float
    tile_m: float = 256.0
    tile_n: float = 128.0
    small_tile: float = 64.0
    small_rate: float = 0.95
    wave_softness: float = 0.5
    k_half: float
    launch: float
    memory_efficiency: float
    throttle: float = 0.0
    burst: float = 1.0
    rest: float = 1.0
    cast_bytes: float = 0.0
    cast_launch: float = 0.0
    source: str = ""
    extrapolated: bool = False


# Sweeps take the products of each weight shape (n, k) from the largest m down, each of which tires the device:
# ai-dynamo/aiconfigurator collector/trtllm/collect_gemm.py@000959092 ("largest batch size first") and
# collector/cases/base_ops/gemm.yaml@cee2c32f5 (32,768 tokens at most).
SWEEP_ROWS = 32_768.0
TIRING = 1.0 / 3.0  # share of the rest, in log time, that each product leaves to the next one

_ELEMENT_BYTES = {"fp4": 0.5, "fp6": 0.75, "fp8": 1.0, "int8": 1.0, "tf32": 4.0, "fp32": 4.0}


def curve_for(device: Device, dtype: str) -> GemmCurve:
    """The curve of a device and dtype, from presets/kernels.csv.

    A device that was not measured borrows the curve whose tiles run at the most similar rate (peak per SM), with
    its own peak, SMs and bandwidth. Its ceiling is its measured_matmul over its peak (bf16 and fp16 share theirs),
    else its vendor's default, else the borrowed one. A measured device whose number of SMs is unknown (1) takes the
    preset's. Narrow formats share the fp8 curve, all others the bf16 one.

    Raises InputError for a dtype without matrix units.
    """
    peak = device.peak(dtype)
    family = next((name for name in _ELEMENT_BYTES if name in dtype.lower()), "bf16")
    element_bytes = _ELEMENT_BYTES.get(family, 2.0)
    preset = preset_for(device, peak, "fp8" if element_bytes <= 1.0 else "bf16")
    if device.sms <= 1 and preset.names(device):
        device = replace(device, sms=round(preset["sms"]))
    exact = preset.measures(device, peak) and family in ("bf16", "fp8")
    return _curve(device, peak, element_bytes, preset, _ceiling(device, dtype, preset, exact), not exact)


def _ceiling(device: Device, dtype: str, preset: CurvePreset, exact: bool) -> float:
    """Largest share of the peak: fitted, else measured by a sweep, else assumed for the vendor, else borrowed [1]."""
    if exact:
        return preset["ceiling"]
    key = "fp8" if "fp8" in dtype.lower() else dtype.lower()
    for name in (key, *({"bf16", "fp16"} - {key} if key in ("bf16", "fp16") else ())):
        if device.measured_matmul.get(name, 0.0) > 0.0 and name in device.peak_flops:
            return min(1.0, device.measured_matmul[name] / device.peak_flops[name])
    return default_ceiling(device.vendor, preset["ceiling"])


def _curve(
    device: Device, peak: float, element_bytes: float, preset: CurvePreset, ceiling: float, extrapolated: bool
) -> GemmCurve:
    return GemmCurve(
        peak=peak,
        bandwidth=device.memory_bandwidth,
        sms=device.sms,
        element_bytes=element_bytes,
        output_bytes=max(2.0, element_bytes),
        ceiling=ceiling,
        tile_m=preset["tile_m"],
        tile_n=preset["tile_n"],
        small_tile=preset["small_tile"],
        small_rate=preset["small_rate"],
        wave_softness=preset["wave_softness"],
        k_half=preset["k_half"],
        launch=preset["launch"],
        memory_efficiency=preset["memory_efficiency"],
        throttle=preset.get("throttle", 0.0),
        burst=preset.get("burst", 1.0),
        rest=preset.get("rest", 1.0),
        cast_bytes=preset.get("cast_bytes", 0.0),
        cast_launch=preset.get("cast_launch", 0.0),
        source=f"{preset.device} {preset.dtype}",
        extrapolated=extrapolated,
    )


def gemm_time(
    m: ArrayLike, n: ArrayLike, k: ArrayLike, curve: GemmCurve, *, batch: ArrayLike = 1, rest: ArrayLike = 1.0
) -> FloatArray:
    """Time of `batch` independent products (m x k) times (k x n) in one kernel, operands in their dtype already [s].

    time = launch + max(throttled, memory)
    throttled = compute / (1 - throttle x compute^2 / (compute^2 + (burst x rest)^2))
    compute = 2 tile_m tile_n (k + k_half) x waves x sms / (peak x ceiling), the smaller of the two tilings
    waves = softness x max(tiles / sms, 1) + (1 - softness) x ceil(tiles / sms), tiles = batch x ceil x ceil
    memory = batch x ((m k + k n) x element_bytes + m n x output_bytes) / (bandwidth x memory_efficiency)
    m, n, k [elements], batch and rest [1] broadcast; rest = 1 is a device kept busy, as in training, and isolated_time
    says how rested a sweep of kernels finds it.

    Source: wave and tile quantisation as in NVIDIA's "Matrix Multiplication Background User's Guide"; clocks
    lowered "to ensure not to exceed currently set power limits": NVML API reference, nvmlClocksEventReasonSwPowerCap.
    The softening, the saturation in k and the form of the throttling are this project's, fitted by
    optimizer.calibration.gemm_fit.

    One wave of 100 tiles of 256 x 128 and k = 1024 at 1e12 FLOP/s: 2 x 2560 x 1280 x 1024 / 1e12 = 6.71 ms.

    >>> curve = GemmCurve(peak=1e12, bandwidth=1e12, sms=100, element_bytes=2, ceiling=1, wave_softness=0,
    ...                   k_half=0, launch=0, memory_efficiency=1, small_rate=0.5)
    >>> round(float(gemm_time(2560, 1280, 1024, curve)) * 1e3, 2)
    6.71

    A power limit that takes up to 20 % of the rate has taken half of that, 10 %, after a burst: 6.71 / 0.9 = 7.46 ms.

    >>> round(float(gemm_time(2560, 1280, 1024, replace(curve, throttle=0.2, burst=6.71e-3))) * 1e3, 2)
    7.46
    """
    return _time(m, n, k, curve, batch, rest, ragged=False)


def isolated_time(m: ArrayLike, n: ArrayLike, k: ArrayLike, curve: GemmCurve, *, batch: ArrayLike = 1) -> FloatArray:
    """Time of the products by themselves as a sweep of kernels measures it, with the cast of the m x k inputs [s].

    time = gemm_time at rest = rest_in_sweep(log2(SWEEP_ROWS / m)) + cast_time(batch m k)
    m, n, k [elements] and batch [1] broadcast. Sweeps halve m from one product to the next, more or less, so that m
    tells how rested the device is. A 16-bit curve casts nothing.

    Source: this project's; error on measured kernels in presets/kernels.csv, of weight shapes held out of the fit.

    3.44 ms, ten times the burst. The second product of a sweep, 16,384 rows, still has 1000^(1/3) = 10 times the
    burst, after which the limit has taken half of 20 %: 3.44 / 0.9. A busy device has lost 20 % x 100 / 101.

    >>> curve = GemmCurve(peak=1e13, bandwidth=1e12, sms=512, element_bytes=2, ceiling=1, wave_softness=0, k_half=0,
    ...                   launch=0, memory_efficiency=1, small_rate=0.5, throttle=0.2, burst=3.436e-4, rest=1000)
    >>> round(float(isolated_time(16_384, 1024, 1024, curve)) * 1e3, 2)
    3.82
    >>> round(float(gemm_time(16_384, 1024, 1024, curve)) * 1e3, 2)
    4.28
    """
    rows, depth, count = (np.asarray(value, dtype=np.float64) for value in (m, k, batch))
    rest = rest_in_sweep(np.log2(SWEEP_ROWS / rows), curve)
    return gemm_time(m, n, k, curve, batch=batch, rest=rest) + cast_time(count * rows * depth, curve)


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


def grouped_gemm_time(
    m: ArrayLike, n: ArrayLike, k: ArrayLike, curve: GemmCurve, *, groups: ArrayLike, imbalance: ArrayLike = 1.0
) -> FloatArray:
    """Time of one grouped kernel: `groups` products (experts of this device) of m tokens each on average [s].

    As gemm_time with batch = groups and m x imbalance rows, where `imbalance` >= 1 [1] is the load of the busiest
    device over the mean. Token counts differ between experts, so that each expert's last row of tiles is half full
    on average: max(1, m / tile + 1/2) rows of tiles instead of ceil(m / tile).
    """
    rows = np.asarray(m, dtype=np.float64) * np.asarray(imbalance, dtype=np.float64)
    return _time(rows, n, k, curve, groups, 1.0, ragged=True)


def cast_time(elements: ArrayLike, curve: GemmCurve) -> FloatArray:
    """Time to quantise an operand of so many elements in kernels of its own [s].

    elements x cast_bytes / bandwidth + cast_launch: per-tensor scaling that reads 16-bit numbers twice (largest
    value, then conversion) and writes 8-bit ones moves 5 B per element at least. 0 for a 16-bit curve.
    """
    traffic = np.asarray(elements, dtype=np.float64) * curve.cast_bytes
    return np.asarray(traffic / curve.bandwidth + curve.cast_launch, dtype=np.float64)


def _time(
    m: ArrayLike, n: ArrayLike, k: ArrayLike, curve: GemmCurve, batch: ArrayLike, rest: ArrayLike, *, ragged: bool
) -> FloatArray:
    """The formula of gemm_time; `ragged` counts rows of tiles as grouped_gemm_time says."""
    rows, columns, depth, count = (np.asarray(value, dtype=np.float64) for value in (m, n, k, batch))
    high, wide, small = curve.tile_m, curve.tile_n, curve.small_tile
    tiles = _row_tiles(rows, high, ragged) * np.ceil(columns / wide)
    if high != wide:
        tiles = np.minimum(tiles, _row_tiles(rows, wide, ragged) * np.ceil(columns / high))
    coarse = _waves(count * tiles, curve) * (high * wide)
    fine = _waves(count * (_row_tiles(rows, small, ragged) * np.ceil(columns / small)), curve)
    area = np.minimum(coarse, fine * (small * small / curve.small_rate))
    compute = area * (depth + curve.k_half) * (2.0 * curve.sms / (curve.peak * curve.ceiling))
    if curve.throttle:
        compute = _throttled(compute, curve, np.asarray(rest, dtype=np.float64))
    moved = (rows + columns) * depth * curve.element_bytes + rows * columns * curve.output_bytes
    memory = count * moved * (1.0 / (curve.bandwidth * curve.memory_efficiency))
    return np.asarray(np.maximum(compute, memory) + curve.launch, dtype=np.float64)


def _throttled(compute: FloatArray, curve: GemmCurve, rest: FloatArray) -> FloatArray:
    """Computing time under the power limit, as gemm_time says [s]."""
    square, burst = compute * compute, np.square(curve.burst * rest)
    return np.asarray(compute * (square + burst) / (square * (1.0 - curve.throttle) + burst))


def _row_tiles(rows: FloatArray, edge: float, ragged: bool) -> FloatArray:
    """Rows of tiles that cover a product [1]."""
    return np.asarray(np.maximum(rows / edge + 0.5, 1.0) if ragged else np.ceil(rows / edge))


def _waves(tiles: FloatArray, curve: GemmCurve) -> FloatArray:
    """Rounds in which the SMs work off the tiles, partly balanced [1]."""
    waves = tiles / curve.sms
    softness = curve.wave_softness
    return np.asarray(softness * np.maximum(waves, 1.0) + (1.0 - softness) * np.ceil(waves))
