"""Times of matrix products: hand-computed tiles and waves, monotone in every dimension, sane where unmeasured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog.hardware import load_device
from optimizer.job.hardware import Device
from optimizer.objectives.kernels import gemm_presets
from optimizer.objectives.kernels.gemm import SPELL, cast_time, gemm_time
from optimizer.objectives.kernels.gemm_curve import GemmCurve, curve_for
from optimizer.objectives.kernels.gemm_sweep import (
    SWEEP_ROWS,
    gemm_efficiency,
    isolated_time,
    rest_in_sweep,
    swept_time,
)

# One tile of 256 x 128 x 1000 takes 2 x 256 x 128 x 1000 / (1e12 / 100) = 6.5536 ms; fine tiles run at half the rate.
IDEAL = GemmCurve(
    peak=1e12,
    bandwidth=1e15,
    sms=100,
    element_bytes=2,
    ceiling=1.0,
    small_rate=0.5,
    wave_softness=0.0,
    k_half=0.0,
    launch=0.0,
    memory_efficiency=1.0,
)
TILE = 6.5536e-3
MEASURED = ("a100", "h100", "h200", "b200", "b300", "gb200", "gb300")
sizes = st.integers(1, 131_072)


def seconds(m: float, n: float, k: float, curve: GemmCurve, batch: float = 1) -> float:
    return float(gemm_time(m, n, k, curve, batch=batch))


@pytest.mark.parametrize(("tiles", "waves"), [(50, 1), (100, 1), (101, 2), (150, 2), (201, 3)])
def test_every_begun_wave_takes_as_long_as_a_full_one(tiles: int, waves: int) -> None:
    curve = replace(IDEAL, small_rate=1e-3)
    assert seconds(256 * tiles, 128, 1000, curve) == pytest.approx(waves * TILE)


def test_wave_softness_is_the_share_of_the_last_wave_that_is_not_lost() -> None:
    half = replace(IDEAL, small_rate=1e-3, wave_softness=0.5)
    assert seconds(256 * 150, 128, 1000, half) == pytest.approx(TILE * (1.5 + 2) / 2)
    assert seconds(256 * 50, 128, 1000, half) == pytest.approx(TILE), "half-empty first wave: nothing to balance"


def test_part_of_a_tile_costs_a_tile() -> None:
    curve = replace(IDEAL, small_rate=1e-3)
    assert seconds(25_600, 1, 1000, curve) == pytest.approx(TILE)
    assert seconds(25_600, 129, 1000, curve) == pytest.approx(2 * TILE)


def test_the_tile_lies_the_better_way_round() -> None:
    curve = replace(IDEAL, small_rate=1e-3)
    assert seconds(128, 25_600, 1000, curve) == seconds(25_600, 128, 1000, curve) == pytest.approx(TILE)


def test_fine_tiles_are_chosen_where_coarse_ones_leave_sms_idle() -> None:
    # 640 x 640: 15 coarse tiles, or 100 fine ones of an eighth of the work at half the rate
    assert seconds(640, 640, 1000, IDEAL) == pytest.approx(TILE / 8 * 2)


def test_k_half_is_the_depth_at_half_the_rate() -> None:
    curve = replace(IDEAL, k_half=500.0)
    assert float(gemm_efficiency(25_600, 128, 500, curve)) == pytest.approx(0.5)


def test_a_product_with_few_rows_waits_for_the_weights() -> None:
    slow = replace(IDEAL, bandwidth=2e9, memory_efficiency=0.5, launch=1e-3)
    moved = (16 * 1024 + 1024 * 2048) * 2 + 16 * 2048 * 2
    assert seconds(16, 2048, 1024, slow) == pytest.approx(1e-3 + moved / 1e9)


def test_batch_fills_the_waves_together() -> None:
    curve = replace(IDEAL, small_rate=1e-3)
    assert seconds(256, 128, 1000, curve, batch=100) == pytest.approx(TILE)
    assert seconds(256, 128, 1000, curve, batch=101) == pytest.approx(2 * TILE)


def test_shapes_broadcast() -> None:
    times = gemm_time(np.array([[1024], [2048]]), np.array([512, 1024, 4096]), 1024, IDEAL)
    assert times.shape == (2, 3)
    assert times[1, 2] == seconds(2048, 4096, 1024, IDEAL)


def test_the_power_limit_takes_half_its_share_after_a_burst() -> None:
    curve = replace(IDEAL, small_rate=1e-3, throttle=0.2, burst=TILE)

    def swept(m: int, n: int, k: int, rest: float = 1.0) -> float:
        return float(swept_time(m, n, k, curve, rest=rest))

    assert swept(25_600, 128, 1000) == pytest.approx(TILE / 0.9)
    assert swept(256, 128, 10) == pytest.approx(TILE / 100, rel=1e-4), "short products keep the full rate"
    assert swept(25_600, 128, 1_000_000) == pytest.approx(1000 * TILE / 0.8, rel=1e-4)
    assert swept(25_600, 128, 1000, rest=100.0) == pytest.approx(TILE, rel=1e-4)


@pytest.mark.parametrize(("burst", "share"), [(SPELL, 0.5), (SPELL / 3, 0.9), (3 * SPELL, 0.1), (1e6, 0.0)])
def test_long_and_short_products_of_a_step_run_at_one_clock(burst: float, share: float) -> None:
    cool = replace(IDEAL, small_rate=1e-3)
    curve = replace(cool, throttle=0.2, burst=burst)
    for depth in (10, 1000, 1_000_000):
        slowdown = seconds(25_600, 128, depth, curve) / seconds(25_600, 128, depth, cool)
        assert slowdown == pytest.approx(1 / (1 - 0.2 * share))


def test_memory_bound_products_do_not_meet_the_power_limit() -> None:
    slow = replace(IDEAL, bandwidth=1e6, throttle=0.2, burst=1e-9)
    assert seconds(16, 2048, 1024, slow) == seconds(16, 2048, 1024, replace(slow, throttle=0.0))


def test_a_cast_reads_and_writes_its_operand() -> None:
    curve = replace(IDEAL, bandwidth=1e12, cast_bytes=5.0, cast_launch=1e-6)
    assert float(cast_time(2e6, curve)) == pytest.approx(11e-6)
    assert float(cast_time(2e6, IDEAL)) == 0.0


def test_each_product_of_a_sweep_leaves_a_third_of_the_rest() -> None:
    curve = replace(IDEAL, rest=512.0)
    assert rest_in_sweep([-1, 0, 1, 2], curve).tolist() == pytest.approx([512, 512, 8, 2])


def test_an_isolated_product_finds_the_device_as_rested_as_a_sweep_does() -> None:
    curve = replace(IDEAL, small_rate=1e-3, throttle=0.2, burst=TILE, rest=512.0)
    for rows, rest in ((2 * SWEEP_ROWS, 512), (SWEEP_ROWS, 512), (SWEEP_ROWS / 2, 8), (SWEEP_ROWS / 4, 2)):
        assert float(isolated_time(rows, 128, 1000, curve)) == float(swept_time(rows, 128, 1000, curve, rest=rest))
    tired = float(swept_time(1, 128, 1000, curve, rest=1.0))
    assert float(isolated_time(1, 128, 1000, curve)) == pytest.approx(tired, rel=1e-3)


def test_an_isolated_product_of_8_bit_numbers_casts_its_inputs() -> None:
    curve = replace(IDEAL, bandwidth=1e12, cast_bytes=5.0, cast_launch=1e-6)
    assert float(isolated_time(25_600, 128, 1000, curve, batch=3)) == pytest.approx(
        3 * TILE + 3 * 25.6e6 * 5e-12 + 1e-6
    )


@given(m=sizes, n=sizes, k=sizes, name=st.sampled_from(MEASURED), dtype=st.sampled_from(["bf16", "fp8"]))
def test_an_isolated_product_is_never_slower_than_on_a_device_without_rest(
    m: int, n: int, k: int, name: str, dtype: str
) -> None:
    device = load_device(name)
    if dtype in device.peak_flops:
        curve = curve_for(device, dtype)
        tired = float(swept_time(m, n, k, curve, rest=1.0) + cast_time(float(m) * k, curve))
        assert float(isolated_time(m, n, k, curve)) <= tired * (1 + 1e-12)


@given(m=sizes, n=sizes, k=sizes, name=st.sampled_from(MEASURED), dtype=st.sampled_from(["bf16", "fp8"]))
def test_no_product_beats_the_ceiling(m: int, n: int, k: int, name: str, dtype: str) -> None:
    device = load_device(name)
    if dtype in device.peak_flops:
        curve = curve_for(device, dtype)
        assert 0.0 < float(gemm_efficiency(m, n, k, curve)) <= curve.ceiling


@given(m=sizes, n=sizes, k=sizes, more=st.integers(1, 4096), name=st.sampled_from(MEASURED))
def test_more_work_never_takes_less_time(m: int, n: int, k: int, more: int, name: str) -> None:
    curve = curve_for(load_device(name), "bf16")

    def time(rows: int, columns: int, depth: int) -> float:
        return seconds(rows, columns, depth, curve)

    start = time(m, n, k) * (1 - 1e-12)
    assert time(m + more, n, k) >= start
    assert time(m, n + more, k) >= start
    assert time(m, n, k + more) >= start


@pytest.mark.parametrize("name", MEASURED)
def test_large_products_come_close_to_the_ceiling(name: str) -> None:
    curve = curve_for(load_device(name), "bf16")
    edge = np.array([2048, 8192, 32_768, 131_072])
    cool = gemm_efficiency(edge, edge, edge, replace(curve, throttle=0.0))
    assert (np.diff(cool) > 0).all()
    assert cool[-1] > 0.99 * curve.ceiling
    hot = gemm_efficiency(edge, edge, edge, curve)
    assert hot[-1] == pytest.approx((1.0 - curve.throttle) * cool[-1], rel=1e-3)
    assert (hot <= cool).all()


@pytest.mark.parametrize(
    ("name", "dtype", "m", "n", "k", "tflops"),
    [
        ("a100-80", "bf16", 1024, 10_240, 5120, 271.2),
        ("h100", "bf16", 2048, 2048, 13_312, 794.5),
        ("h100", "bf16", 1024, 13_312, 8192, 779.5),
        ("h200", "fp8", 1280, 4096, 12_032, 1453.4),
        ("h100", "fp8", 1024, 9216, 14_336, 1402.6),
        ("b300", "fp8", 3072, 6144, 7168, 3353.3),
        ("gb200", "bf16", 4096, 9728, 2048, 1822.0),
    ],
)
def test_agrees_with_the_best_shapes_of_a_sweep_it_was_not_fitted_to(
    name: str, dtype: str, m: int, n: int, k: int, tflops: float
) -> None:
    """Maximum achievable matmul, stas00/ml-engineering compute/accelerator/README.md @744d01e.

    The best of thousands of shapes is one that the power limit spared, so it is compared with a rested device.
    """
    curve = curve_for(load_device(name), dtype)
    time = float(swept_time(m, n, k, curve, rest=curve.rest))
    assert 2 * m * n * k / time / 1e12 == pytest.approx(tflops, rel=0.10)


NEW = Device(
    name="new",
    peak_flops={"bf16": 1000e12, "fp16": 1000e12, "tf32": 500e12},
    memory=80e9,
    memory_nominal=80e9,
    memory_bandwidth=3e12,
    sms=130,
)


@pytest.mark.parametrize(
    "name",
    [
        "a100-80",
        "a100-80-pcie",
        "h100",
        "h100-pcie",
        "h200",
        "b200",
        "gb200",
        "gb300",
        "v100-32",
        "l40s",
        "mi300x",
        "mi355x",
        "tpu-v5p",
    ],
)
@given(steps=st.lists(st.floats(1.0, 1.5), min_size=1, max_size=6), rows=st.integers(1, 40_000), data=st.data())
def test_no_product_takes_longer_on_a_device_with_a_higher_peak(
    name: str, steps: list[float], rows: int, data: st.DataObject
) -> None:
    """Whatever preset it borrows then, and whether or not the peak is still the one that was measured."""
    device, size = load_device(name), st.sampled_from([64, 1536, 5120, 27_648])
    dtype = data.draw(st.sampled_from(sorted(device.peak_flops.keys() & {"bf16", "fp16", "fp8"})))
    n, k = data.draw(size), data.draw(size)
    before = curve_for(device, dtype)
    for times in (1.009, 1.011, *steps):
        device = replace(device, peak_flops={kind: peak * times for kind, peak in device.peak_flops.items()})
        after = curve_for(device, dtype)
        assert gemm_time(rows, n, k, after) <= gemm_time(rows, n, k, before) * (1 + 1e-9)
        assert gemm_time(rows, n, k, after, batch=8) <= gemm_time(rows, n, k, before, batch=8) * (1 + 1e-9)
        before = after


def test_a_measured_device_keeps_its_units_at_another_clock() -> None:
    a100 = load_device("a100-80")
    faster = replace(a100, peak_flops={dtype: peak * 1.1 for dtype, peak in a100.peak_flops.items()})
    curve, own = curve_for(faster, "bf16"), curve_for(a100, "bf16")
    assert (curve.ceiling, curve.throttle, curve.slower) == (own.ceiling, own.throttle, None)
    assert curve.extrapolated


def test_units_are_the_devices_own_within_a_percent_and_memory_within_three() -> None:
    device = replace(load_device("h100"), sms=132, memory_bandwidth=1e12)
    preset = gemm_presets.CurvePreset(device="h100", dtype="bf16", values={"sms": 132, "peak": 1e15, "bandwidth": 1e12})
    assert [preset.has_units_of(device, 1e15 * share) for share in (0.989, 0.991, 1.009, 1.011)] == [
        False,
        True,
        True,
        False,
    ]
    assert not preset.has_units_of(replace(device, sms=131), 1e15)
    memories = [replace(device, memory_bandwidth=1e12 * share) for share in (0.969, 0.971, 1.029, 1.031)]
    assert [preset.has_memory_of(each) for each in memories] == [False, True, True, False]
    assert preset.rate == 1e15 / 132
    named = [preset.is_of(replace(device, name=name)) for name in ("h100-pcie", "h1000", "a100")]
    assert (named, preset.is_of(replace(device, sms=114))) == ([True, False, False], False)


def test_a_device_without_data_borrows_the_nearest_generation() -> None:
    curve, h100 = curve_for(NEW, "bf16"), curve_for(load_device("h100"), "bf16")
    assert curve.extrapolated
    assert not h100.extrapolated
    assert (curve.source, curve.k_half, curve.ceiling) == ("h100 bf16", h100.k_half, h100.ceiling)
    assert (curve.peak, curve.sms, curve.bandwidth) == (1000e12, 130, 3e12)


def test_a_measured_best_shape_replaces_the_borrowed_ceiling() -> None:
    swept = replace(NEW, measured_matmul={"bf16": 600e12})
    assert curve_for(swept, "bf16").ceiling == curve_for(swept, "fp16").ceiling == pytest.approx(0.6)
    assert curve_for(replace(NEW, vendor="AMD"), "bf16").ceiling == pytest.approx(0.58)


@pytest.mark.parametrize(
    ("name", "dtype", "least", "most"),
    [
        ("tpu-v5e", "bf16", 0.89, 1.0),
        ("tpu-v5p", "bf16", 0.86, 1.0),
        ("tpu-v7", "bf16", 0.82, 0.83),
        ("mi300x", "fp8", 0.48, 0.49),
    ],
)
def test_devices_without_a_curve_reach_what_was_seen_of_them_under_their_power_limit(
    name: str, dtype: str, least: float, most: float
) -> None:
    """Of v5e and v5p: model FLOPs with full recomputation, x 4 / 3 (MaxText's README: 67 % at 32B, 65 % at 1024B)."""
    curve = curve_for(load_device(name), dtype)
    assert (least <= curve.ceiling <= most, curve.throttle) == (True, 0.0)


def test_a_named_device_takes_the_number_of_sms_it_lacks() -> None:
    h100 = replace(load_device("h100"), sms=1)
    assert curve_for(h100, "bf16") == curve_for(load_device("h100"), "bf16")


def test_v100_runs_fp16_on_the_curve_of_ampere() -> None:
    curve = curve_for(load_device("v100-32"), "fp16")
    assert (curve.extrapolated, curve.source) == (True, "a100 bf16")
    with pytest.raises(InputError, match="no bf16 matrix units"):
        curve_for(load_device("v100-32"), "bf16")


def test_wide_formats_move_more_bytes() -> None:
    curve = curve_for(NEW, "tf32")
    assert (curve.element_bytes, curve.output_bytes, curve.extrapolated) == (4.0, 4.0, True)


def test_a_broken_preset_reports_every_problem(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text("device,dtype,parameter,value,low,high\nx,bf16,ceiling,1.5,0,1\nx,fp8,ceiling,much,0,1\n")
    with pytest.raises(InvalidFile) as caught:
        gemm_presets._presets(path)
    assert "must lie in [0.0, 1.0]" in str(caught.value)
    assert "must be numbers" in str(caught.value)
    assert "x bf16: no peak" in str(caught.value)
