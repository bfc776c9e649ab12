"""The outer variables of a purchase: a grid of the discrete ones, and Optuna's search of the continuous ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any

from optimizer.base.errors import InputError
from optimizer.purchase.campaign import Design
from optimizer.purchase.designs.front import OBJECTIVES, worst_excess
from optimizer.purchase.designs.points import Point, Rejected, Workshop

# A variable of Design, and its values here.
AXES: Mapping[str, str] = {
    "gpus": "gpus",
    "dtype": "dtypes",
    "batch_factor": "batch_factors",
    "power_cap": "power_caps",
    "nic": "nics",
    "oversubscription": "oversubscriptions",
    "hbm": "hbms",
    "scale_up": "scale_ups",
}
# What a buyer can order is not continuous: steps keep the designs sensible and let the plans be shared between trials.
STEPS: Mapping[str, float] = {
    **{"nic": 12.5e9, "oversubscription": 0.25, "power_cap": 0.01, "batch_factor": 0.25, "hbm": 8e9}
}
SAMPLERS = ("nsga2", "tpe")
POPULATION = 24


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The discrete outer variables; every combination is a design."""

    kinds: tuple[Design, ...]
    gpus: tuple[int, ...]
    dtypes: tuple[str, ...] = ("bf16",)
    batch_factors: tuple[float, ...] = (1.0,)
    power_caps: tuple[float, ...] = (1.0,)
    nics: tuple[float, ...] = (0.0,)
    oversubscriptions: tuple[float, ...] = (0.0,)
    hbms: tuple[float, ...] = (0.0,)
    scale_ups: tuple[int, ...] = (0,)
    best_counts: Mapping[str, int] = field(default_factory=dict)  # number of GPUs instead of `gpus`, by kind of machine

    def designs(self) -> Iterable[Design]:
        """Every combination, in a fixed order."""
        axes = [getattr(self, name) for name in AXES.values()]
        for kind, *values in product(self.kinds, *axes):
            design = replace(kind, **dict(zip(AXES, values, strict=True)))
            yield replace(design, gpus=self.best_counts.get(kind.kind, design.gpus))


def explore(
    workshop: Workshop,
    grid: Grid,
    ranges: Mapping[str, tuple[float, float]],
    *,
    trials: int,
    sampler: str = "tpe",
    seed: int,
) -> tuple[Point | Rejected, ...]:
    """The designs that a seeded multi-objective search tries, in order; limits are constraints of the study.

    Raises InputError for an unknown variable, an empty range or an unknown sampler.
    """
    import optuna

    if sampler not in SAMPLERS:
        raise InputError(f"unknown sampler {sampler!r}; use {' or '.join(SAMPLERS)}")
    for name, (low, high) in ranges.items():
        if name not in STEPS:
            raise InputError(f"{name!r} is no continuous variable; those are {', '.join(STEPS)}")
        if not 0 < low <= high:
            raise InputError(f"the range of {name} must rise from above zero, but got {low:g} to {high:g}")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    samplers: dict[str, optuna.samplers.BaseSampler] = {
        "nsga2": optuna.samplers.NSGAIISampler(seed=seed, population_size=POPULATION),
        "tpe": optuna.samplers.TPESampler(seed=seed, multivariate=True),
    }
    chosen = samplers[sampler]
    study = optuna.create_study(directions=["minimize"] * len(OBJECTIVES), sampler=chosen, study_name="designs")
    bases = {design.label(): design for design in grid.designs()}
    for corner in islice(_corners(bases, ranges), trials // 2):
        study.enqueue_trial(corner)
    points: list[Point | Rejected] = []
    for _ in range(trials):
        trial = study.ask()
        machine = str(trial.suggest_categorical("machine", list(bases)))
        changes: dict[str, Any] = {
            name: trial.suggest_float(name, low, _highest(name, low, high), step=STEPS[name])
            for name, (low, high) in ranges.items()
        }
        point = workshop.point(replace(bases[machine], **changes))
        points.append(point)
        if isinstance(point, Point):
            trial.set_constraint("limits", worst_excess(point))
            study.tell(trial, [getattr(point.figures, name) for name in OBJECTIVES])
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
    return tuple(points)


def _corners(
    bases: Mapping[str, Design], ranges: Mapping[str, tuple[float, float]]
) -> Iterator[dict[str, str | float]]:
    """Every machine with each variable at either end: a front spans the box, and samplers seldom visit its corners."""
    for ends in product(*((low, _highest(name, low, high)) for name, (low, high) in ranges.items())):
        for machine in bases:
            yield {"machine": machine, **dict(zip(ranges, ends, strict=True))}


def _highest(name: str, low: float, high: float) -> float:
    """The last step within a range."""
    return low + STEPS[name] * int((high - low) / STEPS[name] + 1e-9)
