"""How long a batch will take, from what this store's jobs took, or from a guess that says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from optimizer.sweep.store import PENDING, RUNNING, StoredRow
from optimizer.sweep.task import Task

# Seconds on one core of a 2.x GHz server for a job of up to some thousand GPUs; a guess until the store knows better.
GUESSED = {"dense": 0.08, "mixture of experts": 1.0}


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """`jobs` in all, `answered` and `impossible` ones among them, `seconds` for the rest on `workers` workers.

    `measured` of the jobs stand behind the time; 0 means that it is guessed.
    """

    jobs: int
    answered: int
    impossible: int
    seconds: float
    workers: int
    measured: int


def forecast(tasks: Sequence[Task], rows: Iterable[StoredRow], workers: int) -> Forecast:
    """The outlook for these tasks, given the rows of the store they would go to."""
    known = {row.key: row for row in rows}
    took: dict[str, list[float]] = {}
    for task in tasks:
        row = known.get(task.key)
        if row is not None and row.seconds:
            took.setdefault(kind(task), []).append(row.seconds)
    each = {name: fmean(took[name]) if name in took else guess for name, guess in GUESSED.items()}
    answered = {key for key, row in known.items() if row.status not in (PENDING, RUNNING, "failed")}
    left = [task for task in tasks if task.job is not None and task.key not in answered]
    return Forecast(
        jobs=len(tasks),
        answered=sum(task.key in answered for task in tasks),
        impossible=sum(task.job is None for task in tasks),
        seconds=sum(each[kind(task)] for task in left) / max(1, workers),
        workers=workers,
        measured=sum(map(len, took.values())),
    )


def kind(task: Task) -> str:
    """What a job's time mostly depends on."""
    return "dense" if task.job is None or task.job.model.experts is None else "mixture of experts"
