"""Measured matrix products: shapes and times, read from a CSV of kernels."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from optimizer.base.errors import InvalidFile
from optimizer.catalog.readers.text import read_text
from optimizer.objectives.arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Measured products of one device and dtype: shapes [elements] and times [s], one entry per kernel.

    `order` counts the products with the same weights (n, k) that were measured before: 0 found the device rested.
    """

    m: FloatArray
    n: FloatArray
    k: FloatArray
    time: FloatArray
    order: FloatArray
    source: str = ""

    def __len__(self) -> int:
        return self.time.size

    def part(self, mask: NDArray[np.bool_]) -> Samples:
        """The samples where the mask is true."""
        return replace(self, **{name: getattr(self, name)[mask] for name in ("m", "n", "k", "time", "order")})


def read_samples(path: Path) -> dict[tuple[str, str], Samples]:
    """Measured kernels by (gpu, dtype): rows with kind "gemm", shapes m, n, k and a latency_us, as they were measured.

    Raises InvalidFile for missing columns or values that are not positive numbers.
    """
    rows: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    sources: dict[tuple[str, str], str] = {}
    problems: list[str] = []
    with StringIO(read_text(path)) as file:
        reader = csv.DictReader(file)
        missing = {"kind", "gpu", "dtype", "m", "n", "k", "latency_us"} - set(reader.fieldnames or ())
        if missing:
            raise InvalidFile(path, [f"column {name!r} is missing" for name in sorted(missing)])
        for row in reader:
            if row["kind"] != "gemm" or not row["latency_us"]:
                continue
            key = row["gpu"].lower(), "fp8" if "fp8" in row["dtype"].lower() else "bf16"
            try:
                values = tuple(float(row[name]) for name in ("m", "n", "k", "latency_us"))
            except ValueError:
                values = (0.0,)
            if min(values) <= 0.0:
                problems.append(f"line {reader.line_num}: m, n, k and latency_us must be positive numbers")
                continue
            rows.setdefault(key, []).append(values)
            sources.setdefault(key, row.get("source", ""))
    if problems:
        raise InvalidFile(path, problems)
    return {key: _samples(values, sources[key]) for key, values in rows.items()}


def _samples(rows: Sequence[tuple[float, ...]], source: str) -> Samples:
    m, n, k, microseconds = np.asarray(rows, dtype=np.float64).T
    seen: Counter[tuple[float, float]] = Counter()
    order = np.zeros_like(m)
    for index, weights in enumerate(zip(n.tolist(), k.tolist(), strict=True)):
        order[index] = seen[weights]
        seen[weights] += 1
    return Samples(m=m, n=n, k=k, time=microseconds * 1e-6, order=order, source=source)
