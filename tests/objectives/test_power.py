"""Power and energy against measured nodes, GEMM sweeps and power caps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.base.errors import InputError
from optimizer.objectives.network.fabric import fabric
from optimizer.objectives.power import (
    BusySeconds,
    PowerCurve,
    capped_slowdown,
    compute_utilisation,
    device_power,
    step_energy,
    switch_power,
)

H100 = PowerCurve(limit=700.0, floor=0.11, slope=1.03, host=175.0)


def computing(seconds: float, utilisation: float) -> BusySeconds:
    """A GPU that computes and streams nothing, at a share of its peak that is measured or more."""
    return BusySeconds(compute=seconds, stream=0.0, utilisation=max(0.025, utilisation))


SHARES = st.floats(min_value=0.0, max_value=1.0)


@pytest.mark.parametrize(
    ("floor", "slope", "limit", "measured"),
    [
        (0.11, 1.03, 700.0, {0.15: 346, 0.25: 439, 0.35: 504, 0.45: 539, 0.55: 623, 0.7: 690}),
        (0.29, 0.92, 1000.0, {0.15: 661, 0.25: 781, 0.35: 856, 0.45: 920, 0.55: 969, 0.7: 981}),
        (0.175, 1.02, 1200.0, {0.15: 670, 0.25: 814, 0.35: 911, 0.45: 1072, 0.55: 1139, 0.7: 1160}),
    ],
    ids=["h200", "b200", "gb200"],
)
def test_power_follows_the_measured_gemm_bins(
    floor: float, slope: float, limit: float, measured: dict[float, float]
) -> None:
    for utilisation, watts in measured.items():
        assert limit * float(device_power(utilisation, floor, slope)) == pytest.approx(watts, rel=0.045)


def test_a_node_of_eight_h100_draws_seven_kilowatts_at_the_utilisation_of_gpt3() -> None:
    # MLPerf Training v4.0: GPT-3 175B in FP8 on 512 GPUs, 746 TFLOP/s each, median 7,008 W.
    used = step_energy({"gemm": 1.0}, computing(1.0, 746 / 989.5), H100)
    assert 8 * float(used.peak_power) == pytest.approx(7008, rel=0.01)


def test_a_step_adds_up_its_phases() -> None:
    time = {"gemm": 2.0, "elementwise": 1.0, "tp_communication": 1.0, "bubble": 0.5}
    busy = BusySeconds(compute=2.0, stream=1.0, utilisation=0.5)
    used = step_energy(time, busy, replace(H100, network=30.0))
    compute = 700 * (0.11 + 1.03 * np.sqrt(0.5))
    stream, wait = 700 * (0.11 + 1.03 * np.sqrt(0.15)), 700 * (0.11 + 1.03 * np.sqrt(0.025))
    assert used.gpu == pytest.approx(2 * compute + stream + 1.5 * wait)
    assert used.host == pytest.approx(4.5 * 175)
    assert used.network == pytest.approx(4.5 * 30)
    assert used.total == pytest.approx(used.gpu + used.host + used.network)
    assert used.peak_power == pytest.approx(compute + 175 + 30)


def test_a_capped_step_adds_up_its_longer_phases() -> None:
    """Held to 0.6 of 700 W, 2 s of products that take 0.8383 stretch by the cube root of 0.7283 / 0.49."""
    time = {"gemm": 2.0, "elementwise": 1.0, "bubble": 0.5}
    used = step_energy(time, BusySeconds(compute=1.5, stream=1.0, utilisation=0.5), replace(H100, network=30.0), 0.6)
    longer = ((0.11 + 1.03 * np.sqrt(0.5) - 0.11) / (0.6 - 0.11)) ** (1 / 3)
    wall = 3.5 + 2 * (longer - 1)
    stream, wait = 0.11 + 1.03 * np.sqrt(0.15), 0.11 + 1.03 * np.sqrt(0.025)
    assert used.step_time == pytest.approx(wall)
    assert used.gpu == pytest.approx(700 * (1.5 * longer * 0.6 + stream + (wall - 1.5 * longer - 1) * wait))
    assert (used.host, used.network) == (pytest.approx(wall * 175), pytest.approx(wall * 30))
    assert used.peak_power == pytest.approx(0.6 * 700 + 175 + 30)


def test_waiting_draws_less_than_computing() -> None:
    busy = step_energy({"gemm": 10.0}, computing(10.0, 0.7), H100)
    idle = step_energy({"gemm": 5.0, "bubble": 5.0}, computing(5.0, 0.7), H100)
    assert idle.total < 0.75 * busy.total


def test_a_gpu_with_fewer_layers_than_the_slowest_stage_waits_for_it() -> None:
    slowest, mean = (step_energy({"gemm": 10.0}, computing(seconds, 0.7), H100) for seconds in (10.0, 8.0))
    waiting = 700 * float(device_power(0.025, 0.11, 1.03))
    assert slowest.step_time == mean.step_time == 10.0
    assert slowest.gpu - mean.gpu == pytest.approx(2 * (700 * float(device_power(0.7, 0.11, 1.03)) - waiting))


def test_a_lower_rate_than_planned_takes_longer_at_a_lower_power() -> None:
    planned = BusySeconds(compute=2.0, stream=1.0, utilisation=0.5)
    assert planned.at(0.5) == BusySeconds(compute=4.0, stream=2.0, utilisation=0.25)
    assert planned.at(1e-3).utilisation == 0.025


def test_utilisation_never_passes_the_peak() -> None:
    assert float(compute_utilisation(1.0, 3e15, 1e15)) == 1.0


@pytest.mark.parametrize(("cap", "fastest", "slowest"), [(0.8, 1.05, 1.09), (0.7, 1.11, 1.15), (0.6, 1.15, 1.28)])
def test_the_dvfs_law_stays_near_the_v100_traces(cap: float, fastest: float, slowest: float) -> None:
    assert fastest <= float(capped_slowdown(1.0, 0.11, cap)) <= slowest


def test_a_cap_above_the_draw_changes_nothing() -> None:
    assert float(capped_slowdown(0.6, 0.11, 0.7)) == 1.0


def test_caps_below_the_law_are_refused() -> None:
    with pytest.raises(InputError, match="between 50% and 100%"):
        capped_slowdown(1.0, 0.11, 0.3)


@given(st.floats(min_value=0.5, max_value=1.0), SHARES)
def test_a_cap_never_costs_energy_in_the_gpu_and_never_saves_time(cap: float, utilisation: float) -> None:
    time, busy = {"gemm": 1.0}, computing(1.0, utilisation)
    free = step_energy(time, busy, H100)
    capped = step_energy(time, busy, H100, cap)
    assert capped.step_time >= free.step_time - 1e-12
    assert capped.gpu <= free.gpu * (1 + 1e-9)


@given(SHARES, SHARES)
def test_power_rises_with_utilisation(first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert float(device_power(low, 0.11, 1.03)) <= float(device_power(high, 0.11, 1.03)) <= 1.0


def test_switches_follow_ports_and_oversubscription() -> None:
    for ports, taper, switches in ((1.0, 1.0, 48), (2.0, 1.0, 96), (1.0, 2.0, 32)):
        found = fabric(1024, 8, ports, taper)
        assert found.switches == switches
        assert float(switch_power(686, found.switches, 1024)) == pytest.approx(686 * switches / 1024)
