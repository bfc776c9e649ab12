"""Half-widths of prediction intervals for software without measured runs of its own."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

from optimizer.catalog.files import presets_folder

FILE = "intervals.toml"


@cache
def pooled_intervals() -> Mapping[str, float]:
    """Half-widths in log by quantity and kind, pooled over every stack with measured runs."""
    return {key: float(value) for key, value in _file()["intervals"].items()}


@cache
def errors_of_others() -> Mapping[str, tuple[float, ...]]:
    """Errors in log of runs left out of the fits of all stacks, by quantity, category and kind: their quantiles."""
    return {key: tuple(map(float, values)) for key, values in _file()["errors"].items()}


@cache
def _file() -> Mapping[str, Any]:
    return tomllib.loads((presets_folder() / FILE).read_text(encoding="utf-8"))
