"""Which measured runs belong together: by plan, by source, and what a fit leaves out together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from optimizer.calibration.rows.cluster import broken_network
from optimizer.calibration.rows.notes import clean_columns
from optimizer.calibration.runs import Run
from optimizer.job.known import YOURS
from optimizer.objectives.step.interval import COORDINATES

Item = TypeVar("Item")
HOST = "github:"
FEWEST_GROUPS, MOST_FOLDS, SMALLEST_PART = 3, 10, 5


def source_name(run: Run) -> str:
    """Where a run was published, without table and revision.

    >>> source_name(Run(id="1", row={"source": "NVIDIA/NeMo:docs/performance.md@8cf"}, stack_name="nemo-2024"))
    'NVIDIA/NeMo'
    >>> source_name(Run(id="2", row={"source": "github:yanring/Megatron-MoE-ModelZoo@e86"}, stack_name="megatron-core"))
    'yanring/Megatron-MoE-ModelZoo'
    """
    source = run.row.get("source", "")
    if source.startswith(HOST):
        return re.split(r"@|/issues/|/pull/", source.removeprefix(HOST))[0].strip() or "not named"
    return source.split(":")[0].split(" (")[0].strip() or "not named"


def site_name(run: Run) -> str:
    """Whose machines a run was on: those of its source, else the user's."""
    return source_name(run) if run.row.get("source") else YOURS


def model_name(run: Run) -> str:
    """The model as the file calls it."""
    return run.row.get("model", "") or "not named"


def device_name(run: Run) -> str:
    """The device as presets call it, else as the file does."""
    return run.job.cluster.device.name if run.job else run.row.get("gpu", "")


def method(run: Run) -> str:
    """What was trained, of optimizer.job.method.METHODS; as the file says it where the run cannot be priced."""
    return run.job.method.name if run.job else run.row.get("method", "")


# What runs are told apart by.
BY: Mapping[str, Callable[[Run], str]] = {
    "source": source_name,
    "stack": lambda run: run.stack_name,
    "device": device_name,
    "model": model_name,
    "method": method,
}


def plan_group(run: Run) -> str:
    """Runs that differ only in the plan share this key.

    Another attention kernel is another software, and a network that a run's own benchmark shows to be broken (see
    optimizer.calibration.rows.cluster) another machine.
    """
    network = [f"{tier.bandwidth / 1e9:.3g}" for tier in run.job.cluster.tiers[1:]] if run.job else []
    broken = "broken network" * on_broken_network(run)
    return "|".join((run.group, run.row.get("attention_kernel", ""), *network, broken))


def on_broken_network(run: Run) -> bool:
    """Whether the benchmark that a run made of its own network shows it to be broken."""
    return broken_network(clean_columns(run.row, []))


def gathered(items: Iterable[Item], key: Callable[[Item], object]) -> dict[object, list[Item]]:
    """Items by key, both in the order of first appearance.

    >>> gathered([1, 2, 3], lambda number: number % 2)
    {1: [1, 3], 0: [2]}
    """
    groups: dict[object, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def places_by(runs: Sequence[Run], key: Callable[[Run], object]) -> dict[object, list[int]]:
    """Positions of the runs by key."""
    return gathered(range(len(runs)), lambda place: key(runs[place]))


def folds(runs: Sequence[Run]) -> list[NDArray[np.intp]]:
    """Parts to leave out of a fit, as positions: groups of like runs, then whole devices, sources and far ends.

    Like runs are those of one model and device of one source; where there are too few such groups, also of one
    sequence length and GPU count. At most MOST_FOLDS parts of whole groups cover every run once; the far ends are
    the runs at the lowest and highest value of each coordinate.
    """
    parts = _spread(_of_like_runs(runs))
    whole = [*places_by(runs, device_name).values(), *places_by(runs, source_name).values(), *_far_ends(runs)]
    large = [part for part in whole if SMALLEST_PART <= len(part) <= len(runs) / 2]
    distinct = dict.fromkeys(tuple(sorted(part)) for part in [*parts, *large] if len(part) < len(runs))
    return [np.array(part, dtype=np.intp) for part in distinct]


def like_runs(runs: Sequence[Run]) -> NDArray[np.intp]:
    """The number of each run's group of like ones, as `folds` tells them before it deals them into parts."""
    numbers = np.zeros(len(runs), dtype=np.intp)
    for number, places in enumerate(_of_like_runs(runs)):
        numbers[places] = number
    return numbers


def _of_like_runs(runs: Sequence[Run]) -> list[list[int]]:
    """The places of each group of like runs."""

    def kin(run: Run) -> tuple[object, ...]:
        return source_name(run), run.job.model if run.job else model_name(run), device_name(run)

    def kin_of_size(run: Run) -> tuple[object, ...]:
        return (*kin(run), *((run.job.seq_len, run.job.gpus, run.row.get("attention_kernel", "")) if run.job else ()))

    groups = places_by(runs, kin)
    return list((groups if len(groups) >= FEWEST_GROUPS else places_by(runs, kin_of_size)).values())


def _spread(groups: list[list[int]]) -> list[list[int]]:
    """Whole groups dealt into at most MOST_FOLDS parts, each to the smallest part so far, largest group first."""
    if len(groups) <= MOST_FOLDS:
        return groups
    parts: list[list[int]] = [[] for _ in range(MOST_FOLDS)]
    for group in sorted(groups, key=len, reverse=True):
        min(parts, key=len).extend(group)
    return parts


def _far_ends(runs: Sequence[Run]) -> list[list[int]]:
    ends = []
    for coordinate in COORDINATES.values():
        values = np.array([coordinate(run.job) for run in runs if run.job])
        if len(values) == len(runs) and values.min() < values.max():
            ends += [np.flatnonzero(values == end).tolist() for end in (values.min(), values.max())]
    return ends
