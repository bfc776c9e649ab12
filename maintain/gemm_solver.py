"""Fit one curve of matrix products: bounded least squares in log time with soft-l1 loss, and its held-out error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from maintain.gemm_samples import Samples
from optimizer.base.errors import InputError
from optimizer.job.hardware import Device
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.kernels.gemm import cast_time
from optimizer.objectives.kernels.gemm_curve import GemmCurve
from optimizer.objectives.kernels.gemm_sweep import isolated_time, rest_in_sweep, swept_time

# parameter: (start, low, high). k_half: at least one 64-deep block of k fills a tile's pipeline. cast_bytes: reading
# 16-bit numbers and writing 8-bit ones moves 3 B per element at the very least. launch: under graphs, to a slow driver.
# burst: a sweep repeats every product some tens of times, so that even one of a few us can meet the power limit.
BOUNDS: Mapping[str, tuple[float, float, float]] = {
    "ceiling": (0.8, 0.4, 1.0),
    "small_rate": (0.95, 0.4, 1.0),
    "wave_softness": (0.5, 0.0, 1.0),
    "k_half": (150.0, 64.0, 1000.0),
    "launch": (3e-6, 0.5e-6, 10e-6),
    "throttle": (0.15, 0.0, 0.4),
    "burst": (2e-4, 1e-6, 1e-1),
    "rest": (30.0, 1.0, 1000.0),
    "cast_bytes": (8.0, 3.0, 16.0),
    "cast_launch": (10e-6, 1e-6, 30e-6),
}
COMMON = ("ceiling", "small_rate", "wave_softness", "k_half", "throttle", "burst", "rest")
LOGARITHMIC = ("burst", "rest")
COARSE_TILES = ((256.0, 128.0), (128.0, 128.0), (256.0, 256.0))
LOSS_SCALE = 0.05
FOLDS = 5


@dataclass(frozen=True, kw_only=True)
class GemmFit:
    """A fitted curve and the absolute relative errors of its isolated_time [1], in the fit and on held-out weights."""

    curve: GemmCurve
    errors: FloatArray
    held_out: FloatArray


def starting_curve(device: Device, dtype: str, memory_efficiency: float, launch: float = 0.0) -> GemmCurve:
    """The curve from which a fit starts; `launch` [s], where positive, stays as it is."""
    narrow = dtype == "fp8"
    common: dict[str, Any] = {name: BOUNDS[name][0] for name in COMMON}
    return GemmCurve(
        peak=device.peak(dtype),
        bandwidth=device.memory_bandwidth,
        sms=device.sms,
        element_bytes=1.0 if narrow else 2.0,
        memory_efficiency=memory_efficiency,
        launch=launch or BOUNDS["launch"][0],
        cast_bytes=BOUNDS["cast_bytes"][0] if narrow else 0.0,
        cast_launch=BOUNDS["cast_launch"][0] if narrow else 0.0,
        **common,
    )


def fit_curve(samples: Samples, start: GemmCurve, folds: int = FOLDS) -> GemmFit:
    """Fit a curve to samples, and again `folds` times without a share of the weight shapes (n, k) to measure error.

    A curve that casts keeps its launch time, which a product and its cast cannot tell apart.
    """
    if len(samples) < 10 * folds:
        raise InputError(f"{len(samples)} kernels are too few to fit a curve; measure at least {10 * folds}")
    curve = _best(samples, start)
    shapes, group = np.unique(np.stack([samples.n, samples.k]), axis=1, return_inverse=True)
    fold = np.random.default_rng(0).permutation(shapes.shape[1])[group.ravel()] % folds
    held_out = np.empty(len(samples))
    for index in range(folds):
        outside = fold == index
        held_out[outside] = _errors(samples.part(outside), _best(samples.part(~outside), start))
    return GemmFit(curve=curve, errors=_errors(samples, curve), held_out=held_out)


def predicted(samples: Samples, curve: GemmCurve) -> FloatArray:
    """Time of the measured layer: the product, and before it the cast of its m x k input if the curve has one [s].

    As isolated_time, but from the order in which the products were measured, which tells better than m how rested
    the device was: a sweep sets up each weight shape (n, k) while the device rests.
    """
    rest = rest_in_sweep(samples.order, curve)
    return swept_time(samples.m, samples.n, samples.k, curve, rest=rest) + cast_time(samples.m * samples.k, curve)


def _errors(samples: Samples, curve: GemmCurve) -> FloatArray:
    """Errors of the curve as a function of m, n and k alone [1]."""
    return np.asarray(np.abs(isolated_time(samples.m, samples.n, samples.k, curve) / samples.time - 1.0))


def _best(samples: Samples, start: GemmCurve) -> GemmCurve:
    """The best of the fits with each coarse tile."""
    fits = [_least_squares(samples, replace(start, tile_m=tall, tile_n=wide)) for tall, wide in COARSE_TILES]
    return min(fits, key=lambda fit: fit[0])[1]


def _least_squares(samples: Samples, start: GemmCurve) -> tuple[float, GemmCurve]:
    """Cost and curve of the bounded fit with the start's tiles."""
    from scipy.optimize import least_squares

    names = fitted_parameters(start)
    origin, low, high = np.array([_coordinate(name, BOUNDS[name]) for name in names]).T

    def curve_at(point: FloatArray) -> GemmCurve:
        values: Iterable[Any] = (_value(name, place) for name, place in zip(names, point.tolist(), strict=True))
        return replace(start, **dict(zip(names, values, strict=True)))

    def residuals(point: FloatArray) -> FloatArray:
        return np.asarray(np.log(predicted(samples, curve_at(point)) / samples.time))

    fit = least_squares(residuals, origin, bounds=(low, high), loss="soft_l1", f_scale=LOSS_SCALE, diff_step=1e-4)
    return float(fit.cost), curve_at(fit.x)


def _coordinate(name: str, values: Sequence[float]) -> FloatArray:
    """Values of a parameter as the solver sees them: logarithms, or shares of the upper bound."""
    numbers = np.asarray(values, dtype=np.float64)
    return np.log10(numbers) if name in LOGARITHMIC else numbers / BOUNDS[name][2]


def _value(name: str, coordinate: float) -> float:
    """The parameter at a coordinate of the solver."""
    return float(10.0**coordinate if name in LOGARITHMIC else coordinate * BOUNDS[name][2])


def fitted_parameters(curve: GemmCurve) -> tuple[str, ...]:
    """Names of the continuous parameters that a fit of this curve moves."""
    return (*COMMON, "cast_bytes", "cast_launch") if curve.cast_bytes else (*COMMON, "launch")
