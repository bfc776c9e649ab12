"""Several files: those of ranks of one run are put together, the others are runs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from optimizer.diagnose.attempts import Record, together
from optimizer.diagnose.log import LoggedRun

APART = 30.0  # s by which ranks print a step one after the other at most, clocks of nodes included
ALIKE = 5e-3  # relative difference of the printed times of a step between ranks
SAME_TIME = 0.05  # the same of files whose steps were printed at the same time


def merged(runs: Sequence[LoggedRun]) -> list[LoggedRun]:
    """The runs, those that ranks of one run logged in different files as one."""
    distinct: list[LoggedRun] = []
    for run in runs:
        place = next((i for i, other in enumerate(distinct) if same_run(other, run)), None)
        if place is None:
            distinct.append(run)
        else:
            distinct[place] = _joined(distinct[place], run)
    return distinct


def same_run(one: LoggedRun, other: LoggedRun) -> bool:
    """Whether two files tell of the same run: the same steps at the same time, or with the same loss and duration."""
    if one.program is not other.program or not one.records or not other.records or set(one.files) & set(other.files):
        return False
    mine, its = ({record.step: record for record in run.records} for run in (one, other))
    shared = [(mine[step], its[step]) for step in mine.keys() & its.keys()]
    if 2 * len(shared) < min(len(mine), len(its)):
        return False
    clocks = [abs(a.time - b.time) for a, b in shared if a.time is not None and b.time is not None]
    if clocks:
        return median(clocks) <= APART and _like(shared, SAME_TIME)
    return all(a.reading.loss == b.reading.loss for a, b in shared) and _like(shared, ALIKE)


def _like(shared: Sequence[tuple[Record, Record]], within: float) -> bool:
    """Whether every step took as long in both: runs differ from step to step, ranks of one wait for each other."""
    pairs = [
        (a.reading.seconds or a.reading.tokens_rate, b.reading.seconds or b.reading.tokens_rate) for a, b in shared
    ]
    ratios = [abs(a / b - 1) for a, b in pairs if a and b]
    return bool(ratios) and median(ratios) <= within


def _joined(one: LoggedRun, other: LoggedRun) -> LoggedRun:
    return replace(
        one,
        files=(*one.files, *other.files),
        stream=together([one.stream, other.stream]),
        failure=one.failure or other.failure,
        ranks=one.ranks + other.ranks,
        remarks=tuple(dict.fromkeys((*one.remarks, *other.remarks))),
    )
