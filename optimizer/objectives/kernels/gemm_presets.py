"""Fitted parameters of the matrix products, read from presets/kernels.csv, and which of them suit a device."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog.files import csv_rows, presets_folder
from optimizer.job.hardware import Device

REQUIRED = (
    "peak",
    "sms",
    "bandwidth",
    "ceiling",
    "tile_m",
    "tile_n",
    "small_tile",
    "small_rate",
    "wave_softness",
    "k_half",
    "launch",
    "memory_efficiency",
)
_JUST_BELOW = 1e-9  # relative
_VENDOR_WIDE = "any"  # the dtype of rows that hold a vendor's default


@dataclass(frozen=True, kw_only=True)
class CurvePreset:
    """The parameters of one measured device and dtype, in SI units; `own`: measured on the user's device itself."""

    device: str
    dtype: str
    values: Mapping[str, float] = field(default_factory=dict)
    own: bool = False

    def __getitem__(self, parameter: str) -> float:
        return self.values[parameter]

    def get(self, parameter: str, default: float) -> float:
        """The value of a parameter that not every curve has."""
        return self.values.get(parameter, default)

    def names(self, device: str) -> bool:
        """Whether a device of that name bears this preset's as one of its words: "h100" does "H100-80GB PCIe"."""
        return self.device in re.split(r"[^a-z0-9]+", device.lower())

    def is_of(self, device: Device) -> bool:
        """Whether it was measured on this device, at whatever clock: it bears its name and has as many SMs."""
        return self.own or (self.names(device.name) and device.sms == self["sms"])

    def has_units_of(self, device: Device, peak: float) -> bool:
        """Whether these are the device's own units: as many SMs, and the same peak within 1 %."""
        return device.sms == self["sms"] and abs(peak / self["peak"] - 1.0) < 0.01

    @property
    def rate(self) -> float:
        """Peak of an SM [FLOP/s]."""
        return self["peak"] / self["sms"]

    def has_memory_of(self, device: Device) -> bool:
        """Whether the bandwidth is the device's within 3 %."""
        return abs(device.memory_bandwidth / self["bandwidth"] - 1.0) < 0.03

    def distance(self, device: Device, peak: float) -> float:
        """How unlike the device's SMs are: |log ratio| of peak per SM [1].

        Its memory does not count: a device must not get slower units with a faster memory.
        """
        return abs(math.log(peak / device.sms / self.rate))


def preset_for(device: Device, peak: float, dtype: str) -> CurvePreset:
    """What was measured on the device itself, else the preset that bears its name, else the nearest by peak per SM.

    `dtype` is "bf16" or "fp8". Parameters that the device does not give are the preset's; its own hold what the power
    limit takes, so that none of it is taken again.
    """
    preset = min(_candidates(device, dtype), key=lambda curve: (curve.distance(device, peak), curve.device))
    own = device.gemm.get(dtype)
    if own is None:
        return preset
    place = {"peak": peak, "sms": float(device.sms), "bandwidth": device.memory_bandwidth, "throttle": 0.0}
    return CurvePreset(device=device.name, dtype=dtype, values={**preset.values, **place, **own}, own=True)


def peak_of_slower(device: Device, peak: float, dtype: str) -> float | None:
    """The highest peak with which the device would borrow the units of the next slower preset, if any [FLOP/s].

    None where nobody knows how many SMs it has (1): its rate per SM says nothing of its units; and where they were
    measured.
    """
    if dtype in device.gemm:
        return None
    rates = sorted({curve.rate for curve in _candidates(device, dtype)})
    borders = [device.sms * math.sqrt(slower * faster) for slower, faster in itertools.pairwise(rates)]
    # A peak that is scaled to just below a border may miss it by a rounding error: it must not be reported twice.
    below = [border for border in borders if border * (1 - _JUST_BELOW) < peak * (1 - _JUST_BELOW / 2)]
    return below[-1] * (1 - _JUST_BELOW) if below and device.sms > 1 else None


def _candidates(device: Device, dtype: str) -> tuple[CurvePreset, ...]:
    """The presets that bear the device's name, else all, of a dtype."""
    return _named(presets_folder() / "kernels.csv", device.name, dtype)


@lru_cache(maxsize=1024)
def _named(path: Path, device: str, dtype: str) -> tuple[CurvePreset, ...]:
    curves = tuple(curve for curve in _presets(path)[0] if curve.dtype == dtype)
    return tuple(curve for curve in curves if curve.names(device)) or curves


def default_ceiling(device: Device) -> float | None:
    """Share of the peak that products of the device reach, or else its vendor's libraries on others [1]."""
    _, ceilings = _presets(presets_folder() / "kernels.csv")
    return ceilings.get(device.name, ceilings.get(device.vendor.lower()))


@cache
def _presets(path: Path) -> tuple[tuple[CurvePreset, ...], Mapping[str, float]]:
    """Curves and vendors' default ceilings of a file; every problem of the file is reported at once."""
    if not path.is_file():
        raise InputError(f"{path} is missing; reinstall, or write it with python -m maintain.gemm_fit")
    values: dict[tuple[str, str], dict[str, float]] = {}
    problems: list[str] = []
    for line, row in csv_rows(path):
        try:
            value, low, high = (float(row[column]) for column in ("value", "low", "high"))
        except (KeyError, ValueError):
            problems.append(f"line {line}: value, low and high must be numbers; got {row}")
            continue
        if not low <= value <= high:
            problems.append(f"line {line}: {row['parameter']} = {value} must lie in [{low}, {high}]")
        values.setdefault((row["device"], row["dtype"]), {})[row["parameter"]] = value
    ceilings = {vendor: cells["ceiling"] for (vendor, dtype), cells in values.items() if dtype == _VENDOR_WIDE}
    curves = []
    for (device, dtype), cells in values.items():
        if dtype == _VENDOR_WIDE:
            continue
        missing = [parameter for parameter in REQUIRED if parameter not in cells]
        if missing:
            problems.append(f"{device} {dtype}: no {', '.join(missing)}")
        curves.append(CurvePreset(device=device, dtype=dtype, values=cells))
    if {"bf16", "fp8"} - {curve.dtype for curve in curves}:
        problems.append("no curve for bf16, or none for fp8")
    if problems:
        raise InvalidFile(path, problems)
    return tuple(curves), ceilings
