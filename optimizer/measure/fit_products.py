"""From measured products to the curve of a device: the roofline of its matrix units, bent where tiles and k are few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optimizer.job.hardware import Device
from optimizer.measure.measured import Product
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.kernels.gemm import gemm_time
from optimizer.objectives.kernels.gemm_curve import GemmCurve, curve_for

# parameter: (smallest, largest); wider than those of presets/kernels.csv, so that processors fit as well.
BOUNDS = {
    "ceiling": (0.05, 1.0),
    "small_rate": (0.2, 1.0),
    "wave_softness": (0.0, 1.0),
    "k_half": (0.0, 2000.0),
    "launch": (5e-7, 1e-3),
}
MOST = 1.0 - 1e-6  # of the peak that products count as [1]: bounds do not meet
LOSS_SCALE = 0.05
FEWEST = 12  # products that tell the five parameters apart; with fewer, the ceiling alone is measured


@dataclass(frozen=True, kw_only=True)
class ProductFit:
    """The curve's parameters, and predicted / measured time of every product [1]."""

    parameters: dict[str, float]
    ratios: FloatArray

    @property
    def median_error(self) -> float:
        """Median of |predicted / measured - 1| [1]."""
        return float(np.median(np.abs(self.ratios - 1.0)))


def fit_products(products: Sequence[Product], device: Device, dtype: str, memory_efficiency: float) -> ProductFit:
    """The parameters with which `gemm_time` comes closest to the products.

    Least squares over ln(predicted / measured), with a loss that discounts outliers (soft l1). The products were
    repeated until the device was busy, so that their rates hold what its power limit takes: it is not taken again.
    The longest product never runs above its own rate: `ceiling` is at least the best rate / peak.
    """
    from scipy.optimize import least_squares

    columns = ("m", "n", "k", "seconds")
    m, n, k, seconds = (np.array([getattr(product, name) for product in products], dtype=float) for name in columns)
    best = min(MOST, max(product.rate for product in products) / device.peak(dtype))
    plain = replace(device, gemm={dtype: {"memory_efficiency": memory_efficiency, "ceiling": best}})
    start = curve_for(plain, dtype)
    names = list(BOUNDS)
    bounds = BOUNDS | {"ceiling": (max(best, BOUNDS["ceiling"][0]), BOUNDS["ceiling"][1])}
    low, high = np.array(list(bounds.values())).T

    def curve_at(point: FloatArray) -> GemmCurve:
        values: dict[str, Any] = dict(zip(names, (point * high).tolist(), strict=True))
        return replace(start, **values)

    def misfit(point: FloatArray) -> FloatArray:
        return np.asarray(np.log(gemm_time(m, n, k, curve_at(point)) / seconds))

    origin = np.clip([getattr(start, name) for name in names], low, high) / high
    point, fitted = origin, ["ceiling"]
    if len(products) >= FEWEST:
        box = (low / high, np.ones(len(names)))
        point, fitted = least_squares(misfit, origin, bounds=box, loss="soft_l1", f_scale=LOSS_SCALE).x, names
    curve = curve_at(point)
    parameters = {name: float(getattr(curve, name)) for name in fitted} | {"memory_efficiency": memory_efficiency}
    return ProductFit(parameters=parameters, ratios=np.exp(misfit(point)))
