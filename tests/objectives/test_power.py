"""Power and energy against measured nodes, GEMM sweeps and power caps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.base.errors import InputError
from optimizer.objectives.network.fabric import fabric
from optimizer.objectives.power import (
    PowerCurve,
    capped_slowdown,
    compute_utilisation,
    device_power,
    step_energy,
    switch_power,
)

H100 = PowerCurve(limit=700.0, floor=0.11, slope=1.03, host=175.0)
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
    used = step_energy({"gemm": 1.0}, 746e12, 989.5e12, H100)
    assert 8 * float(used.peak_power) == pytest.approx(7008, rel=0.01)


def test_a_step_adds_up_its_phases() -> None:
    time = {"gemm": 2.0, "elementwise": 1.0, "tp_communication": 1.0, "bubble": 0.5}
    used = step_energy(time, 1.0e15, 1e15, H100)
    compute = 700 * (0.11 + 1.03 * np.sqrt(0.5))
    stream, wait = 700 * (0.11 + 1.03 * np.sqrt(0.15)), 700 * (0.11 + 1.03 * np.sqrt(0.025))
    assert float(used.gpu) == pytest.approx(2 * compute + stream + 1.5 * wait)
    assert float(used.host) == pytest.approx(4.5 * 175)
    assert float(used.total) == pytest.approx(float(used.gpu + used.host))
    assert float(used.peak_power) == pytest.approx(compute + 175)


def test_waiting_draws_less_than_computing() -> None:
    busy = step_energy({"gemm": 10.0}, 7e15, 1e15, H100)
    idle = step_energy({"gemm": 5.0, "bubble": 5.0}, 3.5e15, 1e15, H100)
    assert float(idle.total) < 0.75 * float(busy.total)


def test_utilisation_never_passes_the_peak() -> None:
    assert float(compute_utilisation({"gemm": 1.0}, 3e15, 1e15)) == 1.0


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
    time = {"gemm": 1.0}
    free = step_energy(time, utilisation * 1e15, 1e15, H100)
    capped = step_energy(time, utilisation * 1e15, 1e15, H100, cap)
    assert float(capped.step_time) >= float(free.step_time) - 1e-12
    assert float(capped.gpu) <= float(free.gpu) * (1 + 1e-9)


@given(SHARES, SHARES)
def test_power_rises_with_utilisation(first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert float(device_power(low, 0.11, 1.03)) <= float(device_power(high, 0.11, 1.03)) <= 1.0


def test_terms_broadcast_over_many_plans() -> None:
    used = step_energy(
        {"gemm": np.array([1.0, 2.0]), "bubble": np.array([0.0, 1.0])}, np.array([5e14, 5e14]), 1e15, H100
    )
    assert used.gpu.shape == (2,)
    assert used.step_time.tolist() == [1.0, 3.0]


def test_switches_follow_ports_and_oversubscription() -> None:
    for ports, taper, switches in ((1.0, 1.0, 48), (2.0, 1.0, 96), (1.0, 2.0, 32)):
        found = fabric(1024, 8, ports, taper)
        assert found.switches == switches
        assert float(switch_power(686, found.switches, 1024)) == pytest.approx(686 * switches / 1024)
