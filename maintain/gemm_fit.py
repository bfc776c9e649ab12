"""Fit the curves of objectives/kernels/gemm.py to a file of kernels and write presets/kernels.csv.

python -m maintain.gemm_fit FILE.csv --out presets/kernels.csv
"""

from __future__ import annotations

import argparse
import csv
import datetime
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from maintain.gemm_samples import Samples, read_samples
from maintain.gemm_solver import BOUNDS, GemmFit, fit_curve, fitted_parameters, starting_curve
from optimizer.base.errors import OptimizerError
from optimizer.catalog.hardware import load_device
from optimizer.job.hardware import Device
from optimizer.objectives.kernels.gemm_curve import GemmCurve

# None of the measured products is limited by memory, so this comes from streaming kernels: triad / datasheet.
_STREAM = "te42kyfo/gpu-benches gpu-stream@1c36d50"
MEMORY_EFFICIENCY: Mapping[str, tuple[float, str]] = {
    "a100": (0.863, f"{_STREAM}: A100 80GB triad, 1,759 of 2,039 GB/s"),
    "h100": (0.898, f"{_STREAM}: H100 PCIe triad, 1,832 of 2,039 GB/s"),
    "h200": (0.736, f"{_STREAM}: H200 triad, 3,534 of 4,800 GB/s"),
    "b200": (0.756, "p2pBandwidthLatencyTest: B200 copy to itself, 5,821 of 7,700 GB/s"),
}
_MAXTEXT = "training at the rates of AI-Hypercomputer/maxtext README.md@6fa93cc4d under the stack maxtext"
UNKNOWN_SMS = {"gb300": 152}  # where no source gives them: those of the GB200, whose peak it shares
# Devices without a curve and without a measured best shape: the mean share of the peak of their vendor's others, or
# what published training needs. With full recomputation 32B on 256 v5e has 67 % MFU, at least 89 % of the peak; 1024B
# on 2,048 v5p has 65 %, at least 86 %, and 64B on 64, which recomputes attention alone, 70 %.
VENDOR_CEILINGS = (
    ("amd", 0.58, "stas00/ml-engineering@744d01e: MI300X 0.51, MI325X 0.60, MI355X 0.62 of the peak, best shapes"),
    ("google", 0.82, "AI-Hypercomputer/tpu-recipes microbenchmarks/ironwood@c8cfe2f: TPU7x 16k cube, 950 of 1,153.5"),
    ("tpu-v5e", 0.92, f"{_MAXTEXT}: 32B and 64B on 256 chips"),
    ("tpu-v5p", 0.97, f"{_MAXTEXT}: 64B, 256B and 1024B on one slice"),
)
COLUMNS = ("device", "dtype", "parameter", "value", "unit", "low", "high", "kind", "source", "date", "rows")
ERROR_COLUMNS = ("median_error", "p90_error", "held_out_median", "held_out_p90")
UNITS = {
    "peak": "FLOP/s",
    "bandwidth": "B/s",
    "launch": "s",
    "burst": "s",
    "cast_launch": "s",
    "cast_bytes": "B/element",
    "tile_m": "elements",
    "tile_n": "elements",
    "small_tile": "elements",
    "k_half": "elements",
}
HEADER = """\
# Curves of isolated matrix products (optimizer/objectives/kernels/gemm.py), by maintain.gemm_fit.
# SI units. kind: fitted (least squares in log time), chosen (best coarse tile), measured, datasheet, assumed.
# Errors are relative to the measured time; held out: on weight shapes (n, k) left out of the fit, in five folds.
# They are those of isolated_time, a function of m, n and k alone; plans are priced at the clock of a step (gemm_time).
"""


def fit_all(samples: Mapping[tuple[str, str], Samples]) -> dict[tuple[str, str], GemmFit]:
    """Fits by (gpu, dtype). An fp8 curve takes its launch time from the same GPU's bf16 one, where there is one."""
    fits: dict[tuple[str, str], GemmFit] = {}
    for gpu, dtype in sorted(samples):
        wide = fits.get((gpu, "bf16")) if dtype == "fp8" else None
        start = starting_curve(_device(gpu), dtype, _memory_efficiency(gpu)[0], wide.curve.launch if wide else 0.0)
        fits[gpu, dtype] = fit_curve(samples[gpu, dtype], start)
    return fits


def _device(gpu: str) -> Device:
    device = load_device(gpu)
    return device if device.sms > 1 else replace(device, sms=UNKNOWN_SMS.get(gpu, 1))


def _memory_efficiency(gpu: str) -> tuple[float, str]:
    """Measured share of the bandwidth and its source; the newest measured device's where there is none."""
    return MEMORY_EFFICIENCY.get(gpu, MEMORY_EFFICIENCY["b200"])


def preset_rows(
    samples: Mapping[tuple[str, str], Samples], fits: Mapping[tuple[str, str], GemmFit], date: str
) -> Iterator[dict[str, object]]:
    """Rows of presets/kernels.csv, one parameter each."""
    for (gpu, dtype), fit in fits.items():
        measured = samples[gpu, dtype]
        errors = [f"{value:.3f}" for kind in (fit.errors, fit.held_out) for value in np.percentile(kind, (50, 90))]
        for parameter, kind, low, high, source in _parameters(gpu, fit.curve, measured.source):
            value = float(getattr(fit.curve, parameter))
            cells = (gpu, dtype, parameter, f"{value:.5g}", UNITS.get(parameter, "1"), f"{low:.5g}", f"{high:.5g}")
            row: dict[str, object] = dict(zip(COLUMNS, (*cells, kind, source, date, ""), strict=True))
            if kind in ("fitted", "chosen"):
                row |= {"rows": len(measured)} | dict(zip(ERROR_COLUMNS, errors, strict=True))
            yield row
    for vendor, ceiling, source in VENDOR_CEILINGS:
        cells = (vendor, "any", "ceiling", f"{ceiling}", "1", "0", "1")
        yield dict(zip(COLUMNS, (*cells, "assumed", source, date, ""), strict=True))


def _parameters(gpu: str, curve: GemmCurve, source: str) -> Iterator[tuple[str, str, float, float, str]]:
    """Name, kind, low, high and source of each parameter of a fitted curve."""
    fitted = fitted_parameters(curve)
    for parameter in ("peak", "sms", "bandwidth"):
        value = float(getattr(curve, parameter))
        yield parameter, "datasheet", value, value, "presets/devices.csv"
    for parameter in (*fitted, *(("launch",) if "launch" not in fitted else ())):
        _, low, high = BOUNDS[parameter]
        yield parameter, "fitted", low, high, source
    for parameter in ("tile_m", "tile_n"):
        yield parameter, "chosen", 128.0, 256.0, source
    yield "small_tile", "assumed", 64.0, 64.0, "smallest tile of current libraries' large-product kernels"
    yield "memory_efficiency", "measured", 0.5, 1.0, _memory_efficiency(gpu)[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit every GPU and dtype of a file of kernels and write the preset; 0 on success, 2 for unusable input."""
    parser = argparse.ArgumentParser(prog="python -m maintain.gemm_fit", description=main.__doc__)
    parser.add_argument("file", type=Path, help="CSV with kind, gpu, dtype, m, n, k, latency_us")
    parser.add_argument("--out", type=Path, required=True, help="preset to write, such as presets/kernels.csv")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="date written to the preset")
    options = parser.parse_args(arguments)
    try:
        samples = read_samples(options.file)
        fits = fit_all(samples)
    except OptimizerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    with options.out.open("w", encoding="utf-8", newline="") as file:
        file.write(HEADER)
        writer = csv.DictWriter(file, (*COLUMNS, *ERROR_COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(preset_rows(samples, fits, options.date))
    for (gpu, dtype), fit in fits.items():
        middle, high = np.percentile(fit.held_out, (50, 90))
        print(f"{gpu} {dtype}: {fit.errors.size} kernels, held-out error {middle:.1%} median, {high:.1%} p90")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
