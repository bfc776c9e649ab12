"""How fast a device multiplies matrices: the curve fitted to its kernels, or the one that it borrows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from optimizer.job.hardware import Device
from optimizer.objectives.kernels.gemm_presets import REQUIRED, CurvePreset, default_ceiling, peak_of_slower, preset_for


@dataclass(frozen=True, kw_only=True)
class GemmCurve:
    """How fast one device multiplies matrices in one dtype."""

    peak: float  # of the device [FLOP/s]
    bandwidth: float  # of its memory [B/s]
    sms: int  # that it has
    element_bytes: float  # of an operand [B]
    output_bytes: float = 2.0  # [B]
    ceiling: float  # largest share of `peak` [1]
    tile_m: float = 256.0  # rows of a coarse tile [elements]
    tile_n: float = 128.0  # its columns [elements]
    small_tile: float = 64.0  # edge of a fine tile [elements]
    small_rate: float = 0.95  # rate of fine over coarse tiles [1]
    wave_softness: float = 0.5  # share of the work that is balanced over the SMs, the rest waits for whole waves [1]
    k_half: float  # reduction length at which a tile reaches half its rate [elements]
    launch: float  # fixed time of a kernel [s]
    memory_efficiency: float  # share of `bandwidth` [1]
    throttle: float = 0.0  # share of the rate that the power limit takes at most [1]
    burst: float = 1.0  # computing time of a product that loses half of that on a busy device [s]
    rest: float = 1.0  # how much longer the burst is on a device that has rested [1]
    cast_bytes: float = 0.0  # traffic of quantising an operand [B/element], 0 where nothing is cast
    cast_launch: float = 0.0  # fixed time of that [s]
    source: str = ""  # names the preset
    extrapolated: bool = False  # whether it was measured on other silicon or in another dtype
    # of the same device with so much less peak that it borrows another preset; no product takes longer than there
    slower: GemmCurve | None = None


# Parameters that a curve has from its preset; those that not every preset has are the curve's defaults.
FITTED = (*REQUIRED[4:], "burst", "rest", "cast_bytes", "cast_launch")
_ELEMENT_BYTES = {"fp4": 0.5, "fp6": 0.75, "fp8": 1.0, "int8": 1.0, "tf32": 4.0, "fp32": 4.0}


@lru_cache(maxsize=256)
def curve_for(device: Device, dtype: str) -> GemmCurve:
    """The curve of a device and dtype, from presets/kernels.csv.

    A device that was not measured borrows the curve whose tiles run at the most similar rate (peak per SM), with its
    own peak, SMs and bandwidth. Its ceiling is its measured_matmul over its peak (bf16 and fp16 share theirs), else
    its own or its vendor's default, which hold what the power limit takes already, else the borrowed one; the units
    of a measured device beside another memory or at another clock are its own. A measured device whose number of SMs
    is unknown (1) takes the preset's. Where a higher peak makes a device borrow a preset that is worse at some shape,
    it is as fast there as with the lower peak (`slower`). Narrow formats share the fp8 curve, all others the bf16
    one.

    Raises InputError for a dtype without matrix units.
    """
    peak = device.peak(dtype)
    family = next((name for name in _ELEMENT_BYTES if name in dtype.lower()), "bf16")
    element_bytes = _ELEMENT_BYTES.get(family, 2.0)
    measured = "fp8" if element_bytes <= 1.0 else "bf16"
    preset = preset_for(device, peak, measured)
    if device.sms <= 1 and preset.names(device.name):
        device = replace(device, sms=round(preset["sms"]))
    fitted = family in ("bf16", "fp8")
    ceiling, throttle = _ceiling(device, dtype, preset, own=fitted and preset.is_of(device))
    extrapolated = not (fitted and preset.has_units_of(device, peak) and preset.has_memory_of(device))
    fitted_parameters: dict[str, Any] = {name: preset[name] for name in FITTED if name in preset.values}
    curve = GemmCurve(
        peak=peak,
        bandwidth=device.memory_bandwidth,
        sms=device.sms,
        element_bytes=element_bytes,
        output_bytes=max(2.0, element_bytes),
        ceiling=ceiling,
        throttle=throttle,
        source=f"{preset.device} {preset.dtype}",
        extrapolated=extrapolated,
        **fitted_parameters,
    )
    less = peak_of_slower(device, peak, measured)
    if less is None:
        return curve
    scaled = {name: value * less / peak for name, value in device.peak_flops.items()}
    return replace(curve, slower=curve_for(replace(device, peak_flops=scaled), dtype))


def _ceiling(device: Device, dtype: str, preset: CurvePreset, *, own: bool) -> tuple[float, float]:
    """Largest share of the peak, and what the power limit takes of it at most [1, 1].

    Fitted to the device itself, whatever its clock, else measured by a sweep under the power limit, else assumed for
    the vendor, else borrowed.
    """
    throttle = preset.get("throttle", 0.0)
    if own:
        return preset["ceiling"], throttle
    key = "fp8" if "fp8" in dtype.lower() else dtype.lower()
    for name in (key, *({"bf16", "fp16"} - {key} if key in ("bf16", "fp16") else ())):
        if device.measured_matmul.get(name, 0.0) > 0.0 and name in device.peak_flops:
            return min(1.0, device.measured_matmul[name] / device.peak_flops[name]), 0.0
    usual = default_ceiling(device)
    return (preset["ceiling"], throttle) if usual is None else (usual, 0.0)
