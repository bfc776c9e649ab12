"""How alike the errors of two predictions are: variances of what they share, and how likeness fades with distance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.belief.places import SHARED, Places

FADING = ("everything", "size", "plan", "layer")  # parts of SHARED that fade with distance
ORDERING = ("plan", "layer")  # parts by which plans of one job differ
# Doublings of what shapes a layer's kernels over which these still are the same ones [1]. Assumed: sweeps that are left
# out are told no better with 0.25.
LAYER = 0.5


@dataclass(frozen=True, kw_only=True)
class ErrorLikeness:
    """The parts of an error, as presets/belief.toml has them for each quantity."""

    parts: Mapping[str, float]  # standard deviation of each part of SHARED [1]
    noise: float  # that of a run's own error [1]
    size: float  # doublings of width, parameters, GPUs or tokens over which likeness fades [1]
    plan: float  # doublings of a plan's degrees over which it does [1]
    slope: float  # power of 2 with which the parts and the noise grow by the hardness of a prediction [1]
    # errors of software built on a root over those of others [1]; 1 for one that no runs tell of
    scales: Mapping[str, float] = field(default_factory=dict)
    own_scales: Mapping[str, float] = field(default_factory=dict)  # those of one software over its root's [1]
    # noise of a software's runs over that of others [1], by how far runs of one machine and model lie apart
    noises: Mapping[str, float] = field(default_factory=dict)

    def covariance(self, a: Places, b: Places) -> FloatArray:
        """Covariance of the errors at every two places, one row a place of `a` [1].

        K_ij = g_i g_j sum_k s_k^2 [i and j share k] m_k(r_ij), m_k being 1, or (1 + sqrt(3) r) exp(-sqrt(3) r) for a
        part that fades, over distances of size and of hardness, of the plan too for what plans share, and of the layer
        alone for what layers share; g as growth says.

        Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equations 4.17 (Matérn 3/2) and
        4.24 (sums of kernels).
        """
        far = squares(a.size, b.size) / self.size**2
        far += (a.hardness[:, None] - b.hardness[None]) ** 2 / self.size**2
        near = {name: fading(far) for name in FADING[:2]}
        near["plan"] = fading(far + squares(a.plan, b.plan) / self.plan**2)
        near["layer"] = same_layer(a.layer, b.layer)
        total = np.zeros(far.shape)
        for column, name in enumerate(SHARED):
            if deviation := self.parts.get(name, 0.0):
                shared = a.codes[:, None, column] == b.codes[None, :, column]
                total += deviation**2 * shared * near.get(name, 1.0)
        return np.asarray(total * np.outer(self.growth(a), self.growth(b)))

    @property
    def ordering(self) -> float:
        """Variance of what plans of one job do not share, by all but the noise [1]."""
        return sum(self.parts.get(name, 0.0) ** 2 for name in ORDERING)

    def variance(self, places: Places) -> FloatArray:
        """Variance of the error at each place before any run, without the noise [1]."""
        return np.asarray(sum(value**2 for value in self.parts.values()) * self.growth(places) ** 2)

    def single(self, places: Places) -> FloatArray:
        """Standard deviation of the noise of one run at each place [1]."""
        noises = np.array([self.noises.get(software, 1.0) for software in places.softwares])
        return np.asarray(self.noise * noises * self.growth(places))

    def growth(self, places: Places) -> FloatArray:
        """How much less certain predictions are than easy ones of usual software [1]: scales x 2^(slope h).

        Source: launch delays, collectives and stragglers vary between runs, matrix products hardly.
        """
        each = zip(places.roots, places.softwares, strict=True)
        scales = np.array([self.scales.get(root, 1.0) * self.own_scales.get(own, 1.0) for root, own in each])
        return np.asarray(scales * 2.0 ** (self.slope * places.hardness))


def nearness(a: Places, b: Places) -> FloatArray:
    """How much runs at every two places are one run again [1]: exp(-r^2) of r doublings of size and plan, or 0."""
    same = a.codes[:, None, -1] == b.codes[None, :, -1]
    return np.asarray(same * np.exp(-squares(a.size, b.size) - squares(a.plan, b.plan)))


def same_layer(a: FloatArray, b: FloatArray) -> FloatArray:
    """How much the kernels of every two layers are the same ones [1]: m(r / LAYER); rows as layer_columns has them.

    >>> same_layer(np.zeros((1, 2)), np.array([[0.0, 0.0], [0.0, 1.0]])).round(2).tolist()  # one doubling apart
    [[1.0, 0.14]]
    """
    return fading(squares(a, b) / LAYER**2)


def squares(a: FloatArray, b: FloatArray) -> FloatArray:
    """Squared distance of every two rows."""
    norms = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1)[None]
    return np.asarray(np.maximum(norms - 2.0 * a @ b.T, 0.0))


def fading(apart: FloatArray) -> FloatArray:
    """What of a likeness is left at these squared distances [1]: Matérn 3/2."""
    far = np.sqrt(3.0 * apart)
    return np.asarray((1.0 + far) * np.exp(-far))
