"""What every function of the layouts returns while something runs: how often, and a sum of all numbers in it."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import _lru_cache_wrapper, cache
from math import asinh, isfinite
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from optimizer.search import layouts

(FOLDER,) = map(Path, layouts.__path__)
UNSEEN = {"Model", "Cluster", "Stack", "Space"}  # types of which a search changes little
INSIDE = {*UNSEEN, "Job", "Plans", "LayerCosts", "PlanFloors", "StepFloor"}  # that have been returned themselves
GRAIN = 1e-6  # from which on the size of a number counts, not the number
MOST = 500  # numbers of a row that are looked at, or one in so many of more
BEYOND = 1e30  # as which infinite numbers count


class Sum:
    """Of the sizes of numbers, each by its place, so that the same in another order has another sum."""

    def __init__(self) -> None:
        self.total, self.place = 0.0, 0

    def add(self, value: object) -> None:
        """Add the numbers of a value in its order; of a text those of its letters."""
        if isinstance(value, bool | int | float | np.generic):
            number = float(value)
            number = number if isfinite(number) else BEYOND * (number > 0) - BEYOND * (number < 0) or BEYOND / 7
            self.total += (1 + self.place % 17 / 17) * asinh(number / GRAIN)
            self.place += 1
        elif isinstance(value, str):
            self._row(np.frombuffer(value.encode(), np.uint8))
        elif isinstance(value, np.ndarray):
            if value.dtype.kind in "biuf":
                self._row(value.ravel())
        elif isinstance(value, Mapping):
            self.add([*value.values()])
        elif isinstance(value, tuple | list):
            for each in value:
                self.add(each)
        elif is_dataclass(value) and type(value).__name__ not in UNSEEN:
            for name in _fields(type(value)):
                inside = getattr(value, name)
                if type(inside).__name__ not in INSIDE:
                    self.add(inside)

    def _row(self, row: np.ndarray[tuple[int], np.dtype[np.generic]]) -> None:
        row = row[:: 1 + len(row) // MOST]
        numbers = np.nan_to_num(row.astype(np.float64), nan=BEYOND / 7, posinf=BEYOND, neginf=-BEYOND)
        weights = 1 + np.arange(self.place, self.place + len(row)) % 17 / 17
        self.total += float(np.arcsinh(numbers / GRAIN) @ weights)
        self.place += len(row)


@cache
def _fields(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def returned(run: Callable[[], object]) -> dict[str, tuple[int, float]]:
    """By module: values that its functions return or yield, and the sum of the numbers in them.

    Caches are emptied before. Comprehensions have no line, as other Pythons run them inside their function.
    """
    for module in [module for name, module in sys.modules.items() if name.startswith("optimizer.search")]:
        for each in vars(module).values():
            if isinstance(each, _lru_cache_wrapper):
                each.cache_clear()
    counts: dict[str, int] = defaultdict(int)
    sums: dict[str, float] = defaultdict(float)
    names: dict[CodeType, str] = {}

    def seen(frame: FrameType, event: str, value: object) -> None:
        if event != "return" or value is None:
            return
        name = names.get(frame.f_code)
        if name is None:
            name = names[frame.f_code] = _name(frame.f_code)
        if name:
            found = Sum()
            found.add(value)
            sums[name] += (1 + counts[name] % 13 / 13) * found.total
            counts[name] += 1

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(before)
    return {name: (count, sums[name]) for name, count in sorted(counts.items())}


def _name(code: CodeType) -> str:
    """The file of a function of the layouts, nothing of any other."""
    path = Path(code.co_filename)
    if code.co_name.startswith("<") or not path.is_relative_to(FOLDER):
        return ""
    return path.relative_to(FOLDER).as_posix()
