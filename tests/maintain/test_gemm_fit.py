"""The fit finds the curve that made the data, and meets its error target on the measured kernels."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from maintain.gemm_fit import fit_all, main
from maintain.gemm_samples import Samples, read_samples
from maintain.gemm_solver import BOUNDS, GemmFit, fit_curve, fitted_parameters, predicted, starting_curve
from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog.files import csv_rows, presets_folder
from optimizer.catalog.hardware import load_device
from optimizer.objectives.kernels.gemm_curve import GemmCurve, curve_for
from optimizer.objectives.kernels.gemm_sweep import SWEEP_ROWS, gemm_efficiency, isolated_time

MEASURED = Path(__file__).resolve().parents[2] / ".." / "shared" / "measured" / "collectives_and_gemms.csv"


def synthetic(dtype: str, noise: float = 0.02) -> tuple[Samples, GemmCurve]:
    """Kernels of a known curve with multiplicative noise, as a sweep measures them: m halves from 32,768 on."""
    start = starting_curve(load_device("h100"), dtype, 0.9)
    curve = replace(start, ceiling=0.77, small_rate=0.9, wave_softness=0.4, k_half=200.0, launch=4e-6)
    curve = replace(curve, throttle=0.12, burst=1e-4, rest=50.0)
    grid = np.array([1024.0, 1536, 2048, 3072, 5120, 8192, 16_384])
    n, k, m = (axis.ravel() for axis in np.meshgrid(grid, grid, SWEEP_ROWS / 2 ** np.arange(grid.size), indexing="ij"))
    shapes = Samples(m=m, n=n, k=k, time=np.ones_like(m), order=np.arange(m.size) % grid.size * 1.0)
    spread = np.exp(np.random.default_rng(1).normal(0.0, noise, m.size))
    return replace(shapes, time=predicted(shapes, curve) * spread), curve


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_finds_the_curve_that_made_the_data(dtype: str) -> None:
    samples, truth = synthetic(dtype)
    launch = truth.launch if dtype == "fp8" else 0.0
    fit = fit_curve(samples, starting_curve(load_device("h100"), dtype, 0.9, launch))
    assert fit.curve.ceiling == pytest.approx(truth.ceiling, rel=0.01)
    assert fit.curve.k_half == pytest.approx(truth.k_half, rel=0.1)
    assert fit.curve.launch == pytest.approx(truth.launch, rel=0.1)
    assert (fit.curve.tile_m, fit.curve.tile_n) == (256, 128)
    assert np.median(fit.held_out) < 0.02


def test_finds_the_power_limit_and_what_a_rested_device_is_spared() -> None:
    samples, truth = synthetic("bf16")
    fit = fit_curve(samples, starting_curve(load_device("h100"), "bf16", 0.9))
    assert fit.curve.throttle == pytest.approx(truth.throttle, rel=0.1)
    assert fit.curve.burst == pytest.approx(truth.burst, rel=0.3)
    assert fit.curve.rest == pytest.approx(truth.rest, rel=0.3)


def test_outliers_barely_move_the_fit() -> None:
    samples, truth = synthetic("bf16")
    slow = samples.time * np.where(np.arange(len(samples)) % 20 == 0, 3.0, 1.0)
    fit = fit_curve(replace(samples, time=slow), starting_curve(load_device("h100"), "bf16", 0.9))
    assert fit.curve.ceiling == pytest.approx(truth.ceiling, rel=0.03)


def test_the_same_data_give_the_same_curve() -> None:
    samples, _ = synthetic("bf16")
    start = starting_curve(load_device("h100"), "bf16", 0.9)
    assert fit_curve(samples, start).curve == fit_curve(samples, start).curve


def test_too_few_kernels_are_refused() -> None:
    samples, _ = synthetic("bf16")
    with pytest.raises(InputError, match="9 kernels are too few"):
        fit_curve(samples.part(np.arange(len(samples)) < 9), starting_curve(load_device("h100"), "bf16", 0.9))


def test_the_command_writes_a_preset_that_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples, _ = synthetic("bf16")
    source, out = tmp_path / "kernels.csv", tmp_path / "preset.csv"
    with source.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("kind", "gpu", "dtype", "m", "n", "k", "latency_us"))
        columns = zip(samples.m, samples.n, samples.k, samples.time * 1e6, strict=True)
        writer.writerows(("gemm", "H100", "bfloat16", *row) for row in columns)
    assert main([str(source), "--out", str(out), "--date", "2026-01-01"]) == 0
    assert capsys.readouterr().out.startswith("h100 bf16: 343 kernels, held-out error 1")
    cells = {row["parameter"]: row for _, row in csv_rows(out) if row["device"] == "h100"}
    assert float(cells["ceiling"]["value"]) == pytest.approx(0.77, rel=0.01)
    assert (cells["launch"]["unit"], cells["launch"]["kind"], cells["launch"]["date"]) == ("s", "fitted", "2026-01-01")


def test_unusable_rows_are_reported_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "kernels.csv"
    source.write_text("kind,gpu,dtype,m,n,k,latency_us\ngemm,H100,bf16,0,1,1,1\ngemm,H100,bf16,1,1,x,1\n")
    with pytest.raises(InvalidFile, match="2 problems"):
        read_samples(source)
    source.write_text("kind,gpu\n")
    assert main([str(source), "--out", str(tmp_path / "out.csv")]) == 2
    assert "column 'latency_us' is missing" in capsys.readouterr().err


@cache
def measured_fits() -> tuple[dict[tuple[str, str], Samples], dict[tuple[str, str], GemmFit]]:
    if not MEASURED.is_file():
        pytest.skip("the measured kernels are not here")
    samples = read_samples(MEASURED)
    return samples, fit_all(samples)


def test_meets_the_error_target_as_a_function_of_the_shape_on_weight_shapes_held_out() -> None:
    _, fits = measured_fits()
    assert len(fits) == 13
    for key, fit in fits.items():
        assert np.median(fit.held_out) <= 0.05, key
        assert np.percentile(fit.held_out, 90) <= 0.15, key


def test_a_curve_has_at_most_ten_parameters_the_choice_of_its_tile_included() -> None:
    for dtype in ("bf16", "fp8"):
        assert len(fitted_parameters(starting_curve(load_device("h100"), dtype, 0.9))) + 1 <= 10


def test_the_shipped_efficiencies_are_those_of_the_measured_kernels() -> None:
    """e(m, n, k) of the presets against every measured kernel, without the order in which they were measured."""
    samples, _ = measured_fits()
    for (gpu, dtype), kernels in samples.items():
        device = load_device(gpu)
        curve = curve_for(device, dtype)
        measured = 2.0 * kernels.m * kernels.n * kernels.k / (kernels.time * device.peak(dtype))
        errors = np.abs(gemm_efficiency(kernels.m, kernels.n, kernels.k, curve) / measured - 1.0)
        assert not curve.extrapolated
        assert np.median(errors) <= 0.05, (gpu, dtype)
        assert np.percentile(errors, 90) <= 0.15, (gpu, dtype)


def test_the_shape_tells_nearly_as_much_about_the_clock_as_the_order_of_the_sweep() -> None:
    samples, fits = measured_fits()
    for key, kernels in samples.items():
        curve = fits[key].curve
        ordered = np.median(np.abs(predicted(kernels, curve) / kernels.time - 1.0))
        shaped = np.median(np.abs(isolated_time(kernels.m, kernels.n, kernels.k, curve) / kernels.time - 1.0))
        assert shaped <= ordered + 0.003, key


def test_products_of_a_rested_blackwell_run_faster_than_equal_ones_of_a_busy_one() -> None:
    """Most sweeps took m = 16,384 second, after 32,768; where it came first it ran faster, so order matters, not m."""
    samples, fits = measured_fits()
    for gpu in ("b200", "b300", "gb200"):
        kernels = samples[gpu, "bf16"]
        long = (kernels.m == 16_384) & (kernels.n * kernels.k > 2**24)
        busy = predicted(kernels, replace(fits[gpu, "bf16"].curve, rest=1.0))
        first, second = (np.median((busy / kernels.time)[long & (kernels.order == place)]) for place in (0, 1))
        assert first > 1.05 * second, gpu


def test_every_shipped_parameter_has_a_unit_a_source_and_keeps_its_bounds() -> None:
    for line, row in csv_rows(presets_folder() / "kernels.csv"):
        assert all(row[column] for column in ("unit", "source", "date")), line
        if row["kind"] == "fitted":
            _, low, high = BOUNDS[row["parameter"]]
            assert low <= float(row["value"]) <= high, line
