"""What every stack errs on runs left out of its fit: the errors behind the intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optimizer.calibration.groups import folds, gathered
from optimizer.calibration.intervals import (
    QUANTILES,
    half_widths,
    memory_categories,
    memory_errors,
    time_categories,
    time_errors,
    weighted_quantile,
)
from optimizer.calibration.leave_out import HeldOut, held_out
from optimizer.calibration.memory_fit import MEMORY_PARAMETERS
from optimizer.calibration.runs import Run
from optimizer.catalog import load_stack
from optimizer.objectives.arrays import FloatArray
from optimizer.objectives.step.interval import EXPERTS, EXTRAPOLATED, INTERPOLATED


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Runs of one stack that were left out of its fit: their errors, and the category of each ("" for plain)."""

    stack: str
    runs: tuple[Run, ...]
    outcome: HeldOut
    categories: NDArray[np.str_]


def left_out(runs: Sequence[Run], quantity: str) -> list[LeftOut]:
    """What the stacks of the runs err in "time" or "memory", a stack's runs having parts to leave out."""
    clean = [run for run in runs if run.job is not None and not run.doubted]
    known = [run for run in clean if (run.step_time if quantity == "time" else run.memory)]
    errors, categories = (time_errors, time_categories) if quantity == "time" else (memory_errors, memory_categories)
    by_stack = []
    for name, members in gathered(known, lambda run: run.stack_name).items():
        stack, parts = load_stack(str(name)), folds(members)
        free = [key for key in stack.parameters if (key in MEMORY_PARAMETERS) == (quantity == "memory")]
        if len(parts) > 1 and free:
            outcome = held_out(members, parts, stack, free, errors)
            by_stack.append(
                LeftOut(stack=str(name), runs=tuple(members), outcome=outcome, categories=categories(outcome, members))
            )
    return by_stack


def errors_of(by_stack: Sequence[LeftOut], quantity: str) -> dict[str, tuple[float, ...]]:
    """Quantiles of the errors by category and kind, every stack weighing alike, and in it every group of like runs."""
    quantiles: dict[str, tuple[float, ...]] = {}
    for kind in (INTERPOLATED, EXTRAPOLATED):
        sizes: dict[str, list[FloatArray]] = {}
        weights: dict[str, list[FloatArray]] = {}
        for some in by_stack:
            of_kind = some.outcome.like if kind == INTERPOLATED else ~some.outcome.inside
            # What lies outside is too little to separate MoE from others.
            categories = np.where((kind == EXTRAPOLATED) & (some.categories == EXPERTS), "", some.categories)
            for category in np.unique(categories[of_kind]):
                chosen = of_kind & (categories == category)
                group = (some.outcome.groups if kind == INTERPOLATED else some.outcome.parts)[chosen]
                _, place, count = np.unique(group, return_inverse=True, return_counts=True)
                sizes.setdefault(str(category), []).append(np.abs(some.outcome.errors[chosen]))
                weights.setdefault(str(category), []).append(1.0 / count[place] / len(count))
        for category, values in sizes.items():
            size, weight = np.concatenate(values), np.concatenate(weights[category])
            quantiles[f"{quantity}{category}_{kind}"] = tuple(weighted_quantile(size, weight, q) for q in QUANTILES)
    return quantiles


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One run left out with its like: its error, the width made without its group and others than its stack."""

    run: Run
    stack: str
    group: int
    category: str
    inside: bool
    error: float
    width: float

    @property
    def covered(self) -> bool:
        """Whether the interval holds the measured value."""
        return self.error <= self.width


def judged(by_stack: Sequence[LeftOut], quantity: str) -> list[Judged]:
    """Every run under the interval that its stack would have without it, its like, and its part in others' errors."""
    rows: list[Judged] = []
    for some in by_stack:
        others = errors_of([other for other in by_stack if other is not some], quantity)
        for category in np.unique(some.categories):
            for group in np.unique(some.outcome.groups[some.categories == category]):
                here = (some.categories == category) & (some.outcome.groups == group) & some.outcome.like
                rest = (some.categories == category) & (some.outcome.groups != group)
                name = f"{quantity}{category}"
                widths = half_widths(name, np.abs(some.outcome.errors[rest]), some.outcome.part(rest), others)
                for place in np.flatnonzero(here):
                    inside = bool(some.outcome.inside[place])
                    rows.append(
                        Judged(
                            run=some.runs[some.outcome.places[place]],
                            stack=some.stack,
                            group=int(group),
                            category=str(category),
                            inside=inside,
                            error=float(abs(some.outcome.errors[place])),
                            width=widths[f"{name}_{INTERPOLATED if inside else EXTRAPOLATED}"],
                        )
                    )
    return rows
