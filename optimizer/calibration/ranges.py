"""What the runs behind a stack span: beyond it, predictions are extrapolations."""

from __future__ import annotations

from collections.abc import Iterable

from optimizer.calibration.runs import Run
from optimizer.objectives.step.interval import COORDINATES


def ranges_of(runs: Iterable[Run]) -> dict[str, tuple[float, float]]:
    """Lowest and highest value of each coordinate over the runs, as Stack.ranges holds them."""
    jobs = [run.job for run in runs if run.job]
    if not jobs:
        return {}
    spans = {}
    for name, coordinate in COORDINATES.items():
        values = [coordinate(job) for job in jobs]
        spans[name] = (min(values), max(values))
    return spans


def devices_of(runs: Iterable[Run]) -> tuple[str, ...]:
    """Names of the devices that the runs used, sorted."""
    return tuple(sorted({run.job.cluster.device.name for run in runs if run.job}))
