"""`--runs`: a user's own runs, from tables of runs, logs with what started them, and folders of trials."""

from __future__ import annotations

import os
import os.path
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from optimizer.base.errors import InputError, InvalidFile
from optimizer.base.files import PIPES
from optimizer.job.job import Job
from optimizer.job.known import RunsSource
from optimizer.job.stack import Stack

if TYPE_CHECKING:
    from optimizer.calibration.runs import Run
    from optimizer.diagnose.measured import Measured
    from optimizer.diagnose.reference import Reference

TABLE, LOG, LAUNCH, TRIALS = "table of runs", "log", "launch", "folder of trials"
ADVICE = (
    "name a table that `optimize read --append` writes, a log and its script (run.log,run.sh), or a folder of trials"
)


@dataclass(frozen=True, kw_only=True)
class OwnFile:
    """One of the files that --runs names."""

    path: str  # of it
    kind: str  # TABLE, LOG, LAUNCH or TRIALS
    data: bytes = field(repr=False)  # what it holds; of a folder what its manifest and logs do


def with_own_runs(job: Job, names: str) -> Job:
    """The job with what the user's own runs say of its figures; as it is where he names none.

    Args:
        job: What is asked about; runs that name no software count as those of its stack.
        names: One path, or several with commas between. A log goes with the scripts and configs that started it, or
            with the answer that it ran.

    Raises:
        InvalidFile: One cannot be read.
        InputError: They do not belong together, or none holds a clean run.
    """
    if not names:
        return job
    stack, own = with_known_runs(job.stack, names, job.cluster.name)
    return replace(job, stack=stack, own_runs=own)


def with_table(job: Job, name: str, data: bytes) -> Job:
    """The job with what a table of runs says of its figures, of which there is its text and a name for messages.

    Raises InvalidFile or InputError as with_own_runs does.
    """
    table = OwnFile(path=name, kind=TABLE, data=data)
    stack, count = _knowing(job.stack, (table,), name, job.cluster.name)
    return replace(job, stack=stack, own_runs=RunsSource(files=name, sha256=_digest((table,)), runs=count))


def with_known_runs(stack: Stack, names: str, cluster: str = "") -> tuple[Stack, RunsSource]:
    """The same for a stack, whose logs were written on a cluster where their launches name no machine."""
    files = own_files(names)
    places = ",".join(each.path if each.path.startswith(PIPES) else os.path.abspath(each.path) for each in files)
    known, count = _knowing(stack, files, names, cluster)
    return known, RunsSource(files=places, sha256=_digest(files), runs=count)


def _digest(files: Sequence[OwnFile]) -> str:
    return sha256(b"\0".join(sha256(each.data).digest() for each in files)).hexdigest()


def as_stated(job: Job, names: str) -> Job:
    """The job of a saved answer with the runs that it was made with, from where it names them or the user does.

    Raises InputError where they are other ones by now.
    """
    stated = job.own_runs
    known = with_own_runs(replace(job, own_runs=None), names or (stated.files if stated else ""))
    if stated and known.own_runs and known.own_runs.sha256 != stated.sha256:
        raise InputError(
            f"--runs {known.own_runs.files} is not what the answer was made with ({stated.files}, SHA-256 "
            f"{stated.sha256[:12]}...), but {known.own_runs.sha256[:12]}...; give that file, or plan anew"
        )
    return replace(known, own_runs=stated or known.own_runs)


def own_files(names: str) -> tuple[OwnFile, ...]:
    """The files that a text names, read; raises InvalidFile or InputError for one that cannot be."""
    return tuple(_file(path) for path in _paths(names))


def _paths(names: str) -> list[str]:
    """The paths in a text: one whose name has a comma is one path."""
    if os.path.exists(names):
        return [names]
    return [part.strip() for part in names.split(",") if part.strip()] or [names]


def _file(path: str) -> OwnFile:
    from optimizer.calibration.runs import table_bytes

    if os.path.isdir(path):
        from optimizer.trial.launch import LOG as OUTPUT
        from optimizer.trial.launch import MANIFEST

        inside = [Path(path, MANIFEST), *sorted(Path(path).glob(f"*/{OUTPUT}"))]
        if not inside[0].exists():
            raise InputError(f"--runs {path}: a folder without {MANIFEST}; {ADVICE}")
        return OwnFile(path=path, kind=TRIALS, data=b"\0".join(map(table_bytes, inside)))
    data = table_bytes(path)
    start = data[:4096].partition(b"\n")[0].replace(b'"', b"")
    if path.endswith(".csv") or path.startswith(PIPES) or b"gpus" in [cell.strip() for cell in start.split(b",")]:
        return OwnFile(path=path, kind=TABLE, data=data)
    return OwnFile(path=path, kind=LOG if _is_log(path) else LAUNCH, data=data)


def _is_log(path: str) -> bool:
    from optimizer.diagnose.log import read_log

    try:
        return bool(read_log(path))
    except InvalidFile:
        return False


@lru_cache(maxsize=8)
def _knowing(stack: Stack, files: tuple[OwnFile, ...], names: str, cluster: str) -> tuple[Stack, int]:
    """The stack with what these files say, and of how many runs; once for all jobs of a study."""
    from optimizer.calibration.known import knowing, own_rows
    from optimizer.calibration.runs import rows_in

    runs: list[Run] = []
    for each in {each.data: each for each in files if each.kind in (TABLE, TRIALS)}.values():  # none counts twice
        if each.kind == TABLE:
            runs += own_rows(rows_in(each.data, each.path), stack)
        else:
            runs += _trial_runs(each.path)
    for logs, launches in dict.fromkeys(_pairs([each for each in files if each.kind in (LOG, LAUNCH)])):
        runs += own_rows(_logged_rows(logs, launches, cluster), stack)
    clean = [run for run in runs if run.job is not None and not run.doubted and (run.step_time or run.memory)]
    return knowing(stack, runs, f"--runs {names}"), len(clean)


def _pairs(files: Sequence[OwnFile]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Logs and the launches beside them, in either order; raises InputError for one without the other."""
    blocks = [(kind, tuple(each.path for each in some)) for kind, some in groupby(files, lambda each: each.kind)]
    if len(blocks) % 2:
        kind, (path, *_) = blocks[-1]
        raise InputError(
            f"--runs {path}: a {kind} alone; "
            + (f"name what started it too, as in --runs {path},run.sh" if kind == LOG else ADVICE)
        )
    paired = [dict(pair) for pair in zip(blocks[::2], blocks[1::2], strict=True)]
    return [(pair[LOG], pair[LAUNCH]) for pair in paired]


def _logged_rows(logs: Sequence[str], launches: Sequence[str], cluster: str) -> list[dict[str, str]]:
    """What `optimize read LOGS --script LAUNCHES --append` writes of these runs."""
    from optimizer.diagnose.measured import logged_runs, measured
    from optimizer.diagnose.row import row_of

    logged = logged_runs([Path(log) for log in logs])
    ran = _reference(launches, [measured(run, {}) for run in logged], cluster)
    return [row_of(measured(run, ran.sizes), ran.job, ran.plan) for run in logged]


def _reference(launches: Sequence[str], runs: Sequence[Measured], cluster: str) -> Reference:
    """What started the logs: an answer, or scripts and configs, on the job's cluster where they name no machine."""
    from optimizer.answer.reading import read_answer_file
    from optimizer.catalog.hardware import cluster_names
    from optimizer.diagnose.reference import answer_reference, script_reference
    from optimizer.frameworks.files import read_files
    from optimizer.frameworks.read import read_launch

    first = launches[0]
    if len(launches) == 1 and b'"schema_version"' in Path(first).read_bytes()[:4096]:
        return answer_reference(read_answer_file(first), first)
    says = read_launch(read_files(launches)).launch.settings.keys() & {"device", "site", "cluster"}
    return script_reference(launches, {}, runs, "" if says or cluster not in cluster_names() else cluster)


def _trial_runs(folder: str) -> list[Run]:
    """The trials of a folder that trained."""
    from optimizer.calibration.runs import Run
    from optimizer.trial.folder import read_folder
    from optimizer.trial.outcome import outcomes

    trials = read_folder(folder)
    runs = []
    for outcome in outcomes(trials):
        if outcome.seconds is None:
            continue
        job, plan = trials.job, trials.candidates.plans[outcome.index]
        cells = {"micro_batch": str(plan.micro_batch), "global_batch": str(job.global_batch)}
        reserved = None if outcome.memory is None else outcome.memory * job.usable_memory
        runs.append(
            Run(
                id=outcome.name,
                row=cells,
                stack_name=job.stack.name,
                job=job,
                plan=plan,
                step_time=outcome.seconds,
                memory=reserved,
                memory_kind="max reserved" if reserved else "",
            )
        )
    return runs
