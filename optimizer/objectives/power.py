"""Power and energy of training: the integral of power over the phases of a step, host, network and cooling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from optimizer.base.errors import InputError
from optimizer.catalog.economics import default_price, find_price
from optimizer.job.hardware import Cluster, Device
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.formula import COMPUTE, STREAM, WAIT
from optimizer.objectives.step.time_terms import burning

# Utilisation that stands for a phase without matrix products: the centre of the lowest measured bin (below 5 % of the
# peak) for communication and waiting, and (assumed) of the 10 to 20 % bin for kernels that only stream memory.
WAITING_UTILISATION = 0.025
STREAMING_UTILISATION = 0.15
LOWEST_CAP = 0.5
REFERENCE_CURVE = "h200"


@dataclass(frozen=True, kw_only=True)
class PowerCurve:
    """Power of one GPU and of what surrounds it."""

    limit: float  # of the GPU [W]
    floor: float  # of device_power [1]
    slope: float  # of device_power [1]
    host: float  # what the rest of the server takes for one GPU [W]
    network: float = 0.0  # what the switches take for one GPU [W]
    measured: bool = False  # whether floor and slope were fitted to this very device


@dataclass(frozen=True, kw_only=True)
class BusySeconds:
    """What the mean GPU of a plan does in a step; it waits or communicates for the rest."""

    compute: float  # in matrix products, attention and head [s]
    stream: float  # in kernels that stream memory [s]
    utilisation: float  # achieved share of the dense BF16 peak while it computes, as `compute_utilisation` has it [1]

    def at(self, rate: float) -> BusySeconds:
        """The same work at a share of the planned rate [1]."""
        slower = max(WAITING_UTILISATION, min(1.0, self.utilisation * rate))
        return BusySeconds(compute=self.compute / rate, stream=self.stream / rate, utilisation=slower)


@dataclass(frozen=True, kw_only=True)
class StepEnergy:
    """One step of one GPU under a power cap: wall time [s], energy by consumer [J], largest power of a phase [W]."""

    step_time: float
    gpu: float
    host: float
    network: float
    peak_power: float

    @property
    def total(self) -> float:
        """Energy of the IT equipment per GPU and step, cooling not included [J]."""
        return self.gpu + self.host + self.network


def device_power(utilisation: ArrayLike, floor: ArrayLike, slope: ArrayLike) -> FloatArray:
    """Power of a GPU as a share of its limit [1].

    P / P_limit = min(1, a + b sqrt(u)); u: achieved / peak dense BF16 rate [1], a: floor [1], b: slope [1]; all
    broadcast.

    Source: fit within 4 % to the power column of the GEMM tables of ai-dynamo/aiconfigurator @095f58a, binned by u.

    An H200 at half of its peak takes 0.84 of its 700 W; from about u = 0.75 on it runs at the limit:

    >>> device_power([0.5, 0.75], 0.11, 1.03).round(2).tolist()
    [0.84, 1.0]
    """
    share: FloatArray = np.minimum(1.0, np.asarray(floor) + np.asarray(slope) * np.sqrt(np.asarray(utilisation)))
    return share


def capped_slowdown(share: ArrayLike, floor: ArrayLike, cap: float) -> FloatArray:
    """Factor by which a power cap stretches a compute phase that would take `share` of the limit [1].

    time x 1 / f with f = min(1, ((c - a) / (P - a))^(1/3)): dynamic power goes as f V^2 and V as f, the rate as f.
    P, c, a: power, cap and floor as shares of the limit [1]. Assumed for every device: no cap was measured on an LLM
    training of an A100 or newer. Raises InputError below half of the limit, where the V100 leaves this law.

    Source: CMOS dynamic power. Check: BERT on a V100 (ml-energy/zeus NSDI'23 traces @75a8b93) takes 1.05 to 1.08 x the
    time at 200 of 250 W, 1.11 to 1.12 x at 175 W, 1.15 to 1.28 x at 150 W; the law gives

    >>> [round(float(capped_slowdown(1.0, 0.11, watt / 250)), 2) for watt in (200, 175, 150)]
    [1.09, 1.15, 1.22]
    """
    if not LOWEST_CAP <= cap <= 1.0:
        raise InputError(
            f"a power cap must be between {LOWEST_CAP:.0%} and 100% of the device's limit, but got {cap:.0%}; "
            "measured times leave the DVFS law below that"
        )
    floor = np.asarray(floor, dtype=np.float64)
    dynamic = np.asarray(share, dtype=np.float64) - floor
    slowdown: FloatArray = np.maximum(1.0, np.cbrt(dynamic / (cap - floor)))
    return slowdown


def compute_utilisation(busy: ArrayLike, executed_flops: ArrayLike, peak_bf16: float) -> FloatArray:
    """Achieved share of the dense BF16 peak while a GPU computes [1].

    u = executed / (t_compute x peak), at most 1 and no less than the centre of the lowest measured bin; executed:
    operations of one GPU in a step, recomputation included [FLOP]; t_compute: its seconds in matrix products, attention
    and head [s]; peak [FLOP/s]. FP8 work counts against the BF16 peak too, because the power curve was measured so.

    >>> float(compute_utilisation(4.0, 2.0e15, 1e15))
    0.5
    """
    flops = np.asarray(executed_flops, dtype=np.float64)
    rate: FloatArray = np.clip(flops / (np.asarray(busy, dtype=np.float64) * peak_bf16), WAITING_UTILISATION, 1.0)
    return rate


def phase_power(utilisation: ArrayLike, curve: PowerCurve, cap: float = 1.0) -> dict[str, FloatArray]:
    """Share of its limit that a GPU takes while it computes, streams memory, and waits or communicates [1].

    Args:
        utilisation: achieved share of the peak while it computes, as `compute_utilisation` has it [1].
        curve: floor and slope of the device.
        cap: share of the limit that the GPU is held to [1].

    >>> h200 = PowerCurve(limit=700.0, floor=0.11, slope=1.03, host=175.0)
    >>> {phase: round(float(share), 2) for phase, share in phase_power(0.5, h200).items()}
    {'compute': 0.84, 'stream': 0.51, 'wait': 0.27}
    """
    return {
        COMPUTE: np.minimum(device_power(utilisation, curve.floor, curve.slope), cap),
        STREAM: _steady(STREAMING_UTILISATION, curve.floor, curve.slope, cap),
        WAIT: _steady(WAITING_UTILISATION, curve.floor, curve.slope, cap),
    }


def step_energy(time: Mapping[str, float], busy: BusySeconds, curve: PowerCurve, cap: float = 1.0) -> StepEnergy:
    """Time and energy of one step of the mean GPU: E = sum over phases of P(u_phase) t_phase, under a power cap.

    It is the value that `--minimize energy` takes least of, before cooling, and under a cap what becomes of it. Compute
    phases stretch by capped_slowdown, on the stage that the step waits for as on the mean GPU; the utilisations of the
    other phases are those named above; host and network draw their power all the time.

    Args:
        time: seconds by term, which add up to the step: those of the slowest stage, and its waiting [s].
        busy: what the mean GPU does meanwhile.
        curve: of the device.
        cap: share of the limit that the GPU is held to [1].

    Source: the sum over phases is arithmetic; power of each phase as in device_power.

    A second of matrix products at the limit and a second of waiting: 700 + 191 J in the GPU, 350 J in the host.

    >>> h100 = PowerCurve(limit=700.0, floor=0.11, slope=1.03, host=175.0)
    >>> used = step_energy({"gemm": 1.0, "bubble": 1.0}, BusySeconds(compute=1.0, stream=0.0, utilisation=0.8), h100)
    >>> [round(float(part)) for part in (used.gpu, used.host, used.step_time)]
    [891, 350, 2]
    """
    stretched = float(capped_slowdown(device_power(busy.utilisation, curve.floor, curve.slope), curve.floor, cap))
    shares = {phase: float(share) for phase, share in phase_power(busy.utilisation, curve, cap).items()}
    computing = sum(time.get(term, 0.0) for term in burning(COMPUTE))
    wall = sum(time.values()) + (stretched - 1.0) * computing
    lasting = {COMPUTE: stretched * busy.compute, STREAM: busy.stream}
    lasting[WAIT] = wall - sum(lasting.values())
    return StepEnergy(
        step_time=wall,
        gpu=curve.limit * sum(shares[phase] * seconds for phase, seconds in lasting.items()),
        host=wall * curve.host,
        network=wall * curve.network,
        peak_power=shares[COMPUTE] * curve.limit + curve.host + curve.network,
    )


@lru_cache(maxsize=256)
def _steady(utilisation: float, floor: float, slope: float, cap: float) -> FloatArray:
    """Share of the limit that a phase without matrix products takes [1]."""
    return np.minimum(device_power(utilisation, floor, slope), cap)


def power_limit(device: Device) -> float | None:
    """Power limit of one GPU or chip [W]: the vendor's, else what prices.csv derives; None without either."""
    derived = find_price("power_limit", device.name)
    return device.power or (derived.value if derived else None)


def power_curve(device: Device, limit: float, switches: float, gpus: int) -> PowerCurve:
    """Power of a device of this limit; one without a measured curve takes the H200's, not marked as measured.

    Args:
        device: whose curve is looked up.
        limit: power limit of one GPU [W].
        switches: switches of the network outside the scale-up domain [1].
        gpus: GPUs that share them [1].

    Returns:
        The curve without a host.

    Raises:
        InputError: where presets/prices.csv has no curve of the H200.
    """
    floor, slope = (find_price(f"power_{part}", device.name, REFERENCE_CURVE) for part in ("floor", "slope"))
    if floor is None or slope is None:
        raise InputError(f"presets/prices.csv has no power curve of {REFERENCE_CURVE}; add power_floor and power_slope")
    switch = find_price("switch_power", "infiniband-ndr")
    return PowerCurve(
        limit=limit,
        floor=floor.value,
        slope=slope.value,
        host=0.0,
        network=float(switch_power(switch.value, switches, gpus)) if switch else 0.0,
        measured=floor.name == device.name,
    )


def provisioned_power(cluster: Cluster, limit: float) -> float:
    """Rated power of one GPU with its share of the server or rack [W], of a GPU with this limit [W]."""
    rated = find_price("node_power_max", cluster.name) or find_price("rack_power_max", cluster.name)
    if rated is None:
        return limit * default_price("server_to_chip_power").value
    # GPUs that the figure covers: the number in its scope, such as "per rack of 72 GPUs".
    number = next((word for word in rated.scope.split() if word.isdecimal()), "")
    return rated.value / (int(number) if number else cluster.gpus_per_node)


def switch_power(power: ArrayLike, switches: ArrayLike, gpus: ArrayLike) -> FloatArray:
    """Power of the scale-out switches for one GPU [W].

    P = P_switch n / N; P_switch: one switch of 64 ports [W]; n: switches of the fabric; N: GPUs.

    Source: 686 W per NDR leaf, MLPerf Training v4.1 power logs @b87b9e3.

    >>> round(float(switch_power(686.0, 48, 1024)), 1)
    32.2
    """
    each: FloatArray = np.asarray(power, dtype=np.float64) * np.asarray(switches) / np.asarray(gpus)
    return each
